// Several clusters: what each has, which do not answer, and the way into one of them.

import { fill, h, table } from "./dom.js";
import { inCluster } from "./store.js";
import { ago, memory, moment, number, percent, t } from "./texts.js";

const EVERY_MS = 2000;
const SOON_MS = 15000;
const WHILE_ASKING_MS = 250; // clusters answer one after the other just after the page was opened

export class SitesView {
  /** @param {HTMLElement} root @param {(connection: "live" | "lost") => void} tell */
  constructor(root, tell) {
    this.tell = tell;
    this.body = h("div", null);
    this.last = "";
    this.drawn = 0;
    this.open = true;
    this.asking = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.again = undefined;
    fill(root, h("h1", null, t("sites.title")), this.body);
    fill(this.body, h("p", { class: "quiet" }, t("loading")));
    this.timer = setInterval(() => { if (!document.hidden) this.look(); }, EVERY_MS);
    this.look();
  }

  async look() {
    try {
      const answer = await fetch("/api/sites");
      if (!answer.ok) throw new Error(String(answer.status));
      const text = await answer.text();
      if (!this.open) return;
      if (text !== this.last || Date.now() - this.drawn > SOON_MS) this.draw(JSON.parse(text)); // "a minute ago" goes on
      this.last = text;
      this.tell("live");
      clearTimeout(this.again);
      if (this.asking) this.again = setTimeout(() => { if (!document.hidden) this.look(); }, WHILE_ASKING_MS);
    } catch {
      if (this.open) this.tell("lost");
    }
  }

  /** @param {any} report */
  draw(report) {
    this.drawn = Date.now();
    this.asking = report.clusters.some((/** @type {any} */ one) => one.state === "asking");
    const names = new Map(report.clusters.map((/** @type {any} */ one) => [one.name, called(one)]));
    const missing = report.clusters.filter((/** @type {any} */ one) => one.state !== "ok").map(called);
    const cities = new Map();
    for (const one of report.clusters) cities.set(one.city, [...(cities.get(one.city) ?? []), one]);
    fill(this.body,
      h("p", { id: "answered", role: "status" }, t("sites.answered", { answered: report.answered, asked: report.asked }),
        missing.length > 0 && h("strong", { class: "bad" }, " ", t("sites.partial", { missing: missing.join(", ") }))),
      report.sums.length > 0 && table(t("sites.sums"), ["model", "cards", "closed", "used", "memory"].map((key) => t(`sites.column.${key}`)), report.sums.map(sum)),
      h("div", { class: "cities" }, [...cities].map(([city, some]) => h("section", { class: "city" },
        h("h2", null, city || t("sites.nocity")),
        h("ul", { class: "sites" }, some.map((/** @type {any} */ one) => tile(one, report.links, names)))))),
      report.links.length > 0 && h("section", null, h("h2", null, t("sites.links")),
        table(t("sites.links"), ["between", "and", "bandwidth"].map((key) => t(`sites.column.${key}`)),
          report.links.map((/** @type {any} */ link) => h("tr", null, h("th", { scope: "row" }, names.get(link.between[0])),
            h("td", null, names.get(link.between[1])), h("td", null, bandwidth(link.mbit_per_s)))))));
    document.documentElement.dataset.sites = `${report.answered}/${report.asked}`;
  }

  route() {}
  refresh() {}

  leave() {
    this.open = false;
    clearInterval(this.timer);
    clearTimeout(this.again);
  }
}

/** @param {any} one */
export const called = (one) => one.title || one.name;

/** @param {any} row */
function sum(row) {
  return h("tr", null, h("th", { scope: "row" }, row.name || t("sites.nomodel")), h("td", null, number(row.cards)), h("td", null, number(row.closed)),
    h("td", null, row.used_mib === null ? t("sites.unread") : [bar(row), percent(share(row))]), h("td", null, memory(row.memory_mib)));
}

/** @param {any} one @param {any[]} links @param {Map<string, string>} names */
function tile(one, links, names) {
  const own = links.filter((link) => link.between.includes(one.name));
  return h("li", { class: `site ${one.state}` },
    h("h3", null, h("a", { href: inCluster("/", { cluster: one.name }), "data-key": `site-${one.name}` }, called(one)), " ",
      h("span", { class: "word" }, t(`sites.state.${one.state}`))),
    one.state === "silent" && h("p", { class: "bad" }, t("sites.silent", { since: moment(one.since), reason: one.reason })),
    one.state === "silent" && h("p", null, one.answered ? t("sites.last", { at: moment(one.answered), ago: ago(one.answered) }) : t("sites.never")),
    one.models.map((/** @type {any} */ row) => h("p", { class: "model" }, row.cards ? [
      h("strong", null, row.name || t("sites.nomodel")), " ", t("sites.cards", { count: row.cards }), row.closed > 0 && [" ", h("span", { class: "word" }, t("sites.closed", { count: row.closed }))],
      h("br"), row.used_mib === null ? t("sites.has", { memory: memory(row.memory_mib) }) : [bar(row), t("sites.used", { share: percent(share(row)), memory: memory(row.memory_mib) })]] : t("sites.none"))),
    one.answered && h("p", { class: "quiet", title: one.read ? t("sites.read", { at: moment(one.read) }) : null }, !one.read ? [t("sites.unread"), one.state === "ok" && one.reason && `: ${one.reason}`] : one.waiting === null ? t("sites.waiting.unknown") : t("sites.waiting", { count: one.waiting })),
    own.length > 0 && h("p", { class: "quiet small" }, own.map((link, at) => [at > 0 && " · ",
      t("sites.to", { bandwidth: bandwidth(link.mbit_per_s), name: names.get(link.between.find((/** @type {string} */ name) => name !== one.name)) })])));
}

/** @param {any} row */
const share = (row) => (row.memory_mib ? row.used_mib / row.memory_mib : 0);

/** @param {any} row */
const bar = (row) => h("span", { class: "bar", "aria-hidden": "true" }, h("span", { style: { width: `${Math.min(100, 100 * share(row))}%` } }));

/** @param {number} mbit */
const bandwidth = (mbit) => (mbit >= 1000 ? `${number(mbit / 1000)} Gbit/s` : `${number(mbit)} Mbit/s`);
