// The page as a whole: head, views by address, sign-in, and whether the connection is well.

import { CardsView } from "./cards.js";
import { fill, h } from "./dom.js";
import { JobView } from "./job.js";
import { Store, cluster, inCluster } from "./store.js";
import { SitesView, called } from "./sites.js";
import { DecisionsView, QueuesView, WaitingView } from "./tables.js";
import { LANGUAGES, language, loadTexts, nameOf, number, read, t, write } from "./texts.js";

const VIEWS = /** @type {Record<string, any>} */ ({ cards: CardsView, queues: QueuesView, waiting: WaitingView, decisions: DecisionsView, job: JobView });
const THEMES = ["auto", "light", "dark"];

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const head = /** @type {HTMLElement} */ (document.getElementById("head"));
const banner = /** @type {HTMLElement} */ (document.getElementById("banner"));
/** @type {Store | null} */ let store = null;
/** @type {any} */ let view = null;
/** @type {any} */ let session = null;
let shown = "";
/** @type {"connecting" | "live" | "lost" | "ended"} */ let sitesLight = "connecting";

function theme(/** @type {string} */ chosen) {
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  view?.map?.recolour();
}

function drawHead() {
  const [name] = address();
  const sites = session?.sites;
  const links = sites && !cluster ? [] : ["cards", "queues", "waiting", "decisions"].map((one) =>
    h("a", { href: `#/${one}`, "aria-current": one === name ? "page" : null, "data-key": `nav-${one}` }, t(`${one}.title`),
      one === "waiting" && store && store.lists.waiting.count > 0 && h("span", { class: "count" }, number(store.lists.waiting.count))));
  const languages = h("select", { id: "language", "data-key": "language", onchange: async (/** @type {any} */ event) => {
    await loadTexts(event.target.value);
    redraw();
  } }, LANGUAGES.map((code) => h("option", { value: code, selected: code === language, lang: code }, nameOf(code))));
  const themes = h("select", { id: "theme", "data-key": "theme", onchange: (/** @type {any} */ event) => {
    write("egpu-theme", event.target.value);
    theme(event.target.value);
  } }, THEMES.map((one) => h("option", { value: one, selected: one === (read("egpu-theme") ?? "auto") }, t(`theme.${one}`))));
  if (sites) links.unshift(h("a", { href: "/", "aria-current": cluster ? null : "page", "data-key": "nav-sites" }, t("sites.title")));
  const light = store?.connection ?? (sites && !cluster ? sitesLight : null);
  fill(head, h("strong", { class: "brand" }, "vc-egpu"),
    session?.signedIn && h("nav", { "aria-label": t("views") }, links),
    h("div", { class: "tools" },
      session?.signedIn && sites && switchOf(sites),
      light && h("span", { class: `light ${light}`, id: "connection" }, t(`connection.${light}`)),
      session?.signedIn && h("span", { class: "quiet", id: "user" }, session.user),
      h("label", { class: "hidden", for: "language" }, t("language")), languages,
      h("label", { class: "hidden", for: "theme" }, t("theme")), themes,
      session?.passedOn && namespacesForm(),
      session?.signedIn && session.takesTokens && !session.passedOn && h("button", { type: "button", "data-key": "out", onclick: signOut }, t("sign.out"))));
}

/** Goes into another cluster, to the same view. @param {any[]} sites */
function switchOf(sites) {
  const go = (/** @type {any} */ event) => {
    const name = event.target.value;
    location.assign(name ? `${inCluster("/", { cluster: name })}${location.hash}` : "/");
  };
  return [h("label", { for: "cluster", class: "hidden" }, t("sites.switch")),
    h("select", { id: "cluster", "data-key": "cluster", onchange: go },
      h("option", { value: "", selected: !cluster }, t("sites.all")),
      sites.map((one) => h("option", { value: one.name, selected: one.name === cluster }, one.city && one.city !== called(one) ? `${called(one)} (${one.city})` : called(one))))];
}

function drawBanner() {
  const lines = [];
  if (store?.connection === "lost" || (session?.sites && !cluster && sitesLight === "lost")) lines.push(t("lost.page"));
  if (store && store.connection !== "lost") {
    if (store.health.error) lines.push(t("lost.api", { error: store.health.error }));
    for (const [kind, { error }] of Object.entries(store.health.kinds)) if (error) lines.push(t("lost.kind", { kind: t(`kind.${kind}`), error }));
    const late = Object.entries(store.health.kinds).filter(([, one]) => !one.synced && !one.error).map(([kind]) => t(`kind.${kind}`));
    if (late.length && store.rev >= 0) lines.push(t("late", { kinds: late.join(", ") }));
  }
  const kinds = store ? Object.values(store.health.kinds) : [];
  const isRead = kinds.length > 1 && kinds.every((one) => one.synced) && lines.length === 0 && store?.connection === "live";
  document.documentElement.dataset.read = isRead ? "yes" : "no";
  if (session?.sites && cluster && store?.connection === "ended") lines.push(t("sites.ended"));
  const bad = lines.length > 0;
  banner.className = bad ? "shown" : "";
  const text = lines.join(" ");
  if (banner.textContent !== text) banner.textContent = text;
}

