// An answer of the server, made ready to be filtered, sorted and drawn.

import { ownerKey, ownerText } from "./owners.js";

export const EMPTY = build({ installation: "", owners: [], leases: [], hive: null, waiters: [], left_out: 0, expires: false });

export function build(answer) {
  const wanted = wishes(answer.waiters.filter(wantsLocks));
  const leases = answer.leases.map((lease) => ({ ...lease, owner: answer.owners[lease.o] }));
  const locks = [];
  for (const lease of leases) {
    const lost = new Set(lease.lost ?? []);
    for (const [object, mode, above] of lease.locks) {
      locks.push({
        key: `${lease.o} ${object}`, object, mode, above: above === 1, lease, owner: lease.owner, since: lease.since,
        text: ownerKey(lease.owner), waiters: inTheWay(wanted, object, mode), lost: lost.has(object),
      });
    }
  }
  for (const [place, held] of (answer.hive ?? []).entries()) {
    const owner = { text: held.owner || "a Hive session" };
    locks.push({
      ...held, key: `hive ${place} ${held.object}`, hive: true, above: false, owner, text: owner.text.toLowerCase(),
      waiters: inTheWay(wanted, held.object, held.mode), lost: false,
    });
  }
  const byOwner = new Map(leases.map((lease) => [lease.o, lease]));
  const waiters = answer.waiters.map((waiter) => ({
    ...waiter, key: String(waiter.o), owner: answer.owners[waiter.o], text: ownerKey(answer.owners[waiter.o]),
    behind: waiter.behind.map((arrow) => ({ ...arrow, owner: answer.owners[arrow.o] })),
    held: (waiter.for === "free" ? holdersOf(waiter, locks) : waiter.held).map((arrow) => ({ ...arrow, owner: answer.owners[arrow.o] ?? arrow.owner })),
  }));
  return { owners: answer.owners, leases, locks, waiters, byOwner, hive: answer.hive?.length, leftOut: answer.left_out, expires: answer.expires };
}

// Others wait for a worker slot, for one of the leases that are counted, or until data is free: they are in no queue of a lock.
export function waitsForLock(waiter) {
  return waiter.for === "lock";
}

// A sensor takes no lock, but waits for those that others hold.
function wantsLocks(waiter) {
  return waitsForLock(waiter) || waiter.for === "free";
}

// Who holds what a sensor wants to be free.
function holdersOf(sensor, locks) {
  const found = new Map();
  for (const lock of locks) {
    if (lock.waiters.has(sensor.o)) found.set(lock.lease?.o ?? lock.key, { o: lock.lease?.o, owner: lock.owner, object: lock.object, mode: lock.mode, waiting: false });
  }
  return [...found.values()];
}

// The lock by which an arrow's holder is in the way: what a click on a waiter opens.
export function lockOf(model, arrow) {
  const mine = model.locks.filter((lock) => (lock.hive ? lock.owner.text === arrow.owner?.text : lock.lease.o === arrow.o));
  return mine.find((lock) => lock.object === arrow.object) ?? mine.sort((a, b) => a.above - b.above || b.waiters.size - a.waiters.size)[0];
}

// The group is nameless where its DAG is.
export function aLease(waiter) {
  return waiter.group ? `a lease of “${waiter.group}”` : "a lease of its group";
}

// Why the request at the other end of an arrow is in a waiter's way.
export function reasonOf(waiter, arrow) {
  const what = arrow.counted ? aLease(waiter) : arrow.object;
  return `${ownerText(arrow.owner)} ${arrow.waiting ? "waits ahead for" : "holds"} ${what}`;
}

// What an object lies in: "dw.t/a=1/b=2" in "dw.t/a=1", "dw.t" and "dw".
function above(object) {
  const [table, ...levels] = object.split("/");
  const found = table.includes(".") ? [table.slice(0, table.indexOf("."))] : [];
  for (let depth = 0; depth < levels.length; depth += 1) found.push([table, ...levels.slice(0, depth)].join("/"));
  return found;
}

// For each object, the requests for it in either mode, and those for something in it.
function wishes(waiters) {
  const found = new Map();
  const of = (object) => {
    if (!found.has(object)) found.set(object, { S: [], X: [], below: [] });
    return found.get(object);
  };
  for (const waiter of waiters) {
    for (const [object, mode, passed] of waiter.locks) {
      if (passed === 1 && mode === "S") continue;
      of(object)[mode].push(waiter.o);
      for (const parent of above(object)) of(parent).below.push(waiter.o);
    }
  }
  return found;
}

// The waiters for a lock: requests for the object, or EXCLUSIVE for what it lies in; for EXCLUSIVE, for what lies in it, too.
function inTheWay(wanted, object, mode) {
  const entry = wanted.get(object) ?? { S: [], X: [], below: [] };
  const found = new Set(mode === "X" ? [...entry.S, ...entry.X, ...entry.below] : entry.X);
  for (const parent of above(object)) for (const waiter of wanted.get(parent)?.X ?? []) found.add(waiter);
  return found;
}

// What a holder does, as a class of a row; its own words are the lease's.
export function kindOf(lock) {
  if (lock.hive) return "hive";
  return lock.lost ? "needs" : lock.lease.doing;
}

export const needsYou = (lock) => kindOf(lock) === "needs";

export function stateOf(lock) {
  if (lock.hive) return { label: "Hive’s own", why: "A session of Hive’s holds it; UNLOCK TABLE in Hive frees it" };
  if (lock.lost) return { label: "lost", why: "Somebody has removed this lock, most likely UNLOCK TABLE in Hive" };
  return { label: lock.lease.state, why: lock.lease.why ?? "" };
}

const matchesOwner = (words, text) => words.every((word) => text.includes(word));

export function lockFilter({ object, owner, state, parents }) {
  const wanted = object.trim().toLowerCase();
  const words = owner.toLowerCase().split(/\s+/).filter(Boolean);
  return (lock) =>
    (parents || !lock.above || (state === "contended" && lock.waiters.size > 0)) &&
    (wanted === "" || lock.object.toLowerCase().includes(wanted)) &&
    matchesOwner(words, lock.text) &&
    (state === "" ||
      (state === "contended" && lock.waiters.size > 0) ||
      (state === "exclusive" && lock.mode === "X") ||
      state === kindOf(lock));
}

export function rowFilter({ object, owner }) {
  const wanted = object.trim().toLowerCase();
  const words = owner.toLowerCase().split(/\s+/).filter(Boolean);
  return (row) =>
    matchesOwner(words, row.text) && (wanted === "" || row.locks.some(([name]) => name.toLowerCase().includes(wanted)));
}

