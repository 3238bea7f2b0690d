// The timeline: who held each object at what time, and who waited for it.

import { h, middle, svg } from "./dom.js";
import { count, duration, moment, now } from "./format.js";
import { awaitedText } from "./model.js";
import { ownerText } from "./owners.js";

/**
 * @typedef {import("./model.js").Model} Model
 * @typedef {import("./model.js").Waiter} Waiter
 * @typedef {import("./model.js").RowFilter} RowFilter
 *
 * @typedef {object} Span a lease, a waiter, or a lock of Hive
 * @property {Answer.Owner} owner
 * @property {Answer.Lock[]} locks
 * @property {number} asked
 * @property {number | null} granted
 * @property {number | null} ended
 * @property {Waiter} [waiter]
 * @property {boolean} [hive]
 *
 * @typedef {{span: Span, mode: Answer.Mode, end: number}} Bar
 * @typedef {{name: string, lanes: Bar[][], latest: number, held: boolean, crowded: number}} Timed an object, with its bars
 * @typedef {(ms: number) => number} Scale from a time to its x
 */

const LANE = 14;
const GAP = 10;
const LABEL = 250;
const LEAST_MS = 600_000;
const MOST_OBJECTS = 60;
const MOST_LANES = 6;

/**
 * The waiters, as leases that are not granted.
 * @param {Model} model
 * @param {RowFilter} filter
 * @returns {Span[]}
 */
export function waiterSpans(model, filter) {
  return model.waiters.filter(filter)
    .map((waiter) => ({ owner: waiter.owner, waiter, asked: waiter.since, granted: null, ended: null, locks: waiter.wanted }));
}

/**
 * The locks that Hive sessions hold now. Hive keeps no history of them.
 * @param {Model} model
 * @param {RowFilter} filter
 * @returns {Span[]}
 */
export function hiveSpans(model, filter) {
  return model.locks.filter((lock) => lock.lease === undefined)
    .map(({ owner, text, since, object, mode }) => ({ owner, text, hive: true, asked: since, granted: since, ended: null, locks: [lockOn(object, mode)] }))
    .filter(filter);
}

/** @type {(object: string, mode: Answer.Mode) => Answer.Lock} */
const lockOn = (object, mode) => [object, mode];

/**
 * @param {HTMLElement} panel
 * @param {Span[]} spans
 * @param {number} hours
 * @param {number} leftOut
 */
export function drawTimeline(panel, spans, hours, leftOut) {
  const to = now();
  const first = spans.reduce((least, span) => Math.min(least, span.asked), to - LEAST_MS);
  const from = Math.max(to - hours * 3_600_000, first - (to - first) / 50); // nothing is drawn before the first
  const objects = objectsOf(spans, to);
  const shown = objects.slice(0, MOST_OBJECTS);
  const width = Math.max(500, panel.clientWidth - 34);
  /** @type {Scale} */
  const scale = (ms) => LABEL + ((Math.min(to, Math.max(from, ms)) - from) / (to - from)) * (width - LABEL - 6);
  /** @type {SVGElement[]} */
  const parts = [];
  let y = 24;
  for (const object of shown) {
    const height = object.lanes.length * LANE;
    parts.push(svg("text", { x: 2, y: y + LANE - 3, class: "name" }, svg("title", {}, object.name), middle(object.name, 36)));
    parts.push(svg("line", { class: "rule", x1: 0, x2: width, y1: y + height + GAP / 2, y2: y + height + GAP / 2 }));
    for (const [index, lane] of object.lanes.entries()) for (const bar of lane) parts.push(...drawBar(bar, y + index * LANE, scale, from, to));
    y += height + GAP;
  }
  const label = `${count(spans.length, "lease")} on ${count(objects.length, "object")} in the last ${duration(hours * 3_600_000)}`;
  const drawing = svg("svg", { width, height: y, role: "img", "aria-label": `${label}. The table contains the same data.` },
    ...ticks(from, to, scale, y), ...parts);
  const more = objects.length - shown.length;
  const crowded = shown.reduce((sum, object) => sum + object.crowded, 0);
  panel.replaceChildren(
    h("p", { class: "legend" }, swatch("wait", "waiting"), swatch("wait slot", "waiting for a worker slot"), swatch("bar-S", "held shared"), swatch("bar-X", "held exclusive"), swatch("bar-S hives", "Hive’s own, if held now"), h("span", { class: "muted" }, label)),
    spans.length ? h("div", { class: "drawing", tabindex: 0, role: "region", "aria-label": "Timeline" }, drawing) : h("p", { class: "empty" }, "No lease was held in that time."),
    more > 0 ? h("p", { class: "muted" }, `${count(more, "more object")}. A narrower filter shows them.`) : "",
    crowded > 0 ? h("p", { class: "muted" }, `${count(crowded, "lease")} not drawn, because more than ${MOST_LANES} overlap. The table contains them.`) : "",
    leftOut > 0 ? h("p", { class: "muted" }, `${count(leftOut, "older lease")} not shown.`) : "");
}

