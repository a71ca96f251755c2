// The pages of one job and of one device.

import { bar, h, setText, statePill } from "./dom.js";
import { Chart, seriesColor } from "./charts.js";
import { follow, get } from "./stream.js";

const GIB = 2 ** 30, POINTS = 400, USAGE_S = 3, MOST_LOG = 400_000;
const MEASURES = [
  ["util", "utilisation", "%", 1, 100], ["mem_used", "memory", "GiB", GIB, null],
  ["power", "power", "W", 1, null], ["temp", "temperature", "°C", 1, null],
];

const back = (texts) => h("a", { class: "back", href: "#/" }, `← ${texts.back}`);

/** Draws the measures of devices between two times. */
class UsageCharts {
  constructor(texts, zone, height) {
    this.texts = texts;
    this.zone = zone;
    this.height = height;
    this.charts = [];
    this.element = h("div", { class: "charts" });
  }

  /** devices: [[id, label]]; times in seconds since the epoch. */
  async show(devices, since, until) {
    const read = devices.map(([id]) =>
      get(`/api/history?device=${encodeURIComponent(id)}&since=${since}&until=${until}&points=${POINTS}`).catch(() => null));
    const found = (await Promise.all(read)).map((one) => one ?? { times: [], columns: {} });
    if (!this.charts.length) this.#make(devices, found);
    for (const [chart, field, scale] of this.charts) {
      const parts = found.map(({ times, columns }) =>
        [times, (columns[field] ?? times.map(() => null)).map((value) => value == null ? null : value / scale)]);
      const [x, ...curves] = parts.length === 1 ? parts[0] : uPlot.join(parts);
      chart.show(x, curves);
    }
  }

  #make(devices, found) {
    const curves = devices.map(([, label], i) => ({ label, color: seriesColor(i) }));
    for (const [field, name, unit, scale, top] of MEASURES) {
      if (!found.some(({ columns }) => columns[field]?.some((value) => value != null))) continue;
      const total = field === "mem_used" && found[0].columns.mem_total?.findLast((value) => value != null);
      const chart = new Chart({
        title: this.texts[name], unit, curves, top: total ? total / GIB : top, zone: this.zone, height: this.height,
      });
      this.charts.push([chart, field, scale]);
      this.element.append(chart.card);
    }
  }

  stop() { for (const [chart] of this.charts) chart.stop(); }
}

/** The page of one job: its facts, what it prints, the use of its devices, and its log. */
export class JobPage {
  constructor(number, texts, page, onLink) {
    this.texts = texts;
    this.now = page.time;
    this.usage = new UsageCharts(texts, page.zone);
    this.printed = new Map();
    this.title = h("h1", {}, `${number}`);
    this.state = h("span");
    this.doing = h("p", { class: "next" });
    this.progress = h("div");
    this.facts = h("dl");
    this.events = h("ol", { class: "events" });
    this.curves = h("div", { class: "charts" });
    this.log = h("pre", { class: "log", tabindex: "0", "aria-label": texts.log }, h("span", { class: "empty" }, texts.no_output));
    const card = (title, content) => h("section", { class: "card" }, h("h2", {}, title), content);
    this.verdicts = h("ul", { class: "verdicts" });
    this.verdictCard = card(texts.verdicts, this.verdicts);
    this.printedCard = card(texts.printed, this.curves);
    this.usageCard = card(texts.usage, this.usage.element);
    this.verdictCard.hidden = this.printedCard.hidden = this.usageCard.hidden = true;
    this.element = h("div", { class: "details" }, back(texts),
      h("section", { class: "hero" }, h("div", {}, this.title, this.doing), this.state), this.progress,
      h("div", { class: "columns" },
        h("div", { class: "stack" }, this.printedCard, this.usageCard, card(texts.log, this.log)),
        h("div", { class: "stack" }, this.verdictCard, card(texts.details, this.facts), card(texts.history, this.events))));
    this.unfollow = follow(`/api/jobs/${number}`, (name, value) => this.#take(name, value), onLink);
  }

  show(page) {
    this.now = page.time;
    this.#drawUsage(false);
  }

  stop() {
    this.unfollow();
    this.usage.stop();
    for (const chart of this.printed.values()) chart.stop();
  }

  #take(name, value) {
    if (name === "problem") setText(this.doing, value);
    if (name === "job") this.#showJob(value);
    if (name === "log") this.#append(value);
    if (name === "curves") this.#showCurves(value);
    if (name === "verdicts") this.#showVerdicts(value);
  }

