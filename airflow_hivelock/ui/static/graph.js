// Who waits for whom: one drawing for each knot of requests, holders at the left, waiters to their right.

import { h, middle, svg } from "./dom.js";
import { count, duration, now } from "./format.js";
import { aLease, reasonOf, waitsForLock } from "./model.js";
import { ownerText, runText } from "./owners.js";

const BOX = { width: 236, height: 52, right: 76, below: 10 };
const MOST_KNOTS = 12;
const MOST_IN_COLUMN = 8;
const MOST_COLUMNS = 8;

export function drawGraph(panel, model, filter, open, whyEmpty) {
  const knots = knotsOf(model).filter((knot) => knot.waiters.some(filter) || knot.holders.some((holder) => filter(asRow(model, holder))));
  knots.sort((a, b) => b.waiters.length - a.waiters.length);
  const figures = knots.slice(0, MOST_KNOTS).map((knot) => figure(model, knot, open));
  const more = knots.length - figures.length;
  panel.replaceChildren(h("div", { class: "knots" },
    figures.length ? null : h("p", { class: "empty" }, whyEmpty),
    ...figures,
    more > 0 ? h("p", { class: "muted" }, `${count(more, "more knot")} of requests; narrow the filter to see them.`) : null));
}

function asRow(model, place) {
  const lease = model.byOwner.get(place);
  return { text: ownerText(model.owners[place]).toLowerCase(), locks: lease?.locks ?? [] };
}

// Groups of requests that are in one another's way, by union and find.
function knotsOf(model) {
  const parent = new Map();
  const find = (place) => {
    let root = place;
    while (parent.has(root) && parent.get(root) !== root) root = parent.get(root);
    parent.set(place, root);
    return root;
  };
  for (const waiter of model.waiters) {
    for (const arrow of waiter.behind) parent.set(find(waiter.o), find(arrow.o));
  }
  const waiting = new Set(model.waiters.map((waiter) => waiter.o));
  const knots = new Map();
  for (const waiter of model.waiters.filter((waits) => waits.for !== "slot" && waits.for !== "free")) { // no request is in their way
    const root = find(waiter.o);
    const knot = knots.get(root) ?? { waiters: [], holders: new Set() };
    knots.set(root, knot);
    knot.waiters.push(waiter);
    for (const arrow of waiter.behind) if (!waiting.has(arrow.o)) knot.holders.add(arrow.o);
  }
  return [...knots.values()].map((knot) => ({ waiters: knot.waiters, holders: [...knot.holders] }));
}

// The longest way to a request that waits for nobody gives the column; waiters come in their order.
function columnsOf(knot) {
  const column = new Map(knot.holders.map((place) => [place, 0]));
  for (const waiter of knot.waiters) {
    column.set(waiter.o, 1 + Math.max(0, ...waiter.behind.map((arrow) => column.get(arrow.o) ?? 0)));
  }
  const columns = [];
  for (const [place, at] of column) (columns[at] ??= []).push(place);
  return Array.from(columns, (places) => places ?? []); // without holders the first one is a hole
}

