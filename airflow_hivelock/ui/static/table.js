// A table that creates only the visible rows, and keeps the elements of unchanged rows.

import { h } from "./dom.js";

const SPARE = 12;

/**
 * @typedef {number | string | Value[]} Value a sort key
 *
 * @typedef {object} Row
 * @property {string} key
 * @property {string} [sign] while it stays the same, the row is not drawn again
 * @property {string} [tone]
 * @property {boolean} [member] of a group of rows
 * @property {boolean} [open] a group that shows its members
 * @property {any[]} [members] of a group
 */

/**
 * @template {Row} R
 * @typedef {object} Column
 * @property {string} name
 * @property {string | Node} title
 * @property {string} class
 * @property {string} [label] before the cell, where the table has no head
 * @property {(row: R) => Value} [order]
 * @property {(row: R) => import("./dom.js").Child} cell
 */

/**
 * Values of one kind, or lists of values: the first that differ decide.
 * @param {Value} a
 * @param {Value} b
 * @returns {number}
 */
function compare(a, b) {
  if (!Array.isArray(a) || !Array.isArray(b)) return a < b ? -1 : a > b ? 1 : 0;
  const at = a.findIndex((value, index) => value !== b[index]);
  return at < 0 ? 0 : compare(a[at], b[at]);
}

/** @template {Row} R */
export class Table {
  /** @param {{name: string, label: string, columns: Column<R>[], sort: string, open?: (row: R) => void}} options open: on Enter and on a click */
  constructor({ name, label, columns, sort, open }) {
    this.columns = columns;
    this.open = open;
    this.sort = { name: sort, down: false };
    /** @type {R[]} */
    this.all = []; // without the members of groups
    /** @type {R[]} */
    this.rows = [];
    /** @type {Set<string>} */
    this.opened = new Set();
    /** @type {Map<string, Shown<R>>} */
    this.shown = new Map();
    this.active = 0;
    this.height = 34; // of a row; the style sheet has another one for a narrow page
    this.head = h("tr", { role: "row" }, columns.map((column) => this.#header(column)));
    this.body = h("tbody", { role: "rowgroup" });
    this.table = h("table", { role: "treegrid", "aria-label": label, class: `t-${name}` }, h("thead", { role: "rowgroup" }, this.head), this.body);
    this.before = new Spacer();
    this.after = new Spacer();
    this.empty = h("p", { class: "empty", hidden: true });
    this.element = h("div", { class: "scroller", onscroll: () => this.#later() }, this.table, this.empty);
    this.table.addEventListener("keydown", (event) => this.#key(event));
    this.watcher = new ResizeObserver(() => this.#later());
    this.watcher.observe(this.element);
    /** @type {number | undefined} */
    this.frame = undefined;
  }

  /**
   * @param {R[]} rows
   * @param {string | null} whyEmpty
   */
  set(rows, whyEmpty = this.empty.textContent) {
    const active = this.rows[this.active]?.key;
    this.all = rows;
    this.rows = this.#sorted(rows).flatMap((row) => (row.open ? [row, ...this.#sorted(row.members ?? [])] : [row]));
    const index = this.rows.findIndex((row) => row.key === active);
    this.active = index >= 0 ? index : Math.min(this.active, Math.max(0, this.rows.length - 1));
    this.table.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.empty.hidden = this.rows.length > 0;
    if (this.empty.textContent !== whyEmpty) this.empty.textContent = whyEmpty;
    this.#draw();
  }

  /** @param {Column<R>} column */
  #header(column) {
    const sortable = column.order !== undefined;
    const inner = sortable ? h("button", { type: "button", class: "sort", onclick: () => this.#sortBy(column) }, column.title) : column.title;
    return h("th", { role: "columnheader", scope: "col", class: column.class, "data-name": column.name }, inner);
  }

  /** @param {Column<R>} column */
  #sortBy(column) {
    this.sort = { name: column.name, down: this.sort.name === column.name && !this.sort.down };
    this.set(this.all);
  }

  /**
   * Open or close a group.
   * @param {R} row
   */
  #toggle(row) {
    row.open = !row.open;
    row.sign = undefined;
    this.opened[row.open ? "add" : "delete"](row.key);
    this.set(this.all);
  }

  /** @param {R} row */
  #act(row) {
    if (row.members) this.#toggle(row);
    else this.open?.(row);
  }

  /** @param {R[]} rows */
  #sorted(rows) {
    const order = this.columns.find((column) => column.name === this.sort.name)?.order;
    for (const cell of this.head.cells) {
      const isSortedBy = cell.dataset.name === this.sort.name;
      if (isSortedBy) cell.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    if (order === undefined) return rows;
    const direction = this.sort.down ? -1 : 1;
    return rows.map((row) => ({ value: order(row), row }))
      .sort((a, b) => direction * compare(a.value, b.value))
      .map(({ row }) => row);
  }

  #later() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.#draw();
    });
  }

  #draw() {
    const height = this.element.clientHeight || 600;
    this.height = parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || this.height;
    const first = Math.max(0, Math.floor(this.element.scrollTop / this.height) - SPARE);
    const last = Math.min(this.rows.length, first + Math.ceil(height / this.height) + 2 * SPARE);
    /** @type {Map<string, number>} */
    const visible = new Map();
    for (let index = first; index < last; index += 1) visible.set(this.rows[index].key, index);
    if (this.rows.length) visible.set(this.rows[this.active].key, this.active);
    for (const [key, shown] of this.shown) {
      if (!visible.has(key)) {
        shown.element.remove();
        this.shown.delete(key);
      }
    }
    this.before.set(first * this.height);
    this.after.set(Math.max(0, this.rows.length - last) * this.height);
    const indexes = [...visible.values()].sort((a, b) => a - b);
    /** @type {HTMLTableRowElement[]} */
    const wanted = [];
    for (const index of indexes) {
      if (index === first && !wanted.includes(this.before.element)) wanted.push(this.before.element);
      wanted.push(this.#row(index, index < first || index >= last));
    }
    if (!wanted.includes(this.before.element)) wanted.unshift(this.before.element);
    wanted.push(this.after.element);
    this.#place(wanted);
  }

  /**
   * Put these elements in the body, in that order. An element that is not moved keeps its focus.
   * @param {HTMLTableRowElement[]} wanted
   */
  #place(wanted) {
    let next = this.body.firstChild;
    for (const element of wanted) {
      if (next !== null && element === next) next = next.nextSibling;
      else this.body.insertBefore(element, next);
    }
    while (next !== null) {
      const gone = next;
      next = next.nextSibling;
      gone.remove();
    }
  }

