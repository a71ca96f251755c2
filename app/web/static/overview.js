// The first page: what is free, the devices with their last minutes, the queue and its jobs.

import { bar, h, setText, statePill } from "./dom.js";
import { Spark, seriesColor } from "./charts.js";
import { get } from "./stream.js";
import { timeline } from "./timeline.js";

const HISTORY_S = 600, POINTS = 150;
const FEW = 8; // ended jobs that are shown at first

/** Shows the newest message of the server. */
export class Overview {
  constructor(texts) {
    this.texts = texts;
    this.tiles = new Map();
    this.all = false;
    this.shown = {};
    this.hero = h("h1");
    this.badge = h("span", { class: "badge" }, "REPLAY");
    this.next = h("p", { class: "next" });
    this.counts = h("p", { class: "counts" });
    this.notices = h("div", { class: "notices" });
    this.grid = h("section", { class: "tiles", "aria-label": texts.devices });
    this.queue = h("div");
    this.jobs = h("div", { class: "jobs" });
    this.bookings = h("div");
    const card = (title, content, kind = "") => h("section", { class: `card ${kind}` }, h("h2", {}, title), content);
    this.element = h("div", { class: "overview" },
      h("section", { class: "hero" }, h("div", {}, h("div", { class: "line" }, this.hero, this.badge), this.next), this.counts),
      this.notices, this.grid, card(texts.queue, this.queue),
      h("div", { class: "columns" }, card(texts.jobs, this.jobs), card(texts.bookings, this.bookings)));
  }

  show(page) {
    const texts = this.texts;
    setText(this.hero, page.headline);
    this.badge.hidden = !page.replay;
    setText(this.next, page.next);
    this.#changed("counts", page.counts, () =>
      this.counts.replaceChildren(...page.counts.map((text) => h("span", {}, text))));
    this.#changed("notices", page.notices, () => this.notices.replaceChildren(
      ...page.notices.map(([text, alert]) => h("p", { class: alert ? "alert" : "note" }, text))));
    this.#showTiles(page);
    this.#changed("timeline", [page.timeline, innerWidth], () =>
      this.queue.replaceChildren(timeline(page.timeline, page.zone, texts)));
    this.#changed("jobs", [page.running, page.waiting, page.ended, this.all], () => this.#showJobs(page));
    this.#changed("bookings", page.bookings, () => this.#showBookings(page));
  }

  stop() { for (const tile of this.tiles.values()) tile.stop(); }

  /** Call `draw` only where the data are not those of the last time. */
  #changed(name, data, draw) {
    const text = JSON.stringify(data);
    if (this.shown[name] === text) return;
    this.shown[name] = text;
    draw();
  }

  #showTiles(page) {
    const here = new Set(page.devices.map((device) => device.tile.device));
    for (const [id, tile] of this.tiles) {
      if (!here.has(id)) { tile.stop(); tile.element.remove(); this.tiles.delete(id); }
    }
    const alike = new Set(page.devices.map((device) => device.tile.name)).size < 2;
    for (const device of page.devices) {
      let tile = this.tiles.get(device.tile.device);
      if (!tile) {
        tile = new Tile(device, this.texts);
        this.tiles.set(device.tile.device, tile);
        this.grid.append(tile.element);
        tile.begin(page.time);
      }
      tile.show(device, page.time, alike);
    }
  }

  #showJobs(page) {
    const groups = [[this.texts.running, page.running], [this.texts.waiting, page.waiting], [this.texts.ended, page.ended]];
    const few = (jobs) => jobs === page.ended && !this.all ? jobs.slice(0, FEW) : jobs;
    const showAll = () => { this.all = true; this.show(page); };
    const found = groups.filter(([, jobs]) => jobs.length).map(([title, jobs]) =>
      h("div", { class: "group" }, h("h3", {}, title, h("span", {}, String(jobs.length))), few(jobs).map(jobLine),
        few(jobs).length < jobs.length && h("button", { class: "all", onclick: showAll }, `${this.texts.show_all} (${jobs.length})`),
        jobs === page.waiting && page.more && h("p", { class: "more" }, page.more)));
    this.jobs.replaceChildren(...(found.length ? found : [h("p", { class: "empty" }, this.texts.no_jobs)]));
  }

  #showBookings(page) {
    const found = page.bookings.map((row) => {
      const [, gpus, holder, begin, end, phase] = row.cells;
      return h("div", { class: `booking ${row.phase.toLowerCase()}` },
        h("b", {}, gpus), h("span", {}, holder), h("small", {}, `${begin} – ${end}`), h("em", {}, phase));
    });
    this.bookings.replaceChildren(...(found.length ? found : [h("p", { class: "empty" }, this.texts.no_bookings)]));
  }
}

