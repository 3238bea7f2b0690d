// An answer of the server, made ready to be filtered, sorted and drawn.

import { now } from "./format.js";
import { ownerKey } from "./owners.js";

export const EMPTY = build({ installation: "", owners: [], leases: [], hive: null, waiters: [], left_out: 0 });

export function build(answer) {
  const wanted = wishes(answer.waiters);
  const leases = answer.leases.map((lease) => ({ ...lease, owner: answer.owners[lease.o] }));
  const locks = [];
  for (const lease of leases) {
    const lost = new Set(lease.lost ?? []);
    for (const [object, mode, above] of lease.locks) {
      locks.push({
        key: `${lease.o} ${object}`, object, mode, above: above === 1, lease, owner: lease.owner, since: lease.since,
        text: ownerKey(lease.owner), waiting: inTheWay(wanted, object, mode), lost: lost.has(object),
      });
    }
  }
  for (const [place, held] of (answer.hive ?? []).entries()) {
    const owner = { text: held.owner || "a Hive session" };
    locks.push({
      ...held, key: `hive ${place} ${held.object}`, hive: true, above: false, owner, text: owner.text.toLowerCase(),
      waiting: inTheWay(wanted, held.object, held.mode), lost: false,
    });
  }
  const byOwner = new Map(leases.map((lease) => [lease.o, lease]));
  const waiters = answer.waiters.map((waiter) => ({
    ...waiter, key: String(waiter.o), owner: answer.owners[waiter.o], text: ownerKey(answer.owners[waiter.o]),
    behind: waiter.behind.map((arrow) => ({ ...arrow, owner: answer.owners[arrow.o] })),
  }));
  return { owners: answer.owners, leases, locks, waiters, byOwner, hive: answer.hive?.length, leftOut: answer.left_out };
}

// For each object, how many wait for it, in either mode.
function wishes(waiters) {
  const found = new Map();
  for (const waiter of waiters) {
    for (const [object, mode, above] of waiter.locks) {
      const entry = found.get(object) ?? { S: 0, X: 0 };
      if (above !== 1 || mode === "X") entry[mode] += 1;
      found.set(object, entry);
    }
  }
  return found;
}

function inTheWay(wanted, object, mode) {
  const entry = wanted.get(object);
  if (entry === undefined) return 0;
  return mode === "X" ? entry.S + entry.X : entry.X;
}

export const isSuspect = (lease) => lease?.expires !== undefined && lease.expires < now();

export function stateOf(lock) {
  if (lock.hive) return "hive";
  if (lock.lost) return "lost";
  if (!isSuspect(lock.lease)) return "held";
  return lock.lease.over ? "over" : "suspect";
}

export const STATES = {
  held: { label: "held", tone: "plain", title: "The lease is kept" },
  hive: { label: "Hive’s own", tone: "info", title: "A session of Hive’s holds it; UNLOCK TABLE in Hive frees it" },
  suspect: { label: "suspect", tone: "warn", title: "The lease has lapsed; the lock stands until it is freed" },
  over: { label: "run over", tone: "bad", title: "The lease has lapsed, and Airflow says that its run is over" },
  lost: { label: "lost", tone: "bad", title: "Somebody has removed this lock, most likely UNLOCK TABLE in Hive" },
};

const matchesOwner = (words, text) => words.every((word) => text.includes(word));

export function lockFilter({ object, owner, state, parents }) {
  const wanted = object.trim().toLowerCase();
  const words = owner.toLowerCase().split(/\s+/).filter(Boolean);
  return (lock) =>
    (parents || !lock.above || (state === "contended" && lock.waiting > 0)) &&
    (wanted === "" || lock.object.toLowerCase().includes(wanted)) &&
    matchesOwner(words, lock.text) &&
    (state === "" ||
      (state === "contended" && lock.waiting > 0) ||
      (state === "suspect" && ["suspect", "over", "lost"].includes(stateOf(lock))) ||
      (state === "exclusive" && lock.mode === "X") ||
      (state === "hive" && lock.hive === true));
}

export function rowFilter({ object, owner }) {
  const wanted = object.trim().toLowerCase();
  const words = owner.toLowerCase().split(/\s+/).filter(Boolean);
  return (row) =>
    matchesOwner(words, row.text) && (wanted === "" || row.locks.some(([name]) => name.toLowerCase().includes(wanted)));
}

