// The part above the tables: how many of each kind there are, how old the data is, and what has gone wrong.

import { byId, h } from "./dom.js";
import { count, duration, since } from "./format.js";
import { needsAction, waitsForLock } from "./model.js";

/** @typedef {import("./model.js").Model} Model */

/** @param {Model | null} model */
export function summarise(model) {
  const parts = model === null ? [] : amounts(model);
  const text = parts.map((part) => `${part.text}${part.since ?? ""}`).join();
  const list = byId("summary", HTMLUListElement);
  if (list.dataset.text === text) return;
  list.dataset.text = text;
  list.replaceChildren(...parts.map((part) => h("li", { class: part.tone ? `tone-${part.tone}` : "" }, part.text, part.since ? since(part.since) : null)));
}

/**
 * @param {Model} model
 * @returns {{text: string, tone?: string, since?: number}[]}
 */
function amounts({ locks, leases, waiters, hive, leftOut }) {
  const needing = new Set(locks.filter(needsAction).map((lock) => lock.lease)).size;
  const queued = waiters.filter(waitsForLock);
  const waiting = `${queued.length.toLocaleString("en")} waiting`;
  /** @param {Answer.WaitsFor} what */
  const waitFor = (what) => waiters.filter((waiter) => waiter.for === what).length;
  const [forLease, forSlot, sensors] = [waitFor("lease"), waitFor("slot"), waitFor("free")];
  return [
    ...(needing ? [{ text: `${needing.toLocaleString("en")} ${needing === 1 ? "needs" : "need"} action`, tone: "bad" }] : []),
    { text: count(leases.length, "lease") }, { text: count(locks.length, "lock") },
    queued.length ? { text: `${waiting}, longest `, tone: "info", since: Math.min(...queued.map((waiter) => waiter.since)) } : { text: waiting },
    ...(forLease ? [{ text: `${forLease.toLocaleString("en")} for a lease` }] : []),
    ...(forSlot ? [{ text: `${forSlot.toLocaleString("en")} for a worker slot` }] : []),
    ...(sensors ? [{ text: `${count(sensors, "sensor")} waiting` }] : []),
    { text: hive === undefined ? "reading Hive’s own locks…" : `${hive} of Hive’s own` },
    ...(leftOut ? [{ text: `${leftOut.toLocaleString("en")} not shown, too many for this page`, tone: "warn" }] : []),
  ];
}

/**
 * @param {Error | null} error
 * @param {boolean} known whether there is data from before
 */
export function showProblem(error, known) {
  const problem = byId("problem", HTMLElement);
  problem.hidden = error === null;
  if (error !== null) problem.textContent = `${error.message.replace(/\.$/, "")}. ${known ? "The data below is old. " : ""}Trying again.`;
}

/** @param {{receivedAt: number | null, failures: number, paused: boolean}} state receivedAt: of the last answer */
export function showFreshness({ receivedAt, failures, paused }) {
  const text = byId("freshness-text", HTMLElement);
  const age = receivedAt === null ? null : performance.now() - receivedAt;
  byId("freshness-dot", HTMLElement).className = failures ? "bad" : paused || age === null ? "" : "good";
  const waiting = failures ? "no answer" : "loading…";
  const freshness = paused ? "paused" : age === null ? waiting : age < 8_000 ? "live" : `${duration(age)} old`;
  if (text.textContent !== freshness) text.textContent = freshness;
}
