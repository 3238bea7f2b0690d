// Times, by the lock store's clock as of the last answer.

import { h } from "./dom.js";

/** @type {[string, number][]} */
const UNITS = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];
let storeMs = Date.now();
let receivedMs = performance.now();

/** @param {number} ms */
export function setNow(ms) {
  storeMs = ms;
  receivedMs = performance.now();
}

export const now = () => storeMs + performance.now() - receivedMs;

/** @param {number} ms */
export function duration(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  const index = UNITS.findIndex(([, unit]) => s >= unit);
  if (index < 0) return "0 s";
  const [name, unit] = UNITS[index];
  const rest = Math.floor((s % unit) / (UNITS[index + 1]?.[1] ?? 1));
  const small = index + 1 < UNITS.length && s < 10 * unit && rest ? ` ${rest} ${UNITS[index + 1][0]}` : "";
  return `${Math.floor(s / unit)} ${name}${small}`;
}

/** @param {number} ms */
export function moment(ms) {
  return new Date(ms).toISOString().replace("T", " ").slice(0, 19) + "Z";
}

// The text of these elements changes with time, while their rows stay the same.

/** @param {number} ms */
export function since(ms) {
  return ticking({ "data-since": ms, title: moment(ms), datetime: new Date(ms).toISOString() });
}

/** @param {number} ms */
export function until(ms) {
  return ticking({ "data-until": ms, title: moment(ms), datetime: new Date(ms).toISOString() });
}

/**
 * How much longer it will probably take until a time in this range.
 * @param {[least: number, most: number]} range
 */
export function expected([least, most]) {
  const why = "Probably, by how long earlier runs of the tasks ahead held these tables";
  return ticking({ "data-least": least, "data-most": most, title: `${why}: ${moment(least)} to ${moment(most)}` });
}

/**
 * In whole minutes, like the log: "12 to 20 min".
 * @param {number} leastMs
 * @param {number} mostMs
 */
function between(leastMs, mostMs) {
  const minutes = [Math.floor(Math.round(leastMs / 1000) / 60), Math.ceil(Math.round(mostMs / 1000) / 60)];
  const [least, most] = minutes.map((each) => duration(60_000 * each));
  if (minutes[1] <= 0) return "";
  if (minutes[0] <= 0) return `up to ${most}`;
  return `${minutes[1] < 60 ? minutes[0] : least} to ${most}`;
}

/** @param {import("./dom.js").Attributes} attributes */
function ticking(attributes) {
  const element = h("time", attributes);
  tickOne(element, now());
  return element;
}

/**
 * @param {HTMLTimeElement} element
 * @param {number} at
 */
function tickOne(element, at) {
  const { since: from, until: to, least, most } = element.dataset;
  const left = Number(to) - at;
  const text = most !== undefined ? between(Number(least) - at, Number(most) - at) : from !== undefined ? duration(at - Number(from)) : left >= 0 ? duration(left) : `expired ${duration(-left).split(" ").slice(0, 2).join(" ")} ago`;
  if (element.textContent !== text) element.textContent = text;
}

export function tick() {
  const at = now();
  /** @type {NodeListOf<HTMLTimeElement>} */
  const elements = document.querySelectorAll("time[data-since], time[data-until], time[data-most]");
  for (const element of elements) tickOne(element, at);
}

/**
 * @param {number} number
 * @param {string} one
 * @param {string} many
 */
export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
