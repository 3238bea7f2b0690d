// Elements are created one by one and filled with text nodes only, because users choose the names that are shown.

/**
 * @typedef {Node | string | null | undefined | false | Child[]} Child
 * @typedef {{
 *   [name: string]: string | number | boolean | null | undefined | ((event: never) => void),
 *   onclick?: (event: MouseEvent) => void,
 *   onauxclick?: (event: MouseEvent) => void,
 *   onkeydown?: (event: KeyboardEvent) => void,
 * }} Attributes
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @template {Element} E
 * @param {E} element
 * @param {Attributes} attributes
 * @param {Child[]} children
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Child[]} children
 */
function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== undefined && child !== null && child !== false) element.append(child);
  }
}

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} attributes
 * @param {Child[]} children
 */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} attributes
 * @param {Child[]} children
 */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * Cut a long text in its middle, because names differ at their ends.
 * @param {string} text
 * @param {number} length
 */
export function middle(text, length) {
  if (text.length <= length) return text;
  const tail = Math.floor((length - 1) * 0.6);
  return `${text.slice(0, length - 1 - tail)}…${text.slice(text.length - tail)}`;
}

/**
 * Do the same by CSS, for any width: two parts, and CSS cuts only the first.
 * @param {string} text
 * @param {number} tail
 */
export const cutInTheMiddle = (text, tail) =>
  text.length > tail + 4 ? [h("span", { class: "head" }, text.slice(0, -tail)), h("span", { class: "tail" }, text.slice(-tail))] : [h("span", { class: "tail" }, text)];

/**
 * The element of index.html with that id.
 * @template {HTMLElement} E
 * @param {string} id
 * @param {new () => E} kind
 */
export function byId(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`The page has no ${kind.name} with the id ${id}`);
  return element;
}

/**
 * A link to one of Airflow's own pages. Airflow's frame for this page allows neither new windows nor leaving it.
 * So the page around the frame follows the link; it has the same origin.
 * @param {string} href
 * @param {Child} text
 * @param {string} title
 */
export function airflowLink(href, text, title) {
  return h("a", { href, title, class: "airflow cut", onclick: follow, onauxclick: follow }, text);
}

/** @param {MouseEvent} event */
function follow(event) {
  let outer;
  try {
    outer = window.parent === window ? null : window.parent.document;
  } catch {
    outer = null;
  }
  event.stopPropagation();
  if (outer === null || event.button > 1 || !(event.currentTarget instanceof HTMLAnchorElement)) return;
  event.preventDefault();
  const link = outer.createElement("a");
  link.href = event.currentTarget.href;
  link.rel = "noopener";
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button === 1) link.target = "_blank";
  outer.body.append(link);
  link.click();
  link.remove();
}
