// A table that makes only those rows that are in sight, and keeps the ones that have not changed.

import { h } from "./dom.js";

const SPARE = 12;

// Values of one kind, or lists of such: the first that differ decide.
function compare(a, b) {
  if (!Array.isArray(a)) return a < b ? -1 : a > b ? 1 : 0;
  const at = a.findIndex((value, place) => value !== b[place]);
  return at < 0 ? 0 : compare(a[at], b[at]);
}

export class Table {
  // columns: {name, title, cell(row) → node, order(row) → value, class, label: before the cell where the head is not}; open(row): what Enter and a click do.
  constructor({ name, label, columns, sort, open }) {
    this.columns = columns;
    this.open = open;
    this.sort = { name: sort, down: false };
    this.all = []; // with rows of members closed
    this.rows = [];
    this.opened = new Set();
    this.shown = new Map();
    this.active = 0;
    this.height = 34; // of a row: as the style sheet has it for this width
    this.head = h("tr", { role: "row" }, columns.map((column) => this.#header(column)));
    this.body = h("tbody", { role: "rowgroup" });
    this.table = h("table", { role: "treegrid", "aria-label": label, class: `t-${name}` }, h("thead", { role: "rowgroup" }, this.head), this.body);
    this.before = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", {}));
    this.after = this.before.cloneNode(true);
    this.empty = h("p", { class: "empty", hidden: true });
    this.element = h("div", { class: "scroller", onscroll: () => this.#later() }, this.table, this.empty);
    this.table.addEventListener("keydown", (event) => this.#key(event));
    this.watcher = new ResizeObserver(() => this.#later());
    this.watcher.observe(this.element);
  }

  set(rows, whyEmpty = this.empty.textContent) {
    const active = this.rows[this.active]?.key;
    this.all = rows;
    this.rows = this.#sorted(rows).flatMap((row) => (row.open ? [row, ...this.#sorted(row.members)] : [row]));
    const place = this.rows.findIndex((row) => row.key === active);
    this.active = place >= 0 ? place : Math.min(this.active, Math.max(0, this.rows.length - 1));
    this.table.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.empty.hidden = this.rows.length > 0;
    if (this.empty.textContent !== whyEmpty) this.empty.textContent = whyEmpty;
    this.#draw();
  }

  #header(column) {
    const sortable = column.order !== undefined;
    const inner = sortable ? h("button", { type: "button", class: "sort", onclick: () => this.#sortBy(column) }, column.title) : column.title;
    return h("th", { role: "columnheader", scope: "col", class: column.class, "data-name": column.name }, inner);
  }

  #sortBy(column) {
    this.sort = { name: column.name, down: this.sort.name === column.name && !this.sort.down };
    this.set(this.all);
  }

  // Open or close a row that stands for others.
  #toggle(row) {
    row.open = !row.open;
    row.sign = undefined;
    this.opened[row.open ? "add" : "delete"](row.key);
    this.set(this.all);
  }

  #act(row) {
    if (row.members) this.#toggle(row);
    else this.open?.(row);
  }

  #sorted(rows) {
    const order = this.columns.find((column) => column.name === this.sort.name)?.order;
    for (const cell of this.head.children) {
      const mine = cell.dataset.name === this.sort.name;
      if (mine) cell.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    if (order === undefined) return rows;
    const way = this.sort.down ? -1 : 1;
    return rows.map((row) => [order(row), row])
      .sort(([a], [b]) => way * compare(a, b))
      .map(([, row]) => row);
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
    const visible = new Map();
    for (let place = first; place < last; place += 1) visible.set(this.rows[place].key, place);
    if (this.rows.length) visible.set(this.rows[this.active].key, this.active);
    for (const [key, made] of this.shown) {
      if (!visible.has(key)) {
        made.element.remove();
        this.shown.delete(key);
      }
    }
    this.before.firstChild.style.height = `${first * this.height}px`;
    this.after.firstChild.style.height = `${Math.max(0, this.rows.length - last) * this.height}px`;
    const places = [...visible.values()].sort((a, b) => a - b);
    const wanted = [];
    for (const place of places) {
      if (place === first && !wanted.includes(this.before)) wanted.push(this.before);
      wanted.push(this.#row(place, place < first || place >= last));
    }
    if (!wanted.includes(this.before)) wanted.unshift(this.before);
    wanted.push(this.after);
    // Rows that stay where they are keep their focus.
    let next = this.body.firstChild;
    for (const element of wanted) {
      if (element === next) next = next.nextSibling;
      else this.body.insertBefore(element, next);
    }
    while (next !== null) {
      const gone = next;
      next = next.nextSibling;
      gone.remove();
    }
  }

  #row(place, unseen) {
    const row = this.rows[place];
    const known = this.shown.get(row.key);
    const made = known?.sign === row.sign && known.sign !== undefined ? known : this.#make(row, known);
    made.row = row;
    made.place = place;
    made.element.setAttribute("aria-rowindex", String(place + 2));
    made.element.setAttribute("aria-level", row.member ? "2" : "1");
    if (row.members) made.element.setAttribute("aria-expanded", String(row.open));
    made.element.tabIndex = place === this.active ? 0 : -1;
    made.element.classList.toggle("unseen-row", unseen);
    return made.element;
  }

  #make(row, known) {
    const cells = this.columns.map((column) => h("td", { role: "gridcell", class: column.class, "data-name": column.name, "data-label": column.label }, column.cell(row)));
    const tones = [row.tone && `tone-${row.tone}`, row.member && "member", row.members && "group"].filter(Boolean).join(" ");
    if (known !== undefined) {
      const focused = known.element.contains(document.activeElement) ? document.activeElement : null;
      const inside = focused === null || focused === known.element ? -1 : [...known.element.querySelectorAll("a, button")].indexOf(focused);
      known.element.replaceChildren(...cells);
      known.element.className = tones;
      known.sign = row.sign;
      if (inside >= 0) known.element.querySelectorAll("a, button")[inside]?.focus();
      return known;
    }
    const element = h("tr", { role: "row", class: tones });
    const made = { element, sign: row.sign };
    element.append(...cells);
    element.addEventListener("click", (event) => {
      if (event.target.closest(made.row.members ? "a" : "a, button")) return;
      this.#activate(made.place, false);
      this.#act(made.row);
    });
    element.addEventListener("focus", () => this.#activate(made.place, false));
    this.shown.set(row.key, made);
    return made;
  }

  #activate(place, focus) {
    this.active = place;
    if (focus) {
      const top = place * this.height;
      const { scrollTop, clientHeight } = this.element;
      const head = this.head.offsetHeight;
      if (top < scrollTop) this.element.scrollTop = top;
      else if (top + this.height + head > scrollTop + clientHeight) this.element.scrollTop = top + this.height + head - clientHeight;
      this.#draw();
      this.shown.get(this.rows[place].key).element.focus({ preventScroll: true });
    } else {
      for (const made of this.shown.values()) made.element.tabIndex = made.place === place ? 0 : -1;
    }
  }

  #key(event) {
    if (event.target.closest("thead") || this.rows.length === 0) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      event.preventDefault();
      this.#activate(Math.min(this.rows.length - 1, Math.max(0, this.active + steps[event.key])), true);
    } else if (event.key === "Enter" && event.target.closest("a, button") === null) {
      event.preventDefault();
      this.#act(this.rows[this.active]);
    } else if ((event.key === "ArrowRight" || event.key === "ArrowLeft") && this.rows[this.active].members) {
      event.preventDefault();
      if (this.rows[this.active].open !== (event.key === "ArrowRight")) this.#toggle(this.rows[this.active]);
    }
  }
}
