// The past of something: lines from Prometheus, drawn on a canvas, with the same figures as a table.

import { fill, h, table } from "./dom.js";
import { ask } from "./store.js";
import { language, memory, moment, number, percent, t } from "./texts.js";

const HOURS = ["1", "6", "24", "168"];
const WIDE = 340, TALL = 90;

export class Past {
  /** @param {Record<string, string>} query @param {string[]} names @param {string} [of] */
  constructor(query, names, of = "") {
    this.query = query;
    this.names = names;
    this.hours = "6";
    this.body = h("div", null);
    this.element = h("details", { class: "past", ontoggle: (/** @type {any} */ event) => event.target.open && this.load() },
      h("summary", null, t("past.title"), of && `: ${of}`),
      h("label", null, t("past.hours"), " ", h("select", { onchange: (/** @type {any} */ event) => { this.hours = event.target.value; this.load(); } },
        HOURS.map((hours) => h("option", { value: hours, selected: hours === this.hours }, t(`past.${hours}`))))),
      this.body);
  }

  async load() {
    fill(this.body, h("p", { class: "quiet" }, t("loading")));
    try {
      const found = await ask("/api/history", { ...this.query, hours: this.hours });
      fill(this.body, this.names.map((name) => this.chart(name, found[name] ?? [])));
    } catch (error) {
      fill(this.body, h("p", { class: "bad" }, /** @type {Error} */ (error).message));
    }
  }

  /** @param {string} name @param {any[]} series */
  chart(name, series) {
    const title = t(`past.of.${this.query.of}.${name}`);
    const points = series.flatMap((one) => one.points).filter(([, value]) => value !== null);
    if (!points.length) return h("figure", null, h("figcaption", null, title), h("p", { class: "quiet" }, t("past.none")));
    const most = Math.max(...points.map(([, value]) => value));
    const canvas = h("canvas", { role: "img", width: WIDE * 2, height: TALL * 2, "aria-label": t("past.summary", { title, most: show(this.query.of, name, most), last: show(this.query.of, name, points.at(-1)[1]) }) });
    draw(canvas, series, most || 1);
    return h("figure", null, h("figcaption", null, title, h("span", { class: "quiet" }, ` ${t("past.most", { most: show(this.query.of, name, most) })}`)), canvas,
      series.length > 1 && h("p", { class: "quiet small" }, series.map((one) => Object.values(one.labels).join(" ")).join(", ")),
      h("details", null, h("summary", null, t("cards.table")), table(title, [t("column.when"), title],
        series[0].points.slice(-30).map((/** @type {any[]} */ [at, value]) => h("tr", null,
          h("th", { scope: "row" }, moment(new Date(at * 1000).toISOString())), h("td", null, value === null ? "–" : show(this.query.of, name, value)))))));
  }
}

/** @param {string} of @param {string} name @param {number} value */
function show(of, name, value) {
  if (of === "pod" && name === "memory") return memory(value / (1 << 20));
  return name === "memory" || name === "cores" ? percent(value) : number(value);
}

/** @param {HTMLCanvasElement} canvas @param {any[]} series @param {number} most */
function draw(canvas, series, most) {
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const style = getComputedStyle(document.documentElement);
  const all = series.flatMap((one) => one.points.map((/** @type {any[]} */ [at]) => at));
  const first = Math.min(...all), span = Math.max(1, Math.max(...all) - first);
  pen.scale(2, 2);
  pen.strokeStyle = style.getPropertyValue("--cell-line");
  pen.strokeRect(0.5, 0.5, WIDE - 1, TALL - 1);
  pen.strokeStyle = style.getPropertyValue("--accent");
  series.forEach((one, at) => {
    pen.setLineDash(at ? [2 + at * 2, 3] : []); // lines are told apart without colour
    pen.lineWidth = 1.6;
    pen.beginPath();
    let isOn = false;
    for (const [when, value] of one.points) {
      if (value === null) { isOn = false; continue; }
      const x = ((when - first) / span) * (WIDE - 4) + 2, y = TALL - 3 - (value / most) * (TALL - 8);
      if (isOn) pen.lineTo(x, y); else pen.moveTo(x, y);
      isOn = true;
    }
    pen.stroke();
  });
  canvas.lang = language;
}
