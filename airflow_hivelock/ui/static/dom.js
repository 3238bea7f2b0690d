// Elements are made by hand and filled with text nodes only: names come from strangers.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Names differ at their ends, so that what does not fit is cut out of the middle.
export function middle(text, length) {
  if (text.length <= length) return text;
  const tail = Math.floor((length - 1) * 0.6);
  return `${text.slice(0, length - 1 - tail)}…${text.slice(text.length - tail)}`;
}

// The same by CSS, for however much room there is: of two parts the first gives way.
export const cutInTheMiddle = (text, tail) =>
  text.length > tail + 4 ? [h("span", { class: "head" }, text.slice(0, -tail)), h("span", { class: "tail" }, text.slice(-tail))] : [h("span", { class: "tail" }, text)];

export const byId = (id) => document.getElementById(id);

// Airflow's frame for this page allows neither new windows nor leaving it, so that a link to one of Airflow's own pages
// is followed by the page around, which is of the same origin.
export function airflowLink(href, text, title) {
  return h("a", { href, title, class: "airflow cut", onclick: follow, onauxclick: follow }, text);
}

function follow(event) {
  let outer;
  try {
    outer = window.parent === window ? null : window.parent.document;
  } catch {
    outer = null;
  }
  event.stopPropagation();
  if (outer === null || event.button > 1) return;
  event.preventDefault();
  const link = outer.createElement("a");
  link.href = event.currentTarget.href;
  link.rel = "noopener";
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button === 1) link.target = "_blank";
  outer.body.append(link);
  link.click();
  link.remove();
}
