// The model: the server's answer, prepared to be filtered, sorted and drawn.

import { ownerFilter, ownerKey, ownerText } from "./owners.js";

/**
 * @typedef {Answer.Lease & {owner: Answer.Owner}} Lease
 *
 * @typedef {Omit<Answer.Arrow, "o"> & {o?: number, owner: Answer.Owner}} Arrow from a waiter to a holder, or to a waiter
 *   ahead of it. A session of Hive that a sensor waits for has no `o`.
 *
 * @typedef {object} Lock a row of the table of locks
 * @property {string} key
 * @property {string} object
 * @property {Answer.Mode} mode
 * @property {boolean} onParent taken only for the objects below it
 * @property {Lease} [lease] a lock of Hive has none
 * @property {Answer.Owner} owner
 * @property {number} since
 * @property {string} text of its owner, for the filter
 * @property {Set<number>} waiters
 * @property {boolean} lost
 * @property {string} [query] of Hive
 * @property {string} [hiveId] of Hive, for its force release
 * @property {number} [heartbeat] of Hive
 * @property {boolean} [member] of a group of rows
 * @property {string} [tone]
 * @property {string} [sign]
 * @property {undefined} [members]
 * @property {undefined} [open]
 *
 * @typedef {object} WaiterParts
 * @property {string} key
 * @property {Answer.Owner} owner
 * @property {string} text
 * @property {Arrow[]} blockers
 * @property {Arrow[]} holders
 * @property {Answer.Lock[]} wanted its locks without those on parents
 * @property {string} [sign]
 *
 * @typedef {Omit<Answer.Waiter, "blockers" | "holders"> & WaiterParts} Waiter
 *
 * @typedef {ReturnType<typeof build>} Model
 *
 * @typedef {{object: string, owner: string, state: string, parents: boolean}} Filters
 * @typedef {(row: {text: string, locks: Answer.Lock[]}) => boolean} RowFilter
 */

/** @type {Model} */
export const EMPTY = build({ installation: "", owners: [], leases: [], hive: null, waiters: [], left_out: 0, expires: false });

/** @param {Answer.Current} answer */
export function build(answer) {
  const wanted = requestsByObject(answer.waiters.filter(wantsLocks));
  const leases = answer.leases.map((lease) => ({ ...lease, owner: answer.owners[lease.o] }));
  /** @type {Lock[]} */
  const locks = [];
  for (const lease of leases) {
    const lost = new Set(lease.lost ?? []);
    for (const [object, mode, parent] of lease.locks) {
      locks.push({
        key: `${lease.o} ${object}`, object, mode, onParent: parent === 1, lease, owner: lease.owner, since: lease.since,
        text: ownerKey(lease.owner), waiters: waitersFor(wanted, object, mode), lost: lost.has(object),
      });
    }
  }
  for (const [index, { object, mode, owner, since, query, id, heartbeat }] of (answer.hive ?? []).entries()) {
    const text = owner || "a Hive session";
    locks.push({
      key: `hive ${index} ${object}`, object, mode, onParent: false, owner: { text }, since, text: text.toLowerCase(),
      waiters: waitersFor(wanted, object, mode), lost: false, query, hiveId: id, heartbeat,
    });
  }
  /** @type {(arrow: Answer.Arrow) => Arrow} */
  const withOwner = (arrow) => ({ ...arrow, owner: answer.owners[arrow.o] });
  const byOwner = new Map(leases.map((lease) => [lease.o, lease]));
  /** @type {Waiter[]} */
  const waiters = answer.waiters.map((waiter) => ({
    ...waiter, key: String(waiter.o), owner: answer.owners[waiter.o], text: ownerKey(answer.owners[waiter.o]),
    blockers: waiter.blockers.map(withOwner),
    holders: waiter.for === "free" ? holdersOf(waiter, locks) : waiter.holders.map(withOwner),
    wanted: withoutParents(waiter.locks),
  }));
  return { owners: answer.owners, leases, locks, waiters, byOwner, hive: answer.hive?.length, leftOut: answer.left_out, expires: answer.expires };
}

/** @param {Answer.Lock[]} locks */
export const withoutParents = (locks) => locks.filter(([, , parent]) => parent !== 1);

/**
 * Whether it is in the queue of a lock. Others wait for a worker slot, for a lease of their group, or for free data.
 * @param {{for: Answer.WaitsFor}} waiter
 */
export function waitsForLock(waiter) {
  return waiter.for === "lock";
}

/**
 * A sensor takes no lock, but waits for the locks of others.
 * @param {Answer.Waiter} waiter
 */
function wantsLocks(waiter) {
  return waitsForLock(waiter) || waiter.for === "free";
}

/**
 * The holders of the data that a sensor waits for.
 * @param {Answer.Waiter} sensor
 * @param {Lock[]} locks
 */
function holdersOf(sensor, locks) {
  /** @type {Map<number | string, Arrow>} */
  const found = new Map();
  for (const { lease, key, owner, object, mode, waiters } of locks) {
    if (waiters.has(sensor.o)) found.set(lease?.o ?? key, { o: lease?.o, owner, object, mode, waiting: false });
  }
  return [...found.values()];
}

/**
 * The lock by which a holder blocks others: a click on its waiter or its box opens that lock.
 * @param {Model} model
 * @param {{o?: number, owner: Answer.Owner, object?: string}} holder
 * @returns {Lock | undefined}
 */
