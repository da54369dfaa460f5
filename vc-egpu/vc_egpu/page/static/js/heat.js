// Cards as a heat map on a canvas. Only what is in sight is drawn; rows are blocks, one for each node.

import { F } from "./store.js";
import { number, percent, t } from "./texts.js";

const GAP = 2;
const HEAD = 30;
const LABEL = 15;
const PAD = 10;
/** Cells shrink as cards become many; small ones have no name above them. */
const SIZES = [[256, 26, true], [2400, 16, true], [Infinity, 9, false]];
const STEPS = 32;

/** What a cell shows: a part of the card, 0 to 1 and above. @type {Record<string, (card: any[]) => number>} */
export const MEASURES = {
  memory: (card) => card[F.allocated] / Math.max(1, card[F.memory]),
  compute: (card) => Math.max(card[F.high], card[F.low]) / 100,
  sharers: (card) => (card[F.sharers] + card[F.unseen]) / 8,
};

/** @param {any[]} card */
export const isWell = (card) => card[F.state] === "ok" || card[F.state] === "native";

export class HeatMap {
  /** @param {HTMLElement} box scrolls and has the focus @param {HTMLCanvasElement} canvas @param {HTMLElement} spacer */
  constructor(box, canvas, spacer) {
    this.box = box;
    this.canvas = canvas;
    this.spacer = spacer;
    this.measure = "memory";
    /** @type {any[]} */ this.groups = [];
    /** @type {any[]} */ this.cells = [];
    /** @type {Map<string, number>} */ this.places = new Map();
    this.focus = -1;
    /** @type {Set<string> | null} Cards that are meant; the others are faint. */
    this.marked = null;
    this.width = 0;
    this.pending = false;
    /** @type {(() => void)[]} */ this.painted = [];
    box.addEventListener("scroll", () => this.paint(), { passive: true });
    new ResizeObserver(() => this.resize()).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    this.recolour();
  }

  recolour() {
    const style = getComputedStyle(document.documentElement);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    const low = rgb(colour("--heat-low")), high = rgb(colour("--heat-high"));
    this.ramp = Array.from({ length: STEPS + 1 }, (_, step) => mix(low, high, step / STEPS));
    this.ink = colour("--ink");
    this.quiet = colour("--quiet");
    this.accent = colour("--accent");
    this.hatch = colour("--hatch");
    this.line = colour("--cell-line");
    this.font = getComputedStyle(document.body).fontFamily;
    this.paint();
  }

  /** Cells by model and node. @param {Iterable<any>} nodes */
  layout(nodes) {
    const byModel = new Map();
    let count = 0;
    for (const node of nodes) {
      for (const card of node.cards) {
        let rows = byModel.get(card[F.model]);
        if (!rows) byModel.set(card[F.model], (rows = new Map()));
        let row = rows.get(node.name);
        if (!row) rows.set(node.name, (row = []));
        row.push(card);
        count += 1;
      }
    }
    this.byModel = new Map([...byModel].sort(([one], [other]) => compare(one, other))
      .map(([model, rows]) => [model, [...rows].sort(([one], [other]) => compare(one, other))]));
    const [, size, named] = /** @type {any[]} */ (SIZES.find(([most]) => count <= Number(most)));
    this.size = size;
    this.named = named;
    this.place();
  }

  /** Where each cell is, for the present width. */
  place() {
    const kept = this.cells[this.focus];
    this.width = Math.max(120, this.box.clientWidth);
    this.groups = [];
    this.cells = [];
    this.places = new Map();
    let y = 0;
    const step = this.size + GAP;
    for (const [model, rows] of this.byModel ?? []) {
      const most = Math.max(...rows.map(([, cards]) => cards.length));
      const across = Math.min(most, this.named ? 8 : 4);
      const down = Math.ceil(most / across);
      const block = Math.max(across * step, this.named ? 76 : 0) + PAD;
      const tall = down * step + PAD + (this.named ? LABEL : 0);
      const columns = Math.max(1, Math.floor((this.width - PAD) / block));
      const group = { model, y, height: HEAD, blocks: /** @type {any[]} */ ([]), tall, columns, first: this.cells.length };
      y += HEAD;
      rows.forEach(([name, cards], at) => {
        const x = PAD + (at % columns) * block, top = y + Math.floor(at / columns) * tall;
        group.blocks.push({ name, x, y: top, width: block - PAD });
        cards.forEach((/** @type {any[]} */ card, /** @type {number} */ place) => {
          const cell = {
            name, index: card[F.index], row: cards, place, x: x + (place % across) * step,
            y: top + (this.named ? LABEL : 0) + Math.floor(place / across) * step, card,
          };
          this.places.set(`${name}/${card[F.index]}`, this.cells.length);
          this.cells.push(cell);
        });
      });
      y += Math.ceil(rows.length / columns) * tall + PAD;
      group.height = y - group.y;
      this.groups.push(group);
    }
    this.height = y;
    this.spacer.style.height = `${y}px`;
    this.focus = kept ? this.places.get(`${kept.name}/${kept.index}`) ?? -1 : -1;
    this.paint();
  }