function jobLine(job) {
  const { row } = job;
  return h("a", { class: "job", href: `#/job/${row.id}` },
    h("span", { class: "number" }, String(row.id)),
    h("span", { class: "title" }, h("b", {}, row.name), h("small", {}, row.doing)),
    h("span", { class: "place" }, row.device, job.user && h("small", {}, job.user)),
    h("span", { class: "time" }, row.duration, h("small", {}, row.eta ? `→ ${row.eta}` : job.when)),
    statePill(row, job.state),
    row.share != null && bar(row.share));
}

/** One device with its values and its last ten minutes. */
class Tile {
  constructor(device, texts) {
    const { tile } = device;
    this.texts = texts;
    this.id = tile.device;
    this.name = h("small", {}, tile.name);
    this.who = h("span", { class: "who" });
    this.ring = h("span", { class: "ring" });
    this.figure = h("b");
    this.figureText = h("small");
    this.memory = h("b");
    this.memoryFill = h("i");
    this.spark = h("div", { class: "spark" });
    this.rest = h("div", { class: "rest" });
    this.element = h("a", { class: "tile", href: `#/device/${encodeURIComponent(this.id)}` },
      h("div", { class: "head" }, h("span", { class: "title" }, h("b", {}, tile.title), this.name), this.ring),
      this.who,
      h("div", { class: "figures" },
        h("span", {}, this.figure, this.figureText),
        h("span", { class: "right" }, this.memory, h("small", {}, texts.memory))),
      this.spark, h("span", { class: "bar memory" }, this.memoryFill), this.rest);
    this.times = [];
    this.values = [];
  }

  /** Draw the last minutes, which the server remembers. */
  async begin(now) {
    this.plot = new Spark(this.spark, seriesColor(0), 100);
    try {
      const found = await get(`/api/history?device=${encodeURIComponent(this.id)}&since=${now - HISTORY_S}&until=${now}&points=${POINTS}`);
      this.times = [...found.times, ...this.times];
      this.values = [...found.columns.util ?? found.times.map(() => null), ...this.values];
    } catch { /* the readings that come from now on are drawn */ }
  }

  /** alike: all devices have the same name, which the title says. */
  show(device, now, alike) {
    this.name.hidden = alike;
    this.who.hidden = device.tile.replay;
    const { tile } = device, [util, memory, ...rest] = tile.metrics;
    this.element.className = `tile ${tile.usage.replaceAll(" ", "-")} ${device.free ? "free" : ""} ${device.meaning}`;
    setText(this.who, device.free ? this.texts.free : tile.holder);
    this.who.dataset.tip = tile.holder_tooltip;
    setText(this.figure, util.text);
    setText(this.figureText, util.caption);
    setText(this.memory, memory.text);
    this.memoryFill.style.width = `${100 * (memory.share ?? 0)}%`;
    const shown = rest.filter((metric) => metric.text !== "–");
    this.rest.replaceChildren(...shown.map((metric) =>
      h("span", { class: metric.meaning, "data-tip": `${metric.caption}: ${metric.tooltip}` }, metric.text)));
    const share = device.job?.share;
    this.ring.hidden = share == null;
    if (share != null) {
      this.ring.style.setProperty("--share", String(share));
      this.ring.dataset.tip = `${Math.round(100 * share)} %${device.job.eta ? ` → ${device.job.eta}` : ""}`;
      setText(this.ring, String(Math.round(100 * share)));
    }
    if (!this.times.length || now > this.times.at(-1)) {
      this.times.push(now);
      this.values.push(device.values.util);
    }
    const first = this.times.findIndex((time) => time >= now - HISTORY_S);
    this.times.splice(0, first);
    this.values.splice(0, first);
    this.plot?.show(this.times, this.values);
  }

  stop() { this.plot?.stop(); }
}
