// Texts of the chosen language. Keys are the same in all languages; a test holds that.

export const LANGUAGES = ["en", "zh-Hans"];
const NAMES = { en: "English", "zh-Hans": "简体中文" };
/** @type {Record<string, string>} */
let texts = {};
export let language = "en";

/** The language that the address, the user's last choice or the browser asks for. */
function wished() {
  const asked = [new URLSearchParams(location.search).get("lang"), read("egpu-lang"), ...navigator.languages];
  for (const one of asked) {
    if (!one) continue;
    if (LANGUAGES.includes(one)) return one;
    const first = one.toLowerCase().split("-")[0];
    if (first === "zh") return "zh-Hans";
    if (first === "en") return "en";
  }
  return "en";
}

export async function loadTexts(/** @type {string | null} */ chosen = null) {
  language = chosen ?? wished();
  const answer = await fetch(`/static/lang/${language}.json`);
  texts = await answer.json();
  document.documentElement.lang = language;
  if (chosen) write("egpu-lang", chosen);
}

/** @param {string} code */
export const nameOf = (code) => /** @type {Record<string, string>} */ (NAMES)[code];

/** The text of a key, with its values; `count` among them chooses the plural.
 * @param {string} key @param {Record<string, any>} [values] */
export function t(key, values = {}) {
  let found = texts[key];
  if (found === undefined && "count" in values) {
    const one = new Intl.PluralRules(language).select(values.count) === "one";
    found = texts[`${key}.${one ? "one" : "other"}`];
  }
  if (found === undefined) return key;
  return found.replace(/\{(\w+)\}/g, (_, name) => {
    const value = values[name];
    return typeof value === "number" ? number(value) : String(value ?? "");
  });
}

/** @param {string} key */
export const knows = (key) => key in texts;

/** @param {number} value */
export const number = (value) => new Intl.NumberFormat(language, { maximumFractionDigits: 1 }).format(value);

/** @param {number} ratio */
export const percent = (ratio) =>
  new Intl.NumberFormat(language, { style: "percent", maximumFractionDigits: 0 }).format(ratio);

/** @param {number} mib */
export const memory = (mib) => (mib >= 1024 ? `${number(mib / 1024)} GiB` : `${number(mib)} MiB`);

/** A figure that may be more, where it is not known what unseen pods hold. @param {any[]} card @param {string} value */
export const least = (card, value) => (card[10] ? t("least", { value }) : value);

/** How long ago. @param {string} iso @param {number} [now] */
export function ago(iso, now = Date.now()) {
  const seconds = (Date.parse(iso) - now) / 1000;
  if (Number.isNaN(seconds)) return "";
  const format = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" });
  const past = Math.max(0, -seconds);
  if (past < 60) return format.format(-Math.round(past), "second");
  if (past < 3600) return format.format(-Math.round(past / 60), "minute");
  if (past < 86400) return format.format(-Math.round(past / 3600), "hour");
  return format.format(-Math.round(past / 86400), "day");
}

/** @param {string} iso */
export function moment(iso) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return iso;
  return new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" }).format(at);
}

/** A reason in the user's language; an unknown one as it is. @param {string} reason */
export const reason = (reason) => (knows(`reason.${reason}`) ? t(`reason.${reason}`) : reason);

/** What would help; empty where nothing is known. @param {string} reason */
export const help = (reason) => (knows(`help.${reason}`) ? t(`help.${reason}`) : "");

/** A card's state; what stands behind a colon is the node's own text. @param {string} state */
export function stateText(state) {
  const [word, ...rest] = state.split(": ");
  const key = `state.${word}`;
  return (knows(key) ? t(key) : word) + (rest.length ? `: ${rest.join(": ")}` : "");
}

/** @param {string} name */
export const classText = (name) => (knows(`class.${name}`) ? t(`class.${name}`) : name);

/** @param {string} key */
export function read(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null; // a browser may keep nothing
  }
}

/** @param {string} key @param {string} value */
export function write(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // the choice holds until the page is closed
  }
}