  /**
   * @param {number} index
   * @param {boolean} unseen
   */
  #row(index, unseen) {
    const row = this.rows[index];
    const known = this.shown.get(row.key);
    const shown = known?.sign === row.sign && known?.sign !== undefined ? known : this.#make(row, index, known);
    shown.row = row;
    shown.index = index;
    shown.element.setAttribute("aria-rowindex", String(index + 2));
    shown.element.setAttribute("aria-level", row.member ? "2" : "1");
    if (row.members) shown.element.setAttribute("aria-expanded", String(row.open));
    shown.element.tabIndex = index === this.active ? 0 : -1;
    shown.element.classList.toggle("unseen-row", unseen);
    return shown.element;
  }

  /**
   * @param {R} row
   * @param {number} index
   * @param {Shown<R> | undefined} known the row as it was
   * @returns {Shown<R>}
   */
  #make(row, index, known) {
    const cells = this.columns.map((column) => h("td", { role: "gridcell", class: column.class, "data-name": column.name, "data-label": column.label }, column.cell(row)));
    const tones = [row.tone && `tone-${row.tone}`, row.member && "member", row.members && "group"].filter(Boolean).join(" ");
    if (known !== undefined) {
      const focused = known.element.contains(document.activeElement) ? document.activeElement : null;
      const links = () => [...known.element.querySelectorAll(/** @type {"a"} */ ("a, button"))];
      const inside = links().findIndex((link) => link === focused);
      known.element.replaceChildren(...cells);
      known.element.className = tones;
      known.sign = row.sign;
      if (inside >= 0) links()[inside]?.focus();
      return known;
    }
    const element = h("tr", { role: "row", class: tones }, cells);
    /** @type {Shown<R>} */
    const shown = { element, sign: row.sign, row, index };
    element.addEventListener("click", (event) => {
      if (isIn(event, shown.row.members ? "a" : "a, button")) return;
      this.#activate(shown.index, false);
      this.#act(shown.row);
    });
    element.addEventListener("focus", () => this.#activate(shown.index, false));
    this.shown.set(row.key, shown);
    return shown;
  }

  /**
   * @param {number} index
   * @param {boolean} focus
   */
  #activate(index, focus) {
    this.active = index;
    if (focus) {
      const top = index * this.height;
      const { scrollTop, clientHeight } = this.element;
      const head = this.head.offsetHeight;
      if (top < scrollTop) this.element.scrollTop = top;
      else if (top + this.height + head > scrollTop + clientHeight) this.element.scrollTop = top + this.height + head - clientHeight;
      this.#draw();
      this.shown.get(this.rows[index].key)?.element.focus({ preventScroll: true });
    } else {
      for (const shown of this.shown.values()) shown.element.tabIndex = shown.index === index ? 0 : -1;
    }
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (isIn(event, "thead") || this.rows.length === 0) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 2);
    /** @type {Record<string, number>} */
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      event.preventDefault();
      this.#activate(Math.min(this.rows.length - 1, Math.max(0, this.active + steps[event.key])), true);
    } else if (event.key === "Enter" && !isIn(event, "a, button")) {
      event.preventDefault();
      this.#act(this.rows[this.active]);
    } else if ((event.key === "ArrowRight" || event.key === "ArrowLeft") && this.rows[this.active].members) {
      event.preventDefault();
      if (this.rows[this.active].open !== (event.key === "ArrowRight")) this.#toggle(this.rows[this.active]);
    }
  }
}

/**
 * @template {Row} R
 * @typedef {{element: HTMLTableRowElement, sign?: string, row: R, index: number}} Shown
 */

// An empty row, as high as all rows that are not drawn there.
class Spacer {
  constructor() {
    this.cell = h("td", {});
    this.element = h("tr", { class: "spacer", "aria-hidden": "true" }, this.cell);
  }

  /** @param {number} height */
  set(height) {
    this.cell.style.height = `${height}px`;
  }
}

/**
 * @param {Event} event
 * @param {string} selector
 */
const isIn = ({ target }, selector) => target instanceof Element && target.closest(selector) !== null;