  #showJob(job) {
    const { facts } = job;
    setText(this.title, facts.title);
    setText(this.doing, facts.doing.toLowerCase() === job.state.toLowerCase() ? "" : facts.doing);
    this.state.replaceChildren(statePill(facts, job.state));
    this.progress.replaceChildren(...(facts.share == null ? [] : [bar(facts.share)]));
    this.facts.replaceChildren(...facts.facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
    this.events.replaceChildren(...job.events.map(([time, what, text]) =>
      h("li", {}, h("time", {}, time), h("b", {}, what), text && h("span", {}, text))));
    this.job = job;
    this.#drawUsage(job.ended != null);
  }

  /** Draw the use of its devices; while the job runs, every few seconds. */
  #drawUsage(last) {
    const { job } = this;
    if (job?.started == null || !job.devices.length) return;
    if (!last && (job.ended != null || this.now - this.drawn < USAGE_S)) return;
    this.drawn = this.now;
    this.usageCard.hidden = false;
    this.usage.show(job.devices, job.started, job.ended ?? this.now);
  }

  #append(text) {
    const follows = this.log.scrollTop + this.log.clientHeight >= this.log.scrollHeight - 24;
    this.log.querySelector(".empty")?.remove();
    this.log.append(document.createTextNode(text));
    while (this.log.textContent.length > MOST_LOG && this.log.childNodes.length > 1) this.log.firstChild.remove();
    if (follows) this.log.scrollTop = this.log.scrollHeight;
  }

  #showVerdicts(verdicts) {
    this.verdictCard.hidden = !verdicts.length;
    this.verdicts.replaceChildren(...verdicts.map(([certainty, text]) => h("li", {}, h("small", {}, certainty), text)));
  }

  #showCurves(curves) {
    const names = Object.keys(curves);
    this.printedCard.hidden = !names.length;
    for (const name of names) {
      if (!this.printed.has(name)) {
        const chart = new Chart({ title: name, curves: [{ label: name, color: seriesColor(0) }] });
        this.printed.set(name, chart);
        this.curves.append(chart.card);
      }
      this.printed.get(name).show(curves[name].steps, [curves[name].values]);
    }
  }
}

const SPANS = [["minutes_10", 600], ["hour", 3600], ["day", 86400], ["week", 604800]];

/** The page of one device: its history over a span of the user's choice. */
export class DevicePage {
  constructor(id, texts, page) {
    this.id = id;
    this.texts = texts;
    this.zone = page.zone;
    this.span = 600;
    this.usage = null;
    this.title = h("h1");
    this.who = h("p", { class: "next" });
    this.buttons = SPANS.map(([name, span]) =>
      h("button", { type: "button", onclick: () => this.#choose(span) }, texts[name]));
    this.place = h("div");
    this.element = h("div", { class: "details" }, back(texts),
      h("section", { class: "hero" }, h("div", {}, this.title, this.who), h("div", { class: "spans" }, this.buttons)),
      h("section", { class: "card wide" }, this.place));
  }

  show(page) {
    const device = page.devices.find((one) => one.tile.device === this.id);
    if (device) {
      setText(this.title, `${device.tile.title} · ${device.tile.name}`);
      setText(this.who, device.free ? this.texts.free : device.tile.holder);
    }
    this.now = page.time;
    if (!this.usage) this.#choose(this.span);
    else if (page.time - this.drawn >= Math.max(this.span / POINTS, 2)) this.#draw();
  }

  #choose(span) {
    this.span = span;
    this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(SPANS[i][1] === span)));
    this.usage?.stop();
    this.usage = new UsageCharts(this.texts, this.zone, 220);
    this.place.replaceChildren(this.usage.element);
    this.#draw();
  }

  #draw() {
    this.drawn = this.now;
    this.usage.show([[this.id, ""]], this.now - this.span, this.now);
  }

  stop() { this.usage?.stop(); }
}
