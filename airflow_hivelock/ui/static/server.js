// The requests to the server. An unchanged answer is not sent again.

import { setNow } from "./format.js";

const PATIENCE_MS = 15_000;
const MOST_KEPT = 8;

/** @type {Map<string, {tag: string, answer: any}>} */
const kept = new Map();

export class Refused extends Error {
  /**
   * @param {number} status of the response; 0: there was none
   * @param {string} detail
   * @param {boolean} explained whether the server gave the detail; if not, it is unknown whether a change was made
   */
  constructor(status, detail, explained = false) {
    super(detail);
    this.status = status;
    this.explained = explained;
  }
}

/**
 * @param {string} path
 * @param {RequestInit} options
 * @throws {Refused} there is no answer, or an error
 */
async function call(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE_MS) });
  } catch (error) {
    throw new Refused(0, error instanceof DOMException && error.name === "TimeoutError" ? "Airflow does not answer" : "Airflow cannot be reached");
  }
  if (response.status === 304 || response.ok) return response;
  const { detail } = await response.json().catch(() => ({}));
  const explained = typeof detail === "string";
  const text = explained ? detail : response.statusText;
  throw new Refused(response.status, response.status === 401 ? "You are signed out of Airflow; reload the page" : text, explained);
}

/**
 * @template T
 * @typedef {{answer: T, fresh: boolean, mayRelease: boolean}} Look fresh: it differs from the last answer
 */

/**
 * @param {string} connection
 * @param {string} what
 * @returns {Promise<Look<any>>}
 */
async function look(connection, what) {
  const path = `api/v1/${encodeURIComponent(connection)}/${what}`;
  const known = kept.get(path);
  const response = await call(path, { headers: known ? { "If-None-Match": known.tag } : {} });
  setNow(Number(response.headers.get("X-Store-Now")));
  const mayRelease = response.headers.get("X-May-Release") === "true";
  if (response.status === 304 && known) return { answer: known.answer, fresh: false, mayRelease };
  const answer = await response.json();
  if (kept.size > MOST_KEPT) kept.clear();
  kept.set(path, { tag: response.headers.get("ETag") ?? "", answer });
  return { answer, fresh: true, mayRelease };
}

/** @type {(connection: string) => Promise<Look<Answer.Current>>} */
export const lookAtLocks = (connection) => look(connection, "current");

/** @type {(connection: string, hours: number) => Promise<Look<Answer.History>>} */
export const lookAtHistory = (connection, hours) => look(connection, `history?hours=${hours}`);

/** @type {(connection: string) => Promise<Look<Answer.Audit>>} */
export const lookAtAudit = (connection) => look(connection, "audit");

/** @type {(connection: string) => Promise<Look<Answer.Groups>>} */
export const lookAtGroups = (connection) => look(connection, "groups");

/** @type {() => Promise<Answer.Connections>} */
export const connections = async () => (await call("api/v1/connections")).json();

/** @type {(connection: string, id: string) => Promise<Answer.LeaseDetails>} */
export const leaseOf = async (connection, id) =>
  (await call(`api/v1/${encodeURIComponent(connection)}/leases/${encodeURIComponent(id)}`)).json();

/**
 * @param {string} connection
 * @param {string} what
 * @param {object} body
 */
async function change(connection, what, body) {
  const response = await call(`api/v1/${encodeURIComponent(connection)}/${what}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Hivelock": "release" },
    body: JSON.stringify(body),
  });
  return response.json();
}

/**
 * Release a lease by force, and return whether it was still held.
 * @param {string} connection
 * @param {string} id
 * @param {string} reason
 */
export async function release(connection, id, reason) {
  /** @type {Answer.Released} */
  const answer = await change(connection, `leases/${encodeURIComponent(id)}/release`, { reason });
  return answer.freed;
}

/**
 * Free locks that Hive has left, and return how many were still held.
 * @param {string} connection
 * @param {string} id
 * @param {string} reason
 */
export async function releaseHive(connection, id, reason) {
  /** @type {Answer.HiveReleased} */
  const answer = await change(connection, "hive/release", { id, reason });
  return answer.freed;
}

/**
 * Withdraw a request, and return whether it still waited.
 * @param {string} connection
 * @param {string} owner
 * @param {string} reason
 */
export async function withdraw(connection, owner, reason) {
  /** @type {Answer.Withdrawn} */
  const answer = await change(connection, "requests/withdraw", { owner, reason });
  return answer.withdrawn;
}

/**
 * Change the priority of a request, and return whether it still waited for its locks.
 * @param {string} connection
 * @param {string} owner
 * @param {number} priority
 * @param {string} reason
 */
export async function changePriority(connection, owner, priority, reason) {
  /** @type {Answer.PriorityChanged} */
  const answer = await change(connection, "requests/priority", { owner, priority, reason });
  return answer.changed;
}

/**
 * Reserve an object, and return the id of the lease.
 * @param {string} connection
 * @param {string} object
 * @param {string} until in ISO 8601
 * @param {string} reason
 */
export async function reserve(connection, object, until, reason) {
  /** @type {Answer.Reserved} */
  const answer = await change(connection, "reservations", { object, until, reason });
  return answer.lease;
}

/**
 * @param {string} connection
 * @param {string} host
 */
export async function onHost(connection, host) {
  /** @type {Answer.OnHost} */
  const answer = await (await call(`api/v1/${encodeURIComponent(connection)}/hosts?host=${encodeURIComponent(host)}`)).json();
  return answer.works;
}

/**
 * Declare a host gone, and return how much work has ended with it.
 * @param {string} connection
 * @param {string} host
 * @param {string} reason
 */
export async function hostGone(connection, host, reason) {
  /** @type {Answer.HostGone} */
  const answer = await change(connection, "hosts/gone", { host, reason });
  return answer.ended;
}
