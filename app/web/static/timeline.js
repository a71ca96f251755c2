// The queue on a time axis: a row for each device, with what ran, runs, waits and is reserved.

import { h } from "./dom.js";
import { zoned } from "./charts.js";

const STEPS = [300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const LANE = 26;

/** Return the timeline as an element. */
export function timeline(data, zone, texts) {
  const { start, now, end } = data, span = end - start;
  const at = (time) => 100 * Math.min(Math.max((time - start) / span, 0), 1);
  const near = span * (innerWidth < 640 ? 0.12 : 0.04);
  const clear = ticks(start, end, zone).map(([time, text]) => [time, time < now + near / 2 && time > now - near ? "" : text]);
  const marks = clear.map(([time, text]) => placed(h("span", { class: "tick" }, text), at(time)));
  const line = placed(h("span", { class: "now" }, h("em", {}, texts.now)), at(now));
  const rows = data.rows.map((row) => {
    const bars = row.bars.map((bar) => drawn(bar, data, at));
    const field = h("div", { class: "field" }, bars);
    field.style.height = `${row.lanes * LANE + 6}px`;
    return h("div", { class: "row" }, h("span", { class: "name" }, row.title), field);
  });
  const body = h("div", { class: "rows" }, h("div", { class: "ticks" }, marks, line), rows);
  const unplaced = data.unplaced.map((one) =>
    h("a", { class: "chip", href: `#/job/${one.key}`, "data-tip": one.why }, one.label));
  return h("div", { class: "timeline" }, body,
    unplaced.length > 0 && h("div", { class: "unplaced" }, h("span", {}, texts.unplaced), unplaced.slice(0, 12)));
}

function placed(element, left) {
  element.style.left = `${left}%`;
  return element;
}

function drawn(bar, { now, end }, at) {
  const until = bar.end ?? (bar.kind === "waiting" ? end : now + (end - now) * 0.25);
  const left = at(bar.start), kind = `${bar.kind} ${bar.meaning} ${bar.end == null ? "open" : ""}`;
  const booked = bar.kind === "booked";
  const made = h(booked ? "div" : "a", {
    class: `span ${kind}`, "data-tip": bar.tooltip, "aria-label": bar.tooltip,
    href: booked ? null : `#/job/${bar.key}`,
  });
  if (bar.share != null) {
    const done = h("i");
    done.style.width = `${100 * bar.share}%`;
    made.append(done);
  }
  made.append(h("span", {}, bar.label));
  made.style.left = `${left}%`;
  made.style.width = `${Math.max(at(until) - left, 0.3)}%`;
  if (booked) made.style.paddingLeft = `${at(bar.text_at) - left}%`;
  else made.style.top = `${bar.lane * LANE + 4}px`;
  return made;
}

function ticks(start, end, zone) {
  const most = innerWidth < 640 ? 4 : 9, step = STEPS.find((one) => (end - start) / one <= most) ?? 86400;
  const found = [], date = zoned(zone), two = (number) => String(number).padStart(2, "0");
  for (let time = Math.ceil((start + zone) / step) * step - zone; time < end; time += step) {
    const then = date(time);
    found.push([time, `${two(then.getHours())}:${two(then.getMinutes())}`]);
  }
  return found;
}
