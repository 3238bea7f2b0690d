// The four tables: locks, waiters, force releases, and the leases of the last days.

import { cutInTheMiddle, h } from "./dom.js";
import { count, expected, moment, since } from "./format.js";
import { grouped, groupOwner } from "./groups.js";
import { kindOf, leaseOfGroup, needsAction, reasonOf, stateOf } from "./model.js";
import { ownerCell, ownerKey, ownerText } from "./owners.js";
import { Table } from "./table.js";

/**
 * @typedef {import("./model.js").Lock} Lock
 * @typedef {import("./model.js").Waiter} Waiter
 * @typedef {import("./model.js").Model} Model
 * @typedef {import("./model.js").RowFilter} RowFilter
 * @typedef {import("./groups.js").Group} Group
 *
 * @typedef {object} Owned
 * @property {string} key
 * @property {string} sign
 * @property {Answer.Owner} owner
 * @property {string} text of the owner, for the filter
 *
 * @typedef {Answer.Entry & Owned} Entry
 * @typedef {Answer.Tenure & Owned} Tenure
 */

const TAIL = 14; // as long as "dt=2013-01-13/"

/** @param {Answer.Mode} mode */
export const modeTag = (mode) =>
  h("span", { class: `mode mode-${mode}`, title: mode === "X" ? "EXCLUSIVE" : "SHARED" }, mode === "X" ? "exclusive" : "shared");

/**
 * @param {string} object
 * @param {boolean} onParent
 */
const objectCell = (object, onParent = false) => h("span", { class: onParent ? "object above cut" : "object cut", title: object }, cutInTheMiddle(object, TAIL));

/** @type {Record<string, string>} */
const SIGNS = { works: "●", idle: "○", ends: "○", needs: "▲" };

/**
 * @param {string} kind
 * @param {string} label
 * @param {number} [number]
 */
export function stateTag(kind, label, number) {
  const text = kind === "needs" ? `needs action: ${label}` : label;
  return h("span", { class: `state kind-${kind}` }, SIGNS[kind] ? h("span", { "aria-hidden": "true" }, `${SIGNS[kind]} `) : null, number ? `${number} ${text}` : text);
}

/** @param {Answer.Job} job */
export const workText = ([name, what, , text]) => [[name, what].filter(Boolean).join(": "), text].filter(Boolean).join(" – ");

/**
 * Whether the work of a holder that needs action has ended. A user has to know that before a force release.
 * @param {Answer.Job[]} jobs
 */
function workLeft(jobs) {
  /** @param {Answer.WorkCode} code */
  const first = (code) => jobs.find((job) => job[2] === code)?.[3];
  const runs = first("runs");
  if (runs) return runs;
  if (jobs.some(([, , code]) => code === undefined)) return "checking its work…";
  return first("silent") ?? first("away") ?? first("untold") ?? "work has ended";
}

/** @param {Lock | Group} row */
function stateCell(row) {
  if (row.members) return h("span", { class: "cut" }, row.kinds.map(({ kind, label, number }) => stateTag(kind, label, number)));
  const { label, why } = stateOf(row);
  const at = row.lease?.at;
  const jobs = row.lease?.jobs ?? [];
  const kind = kindOf(row);
  const known = jobs.length === 0 ? "" : kind === "needs" ? workLeft(jobs) : jobs.map(([, what]) => what).join("; ");
  return h("span", { class: "cut", title: [why, ...jobs.map(workText)].join("\n") }, stateTag(kind, label),
    h("span", { class: "muted cut" }, at && kind !== "works" ? [since(at), known ? " · " : ""] : null, h("span", { class: "head" }, known)));
}

const KINDS = ["needs", "ends", "idle", "works", "hand", "untold", "hive"];

/** @param {(lock: Lock) => void} openLock */
export function locksTable(openLock) {
  /** @param {Lock | Group} row */
  const open = (row) => row.members === undefined && openLock(row);
  /** @type {import("./table.js").Column<Lock | Group>[]} */
  const columns = [
    { name: "object", title: "Object", class: "c-object", order: (row) => row.object, cell: lockedCell },
    { name: "mode", title: "Mode", class: "c-mode", order: (row) => row.mode, cell: (row) => modeTag(row.mode) },
    { name: "owner", title: "Holder", class: "c-owner", order: (row) => row.text, cell: (row) => (row.members ? groupOwner(row) : ownerCell(row.owner)) },
    { name: "state", title: "State", class: "c-state", order: (row) => `${KINDS.indexOf(kindOf(row))} ${stateOf(row).label}`, cell: stateCell },
    { name: "waiting", title: "Waiting", label: "waiting", class: "c-number", order: (row) => [needsAction(row) ? 0 : 1, -row.waiters.size, row.object],
      cell: (row) => (row.waiters.size ? h("span", { class: "waiting", title: `${count(row.waiters.size, "request waits", "requests wait")} for it, or for an object above it` }, String(row.waiters.size)) : "") },
    { name: "since", title: "Held for", label: "held for", class: "c-held", order: (row) => row.since, cell: (row) => since(row.since) },
    { name: "open", title: h("span", { class: "unseen" }, "Details"), class: "c-open", cell: (row) => openButton(row, open) },
  ];
  return new Table({ name: "locks", label: "Locks", columns, sort: "waiting", open });
}

