// What the page announces after a change.

import { count, moment } from "./format.js";
import { withoutParents } from "./model.js";
import { ownerText } from "./owners.js";

/**
 * @typedef {import("./model.js").Lease} Lease
 * @typedef {import("./model.js").Lock} Lock
 * @typedef {import("./model.js").Waiter} Waiter
 */

const RECORDED = "“Force releases” shows it with your name and reason.";

/**
 * @param {boolean} freed
 * @param {Lease} lease
 */
export function released(freed, lease) {
  const locks = withoutParents(lease.locks).map(([name]) => name);
  const what = `${locks[0]}${locks.length > 1 ? ` and ${locks.length - 1} more` : ""}`;
  const which = `the lease of ${ownerText(lease.owner)} on ${what}`;
  return freed ? `Freed ${which}. ${RECORDED}` : `Freed nothing: ${which} had already ended.`;
}

/**
 * @param {number} freed
 * @param {Lock} lock
 */
export function hiveReleased(freed, lock) {
  const which = `of ${ownerText(lock.owner)} in Hive`;
  return freed ? `Freed ${count(freed, "lock")} ${which}.` : `Freed nothing: the locks ${which} had already ended.`;
}

/**
 * @param {string} host
 * @param {number} ended
 */
export const hostGone = (host, ended) =>
  `${host} is declared gone, and ${count(ended, "work")} with it. The keeper frees finished leases within a minute. ${RECORDED}`;

/**
 * @param {boolean} done
 * @param {Waiter} waiter
 */
export function withdrawn(done, waiter) {
  const which = `the request of ${ownerText(waiter.owner)}`;
  return done ? `Withdrew ${which}. ${RECORDED}` : `Withdrew nothing: ${which} does not wait any more.`;
}

/**
 * @param {boolean} done
 * @param {Waiter} waiter
 * @param {number} priority
 */
export function priorityChanged(done, waiter, priority) {
  const which = `the request of ${ownerText(waiter.owner)}`;
  return done ? `Changed the priority of ${which} to ${priority}. ${RECORDED}` : `Changed nothing: ${which} does not wait for its locks any more.`;
}

/**
 * @param {string} object
 * @param {number} until in ms
 */
export const reserved = (object, until) => `Reserved ${object} until ${moment(until)}.`;
