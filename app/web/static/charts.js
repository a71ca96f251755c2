// Draw curves by uPlot, in the colours of the page.

import { h, setText } from "./dom.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Return a number with about three digits, as the language of the page writes it. */
export function digits(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return Number(value.toPrecision(3)).toExponential();
  const most = Math.max(3, Math.ceil(Math.log10(size + 1)));
  return value.toLocaleString(document.documentElement.lang, { maximumSignificantDigits: most, useGrouping: false });
}

/** Return a colour for the curve of this number. */
export const seriesColor = (number) => css(`--series-${number % 8}`);

/** Return a moment as a Date whose local fields are those of the server's time zone. */
export function zoned(zone) {
  return (seconds) => {
    const local = new Date(seconds * 1000);
    return new Date(local.getTime() + (zone + local.getTimezoneOffset() * 60) * 1000);
  };
}

/** A small curve without axes, as a tile has it. */
export class Spark {
  constructor(place, color, top) {
    this.place = place;
    const scale = { x: { time: false }, y: { range: (_, low, high) => [0, top ?? Math.max(high, 1)] } };
    this.plot = new uPlot({
      width: place.clientWidth || 240, height: 44, padding: [2, 0, 0, 0], scales: scale,
      cursor: { show: false }, legend: { show: false }, axes: [{ show: false }, { show: false }],
      series: [{}, { stroke: color, width: 1.5, fill: `${color}22`, points: { show: false } }],
    }, [[], []], place);
    this.sizes = new ResizeObserver(() => this.plot.setSize({ width: place.clientWidth, height: 44 }));
    this.sizes.observe(place);
  }

  show(times, values) { this.plot.setData([times, values]); }

  stop() { this.sizes.disconnect(); this.plot.destroy(); }
}

/** A chart in a card: its title, the values under the pointer or the newest ones, and curves. */
export class Chart {
  /**
   * curves: [{label, color}]; unit: text after the values; top: the highest value, if it is known;
   * zone: the server's time zone in seconds if the axis is time; height in pixels.
   */
  constructor({ title, unit = "", curves, top, zone, height = 132 }) {
    this.unit = unit;
    this.values = curves.map(() => h("b"));
    const shown = curves.map((curve, i) => {
      const key = h("span", { class: "key" });
      key.style.background = curve.color;
      return h("span", { class: "value" }, curves.length > 1 && key, curves.length > 1 && curve.label, this.values[i]);
    });
    this.place = h("div", { class: "plot" });
    this.card = h("figure", { class: "chart" }, h("figcaption", {}, h("span", {}, title), shown), this.place);
    const muted = css("--muted"), grid = css("--grid"), font = "11px Deck, sans-serif";
    const axis = { stroke: muted, font, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
    this.plot = new uPlot({
      width: 320, height, padding: [8, 8, 0, 0], legend: { show: false },
      tzDate: zone == null ? undefined : zoned(zone),
      scales: {
        x: { time: zone != null },
        y: { range: (_, low, high) => top ? [0, top] : uPlot.rangeNum(low ?? 0, high ?? 1, 0.1, true) },
      },
      cursor: { points: { size: 6 }, drag: { x: true, y: false } },
      axes: [{ ...axis, size: 26, values: zone == null ? undefined : (_, at) => hours(at, zone), space: 70 },
             { ...axis, size: 46, values: (_, at) => at.map(digits) }],
      series: [{}, ...curves.map((curve) => ({
        stroke: curve.color, width: 1.5, points: { show: false },
        fill: curves.length === 1 ? `${curve.color}18` : undefined,
      }))],
      hooks: { setCursor: [() => this.#tell()] },
    }, [[], ...curves.map(() => [])], this.place);
    this.sizes = new ResizeObserver(() => {
      if (this.place.clientWidth) this.plot.setSize({ width: this.place.clientWidth, height });
    });
    this.sizes.observe(this.place);
  }

  /** Draw curves, keeping what the user zoomed to. */
  show(x, curves) {
    const before = this.plot.data[0], zoomed = before.length > 1 &&
      (this.plot.scales.x.min > before[0] || this.plot.scales.x.max < before.at(-1));
    this.plot.setData([x, ...curves], !zoomed);
    if (zoomed) this.plot.redraw();
    this.#tell();
  }

  #tell() {
    const { data, cursor } = this.plot;
    this.values.forEach((value, i) => {
      const curve = data[i + 1], at = cursor.idx ?? curve.findLastIndex((one) => one != null);
      const number = curve[at];
      setText(value, number == null ? "–" : `${digits(number)}${this.unit && ` ${this.unit}`}`);
    });
  }

  stop() { this.sizes.disconnect(); this.plot.destroy(); }
}

/** Return the clock of each moment, with the day where it is not that of the one before. */
function hours(times, zone) {
  const at = zoned(zone), two = (number) => String(number).padStart(2, "0");
  const long = times.length > 1 && times[1] - times[0] >= 86400;
  return times.map((time, i) => {
    const date = at(time), first = i === 0 ? null : at(times[i - 1]);
    const day = `${two(date.getDate())}.${two(date.getMonth() + 1)}.`;
    if (long) return day;
    const fine = times.length > 1 && times[1] - times[0] < 60;
    const clock = `${two(date.getHours())}:${two(date.getMinutes())}${fine ? `:${two(date.getSeconds())}` : ""}`;
    return first && first.getDate() !== date.getDate() ? `${clock}\n${day}` : clock;
  });
}