/** @param {Lock | Group} row */
function lockedCell(row) {
  if (!row.members) return objectCell(row.object, row.onParent);
  return h("span", { class: "cut" }, h("span", { "aria-hidden": "true", class: "twist" }, row.open ? "▾" : "▸"), objectCell(row.common), h("span", { class: "muted tail" }, ` ${count(row.members.length, row.common === row.members[0].object ? "lease" : "partition")}`));
}

/**
 * @param {Lock | Group} row
 * @param {(row: Lock | Group) => void} open
 */
function openButton(row, open) {
  const [text, label] = row.members
    ? [row.open ? "Close" : "Open", `${row.open ? "Close" : "Open"} the ${row.members.length} locks ${row.object}`]
    : ["Details", `Details of ${row.object}, held by ${ownerText(row.owner)}`];
  return h("button", { type: "button", class: "small", tabindex: -1, onclick: row.members ? undefined : () => open(row), "aria-label": label }, text);
}

/**
 * @param {Model} model
 * @param {(lock: Lock) => boolean} filter
 * @param {Set<string>} opened
 */
export function locksRows(model, filter, opened) {
  const rows = model.locks.filter(filter).map((lock) => {
    const { lease } = lock;
    return Object.assign(lock, {
      member: false, tone: needsAction(lock) ? "bad" : "",
      sign: `${kindOf(lock)} ${stateOf(lock).label} ${lock.mode} ${lock.waiters.size} ${lock.since} ${lease?.at} ${lease?.why} ${lease?.jobs?.flat().join()}`,
    });
  });
  return grouped(rows, opened);
}

const WAITS = ["lock", "lease", "free", "slot"];

/**
 * @param {(waiter: Waiter) => void} open
 * @param {(holder: import("./model.js").Arrow) => void} openHolder
 */
export function waitingTable(open, openHolder) {
  /** @type {import("./table.js").Column<Waiter>[]} */
  const columns = [
    { name: "position", title: "Position", label: "position", class: "c-number", order: (row) => [WAITS.indexOf(row.for), row.position, row.since], cell: (row) => h("span", { class: "number" }, row.position > 0 ? String(row.position) : "–") },
    { name: "owner", title: "Waiter", class: "c-owner", order: (row) => row.text, cell: (row) => ownerCell(row.owner) },
    { name: "wanted", title: "Object", class: "c-object", order: (row) => row.wanted[0]?.[0] ?? "", cell: (row) => objectsCell(row.wanted) },
    { name: "for", title: "Waits for", class: "c-for", order: (row) => `${WAITS.indexOf(row.for)} ${row.since}`, cell: waitsForCell },
    { name: "priority", title: "Priority", label: "priority", class: "c-priority", order: (row) => -row.priority, cell: (row) => h("span", { class: "number" }, String(row.priority)) },
    { name: "since", title: "Waited", label: "waited", class: "c-time", order: (row) => row.since, cell: (row) => since(row.since) },
    { name: "expected", title: "Expected", label: "expected", class: "c-expected", order: (row) => row.expected?.[0] ?? Infinity, cell: (row) => (row.expected ? expected(row.expected) : "") },
    { name: "blockers", title: "First blocker", class: "c-blockers", order: (row) => (row.holders.length ? ownerText(row.holders[0].owner) : ""), cell: blockersCell },
    { name: "open", title: h("span", { class: "unseen" }, "Holder"), class: "c-open", cell: (row) => holderButton(row, openHolder) },
  ];
  return new Table({ name: "waiting", label: "Waiters", columns, sort: "position", open });
}

/**
 * @param {Waiter} row
 * @param {(holder: import("./model.js").Arrow) => void} open
 */
function holderButton(row, open) {
  if (row.holders.length === 0) return "";
  const label = `Holder that ${ownerText(row.owner)} waits for: ${ownerText(row.holders[0].owner)}`;
  return h("button", { type: "button", class: "small", tabindex: -1, onclick: () => open(row.holders[0]), "aria-label": label }, "Holder");
}

/** @param {Waiter} row */
function waitsForCell(row) {
  const [text, why] = {
    lock: ["a lock", "It is in the queue, and gets its locks at its turn"],
    lease: [leaseOfGroup(row), `Too few leases of its group are free: ${count(row.out ?? 0, "request has", "requests have")} the others. The request is parked. It holds nothing, and blocks no request for locks`],
    free: ["free data", "A sensor: it takes no lock, and succeeds once no lock conflicts with it"],
    slot: row.until
      ? [`a worker slot, until ${moment(row.until).slice(11)}`, "It is invited: its turn has come, and it keeps its queue position until then. It holds no lock"]
      : ["a worker slot", "It is away: it holds no lock and blocks no request, and asks again once it has a worker slot"],
  }[row.for];
  return h("span", { class: `waits-for for-${row.for}`, title: why }, text);
}

