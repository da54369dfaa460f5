// What the server tells: a state, and changes on top of it. A lost connection is told and comes back.

const BEAT_MS = 5000;
const LOST_MS = 3 * BEAT_MS + 1000;
const AGAIN_MS = 1500;
const HIDDEN_MS = 30000;

/** The cluster that this tab looks into; empty for all of them, or where the page has one. */
export const cluster = new URLSearchParams(location.search).get("cluster") ?? "";

/** An address with its query, in the cluster of this tab. @param {string} path @param {Record<string, string>} [query] */
export function inCluster(path, query = {}) {
  const whole = new URLSearchParams(cluster ? { cluster, ...query } : query).toString();
  return whole ? `${path}?${whole}` : path;
}

/** Places of the figures of a card in the server's rows. */
export const F = {
  index: 0, model: 1, memory: 2, allocated: 3, suspended: 4, high: 5, low: 6, state: 7, sharers: 8, unseen: 9, least: 10,
};

export class Store extends EventTarget {
  constructor() {
    super();
    /** @type {Map<string, {name: string, problem: string, cards: any[][]}>} */
    this.nodes = new Map();
    this.lists = { queues: /** @type {any[]} */ ([]), waiting: { count: 0, rows: /** @type {any[]} */ ([]) }, decisions: /** @type {any[]} */ ([]) };
    this.health = { ended: "", kinds: /** @type {Record<string, any>} */ ({}), error: "" };
    /** @type {any} */
    this.scope = null;
    this.rev = -1;
    /** @type {"connecting" | "live" | "lost" | "ended"} */
    this.connection = "connecting";
    this.why = "";
    /** @type {EventSource | null} */
    this.source = null;
    /** @type {any[] | null} Changes that came while a state was on its way. */
    this.held = null;
    this.heard = Date.now();
    this.timer = setInterval(() => this.look(), 1000);
    this.hidden = 0;
    this.seen = () => this.look();
    document.addEventListener("visibilitychange", this.seen);
  }

  open() {
    this.source?.close();
    const source = new EventSource(inCluster("/api/stream"));
    this.source = source;
    this.heard = Date.now();
    source.addEventListener("hello", () => { this.heard = Date.now(); this.take(); });
    source.addEventListener("beat", () => { this.heard = Date.now(); });
    source.addEventListener("change", (event) => this.changed(JSON.parse(event.data)));
    source.addEventListener("ended", (event) => this.end(JSON.parse(event.data).why));
    source.addEventListener("error", () => this.failed(source));
  }

  close() {
    clearInterval(this.timer);
    document.removeEventListener("visibilitychange", this.seen);
    this.source?.close();
    this.source = null;
  }

  /** Browsers have few connections for each server: a tab that is not in sight gives its own back. */
  look() {
    if (!document.hidden) {
      if (this.hidden && !this.source && this.connection === "live") this.open();
      this.hidden = 0;
    } else if (!this.hidden) this.hidden = Date.now();
    else if (Date.now() - this.hidden > HIDDEN_MS && this.connection === "live") {
      this.source?.close();
      this.source = null;
    }
    if (this.source && Date.now() - this.heard > LOST_MS) {
      this.say("lost");
      this.open();
    }
  }

  /** @param {EventSource} source */
  failed(source) {
    if (source !== this.source || this.connection === "ended") return;
    this.say("lost");
    if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    this.source = null;
    setTimeout(() => this.again(), AGAIN_MS);
  }

  async again() {
    if (this.source) return;
    try {
      const session = await (await fetch("/api/session")).json();
      if (!session.signedIn) return this.end("signed-out");
    } catch {
      setTimeout(() => this.again(), AGAIN_MS);
      return;
    }
    this.open();
  }

  /** @param {string} why */
  end(why) {
    this.source?.close();
    this.source = null;
    if (why === "rights") {
      setTimeout(() => this.again(), AGAIN_MS);
      return;
    }
    this.why = why;
    this.say("ended");
  }

  /** A fresh state; changes meanwhile are held and put on top of it. */
  async take() {
    if (this.held) return;
    this.held = [];
    try {
      const answer = await fetch(inCluster("/api/state"));
      if (!answer.ok) throw new Error(String(answer.status));
      const state = await answer.json();
      this.rev = state.rev;
      this.nodes = new Map(state.nodes.map((/** @type {any[]} */ row) => [row[0], node(row)]));
      Object.assign(this.lists, state.lists);
      this.health = state.health;
      this.scope = state.scope;
      const held = this.held;
      this.held = null;
      for (const change of held) this.put(change);
      this.say("live");
      this.tell({ nodes: true, lists: true, shape: true });
    } catch {
      this.held = null;
      this.say("lost");
      setTimeout(() => this.source && this.take(), AGAIN_MS);
    }
  }

  /** @param {any} change */
  changed(change) {
    this.heard = Date.now();
    if (this.held) this.held.push(change);
    else if (change.again) this.take();
    else if (this.rev >= 0) this.tell(this.put(change));
  }

  /** @param {any} change */
  put(change) {
    const told = { nodes: false, lists: false, shape: false, names: new Set() };
    if (change.again || change.rev <= this.rev) return told;
    this.rev = change.rev;
    for (const row of change.nodes ?? []) {
      const known = this.nodes.get(row[0]);
      told.nodes = true;
      told.names.add(row[0]);
      if (row.length === 1) {
        this.nodes.delete(row[0]);
        told.shape = true;
        continue;
      }
      const fresh = node(row);
      if (!known || !alike(known, fresh)) told.shape = true;
      this.nodes.set(row[0], fresh);
    }
    if (change.lists) {
      Object.assign(this.lists, change.lists);
      told.lists = true;
    }
    if (change.health) this.health = change.health;
    if (change.scope) this.scope = change.scope;
    if (change.health || change.scope) told.lists = true;
    return told;
  }

  /** @param {any} what */
  tell(what) {
    this.dispatchEvent(new CustomEvent("change", { detail: what }));
  }

  /** An end stays one: a state that was on its way does not undo it. @param {"connecting" | "live" | "lost" | "ended"} connection */
  say(connection) {
    if (connection !== "ended" && (this.connection === connection || this.connection === "ended")) return;
    this.connection = connection;
    this.dispatchEvent(new Event("connection"));
  }
}

/** @param {any[]} row */
const node = (row) => ({ name: row[0], problem: row[1], cards: row[2] });

/** @param {any} one @param {any} other */
function alike(one, other) {
  return one.cards.length === other.cards.length &&
    one.cards.every((/** @type {any[]} */ card, /** @type {number} */ at) =>
      card[F.index] === other.cards[at][F.index] && card[F.model] === other.cards[at][F.model]);
}

/** A document of the API, or an error with the server's text. @param {string} path @param {Record<string, string>} query */
export async function ask(path, query) {
  const answer = await fetch(inCluster(path, query));
  const document = await answer.json();
  if (!answer.ok) throw new Error(document.error ?? String(answer.status));
  return document;
}
