// Who held each object when, and who waited for it.

import { h, middle, svg } from "./dom.js";
import { count, duration, moment, now } from "./format.js";
import { aLease } from "./model.js";
import { ownerKey, ownerText } from "./owners.js";

const LANE = 14;
const GAP = 10;
const LABEL = 250;
const LEAST_MS = 600_000;
const MOST_OBJECTS = 60;
const MOST_LANES = 6;
const WHAT = { lock: () => "a lock", lease: aLease, slot: () => "a worker slot, holding nothing,", free: () => "free data" };

export function tenuresRows(answer, filter) {
  return answer.tenures
    .map((tenure, place) => ({ ...tenure, key: `${tenure.id} ${place}`, owner: answer.owners[tenure.o], text: ownerKey(answer.owners[tenure.o]), sign: String(tenure.ended) }))
    .filter(filter);
}

// Waiters, as leases that nobody has granted yet.
export function waitersRows(model, filter) {
  return model.waiters.filter(filter)
    .map((waiter) => ({ owner: waiter.owner, waits: waiter, asked: waiter.since, granted: null, ended: null, locks: waiter.locks.filter(([, , above]) => above !== 1) }));
}

// Hive's own, as far as is known: since when those are held that are held now.
export function hiveRows(model, filter) {
  return model.locks.filter((lock) => lock.hive)
    .map((lock) => ({ owner: lock.owner, text: lock.text, hive: true, asked: lock.since, granted: lock.since, ended: null, locks: [[lock.object, lock.mode]] }))
    .filter(filter);
}

export function drawTimeline(panel, tenures, hours, leftOut) {
  const to = now();
  const first = tenures.reduce((least, tenure) => Math.min(least, tenure.asked), to - LEAST_MS);
  const from = Math.max(to - hours * 3_600_000, first - (to - first) / 50); // nothing is drawn before the first
  const objects = objectsOf(tenures, to);
  const shown = objects.slice(0, MOST_OBJECTS);
  const width = Math.max(500, panel.clientWidth - 34);
  const scale = (ms) => LABEL + ((Math.min(to, Math.max(from, ms)) - from) / (to - from)) * (width - LABEL - 6);
  const parts = [];
  let y = 24;
  for (const object of shown) {
    const height = object.lanes.length * LANE;
    parts.push(svg("text", { x: 2, y: y + LANE - 3, class: "name" }, svg("title", {}, object.name), middle(object.name, 36)));
    parts.push(svg("line", { class: "rule", x1: 0, x2: width, y1: y + height + GAP / 2, y2: y + height + GAP / 2 }));
    object.lanes.forEach((lane, place) => lane.forEach((bar) => parts.push(...drawBar(bar, y + place * LANE, scale, from, to))));
    y += height + GAP;
  }
  const label = `${count(tenures.length, "lease")} on ${count(objects.length, "object")} in the last ${duration(hours * 3_600_000)}`;
  const drawing = svg("svg", { width, height: y, role: "img", "aria-label": `${label}. The table says the same.` },
    ...ticks(from, to, scale, y), ...parts);
  const more = objects.length - shown.length;
  const crowded = shown.reduce((sum, object) => sum + object.crowded, 0);
  panel.replaceChildren(
    h("p", { class: "legend" }, swatch("wait", "waiting"), swatch("wait slot", "waiting for a worker slot, holding nothing"), swatch("bar-S", "held shared"), swatch("bar-X", "held exclusive"), swatch("bar-S hives", "Hive’s own, as held now"), h("span", { class: "muted" }, label)),
    tenures.length ? h("div", { class: "drawing", tabindex: 0, role: "region", "aria-label": "Timeline" }, drawing) : h("p", { class: "empty" }, "No lease was held in that time."),
    more > 0 ? h("p", { class: "muted" }, `${count(more, "more object")}; narrow the filter to see them.`) : "",
    crowded > 0 ? h("p", { class: "muted" }, `${count(crowded, "lease")} not drawn, where more than ${MOST_LANES} overlap; the table has them.`) : "",
    leftOut > 0 ? h("p", { class: "muted" }, `${count(leftOut, "older lease")} left out.`) : "");
}

// The objects, those with the latest lease first, held before only wanted, each with its bars in as few lanes as do not overlap.
function objectsOf(tenures, to) {
  const found = new Map();
  for (const tenure of [...tenures].sort((a, b) => a.asked - b.asked)) {
    for (const [name, mode] of tenure.locks) {
      const object = found.get(name) ?? { name, lanes: [], latest: 0, held: false, crowded: 0 };
      found.set(name, object);
      const end = tenure.ended ?? to;
      object.latest = Math.max(object.latest, end);
      object.held ||= tenure.granted !== null && tenure.ended === null;
      const free = object.lanes.find((lane) => lane.at(-1).end <= tenure.asked);
      const bar = { tenure, mode, end };
      if (free) free.push(bar);
      else if (object.lanes.length < MOST_LANES) object.lanes.push([bar]);
      else object.crowded += 1;
    }
  }
  return [...found.values()].sort((a, b) => b.latest - a.latest || b.held - a.held || (a.name < b.name ? -1 : 1));
}

function drawBar({ tenure, mode, end }, y, scale, from, to) {
  const made = [];
  const granted = tenure.granted ?? to;
  const said = tenure.granted === null ? `${ownerText(tenure.owner)}\nwaits for ${WHAT[tenure.waits.for](tenure.waits)} since ${moment(tenure.asked)}` : `${ownerText(tenure.owner)}\nasked ${moment(tenure.asked)}, waited ${duration(tenure.granted - tenure.asked)}\n` +
    `held ${mode === "X" ? "exclusive" : "shared"} for ${duration(end - tenure.granted)}${tenure.ended ? "" : ", until now"}`;
  if (end < from || tenure.asked > to) return made;
  const add = (kind, start, stop) => {
    const x = scale(start);
    made.push(svg("rect", { class: kind, x, y: y + 2, width: Math.max(2, scale(stop) - x), height: LANE - 4, rx: 2 }, svg("title", {}, said)));
  };
  if (granted - tenure.asked > 1_000 && granted > from) add(tenure.waits?.for === "slot" ? "wait slot" : "wait", tenure.asked, granted);
  if (tenure.granted !== null) add(`bar-${mode}${tenure.hive ? " hives" : ""}`, tenure.granted, end);
  return made;
}

function ticks(from, to, scale, height) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440].map((minutes) => minutes * 60_000);
  const step = steps.find((size) => (to - from) / size <= 8) ?? steps.at(-1);
  const made = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    const text = new Date(at).toISOString();
    const label = step >= 1_440 * 60_000 || text.slice(11, 16) === "00:00" ? text.slice(5, 10) : text.slice(11, 16);
    const late = to - at < step / 4; // no room for it to the right
    made.push(svg("line", { class: "tick", x1: scale(at), x2: scale(at), y1: 16, y2: height }),
      svg("text", { class: "tick-label", x: scale(at) + (late ? -3 : 3), y: 12, "text-anchor": late ? "end" : "start" }, label));
  }
  return made;
}

const swatch = (kind, text) => h("span", { class: "swatch" }, svg("svg", { width: 22, height: 10, "aria-hidden": "true" }, svg("rect", { class: kind, width: 22, height: 10, rx: 2 })), ` ${text}`);
