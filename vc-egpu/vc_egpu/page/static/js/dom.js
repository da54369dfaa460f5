// Elements without markup: every text goes in as text, so that no name of a tenant is ever read as HTML.

/**
 * @param {string} tag
 * @param {Record<string, any> | null} [attributes] `on...` are listeners, `style` is set property by property
 * @param {...any} children texts, elements, lists of these; null and false are left out
 * @returns {any}
 */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, String(one));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

/** @param {Element} element @param {any[]} children */
function add(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(element, child);
    else element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Put these children in the place of all that an element has. @param {Element} element @param {...any} children */
export function fill(element, ...children) {
  const active = document.activeElement;
  const key = active instanceof HTMLElement && element.contains(active) ? active.dataset.key : undefined;
  element.replaceChildren();
  add(element, children);
  if (key) /** @type {any} */ (element.querySelector(`[data-key="${CSS.escape(key)}"]`))?.focus();
}

/** @param {(...rest: any[]) => void} action @param {number} ms */
export function later(action, ms) {
  let timer = 0;
  return (/** @type {any[]} */ ...rest) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...rest), ms);
  };
}

/** A table with a caption. @param {string} caption @param {any[]} heads @param {any[]} rows */
export function table(caption, heads, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null,
      h("caption", { class: "hidden" }, caption),
      h("thead", null, h("tr", null, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", null, rows)));
}
