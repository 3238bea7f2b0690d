// What is above the tables: how much there is of what, how old that is, and what has gone wrong.

import { byId, h } from "./dom.js";
import { count, duration, since } from "./format.js";
import { needsYou, waitsForLock } from "./model.js";

export function summarise(model) {
  const parts = model === null ? [] : amounts(model);
  const text = parts.map(([said, , ms]) => `${said}${ms ?? ""}`).join();
  const list = byId("summary");
  if (list.dataset.text === text) return;
  list.dataset.text = text;
  list.replaceChildren(...parts.map(([said, tone, ms]) => h("li", { class: tone ? `tone-${tone}` : "" }, said, ms ? since(ms) : null)));
}

function amounts({ leases, locks, waiters, hive, leftOut }) {
  const needy = new Set(locks.filter(needsYou).map((lock) => lock.lease)).size;
  const inLine = waiters.filter(waitsForLock);
  const waiting = `${inLine.length.toLocaleString("en")} waiting`;
  const aside = (what) => waiters.filter((waiter) => waiter.for === what).length.toLocaleString("en");
  const sensors = waiters.filter((waiter) => waiter.for === "free").length;
  return [
    ...(needy ? [[`${needy.toLocaleString("en")} ${needy === 1 ? "needs" : "need"} you`, "bad"]] : []),
    [count(leases.length, "lease"), ""], [count(locks.length, "lock"), ""],
    inLine.length ? [`${waiting}, longest `, "info", Math.min(...inLine.map((waiter) => waiter.since))] : [waiting, ""],
    ...(aside("lease") === "0" ? [] : [[`${aside("lease")} for a lease`, ""]]),
    ...(aside("slot") === "0" ? [] : [[`${aside("slot")} for a worker slot`, ""]]),
    ...(sensors ? [[`${count(sensors, "sensor")} waiting`, ""]] : []),
    [hive === undefined ? "looking for Hive’s own…" : `${hive} of Hive’s own`, ""],
    ...(leftOut ? [[`${leftOut.toLocaleString("en")} left out, too many for a page`, "warn"]] : []),
  ];
}

export function tellProblem(error, known) {
  const place = byId("problem");
  place.hidden = error === null;
  if (error !== null) place.textContent = `${error.message.replace(/\.$/, "")}. ${known ? "What you see is old. " : ""}Trying again.`;
}

export function tellFreshness({ heard, failures, paused }) {
  const text = byId("freshness-text");
  const age = heard === null ? null : performance.now() - heard;
  byId("freshness-dot").className = failures ? "bad" : paused || age === null ? "" : "good";
  const waiting = failures ? "no answer" : "loading…";
  const said = paused ? "paused" : age === null ? waiting : age < 8_000 ? "live" : `${duration(age)} old`;
  if (text.textContent !== said) text.textContent = said;
}
