// One job: what was decided for it, why, and what each of its pods has. It is read when it is opened.

import { fill, h, later, table } from "./dom.js";
import { Past } from "./past.js";
import { sentence } from "./tables.js";
import { ask } from "./store.js";
import { ago, classText, knows, moment, number, reason, t } from "./texts.js";

export class JobView {
  /** @param {import("./store.js").Store} store @param {HTMLElement} root @param {boolean} history */
  constructor(store, root, history) {
    this.store = store;
    this.history = history;
    this.namespace = this.name = "";
    this.head = h("h1", { id: "job" });
    this.body = h("div", { "aria-live": "polite" });
    this.reload = later(() => this.load(), 1500);
    fill(root, h("p", null, h("a", { href: "#/waiting" }, t("waiting.title"))), this.head, this.body);
  }

  /** @param {any} what */
  refresh(what) {
    if (what.lists) this.reload();
    document.documentElement.dataset.painted = String(this.store.rev);
  }

  /** @param {string[]} rest */
  route([namespace, name]) {
    if (namespace === this.namespace && name === this.name) return;
    [this.namespace, this.name] = [namespace, name];
    this.pasts = new Map();
    this.head.textContent = `${namespace}/${name}`;
    fill(this.body, h("p", { class: "quiet" }, t("loading")));
    this.load();
  }

  async load() {
    const { namespace, name } = this;
    if (!name) return;
    try {
      const stories = await ask("/api/job", { namespace, name });
      if (namespace === this.namespace && name === this.name) fill(this.body, stories.map((/** @type {any} */ one) => this.story(one)));
    } catch (error) {
      fill(this.body, h("p", { class: "bad" }, /** @type {Error} */ (error).message));
    }
  }

  /** @param {any} one */
  story(one) {
    const members = [...one.members];
    return h("section", { class: "story" },
      h("h2", null, one.group || one.job),
      h("dl", null,
        pair(t("column.queue"), one.queue), pair(t("column.class"), classText(one.share_class)), pair(t("job.min"), number(one.min_member)),
        pair(t("column.state"), one.admitted ? t("job.admitted") : reason(one.reason)),
        one.since && pair(t("column.since"), h("time", { datetime: one.since, title: moment(one.since) }, ago(one.since))),
        one.rolled_back && pair(t("job.rolled"), one.rolled_back)),
      h("div", { class: one.admitted ? "text" : "text waits" }, sentence(one.reason, one.message)),
      one.notes.length > 0 && h("ul", { lang: "en" }, one.notes.map((/** @type {string} */ note) => h("li", null, note))),
      members.length > 0 && table(t("job.members"), ["pod", "phase", "node", "cards"].map((key) => t(`column.${key}`)),
        members.map((member) => h("tr", null,
          h("th", { scope: "row" }, member.pod), h("td", null, knows(`phase.${member.phase}`) ? t(`phase.${member.phase}`) : member.phase),
          h("td", null, member.node && h("a", { href: "#/cards" }, member.node)),
          h("td", { class: "text" }, member.cards.map((/** @type {string} */ card) => h("div", null, card)), member.message && h("p", { lang: "en" }, member.message))))),
      this.history && members.slice(0, 8).map((member) => this.past(member.pod)));
  }

  /** @param {string} pod */
  past(pod) {
    const pasts = /** @type {Map<string, Past>} */ (this.pasts);
    if (!pasts.has(pod)) pasts.set(pod, new Past({ of: "pod", namespace: this.namespace, pod }, ["memory", "cores"], pod));
    return /** @type {Past} */ (pasts.get(pod)).element;
  }

  leave() {
    this.name = "";
  }
}

/** @param {string} name @param {any} value */
const pair = (name, value) => h("div", null, h("dt", null, name), h("dd", null, value));