export function lockOf(model, holder) {
  const locks = model.locks.filter((lock) => (lock.lease ? lock.lease.o === holder.o : lock.owner.text === holder.owner.text));
  return locks.find((lock) => lock.object === holder.object) ??
    locks.sort((a, b) => Number(a.onParent) - Number(b.onParent) || b.waiters.size - a.waiters.size)[0];
}

/**
 * A group has no name if the user may not see its DAG.
 * @param {{group?: string}} waiter
 */
export function leaseOfGroup(waiter) {
  return waiter.group ? `a lease of “${waiter.group}”` : "a lease of its group";
}

/** @param {{for: Answer.WaitsFor, group?: string}} waiter */
export function awaitedText(waiter) {
  return { lock: "a lock", lease: leaseOfGroup(waiter), slot: "a worker slot", free: "free data" }[waiter.for];
}

/**
 * Why the request at the end of an arrow blocks a waiter.
 * @param {{group?: string}} waiter
 * @param {Arrow} arrow
 */
export function reasonOf(waiter, arrow) {
  const what = arrow.counted ? leaseOfGroup(waiter) : arrow.object;
  return `${ownerText(arrow.owner)} ${arrow.waiting ? "waits ahead for" : "holds"} ${what}`;
}

/**
 * The objects above an object: of "dw.t/a=1/b=2" these are "dw", "dw.t" and "dw.t/a=1".
 * @param {string} object
 */
function parentsOf(object) {
  const [table, ...levels] = object.split("/");
  const found = table.includes(".") ? [table.slice(0, table.indexOf("."))] : [];
  for (let depth = 0; depth < levels.length; depth += 1) found.push([table, ...levels.slice(0, depth)].join("/"));
  return found;
}

/**
 * For each object, the requests for it in either mode, and the requests for an object below it.
 * @param {Answer.Waiter[]} waiters
 */
function requestsByObject(waiters) {
  /** @type {Map<string, {S: number[], X: number[], below: number[]}>} */
  const found = new Map();
  /** @param {string} object */
  const entry = (object) => {
    const known = found.get(object);
    if (known !== undefined) return known;
    const made = { S: [], X: [], below: [] };
    found.set(object, made);
    return made;
  };
  for (const waiter of waiters) {
    for (const [object, mode, parent] of waiter.locks) {
      if (parent === 1 && mode === "S") continue;
      entry(object)[mode].push(waiter.o);
      for (const above of parentsOf(object)) entry(above).below.push(waiter.o);
    }
  }
  return found;
}

/**
 * The waiters for a lock: requests for the object, and for an EXCLUSIVE lock on an object above it.
 * Those for an EXCLUSIVE lock include the requests for objects below it.
 * @param {ReturnType<typeof requestsByObject>} wanted
 * @param {string} object
 * @param {Answer.Mode} mode
 */
function waitersFor(wanted, object, mode) {
  const entry = wanted.get(object) ?? { S: [], X: [], below: [] };
  const found = new Set(mode === "X" ? [...entry.S, ...entry.X, ...entry.below] : entry.X);
  for (const parent of parentsOf(object)) for (const waiter of wanted.get(parent)?.X ?? []) found.add(waiter);
  return found;
}

/** @typedef {{lease?: Lease, lost: boolean}} Held a lock, or a group of locks that are alike */

/**
 * The holder's activity, as a class of a row.
 * @param {Held} lock
 * @returns {Answer.Activity | "hive"}
 */
export function kindOf({ lease, lost }) {
  if (lease === undefined) return "hive";
  return lost ? "needs" : lease.doing;
}

/** @param {Held} lock */
export const needsAction = (lock) => kindOf(lock) === "needs";

/** @param {Held} lock */
export function stateOf({ lease, lost }) {
  if (lease === undefined) return { label: "Hive’s own", why: "A Hive session holds it. UNLOCK TABLE in Hive releases it" };
  if (lost) return { label: "lost", why: "This lock is no longer in the lock store. The most likely cause is UNLOCK TABLE in Hive. Its task stops the work and fails with LockLost. If the task does not, release the lease by force" };
  return { label: lease.state, why: lease.why ?? "" };
}

/**
 * @param {Filters} filters
 * @returns {(lock: Lock) => boolean}
 */
export function lockFilter({ object, owner, state, parents }) {
  const wanted = object.trim().toLowerCase();
  const matchesOwner = ownerFilter(owner);
  return (lock) =>
    (parents || !lock.onParent || (state === "contended" && lock.waiters.size > 0)) &&
    (wanted === "" || lock.object.toLowerCase().includes(wanted)) &&
    matchesOwner(lock.text) &&
    (state === "" ||
      (state === "contended" && lock.waiters.size > 0) ||
      (state === "exclusive" && lock.mode === "X") ||
      state === kindOf(lock));
}

/**
 * @param {Filters} filters
 * @returns {RowFilter}
 */
export function rowFilter({ object, owner }) {
  const wanted = object.trim().toLowerCase();
  const matchesOwner = ownerFilter(owner);
  return (row) =>
    matchesOwner(row.text) && (wanted === "" || row.locks.some(([name]) => name.toLowerCase().includes(wanted)));
}