/** @param {Answer.Lock[]} locks */
function objectsCell([first, ...more]) {
  if (first === undefined) return "";
  const rest = more.length ? h("span", { class: "muted tail", title: more.slice(0, 40).map(([name]) => name).join("\n") }, ` and ${more.length} more`) : null;
  return h("span", { class: "cut" }, modeTag(first[1]), objectCell(first[0]), rest);
}

/**
 * The holder that it waits for in the end. The title has the waiters ahead of it.
 * @param {Waiter} row
 */
function blockersCell(row) {
  const first = row.holders[0] ?? row.blockers[0];
  const ahead = row.ahead > 0 ? `${row.ahead.toLocaleString("en")} ahead` : "";
  if (row.for === "slot") return h("span", { class: "muted" }, "none; it holds no lock");
  if (first === undefined) return h("span", { class: "muted" }, ahead || (row.for === "free" ? "none is known here" : "none; it is its turn"));
  const reasons = [...row.holders, ...row.blockers.filter((arrow) => arrow.waiting)].map((arrow) => reasonOf(row, arrow));
  return h("span", { class: "cut", title: [ahead, ...reasons].filter(Boolean).join("\n") },
    h("span", { class: "muted tail" }, first.waiting ? "waits ahead: " : row.holders.length > 1 ? `${row.holders.length} hold: ` : "holds: "), ownerCell(first.owner));
}

/**
 * @param {Model} model
 * @param {RowFilter} filter
 */
export function waitingRows(model, filter) {
  return model.waiters.filter(filter).map((waiter) => Object.assign(waiter, {
    sign: `${waiter.position} ${waiter.for} ${waiter.until} ${waiter.expected?.join("-")} ${waiter.group} ${waiter.priority} ${waiter.out} ${waiter.since} ${waiter.ahead} ${[...waiter.holders, ...waiter.blockers].map((arrow) => `${arrow.o}${arrow.waiting}`).join()}`,
  }));
}

export function auditTable() {
  /** @type {import("./table.js").Column<Entry>[]} */
  const columns = [
    { name: "at", title: "Time", class: "c-when", order: (row) => -row.at, cell: (row) => h("span", {}, moment(row.at)) },
    { name: "user", title: "User", label: "by", class: "c-user", order: (row) => row.user, cell: (row) => h("span", { title: row.user }, row.user) },
    { name: "reason", title: "Reason", class: "c-reason", cell: (row) => h("span", { title: row.reason }, row.reason) },
    { name: "owner", title: "Holder", class: "c-owner", order: (row) => row.text, cell: (row) => ownerCell(row.owner) },
    { name: "locks", title: "Locks", class: "c-object", cell: (row) => objectsCell(row.locks) },
  ];
  return new Table({ name: "audit", label: "Force releases", columns, sort: "at" });
}

/**
 * @param {Answer.Audit} answer
 * @param {RowFilter} filter
 * @returns {Entry[]}
 */
export function auditRows(answer, filter) {
  return answer.entries
    .map((entry, index) => ({ ...entry, reason: entry.reason ?? "", key: `${entry.at} ${entry.id} ${index}`, owner: answer.owners[entry.o], text: ownerKey(answer.owners[entry.o]), sign: "" }))
    .filter(filter);
}

export function tenuresTable() {
  /** @type {import("./table.js").Column<Tenure>[]} */
  const columns = [
    { name: "owner", title: "Holder", class: "c-owner", order: (row) => row.text, cell: (row) => ownerCell(row.owner) },
    { name: "locks", title: "Locks", class: "c-object", order: (row) => row.locks[0]?.[0] ?? "", cell: (row) => objectsCell(row.locks) },
    { name: "asked", title: "Requested", label: "requested", class: "c-when", order: (row) => -row.asked, cell: (row) => moment(row.asked) },
    { name: "granted", title: "Granted", label: "granted", class: "c-when", order: (row) => -row.granted, cell: (row) => moment(row.granted) },
    { name: "ended", title: "Ended", label: "ended", class: "c-when", order: (row) => -(row.ended ?? Infinity), cell: (row) => (row.ended ? moment(row.ended) : h("span", { class: "muted" }, "held")) },
  ];
  return new Table({ name: "tenures", label: "Leases of the last days", columns, sort: "granted" });
}

/**
 * @param {Answer.History} answer
 * @param {RowFilter} filter
 * @returns {Tenure[]}
 */
export function tenuresRows(answer, filter) {
  return answer.tenures
    .map((tenure, index) => ({ ...tenure, key: `${tenure.id} ${index}`, owner: answer.owners[tenure.o], text: ownerKey(answer.owners[tenure.o]), sign: String(tenure.ended) }))
    .filter(filter);
}
