// Make and change elements. Data becomes text and attributes only, never markup.

/** Return a new element. `onclick` and the like are listeners; false and null leave one out. */
export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child != null && child !== false));
  return made;
}

/** Set the text of an element, and leave it alone if it has this text. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Return a pill with the state of a job in the colour of its meaning. */
export function statePill(row, text) {
  return h("span", { class: `pill ${row.meaning || row.state.replaceAll(" ", "-")}` }, text);
}

/** Return a thin bar that is filled by a share, 0 to 1. */
export function bar(share, kind = "") {
  const fill = h("i");
  fill.style.width = `${100 * share}%`;
  return h("span", { class: `bar ${kind}` }, fill);
}

/** Show the texts of `data-tip` beside the pointer, or below the element that has the focus. */
export function watchTips(tip) {
  const show = (event) => {
    const found = event.target.closest?.("[data-tip]");
    tip.hidden = !found;
    if (!found) return;
    setText(tip, found.dataset.tip);
    const box = found.getBoundingClientRect(), size = tip.getBoundingClientRect();
    const x = event.type === "focusin" ? box.left : event.clientX + 12;
    const y = event.type === "focusin" ? box.bottom + 6 : event.clientY + 16;
    tip.style.left = `${Math.max(8, Math.min(x, innerWidth - size.width - 8))}px`;
    tip.style.top = `${y + size.height > innerHeight - 8 ? y - size.height - 28 : y}px`;
  };
  for (const kind of ["pointermove", "focusin"]) document.addEventListener(kind, show);
  for (const kind of ["focusout", "scroll"]) {
    document.addEventListener(kind, () => { tip.hidden = true; }, true);
  }
}