/** The parts of the address behind the hash. */
function address() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return parts[0] in VIEWS ? parts : ["cards"];
}

/** All clusters at once. */
function drawSites() {
  view?.leave();
  document.title = `${t("sites.title")} – vc-egpu`;
  view = new SitesView(main, (light) => {
    if (light === sitesLight) return;
    sitesLight = light;
    drawHead();
    drawBanner();
  });
}

function route() {
  if (!store || !session?.signedIn) return;
  if (location.hash === "#main") return;
  const [name, ...rest] = address();
  if (name !== shown) {
    const first = shown === "";
    view?.leave();
    view = new VIEWS[name](store, main, session.history);
    shown = name;
    document.title = name === "job" ? `${rest.join("/")} – vc-egpu` : `${t(`${name}.title`)} – vc-egpu`;
    drawHead();
    if (!first) {
      main.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
  }
  view.route(rest);
}

function redraw() {
  shown = "";
  /** @type {HTMLElement} */ (document.getElementById("skip")).textContent = t("skip");
  drawHead();
  drawBanner();
  if (session?.signedIn && session.sites && !cluster) drawSites();
  else if (session?.signedIn) route();
  else drawSignIn("");
}

/** @param {string} problem */
function drawSignIn(problem) {
  view?.leave();
  view = null;
  shown = "";
  document.title = "vc-egpu";
  if (!session.takesTokens) {
    fill(main, h("h1", null, t("sign.title")), session.problem && h("p", { class: "bad", role: "alert" }, session.problem), h("p", null, t("sign.link")), h("pre", null, "kubectl egpu ui"));
    return;
  }
  const token = h("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const namespaces = h("input", { id: "namespaces", type: "text", autocomplete: "off", spellcheck: "false", placeholder: "ml-team, research" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const answer = await fetch("/api/sign-in", { method: "POST", body: JSON.stringify({ token: token.value, namespaces: namespaces.value }) });
    token.value = "";
    if (answer.ok) return start();
    drawSignIn((await answer.json()).error);
  };
  fill(main, h("h1", null, t("sign.title")), h("p", null, t("sign.about")),
    (problem || session.problem) && h("p", { class: "bad", role: "alert" }, problem || session.problem),
    h("form", { class: "sign", onsubmit: submit },
      h("label", { for: "token" }, t("sign.token")), token,
      h("label", { for: "namespaces" }, t("sign.namespaces")), namespaces,
      h("p", { class: "quiet small" }, t("sign.namespaces.about")),
      h("button", { type: "submit" }, t("sign.in"))),
    h("p", { class: "quiet small" }, t("sign.how")), h("pre", null, "kubectl create token my-account -n my-namespace --duration=8h"));
  token.focus();
}

/** Behind a proxy nobody signs in: namespaces are named here. */
function namespacesForm() {
  const named = h("input", { type: "text", "aria-label": t("sign.namespaces"), placeholder: t("sign.namespaces"), value: session.namespaces.join(", "), autocomplete: "off", spellcheck: "false", "data-key": "namespaces" });
  return h("form", { class: "inline", onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault();
    await fetch("/api/sign-in", { method: "POST", body: JSON.stringify({ token: "", namespaces: named.value }) });
    await start();
  } }, named, h("button", { type: "submit" }, t("namespaces.look")));
}

async function signOut() {
  await fetch("/api/sign-out", { method: "POST" });
  location.hash = "";
  await start();
}

async function start() {
  store?.close();
  store = null;
  session = await (await fetch("/api/session")).json();
  redraw();
  if (!session.signedIn || (session.sites && !cluster)) return;
  const fresh = new Store();
  store = fresh;
  fresh.addEventListener("connection", () => {
    drawHead();
    drawBanner();
    if (fresh.connection === "ended" && !session.sites) start();
  });
  fresh.addEventListener("change", (event) => {
    const what = /** @type {CustomEvent} */ (event).detail;
    if (what.lists) { drawHead(); drawBanner(); }
    view?.refresh(what);
    if (what.shape) route();
  });
  fresh.open();
  redraw();
}

theme(read("egpu-theme") ?? "auto");
addEventListener("hashchange", route);
await loadTexts();
await start();