  resize() {
    if (this.box.clientWidth && this.box.clientWidth !== this.width) this.place();
    else this.paint();
  }

  /** The figures of some nodes are others now. @param {Map<string, any>} nodes @param {Iterable<string>} names */
  renew(nodes, names) {
    for (const name of names) {
      for (const card of nodes.get(name)?.cards ?? []) {
        const at = this.places.get(`${name}/${card[F.index]}`);
        const cell = at === undefined ? undefined : this.cells[at];
        if (cell) cell.card = cell.row[cell.place] = card; // the row is where the next layout takes it from
      }
    }
    this.paint();
  }

  paint() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.draw();
      for (const told of this.painted.splice(0)) told();
    });
  }

  draw() {
    const { box, canvas } = this;
    const wide = box.clientWidth, tall = box.clientHeight, scale = devicePixelRatio || 1;
    if (!wide || !tall) return;
    if (canvas.width !== Math.round(wide * scale) || canvas.height !== Math.round(tall * scale)) {
      canvas.width = Math.round(wide * scale);
      canvas.height = Math.round(tall * scale);
      canvas.style.width = `${wide}px`;
      canvas.style.height = `${tall}px`;
    }
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const top = box.scrollTop, bottom = top + tall;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, wide, tall);
    pen.translate(0, -top);
    for (const group of this.groups) {
      if (group.y + group.height < top || group.y > bottom) continue;
      this.head(pen, group);
      if (this.named) this.labels(pen, group, top, bottom);
    }
    let last = "";
    for (let at = this.firstInSight(top); at < this.cells.length; at += 1) {
      const cell = this.cells[at];
      if (cell.y > bottom + HEAD) break;
      last = this.cell(pen, cell, last);
    }
    const focused = this.cells[this.focus];
    if (focused) {
      pen.strokeStyle = /** @type {string} */ (this.accent);
      pen.lineWidth = 2.5;
      pen.strokeRect(focused.x - 1.5, focused.y - 1.5, this.size + 3, this.size + 3);
    }
  }

  /** @param {number} top */
  firstInSight(top) {
    const group = this.groups.find((one) => one.y + one.height >= top);
    return group ? group.first : 0;
  }

  /** @param {CanvasRenderingContext2D} pen @param {any} group */
  head(pen, group) {
    const sum = summary(this.cellsOf(group));
    pen.fillStyle = /** @type {string} */ (this.ink);
    pen.font = `600 14px ${this.font}`;
    pen.fillText(group.model, PAD, group.y + 20);
    const behind = PAD + pen.measureText(group.model).width + 12;
    pen.fillStyle = /** @type {string} */ (this.quiet);
    pen.font = `13px ${this.font}`;
    pen.fillText(t("cards.head", sum), behind, group.y + 20);
  }

  /** @param {any} group */
  cellsOf(group) {
    const next = this.groups[this.groups.indexOf(group) + 1];
    return this.cells.slice(group.first, next ? next.first : this.cells.length);
  }

  /** @param {CanvasRenderingContext2D} pen @param {any} group @param {number} top @param {number} bottom */
  labels(pen, group, top, bottom) {
    pen.fillStyle = /** @type {string} */ (this.quiet);
    pen.font = `11px ${this.font}`;
    for (const block of group.blocks) {
      if (block.y + group.tall < top || block.y > bottom) continue;
      pen.fillText(cut(pen, block.name, block.width), block.x, block.y + 11);
    }
  }

  /** @param {CanvasRenderingContext2D} pen @param {any} cell @param {string} last */
  cell(pen, cell, last) {
    const { size } = this, { x, y, card } = cell;
    const faint = this.marked !== null && !this.marked.has(`${cell.name}/${cell.index}`);
    pen.globalAlpha = faint ? 0.18 : 1;
    const part = MEASURES[this.measure](card);
    const colour = /** @type {string[]} */ (this.ramp)[Math.round(Math.min(1, part) * STEPS)];
    if (colour !== last) pen.fillStyle = colour;
    pen.fillRect(x, y, size, size);
    pen.strokeStyle = /** @type {string} */ (this.line);
    pen.lineWidth = 1;
    pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    if (!isWell(card)) this.hatched(pen, x, y);
    if (card[F.least]) {
      pen.fillStyle = /** @type {string} */ (this.accent);
      pen.beginPath();
      pen.arc(x + size * 0.78, y + size * 0.22, Math.max(1.2, size * 0.11), 0, 7);
      pen.fill();
    }
    if (card[F.suspended]) {
      pen.fillStyle = /** @type {string} */ (this.accent);
      pen.beginPath();
      pen.moveTo(x, y + size);
      pen.lineTo(x, y + size * 0.55);
      pen.lineTo(x + size * 0.45, y + size);
      pen.fill();
      pen.globalAlpha = 1;
      return "";
    }
    pen.globalAlpha = 1;
    return card[F.least] ? "" : colour;
  }

  /** Hatching: state is never told by colour alone. @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y */
  hatched(pen, x, y) {
    const { size } = this;
    pen.save();
    pen.beginPath();
    pen.rect(x, y, size, size);
    pen.clip();
    pen.strokeStyle = /** @type {string} */ (this.hatch);
    pen.lineWidth = size > 12 ? 2 : 1.2;
    pen.beginPath();
    for (let at = -size; at < size; at += size > 12 ? 6 : 4) {
      pen.moveTo(x + at, y + size);
      pen.lineTo(x + at + size, y);
    }
    pen.stroke();
    pen.restore();
  }

  /** The cell at this point of the box; -1 where there is none. @param {number} x @param {number} y */
  at(x, y) {
    const down = y + this.box.scrollTop;
    for (let at = this.firstInSight(down); at < this.cells.length; at += 1) {
      const cell = this.cells[at];
      if (cell.y > down + HEAD) break;
      if (x >= cell.x && x < cell.x + this.size + GAP && down >= cell.y && down < cell.y + this.size + GAP) return at;
    }
    return -1;
  }

  /** Move the focus; rows above and below are found by where they are. @param {string} key */
  move(key) {
    if (!this.cells.length) return;
    const last = this.cells.length - 1;
    const now = this.focus < 0 ? 0 : this.focus;
    const moves = /** @type {Record<string, () => number>} */ ({
      ArrowRight: () => (this.focus < 0 ? 0 : Math.min(last, now + 1)),
      ArrowLeft: () => Math.max(0, now - 1),
      ArrowDown: () => this.vertical(now, 1),
      ArrowUp: () => this.vertical(now, -1),
      Home: () => 0,
      End: () => last,
      PageDown: () => this.vertical(now, 1, this.box.clientHeight * 0.8),
      PageUp: () => this.vertical(now, -1, this.box.clientHeight * 0.8),
    });
    this.set(moves[key]());
  }

  /** @param {number} from @param {1 | -1} way @param {number} [least] */
  vertical(from, way, least = 1) {
    const start = this.cells[from];
    let best = from, distance = Infinity, row = NaN;
    for (let at = from; at >= 0 && at < this.cells.length; at += way) {
      const cell = this.cells[at];
      const down = (cell.y - start.y) * way;
      if (down < least) continue;
      if (Number.isNaN(row)) row = cell.y;
      if (Math.abs(cell.y - row) > this.size * 9) break;
      const away = Math.abs(cell.x - start.x) + Math.abs(cell.y - row) * 4;
      if (away < distance) [best, distance] = [at, away];
    }
    return best;
  }

  /** @param {number} at */
  set(at) {
    this.focus = at;
    const cell = this.cells[at];
    if (cell) {
      const { box } = this;
      if (cell.y < box.scrollTop + HEAD) box.scrollTop = Math.max(0, cell.y - HEAD - LABEL);
      else if (cell.y + this.size > box.scrollTop + box.clientHeight) box.scrollTop = cell.y + this.size + PAD - box.clientHeight;
    }
    this.paint();
  }
}

/** Figures of some cells. @param {any[]} cells */
export function summary(cells) {
  let memory = 0, allocated = 0, ill = 0;
  for (const { card } of cells) {
    memory += card[F.memory];
    allocated += card[F.allocated];
    if (!isWell(card)) ill += 1;
  }
  return { cards: number(cells.length), memory: percent(memory ? allocated / memory : 0), ill: number(ill) };
}

/** @param {string} one @param {string} other */
const compare = (one, other) => (one < other ? -1 : one > other ? 1 : 0);

/** @param {string} text */
const rgb = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));

/** @param {number[]} low @param {number[]} high @param {number} part */
const mix = (low, high, part) =>
  `rgb(${low.map((from, at) => Math.round(from + (high[at] - from) * part)).join(",")})`;

/** @param {CanvasRenderingContext2D} pen @param {string} text @param {number} width */
function cut(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let kept = text;
  while (kept.length > 3 && pen.measureText(`…${kept}`).width > width) kept = kept.slice(1);
  return `…${kept}`; // names of nodes differ at their end
}
