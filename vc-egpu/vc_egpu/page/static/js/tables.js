// Queues, what waits, and decisions: each a table of rows that the server has counted.

import { fill, h, later, table } from "./dom.js";
import { jobLink } from "./card.js";
import { Past } from "./past.js";
import { ago, classText, help, knows, memory, moment, number, reason, t } from "./texts.js";

const PREFIX = "volcano.sh/";
const SOON_MS = 15000;

class ListView {
  /** @param {import("./store.js").Store} store @param {HTMLElement} root @param {string} title */
  constructor(store, root, title) {
    this.store = store;
    this.body = h("div", null);
    this.text = "";
    this.timer = setInterval(() => this.draw(), SOON_MS); // "two minutes ago" goes on without a change
    const again = later(() => this.draw(), 150);
    fill(root, h("h1", null, title),
      h("div", { class: "controls" }, h("label", { for: "filter" }, t("filter"), " ", h("input", {
        id: "filter", type: "search", maxlength: "100",
        oninput: (/** @type {any} */ event) => { this.text = event.target.value.trim().toLowerCase(); again(); },
      }))), this.body);
  }

  /** @param {any} what */
  refresh(what) {
    if (what.lists) this.draw();
    document.documentElement.dataset.painted = String(this.store.rev);
  }

  /** @param {string} kind */
  unseen(kind) {
    const { scope } = this.store;
    if (!scope) return h("p", { class: "quiet" }, t("loading"));
    if (scope.absent.includes(kind)) return h("p", { class: "note" }, t(`absent.${kind}`));
    const places = scope.places[kind];
    if (!places.length) return h("p", { class: "note" }, t(`note.no.${kind}`));
    return places[0] === null ? null : h("p", { class: "note" }, t("note.places", { places: places.join(", ") }));
  }

  /** @param {...string} texts */
  meant(...texts) {
    return !this.text || texts.some((one) => one.toLowerCase().includes(this.text));
  }

  draw() {}
  route() {}

  leave() {
    clearInterval(this.timer);
  }
}

export class QueuesView extends ListView {
  /** @param {import("./store.js").Store} store @param {HTMLElement} root @param {boolean} history */
  constructor(store, root, history) {
    super(store, root, t("queues.title"));
    this.history = history;
    this.pasts = new Map();
    this.draw();
  }

  draw() {
    const rows = ordered(this.store.lists.queues).filter(({ row }) => this.meant(row.name));
    const partial = this.store.scope && this.store.scope.places.pods[0] !== null;
    fill(this.body, this.unseen("queues"), partial && h("p", { class: "note" }, t("queues.partial")),
      rows.length ? rows.map(({ row, depth }) => this.queue(row, depth)) : h("p", { class: "quiet" }, t("queues.none")));
  }

  /** @param {any} row @param {number} depth */
  queue(row, depth) {
    const waits = Object.entries(row.waiting);
    return h("section", { class: "queue", style: { "margin-inline-start": `${depth * 1.5}rem` } },
      h("h2", null, row.name, row.state !== "Open" && h("span", { class: "word" }, knows(`queue.${row.state}`) ? t(`queue.${row.state}`) : row.state)),
      h("p", { class: "quiet" }, t("queues.admitted", { count: row.admitted }),
        waits.map(([why, count]) => h("span", { class: "word" }, `${reason(why)}: ${number(Number(count))}`))),
      row.problem && h("p", { class: "bad" }, row.problem),
      row.amounts.length ? table(`${t("queues.title")}: ${row.name}`,
        ["resource", "used", "cap", "deserved", "guarantee"].map((key) => t(`column.${key}`)),
        row.amounts.map((/** @type {any} */ amount) => this.amount(amount))) : h("p", { class: "quiet" }, t("queues.unused")),
      this.history && this.past(row.name));
  }

  /** @param {any} amount */
  amount({ resource, used, cap, deserved, guarantee }) {
    const show = (/** @type {number | null} */ value) => (value === null ? "–" : quantity(resource, value));
    const most = Math.max(used, cap ?? 0, deserved ?? 0, guarantee ?? 0, 1);
    const tick = (/** @type {number | null} */ value, /** @type {string} */ kind) =>
      value === null ? null : h("span", { class: `tick ${kind}`, style: { "inset-inline-start": `${(value / most) * 100}%` } });
    const over = cap !== null && used > cap, bounded = cap !== null || deserved !== null || guarantee !== null;
    return h("tr", null, h("th", { scope: "row" }, resource.replace(PREFIX, "")),
      h("td", { class: "figure" }, h("span", { class: bounded ? (over ? "scale over" : "scale") : "scale none", "aria-hidden": "true" },
        bounded && h("span", { class: "fill", style: { width: `${(used / most) * 100}%` } }),
        tick(cap, "cap"), tick(deserved, "deserved"), tick(guarantee, "guarantee")), show(used), over && h("span", { class: "word" }, t("queues.over"))),
      h("td", null, cap === null ? t("queues.unlimited") : show(cap)), h("td", null, show(deserved)), h("td", null, show(guarantee)));
  }

