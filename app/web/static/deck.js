// Choose the page by the address, and give it what the server sends.

import { h, setText, watchTips } from "./dom.js";
import { DevicePage, JobPage } from "./details.js";
import { Overview } from "./overview.js";
import { follow, get, takeToken, WrongToken } from "./stream.js";

const main = document.getElementById("main"), link = document.getElementById("link");
let texts = null, newest = null, shown = null, unfollow = null;

function onLink(state) {
  if (state === "token") return askForToken();
  link.className = `link ${state}`;
  setText(link, { lost: texts.lost, live: texts.live }[state] ?? "");
}

/** Show the page that the address names. */
function route() {
  if (!newest) return;
  shown?.stop();
  const [, kind, name] = location.hash.slice(1).split("/");
  if (kind === "job" && /^\d+$/.test(name)) shown = new JobPage(Number(name), texts, newest, onLink);
  else if (kind === "device") shown = new DevicePage(decodeURIComponent(name), texts, newest);
  else shown = new Overview(texts);
  main.replaceChildren(shown.element);
  shown.show(newest);
  scrollTo(0, 0);
}

function take(name, value) {
  if (name === "problem") {
    link.className = "link lost";
    setText(link, value);
    return;
  }
  onLink("live");
  document.title = `${value.headline} · GPU Deck`;
  newest = value;
  if (shown) shown.show(value);
  else route();
}

/** Follow the server while somebody sees the page, so that idle GPUs can sleep. */
function watch() {
  unfollow?.();
  unfollow = document.hidden ? null : follow("/api/live", take, onLink);
}

function askForToken() {
  unfollow?.();
  shown?.stop();
  shown = null;
  const field = h("input", { type: "password", name: "token", "aria-label": "Token", autocomplete: "off" });
  const open = (event) => {
    event.preventDefault();
    location.hash = field.value.trim().split("#").pop();
    location.reload();
  };
  main.replaceChildren(h("form", { class: "card token", onsubmit: open }, h("h1", {}, "GPU Deck"),
    h("p", {}, "Open the link that “gpudeck web” prints, or paste it here:"), field, h("button", {}, "Open")));
}

async function begin() {
  watchTips(document.getElementById("tip"));
  if (!takeToken()) return askForToken();
  while (!texts) {
    try {
      texts = await get("/api/captions");
    } catch (error) {
      if (error instanceof WrongToken) return askForToken();
      link.className = "link lost";
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
  document.documentElement.lang = texts.language;
  addEventListener("hashchange", () => (takeToken(), route()));
  document.addEventListener("visibilitychange", watch);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", route);
  watch();
}

begin();
