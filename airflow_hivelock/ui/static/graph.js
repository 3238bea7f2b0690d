// Who waits for whom: one drawing for each cluster of requests, with the holders at the left and the waiters to their right.

import { h, middle, svg } from "./dom.js";
import { count, duration, now } from "./format.js";
import { awaitedText, leaseOfGroup, reasonOf, waitsForLock } from "./model.js";
import { ownerText, runText, taskText } from "./owners.js";

/**
 * @typedef {import("./model.js").Model} Model
 * @typedef {import("./model.js").Waiter} Waiter
 * @typedef {import("./model.js").RowFilter} RowFilter
 *
 * @typedef {{waiters: Waiter[], holders: number[]}} Cluster
 * @typedef {{x: number, y: number}} Point
 * @typedef {{waiter: (waiter: Waiter) => void, holder: (holder: {o: number, owner: Answer.Owner}) => void}} Open what a click on a box does
 */

const BOX = { width: 236, height: 52, right: 76, below: 10 };
const MOST_CLUSTERS = 12;
const MOST_IN_COLUMN = 8;
const MOST_COLUMNS = 8;

/**
 * @param {HTMLElement} panel
 * @param {Model} model
 * @param {RowFilter} filter
 * @param {Open} open
 * @param {string} whyEmpty
 */
export function drawGraph(panel, model, filter, open, whyEmpty) {
  const clusters = clustersOf(model).filter((cluster) => cluster.waiters.some(filter) || cluster.holders.some((holder) => filter(asRow(model, holder))));
  clusters.sort((a, b) => b.waiters.length - a.waiters.length);
  const figures = clusters.slice(0, MOST_CLUSTERS).map((cluster) => figure(model, cluster, open));
  const more = clusters.length - figures.length;
  panel.replaceChildren(h("div", { class: "clusters" },
    figures.length ? null : h("p", { class: "empty" }, whyEmpty),
    ...figures,
    more > 0 ? h("p", { class: "muted" }, `${count(more, "more drawing")}. A narrower filter shows them.`) : null));
}

/**
 * @param {Model} model
 * @param {number} o
 */
function asRow(model, o) {
  const lease = model.byOwner.get(o);
  return { text: ownerText(model.owners[o]).toLowerCase(), locks: lease?.locks ?? [] };
}

/**
 * The requests that wait for one another, directly or through others, by union and find.
 * @param {Model} model
 * @returns {Cluster[]}
 */
function clustersOf(model) {
  /** @type {Map<number, number>} */
  const parent = new Map();
  /** @param {number} o */
  const find = (o) => {
    let root = o;
    for (let above = parent.get(root); above !== undefined && above !== root; above = parent.get(root)) root = above;
    parent.set(o, root);
    return root;
  };
  for (const waiter of model.waiters) {
    for (const arrow of waiter.blockers) if (arrow.o !== undefined) parent.set(find(waiter.o), find(arrow.o));
  }
  const waiting = new Set(model.waiters.map((waiter) => waiter.o));
  /** @type {Map<number, {waiters: Waiter[], holders: Set<number>}>} */
  const clusters = new Map();
  // Sensors and away requests block no other request.
  for (const waiter of model.waiters.filter((each) => each.until || (each.for !== "slot" && each.for !== "free"))) {
    const root = find(waiter.o);
    const cluster = clusters.get(root) ?? { waiters: [], holders: new Set() };
    clusters.set(root, cluster);
    cluster.waiters.push(waiter);
    for (const { o } of waiter.blockers) if (o !== undefined && !waiting.has(o)) cluster.holders.add(o);
  }
  return [...clusters.values()].map((cluster) => ({ waiters: cluster.waiters, holders: [...cluster.holders] }));
}

/**
 * The owners of each column. An owner's column is the longest path from it to a holder. Waiters come in their order.
 * @param {Cluster} cluster
 */
function columnsOf(cluster) {
  const column = new Map(cluster.holders.map((o) => [o, 0]));
  for (const waiter of cluster.waiters) {
    column.set(waiter.o, 1 + Math.max(0, ...waiter.blockers.map(({ o }) => (o === undefined ? 0 : (column.get(o) ?? 0)))));
  }
  /** @type {number[][]} */
  const columns = [];
  for (const [o, at] of column) (columns[at] ??= []).push(o);
  return Array.from(columns, (owners) => owners ?? []); // without holders, the first one is a hole
}

/**
 * @param {Model} model
 * @param {Cluster} cluster
 * @param {Open} open
 */