  /** @param {string} name */
  past(name) {
    if (!this.pasts.has(name)) this.pasts.set(name, new Past({ of: "queue", queue: name }, ["used", "waiting"]));
    return this.pasts.get(name).element;
  }
}

export class WaitingView extends ListView {
  /** @param {import("./store.js").Store} store @param {HTMLElement} root */
  constructor(store, root) {
    super(store, root, t("waiting.title"));
    this.draw();
  }

  draw() {
    const { count, rows } = this.store.lists.waiting;
    const shown = rows.filter((row) => this.meant(row.gang, row.queue, row.reason, row.message));
    fill(this.body, this.unseen("groups"),
      h("p", { id: "waiting-count" }, t("waiting.count", { count }), count > rows.length && ` ${t("waiting.shown", { shown: rows.length })}`),
      shown.length > 0 && table(t("waiting.title"), ["job", "queue", "class", "since", "why"].map((key) => t(`column.${key}`)),
        shown.map((row) => {
          const [namespace, name] = row.gang.split("/");
          return h("tr", null,
            h("th", { scope: "row" }, h("a", { href: jobLink(namespace, name), "data-key": row.gang }, row.gang)),
            h("td", null, row.queue), h("td", null, h("span", { class: `class ${row.share_class}` }, classText(row.share_class))),
            h("td", null, row.since && h("time", { datetime: row.since, title: moment(row.since) }, ago(row.since))),
            h("td", { class: "text" }, sentence(row.reason, row.message)));
        })));
  }
}

export class DecisionsView extends ListView {
  /** @param {import("./store.js").Store} store @param {HTMLElement} root */
  constructor(store, root) {
    super(store, root, t("decisions.title"));
    this.draw();
  }

  draw() {
    const shown = this.store.lists.decisions.filter((row) => this.meant(row.namespace, row.name, row.reason, row.message));
    fill(this.body, this.unseen("events"), h("p", { class: "quiet" }, t("decisions.about")),
      shown.length ? table(t("decisions.title"), ["when", "what", "about", "why"].map((key) => t(`column.${key}`)),
        shown.map((row) => h("tr", { class: row.warning ? "warn" : null },
          h("td", null, h("time", { datetime: row.at, title: moment(row.at) }, ago(row.at)), row.count > 1 && h("span", { class: "quiet" }, ` ×${number(row.count)}`)),
          h("td", null, reason(row.reason)),
          h("th", { scope: "row" }, h("a", { href: jobLink(row.namespace, row.name), "data-key": `${row.at} ${row.namespace}/${row.name} ${row.reason}` }, `${row.namespace}/${row.name}`), h("span", { class: "quiet small" }, ` ${row.kind}`)),
          h("td", { class: "text" }, row.message)))) : h("p", { class: "quiet" }, t("decisions.none")));
  }
}

/** The reason in the user's language, the sentence with its numbers, and what would help. @param {string} why @param {string} message */
export function sentence(why, message) {
  const helps = help(why);
  return [h("strong", null, reason(why)), h("p", { lang: "en" }, message), helps && h("p", { class: "help" }, h("span", { class: "quiet" }, t("helps"), " "), helps)];
}

/** @param {string} resource @param {number} value */
function quantity(resource, value) {
  if (resource.endsWith("-memory")) return memory(value);
  return resource.endsWith("-cores") ? `${number(value)} %` : number(value);
}

/** Queues below their parents; a circle of parents ends where it closes. @param {any[]} rows */
function ordered(rows) {
  const names = new Set(rows.map((row) => row.name)), below = new Map(), found = /** @type {{row: any, depth: number}[]} */ ([]), seen = new Set();
  for (const row of rows) {
    const parent = names.has(row.parent) && row.parent !== row.name ? row.parent : "";
    below.set(parent, [...(below.get(parent) ?? []), row]);
  }
  const walk = (/** @type {string} */ parent, /** @type {number} */ depth) => {
    for (const row of below.get(parent) ?? []) {
      if (seen.has(row.name)) continue;
      seen.add(row.name);
      found.push({ row, depth });
      walk(row.name, depth + 1);
    }
  };
  walk("", 0);
  for (const row of rows) if (!seen.has(row.name)) found.push({ row, depth: 0 });
  return found;
}