function figure(model, knot, open) {
  const columns = columnsOf(knot);
  const shown = columns.slice(0, MOST_COLUMNS);
  const left = columns.slice(MOST_COLUMNS).flat().length;
  const waiters = new Map(knot.waiters.map((waiter) => [waiter.o, waiter]));
  const places = new Map();
  const boxes = [];
  shown.forEach((column, x) => {
    const cut = column.length > MOST_IN_COLUMN ? MOST_IN_COLUMN - 1 : column.length;
    column.slice(0, cut).forEach((owner, y) => {
      places.set(owner, { x: x * (BOX.width + BOX.right) + 1, y: y * (BOX.height + BOX.below) + 1 });
    });
    if (cut < column.length) {
      boxes.push(moreBox(x * (BOX.width + BOX.right) + 1, cut * (BOX.height + BOX.below) + 1, column.length - cut));
      for (const owner of column.slice(cut)) places.set(owner, null);
    }
  });
  if (left > 0) boxes.push(moreBox(shown.length * (BOX.width + BOX.right) + 1, 1, left));
  const arrows = [];
  for (const [owner, at] of places) {
    if (at === null) continue;
    for (const arrow of waiters.get(owner)?.behind ?? []) {
      const to = places.get(arrow.o);
      if (to) arrows.push(curve(at, to, reasonOf(waiters.get(owner), arrow)));
    }
    boxes.push(box(model, owner, waiters.get(owner), at, open));
  }
  const rows = Math.max(...shown.map((column) => Math.min(column.length, MOST_IN_COLUMN)));
  const width = (shown.length + (left > 0 ? 1 : 0)) * (BOX.width + BOX.right) - BOX.right + 2;
  const height = rows * (BOX.height + BOX.below) - BOX.below + 2;
  const objects = [...new Set(knot.waiters.flatMap((waiter) => waiter.behind.map((arrow) => (arrow.counted ? aLease(waiter) : arrow.object))))];
  const named = objects.slice(0, 3).join(", ") + (objects.length > 3 ? ` and ${objects.length - 3} more` : "");
  const unseen = knot.waiters.reduce((sum, waiter) => sum + (waiter.direct - waiter.behind.length), 0);
  const title = `${count(knot.waiters.length, "request")} ${knot.waiters.length === 1 ? "waits" : "wait"} for ${named || "their turn"}`;
  return h("figure", {}, h("figcaption", {}, title, unseen > 0 ? h("span", { class: "muted" }, `, ${count(unseen, "arrow")} left out`) : null),
    h("div", { class: "drawing", tabindex: 0, role: "region", "aria-label": `${title}, as a drawing` },
      svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": title }, ...arrows, ...boxes)));
}

function box(model, place, waiter, at, open) {
  const owner = model.owners[place];
  const lease = model.byOwner.get(place);
  const [first, second] = owner.hidden || owner.dag === undefined
    ? [ownerText(owner), ""]
    : [owner.dag, `${owner.task}${owner.map === undefined ? "" : `[${owner.map}]`} · ${runText(owner.run)}`];
  const wants = waiter?.locks.filter(([, , above]) => above !== 1) ?? [];
  const third = waiter
    ? `waits ${duration(now() - waiter.since)} for ${waitsForLock(waiter) ? (wants[0]?.[0] ?? "") : aLease(waiter)}${waitsForLock(waiter) && wants.length > 1 ? ` +${wants.length - 1}` : ""}`
    : lease ? `${lease.doing === "needs" ? "needs you: " : ""}${lease.state}, holds for ${duration(now() - lease.since)}` : "holds it in Hive";
  const act = () => open(waiter ?? lease ?? { owner, hive: true });
  return svg("g", {
    class: `box ${waiter ? "waits" : { needs: "holds lapsed", idle: "holds idle" }[lease?.doing] ?? "holds"}`, transform: `translate(${at.x} ${at.y})`, tabindex: 0, role: "button",
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

function moreBox(x, y, number) {
  return svg("g", { class: "box more", transform: `translate(${x} ${y})` }, svg("rect", { width: BOX.width, height: BOX.height, rx: 5 }),
    svg("text", { x: BOX.width / 2, y: BOX.height / 2 + 4, "text-anchor": "middle" }, `and ${number} more`));
}

// From the waiter, at the right, to the request in the way.
function curve(from, to, title) {
  const start = { x: from.x, y: from.y + BOX.height / 2 };
  const end = { x: to.x + BOX.width + 7, y: to.y + BOX.height / 2 };
  const bend = Math.max(26, (start.x - end.x) / 2);
  const path = `M${start.x} ${start.y}C${start.x - bend} ${start.y} ${end.x + bend} ${end.y} ${end.x} ${end.y}`;
  return svg("g", { class: "arrow" }, svg("title", {}, title), svg("path", { d: path }),
    svg("path", { class: "tip", d: `M${end.x - 6} ${end.y}l8 -4v8z` }));
}