function figure(model, cluster, open) {
  const columns = columnsOf(cluster);
  const shown = columns.slice(0, MOST_COLUMNS);
  const left = columns.slice(MOST_COLUMNS).flat().length;
  const waiters = new Map(cluster.waiters.map((waiter) => [waiter.o, waiter]));
  /** @type {Map<number, Point>} */
  const points = new Map();
  /** @type {SVGElement[]} */
  const boxes = [];
  shown.forEach((column, x) => {
    const cut = column.length > MOST_IN_COLUMN ? MOST_IN_COLUMN - 1 : column.length;
    column.slice(0, cut).forEach((owner, y) => {
      points.set(owner, { x: x * (BOX.width + BOX.right) + 1, y: y * (BOX.height + BOX.below) + 1 });
    });
    if (cut < column.length) boxes.push(moreBox(x * (BOX.width + BOX.right) + 1, cut * (BOX.height + BOX.below) + 1, column.length - cut));
  });
  if (left > 0) boxes.push(moreBox(shown.length * (BOX.width + BOX.right) + 1, 1, left));
  /** @type {SVGElement[]} */
  const arrows = [];
  for (const [o, at] of points) {
    const waiter = waiters.get(o);
    for (const arrow of waiter?.blockers ?? []) {
      const to = arrow.o === undefined ? undefined : points.get(arrow.o);
      if (waiter && to) arrows.push(curve(at, to, reasonOf(waiter, arrow)));
    }
    boxes.push(box(model, o, waiter, at, open));
  }
  const rows = Math.max(...shown.map((column) => Math.min(column.length, MOST_IN_COLUMN)));
  const width = (shown.length + (left > 0 ? 1 : 0)) * (BOX.width + BOX.right) - BOX.right + 2;
  const height = rows * (BOX.height + BOX.below) - BOX.below + 2;
  const objects = [...new Set(cluster.waiters.flatMap((waiter) => waiter.blockers.map((arrow) => (arrow.counted ? leaseOfGroup(waiter) : arrow.object))))];
  const named = objects.slice(0, 3).join(", ") + (objects.length > 3 ? ` and ${objects.length - 3} more` : "");
  const hidden = cluster.waiters.reduce((sum, waiter) => sum + (waiter.direct - waiter.blockers.length), 0);
  const title = `${count(cluster.waiters.length, "request")} ${cluster.waiters.length === 1 ? "waits" : "wait"} for ${named || "their turn"}`;
  return h("figure", {}, h("figcaption", {}, title, hidden > 0 ? h("span", { class: "muted" }, `, ${count(hidden, "arrow")} not shown`) : null),
    h("div", { class: "drawing", tabindex: 0, role: "region", "aria-label": `${title}, as a drawing` },
      svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": title }, ...arrows, ...boxes)));
}

/** @type {Record<string, string>} */
const HOLDER_CLASSES = { needs: "holds attention", idle: "holds idle" };

/**
 * @param {Model} model
 * @param {number} o
 * @param {Waiter | undefined} waiter
 * @param {Point} at
 * @param {Open} open
 */
function box(model, o, waiter, at, open) {
  const owner = model.owners[o];
  const lease = model.byOwner.get(o);
  const [first, second] = owner.dag === undefined ? [ownerText(owner), ""] : [owner.dag, `${taskText(owner)} · ${runText(owner.run)}`];
  const third = waiter ? waiterLine(waiter)
    : lease ? `${lease.doing === "needs" ? "needs action: " : ""}${lease.state}, held for ${duration(now() - lease.since)}` : "holds it in Hive";
  const act = () => (waiter ? open.waiter(waiter) : open.holder({ o, owner }));
  return svg("g", {
    class: `box ${waiter ? "waits" : HOLDER_CLASSES[lease?.doing ?? ""] ?? "holds"}`, transform: `translate(${at.x} ${at.y})`, tabindex: 0, role: "button",
    "aria-label": `${ownerText(owner)}, ${third}`, onclick: act,
    onkeydown: (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        act();
      }
    },
  }, svg("title", {}, `${ownerText(owner)}\n${third}`), svg("rect", { width: BOX.width, height: BOX.height, rx: 5 }),
  svg("text", { x: 10, y: 16, class: "first" }, middle(first, 30)), svg("text", { x: 10, y: 31 }, middle(second, 36)),
  svg("text", { x: 10, y: 45, class: "third" }, middle(third, 36)));
}

/** @param {Waiter} waiter */
function waiterLine(waiter) {
  const { wanted } = waiter;
  const what = waitsForLock(waiter) ? `${wanted[0]?.[0] ?? ""}${wanted.length > 1 ? ` +${wanted.length - 1}` : ""}` : awaitedText(waiter);
  return `waits ${duration(now() - waiter.since)} for ${what}`;
}

/**
 * @param {number} x
 * @param {number} y
 * @param {number} number
 */
function moreBox(x, y, number) {
  return svg("g", { class: "box more", transform: `translate(${x} ${y})` }, svg("rect", { width: BOX.width, height: BOX.height, rx: 5 }),
    svg("text", { x: BOX.width / 2, y: BOX.height / 2 + 4, "text-anchor": "middle" }, `and ${number} more`));
}

/**
 * An arrow from the waiter, at the right, to its blocker.
 * @param {Point} from
 * @param {Point} to
 * @param {string} title
 */
function curve(from, to, title) {
  const start = { x: from.x, y: from.y + BOX.height / 2 };
  const end = { x: to.x + BOX.width + 7, y: to.y + BOX.height / 2 };
  const bend = Math.max(26, (start.x - end.x) / 2);
  const path = `M${start.x} ${start.y}C${start.x - bend} ${start.y} ${end.x + bend} ${end.y} ${end.x} ${end.y}`;
  return svg("g", { class: "arrow" }, svg("title", {}, title), svg("path", { d: path }),
    svg("path", { class: "tip", d: `M${end.x - 6} ${end.y}l8 -4v8z` }));
}
