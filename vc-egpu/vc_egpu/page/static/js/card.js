// One card: its figures, who shares it, and its past where a Prometheus is named.

import { MEASURES } from "./heat.js";
import { fill, h, later, table } from "./dom.js";
import { Past } from "./past.js";
import { ask, F } from "./store.js";
import { classText, knows, memory, number, percent, stateText, t } from "./texts.js";

export class CardPanel {
  /** @param {import("./store.js").Store} store @param {boolean} history */
  constructor(store, history) {
    this.store = store;
    this.history = history;
    this.node = "";
    this.index = -1;
    this.element = h("section", { class: "panel", hidden: true, "aria-labelledby": "card-title", tabindex: "-1", id: "card" });
    this.reload = later(() => this.load(), 100);
  }

  /** @param {string} node @param {number} index */
  show(node, index) {
    const isNew = node !== this.node || index !== this.index;
    [this.node, this.index] = [node, index];
    this.element.hidden = false;
    if (isNew) this.past = this.history ? new Past({ of: "card", node, index: String(index) }, ["memory", "cores", "sharers"]) : null;
    this.load(isNew);
  }

  close(clear = true) {
    this.element.hidden = true;
    this.node = "";
    this.index = -1;
    if (clear && location.hash !== "#/cards") location.hash = "#/cards";
  }

  /** @param {Set<string> | undefined} names */
  refresh(names) {
    if (this.node && (!names || names.has(this.node))) this.reload();
  }

  async load(focus = false) {
    const { node, index } = this;
    if (!node) return;
    try {
      const found = await ask("/api/card", { node, index: String(index) });
      if (node === this.node && index === this.index) this.draw(found, "");
    } catch (error) {
      if (node === this.node && index === this.index) this.draw(null, /** @type {Error} */ (error).message);
    }
    if (focus && !this.element.hidden) this.element.focus({ preventScroll: innerWidth > 1024 });
  }

  /** @param {any} found @param {string} problem */
  draw(found, problem) {
    const card = this.store.nodes.get(this.node)?.cards.find((one) => one[F.index] === this.index);
    fill(this.element,
      h("div", { class: "row" },
        h("h2", { id: "card-title" }, t("card.title", { node: this.node, index: this.index })),
        h("button", { type: "button", class: "close", "data-key": "close", onclick: () => this.close(), "aria-label": t("close") }, "×")),
      problem && h("p", { class: "bad" }, problem),
      card && h("dl", null,
        pair(t("column.model"), card[F.model]), pair(t("column.state"), stateText(card[F.state])),
        found && pair("UUID", h("code", null, found.uuid)),
        pair(t("column.allocated"), [bar(MEASURES.memory(card)), `${memory(card[F.allocated])} / ${memory(card[F.memory])}`]),
        pair(t("column.high"), [bar(card[F.high] / 100), percent(card[F.high] / 100)]),
        pair(t("column.low"), [bar(card[F.low] / 100), percent(card[F.low] / 100)]),
        card[F.suspended] ? pair(t("card.suspended"), memory(card[F.suspended])) : null),
      found && this.sharers(found.sharers),
      card && card[F.unseen] > 0 && h("p", { class: "quiet", id: "unseen" }, t("card.unseen", { count: card[F.unseen] })),
      this.past?.element);
  }

  /** @param {any[]} rows */
  sharers(rows) {
    if (!rows.length) return h("p", { class: "quiet" }, t("card.free"));
    return table(t("card.sharers"),
      ["pod", "queue", "class", "memory", "cores"].map((key) => t(`column.${key}`)),
      rows.map((row) => h("tr", null,
        h("th", { scope: "row" }, h("a", { href: jobLink(row.namespace, row.pod), "data-key": `${row.namespace}/${row.pod}/${row.container}` }, `${row.namespace}/${row.pod}`),
          h("span", { class: "quiet small" }, ` ${row.container}`), sign(row)),
        h("td", null, row.queue), h("td", null, h("span", { class: `class ${row.class}` }, classText(row.class))),
        h("td", null, memory(row.memory_mib)), h("td", null, row.cores_percent ? `${number(row.cores_percent)} %` : t("cores.none")))));
  }
}

/** @param {string} namespace @param {string} name */
export const jobLink = (namespace, name) => `#/job/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

/** @param {any} row */
function sign(row) {
  const word = row.ending ? "ending" : row.suspension;
  return word !== "running" && knows(`pod.${word}`) ? h("span", { class: "word" }, t(`pod.${word}`)) : null;
}

/** @param {string} name @param {any} value */
const pair = (name, value) => h("div", null, h("dt", null, name), h("dd", null, value));

/** @param {number} part */
export function bar(part) {
  return h("span", { class: part > 1 ? "bar over" : "bar", "aria-hidden": "true" }, h("span", { style: { width: `${Math.min(1, part) * 100}%` } }));
}