/**
 * The objects, each with its bars in as few lanes as possible. Bars in a lane do not overlap.
 * Objects with the latest lease come first, and held ones before those that are only waited for.
 * @param {Span[]} spans
 * @param {number} to
 */
function objectsOf(spans, to) {
  /** @type {Map<string, Timed>} */
  const found = new Map();
  for (const span of [...spans].sort((a, b) => a.asked - b.asked)) {
    for (const [name, mode] of span.locks) {
      const object = found.get(name) ?? { name, lanes: [], latest: 0, held: false, crowded: 0 };
      found.set(name, object);
      const end = span.ended ?? to;
      object.latest = Math.max(object.latest, end);
      object.held ||= span.granted !== null && span.ended === null;
      const free = object.lanes.find((lane) => lane[lane.length - 1].end <= span.asked);
      const bar = { span, mode, end };
      if (free) free.push(bar);
      else if (object.lanes.length < MOST_LANES) object.lanes.push([bar]);
      else object.crowded += 1;
    }
  }
  return [...found.values()].sort((a, b) => b.latest - a.latest || Number(b.held) - Number(a.held) || (a.name < b.name ? -1 : 1));
}

/**
 * @param {Bar} bar
 * @param {number} y
 * @param {Scale} scale
 * @param {number} from
 * @param {number} to
 */
function drawBar({ span, mode, end }, y, scale, from, to) {
  /** @type {SVGElement[]} */
  const made = [];
  const { waiter, asked, granted } = span;
  if (end < from || asked > to) return made;
  const text = `${ownerText(span.owner)}\n${granted === null ? `waits for ${waiter ? awaitedText(waiter) : "a lock"} since ${moment(asked)}` : heldText(mode, asked, granted, end, span.ended !== null)}`;
  /**
   * @param {string} kind
   * @param {number} start
   * @param {number} stop
   */
  const add = (kind, start, stop) => {
    const x = scale(start);
    made.push(svg("rect", { class: kind, x, y: y + 2, width: Math.max(2, scale(stop) - x), height: LANE - 4, rx: 2 }, svg("title", {}, text)));
  };
  const grantedOrNow = granted ?? to;
  if (grantedOrNow - asked > 1_000 && grantedOrNow > from) add(waiter?.for === "slot" ? "wait slot" : "wait", asked, grantedOrNow);
  if (granted !== null) add(`bar-${mode}${span.hive ? " hives" : ""}`, granted, end);
  return made;
}

/**
 * @param {Answer.Mode} mode
 * @param {number} asked
 * @param {number} granted
 * @param {number} end
 * @param {boolean} hasEnded
 */
function heldText(mode, asked, granted, end, hasEnded) {
  return `requested ${moment(asked)}, waited ${duration(granted - asked)}\n` +
    `held ${mode === "X" ? "exclusive" : "shared"} for ${duration(end - granted)}${hasEnded ? "" : ", until now"}`;
}

const MINUTE_MS = 60_000;
const DAY_MS = 1_440 * MINUTE_MS;
const STEPS_MS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720].map((minutes) => minutes * MINUTE_MS);

/**
 * @param {number} from
 * @param {number} to
 * @param {Scale} scale
 * @param {number} height
 */
function ticks(from, to, scale, height) {
  const step = STEPS_MS.find((size) => (to - from) / size <= 8) ?? DAY_MS;
  /** @type {SVGElement[]} */
  const made = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    const text = new Date(at).toISOString();
    const label = step >= DAY_MS || text.slice(11, 16) === "00:00" ? text.slice(5, 10) : text.slice(11, 16);
    const late = to - at < step / 4; // no room for it to the right
    made.push(svg("line", { class: "tick", x1: scale(at), x2: scale(at), y1: 16, y2: height }),
      svg("text", { class: "tick-label", x: scale(at) + (late ? -3 : 3), y: 12, "text-anchor": late ? "end" : "start" }, label));
  }
  return made;
}

/**
 * @param {string} kind
 * @param {string} text
 */
const swatch = (kind, text) => h("span", { class: "swatch" }, svg("svg", { width: 22, height: 10, "aria-hidden": "true" }, svg("rect", { class: kind, width: 22, height: 10, rx: 2 })), ` ${text}`);
