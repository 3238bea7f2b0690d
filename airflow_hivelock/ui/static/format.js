// Times: everything is told by the lock store's clock, as it was with the last answer.

import { h } from "./dom.js";

const UNITS = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];
let storeMs = Date.now();
let heardMs = performance.now();

export function setNow(ms) {
  storeMs = ms;
  heardMs = performance.now();
}

export const now = () => storeMs + performance.now() - heardMs;

export function duration(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  const place = UNITS.findIndex(([, unit]) => s >= unit);
  if (place < 0) return "0 s";
  const [name, unit] = UNITS[place];
  const rest = Math.floor((s % unit) / (UNITS[place + 1]?.[1] ?? 1));
  const small = place + 1 < UNITS.length && s < 10 * unit && rest ? ` ${rest} ${UNITS[place + 1][0]}` : "";
  return `${Math.floor(s / unit)} ${name}${small}`;
}

export function moment(ms) {
  return new Date(ms).toISOString().replace("T", " ").slice(0, 19) + "Z";
}

// Elements whose text follows the time, without their rows being made again.
export function since(ms) {
  return ticking({ "data-since": ms, title: moment(ms), datetime: new Date(ms).toISOString() });
}

export function until(ms) {
  return ticking({ "data-until": ms, title: moment(ms), datetime: new Date(ms).toISOString() });
}

function ticking(attributes) {
  const element = h("time", attributes);
  tickOne(element, now());
  return element;
}

function tickOne(element, at) {
  const { since: from, until: to } = element.dataset;
  const left = Number(to) - at;
  const text = from !== undefined ? duration(at - Number(from)) : left >= 0 ? duration(left) : `lapsed ${duration(-left).split(" ").slice(0, 2).join(" ")}`;
  if (element.textContent !== text) element.textContent = text;
}

export function tick() {
  const at = now();
  for (const element of document.querySelectorAll("time[data-since], time[data-until]")) tickOne(element, at);
}

export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
