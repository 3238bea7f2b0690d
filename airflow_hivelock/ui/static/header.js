// What is above the tables: how much there is of what, how old that is, and what has gone wrong.

import { byId, h } from "./dom.js";
import { count, duration } from "./format.js";
import { isSuspect } from "./model.js";

export function summarise(model) {
  const parts = model === null ? [] : amounts(model);
  const text = parts.map(([said]) => said).join();
  const list = byId("summary");
  if (list.dataset.text === text) return;
  list.dataset.text = text;
  list.replaceChildren(...parts.map(([said, tone]) => h("li", { class: tone ? `tone-${tone}` : "" }, said)));
}

function amounts({ leases, locks, waiters, hive, leftOut }) {
  const suspects = leases.filter(isSuspect).length;
  return [
    [count(leases.length, "lease"), ""], [count(locks.length, "lock"), ""], [`${waiters.length.toLocaleString("en")} waiting`, waiters.length ? "info" : ""],
    [`${suspects} suspect`, suspects ? "warn" : ""], [hive === undefined ? "looking for Hive’s own…" : `${hive} of Hive’s own`, ""],
    ...(leftOut ? [[`${leftOut.toLocaleString("en")} left out, too many for a page`, "warn"]] : []),
  ];
}

export function tellProblem(error, known) {
  const place = byId("problem");
  place.hidden = error === null;
  if (error !== null) place.textContent = `${error.message}. ${known ? "What you see is old. " : ""}Trying again.`;
}

export function tellFreshness({ heard, failures, paused }) {
  const text = byId("freshness-text");
  const age = heard === null ? null : performance.now() - heard;
  byId("freshness-dot").className = failures ? "bad" : paused || age === null ? "" : "good";
  const waiting = failures ? "no answer" : "loading…";
  const said = paused ? "paused" : age === null ? waiting : age < 8_000 ? "live" : `${duration(age)} old`;
  if (text.textContent !== said) text.textContent = said;
}
