// The view of all cards: heat map or table, what a cell shows, and cards of one user.

import { HeatMap, isWell, MEASURES, summary } from "./heat.js";
import { CardPanel } from "./card.js";
import { fill, h, later, table } from "./dom.js";
import { ask, F } from "./store.js";
import { memory, number, percent, stateText, t } from "./texts.js";

const PAGE = 100;
const KEYS = ["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "Home", "End", "PageDown", "PageUp"];

export class CardsView {
  /** @param {import("./store.js").Store} store @param {HTMLElement} root @param {boolean} history */
  constructor(store, root, history) {
    this.store = store;
    this.asTable = false;
    this.onlyIll = false;
    this.page = 0;
    this.text = "";
    this.panel = new CardPanel(store, history);
    this.spoken = h("p", { class: "hidden", "aria-live": "polite", id: "spoken" });
    this.tip = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    this.canvas = h("canvas", { role: "img" });
    this.spacer = h("div", { class: "spacer" });
    this.box = h("div", {
      class: "map", id: "map", tabindex: "0", role: "application", "aria-describedby": "map-keys", "data-key": "map",
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event),
      onpointermove: (/** @type {PointerEvent} */ event) => this.hover(event),
      onpointerleave: () => { this.tip.hidden = true; },
      onclick: (/** @type {MouseEvent} */ event) => this.click(event),
    }, h("div", { class: "stick" }, this.canvas), this.spacer);
    this.controls = h("div", { class: "controls" });
    this.legend = h("div", { class: "legend", id: "legend" });
    this.found = h("span", { class: "quiet", role: "status", id: "found" });
    this.tableBox = h("div", { hidden: true, id: "cards-table" });
    this.notes = h("div", { class: "notes" });
    const keys = h("p", { class: "quiet small", id: "map-keys" }, t("cards.keys"));
    this.mapBox = h("div", null, this.legend, this.box, keys);
    fill(root, h("h1", null, t("cards.title")), this.notes, this.controls, this.found,
      h("div", { class: "split" }, h("div", { class: "wide" }, this.mapBox, this.tableBox), this.panel.element),
      this.spoken, this.tip);
    this.map = new HeatMap(this.box, this.canvas, this.spacer);
    this.drawControls();
    this.refresh({ shape: true, nodes: true, lists: true });
  }

  drawControls() {
    const choose = h("select", { id: "measure", onchange: (/** @type {any} */ event) => {
      this.map.measure = event.target.value;
      this.drawLegend();
      this.map.paint();
    } }, Object.keys(MEASURES).map((name) => h("option", { value: name }, t(`measure.${name}`))));
    const find = later(() => this.find(), 250);
    fill(this.controls,
      h("label", { for: "measure" }, t("cards.shows"), " ", choose),
      h("label", { for: "find" }, t("cards.find"), " ", h("input", {
        id: "find", type: "search", maxlength: "100", placeholder: t("cards.find.example"),
        oninput: (/** @type {any} */ event) => { this.text = event.target.value.trim(); find(); },
      })),
      h("label", null, h("input", { type: "checkbox", id: "ill", onchange: (/** @type {any} */ event) => {
        this.onlyIll = event.target.checked;
        this.mark();
        this.page = 0;
        this.drawTable();
      } }), " ", t("cards.ill")),
      h("button", { type: "button", id: "as-table", "aria-pressed": "false", onclick: (/** @type {any} */ event) => {
        this.asTable = !this.asTable;
        event.currentTarget.setAttribute("aria-pressed", String(this.asTable));
        this.mapBox.hidden = this.asTable;
        this.tableBox.hidden = !this.asTable;
        this.drawTable();
        if (!this.asTable) this.map.resize();
      } }, t("cards.table")));
    this.drawLegend();
  }

  drawLegend() {
    fill(this.legend, h("span", null, t(`legend.${this.map.measure}.low`)), h("span", { class: "ramp" }),
      h("span", null, t(`legend.${this.map.measure}.high`)),
      h("span", { class: "sign hatch" }), h("span", null, t("legend.ill")),
      h("span", { class: "sign corner" }), h("span", null, t("legend.suspended")));
  }

  /** @param {any} what */
  refresh(what) {
    if (what.shape) this.map.layout(this.store.nodes.values());
    else if (what.nodes) this.map.renew(this.store.nodes, what.names ?? this.store.nodes.keys());
    if (what.shape || what.nodes) {
      const figures = summary(this.map.cells);
      this.canvas.setAttribute("aria-label", t("cards.summary", { ...figures, nodes: this.store.nodes.size }));
      this.box.setAttribute("aria-label", t("cards.map"));
      this.mark();
      this.drawTable();
      this.panel.refresh(what.names);
    }
    if (what.nodes || what.shape || what.lists) this.drawNotes();
    const rev = String(this.store.rev);
    this.map.painted.push(() => { document.documentElement.dataset.painted = rev; });
    this.map.paint();
  }

  drawNotes() {
    const { scope, nodes } = this.store, notes = [];
    if (scope && !scope.places.nodes.length) notes.push(t("note.nodes"));
    else if (scope && !nodes.size) notes.push(t("note.empty"));
    if (scope && scope.places.pods[0] !== null) {
      const places = scope.places.pods;
      notes.push(places.length ? t("note.pods", { places: places.join(", ") }) : t("note.no.pods"));
    }
    const troubled = [...nodes.values()].filter((node) => node.problem);
    for (const node of troubled.slice(0, 5)) notes.push(t("note.problem", { node: node.name, problem: node.problem }));
    if (troubled.length > 5) notes.push(t("note.more", { count: troubled.length - 5 }));
    fill(this.notes, notes.map((note) => h("p", null, note)));
  }

  async find() {
    const text = this.text;
    if (!text) {
      this.hits = null;
      this.found.textContent = "";
      this.mark();
      this.drawTable();
      return;
    }
    try {
      const found = await ask("/api/find", { text });
      if (text !== this.text) return;
      const hits = new Set(found.cards.map((/** @type {any[]} */ [node, index]) => `${node}/${index}`));
      for (const name of this.store.nodes.keys()) {
        if (name.includes(text)) for (const card of this.store.nodes.get(name)?.cards ?? []) hits.add(`${name}/${card[F.index]}`);
      }
      this.hits = hits;
      this.found.textContent = t("cards.found", { cards: hits.size, pods: found.pods });
    } catch (error) {
      this.found.textContent = String(/** @type {Error} */ (error).message);
    }
    this.page = 0;
    this.mark();
    this.drawTable();
  }

  mark() {
    if (!this.hits && !this.onlyIll) this.map.marked = null;
    else {
      this.map.marked = new Set(this.map.cells
        .filter((cell) => this.meant(cell)).map((cell) => `${cell.name}/${cell.index}`));
    }
    this.map.paint();
  }

  /** @param {any} cell */
  meant(cell) {
    return (!this.hits || this.hits.has(`${cell.name}/${cell.index}`)) && (!this.onlyIll || !isWell(cell.card));
  }

  drawTable() {
    if (!this.asTable) return;
    const cells = this.map.cells.filter((cell) => this.meant(cell));
    const pages = Math.max(1, Math.ceil(cells.length / PAGE));
    this.page = Math.min(this.page, pages - 1);
    const turn = (/** @type {number} */ by) => () => { this.page += by; this.drawTable(); };
    fill(this.tableBox,
      table(t("cards.title"),
        ["node", "card", "model", "memory", "allocated", "high", "low", "sharers", "unseen", "state"].map((key) => t(`column.${key}`)),
        cells.slice(this.page * PAGE, (this.page + 1) * PAGE).map((cell) => this.row(cell))),
      h("p", { class: "pages" },
        h("button", { type: "button", disabled: this.page === 0, "data-key": "back", onclick: turn(-1) }, t("page.back")),
        ` ${t("page.of", { page: this.page + 1, pages })} `,
        h("button", { type: "button", disabled: this.page >= pages - 1, "data-key": "next", onclick: turn(1) }, t("page.next"))));
  }

  /** @param {any} cell */
  row({ name, index, card }) {
    const open = h("button", { type: "button", class: "link", "data-key": `${name}/${index}`, onclick: () => this.open(name, index) }, number(index));
    return h("tr", { class: isWell(card) ? null : "ill" },
      h("th", { scope: "row" }, name), h("td", null, open), h("td", null, card[F.model]), h("td", null, memory(card[F.memory])),
      h("td", null, `${memory(card[F.allocated])} (${percent(MEASURES.memory(card))})`),
      h("td", null, percent(card[F.high] / 100)), h("td", null, percent(card[F.low] / 100)),
      h("td", null, number(card[F.sharers])), h("td", null, number(card[F.unseen])), h("td", null, stateText(card[F.state])));
  }

  /** One card in one sentence. @param {any} cell */
  sentence({ name, index, card }) {
    return t("cards.cell", {
      node: name, index, model: card[F.model], memory: percent(MEASURES.memory(card)),
      high: percent(card[F.high] / 100), low: percent(card[F.low] / 100),
      sharers: t("sharers", { count: card[F.sharers] }),
      unseen: card[F.unseen] ? t("unseen", { count: card[F.unseen] }) : "", state: stateText(card[F.state]),
    });
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const cell = this.map.cells[this.map.focus];
    if (KEYS.includes(event.key)) {
      event.preventDefault();
      this.map.move(event.key);
      const now = this.map.cells[this.map.focus];
      if (now) this.spoken.textContent = this.sentence(now);
    } else if ((event.key === "Enter" || event.key === " ") && cell) {
      event.preventDefault();
      this.open(cell.name, cell.index);
    } else if (event.key === "Escape") this.panel.close();
  }

  /** @param {PointerEvent | MouseEvent} event */
  cellAt(event) {
    const box = this.box.getBoundingClientRect();
    return this.map.at(event.clientX - box.left, event.clientY - box.top);
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const cell = this.map.cells[this.cellAt(event)];
    this.tip.hidden = !cell;
    if (!cell) return;
    this.tip.textContent = this.sentence(cell);
    this.tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 320)}px`;
    this.tip.style.top = `${event.clientY + 16}px`;
  }

  /** @param {MouseEvent} event */
  click(event) {
    const at = this.cellAt(event);
    if (at < 0) return;
    this.map.set(at);
    const cell = this.map.cells[at];
    this.open(cell.name, cell.index);
  }

  /** @param {string} name @param {number} index */
  open(name, index) {
    location.hash = `#/cards/${encodeURIComponent(name)}/${index}`;
  }

  /** @param {string[]} rest */
  route([name, index]) {
    if (name === undefined) return this.panel.close(false);
    const at = this.map.places.get(`${name}/${index}`);
    if (at !== undefined && at !== this.map.focus) this.map.set(at);
    this.panel.show(name, Number(index));
  }

  leave() {}
}
