// The three tables: what is locked, who waits, what was freed by force.

import { cutInTheMiddle, h } from "./dom.js";
import { count, moment, since } from "./format.js";
import { grouped, groupOwner } from "./groups.js";
import { aLease, kindOf, needsYou, reasonOf, stateOf } from "./model.js";
import { ownerCell, ownerKey, ownerText } from "./owners.js";
import { Table } from "./table.js";

const TAIL = 14; // as long as "dt=2013-01-13/"

export const modeTag = (mode) =>
  h("span", { class: `mode mode-${mode}`, title: mode === "X" ? "EXCLUSIVE" : "SHARED" }, mode === "X" ? "exclusive" : "shared");

const objectCell = (object, above) => h("span", { class: above ? "object above cut" : "object cut", title: object }, cutInTheMiddle(object, TAIL));

const SIGNS = { works: "●", idle: "○", ends: "○", needs: "▲" };

export function stateTag(kind, label, number) {
  const said = kind === "needs" ? `needs you: ${label}` : label;
  return h("span", { class: `state kind-${kind}` }, SIGNS[kind] ? h("span", { "aria-hidden": "true" }, `${SIGNS[kind]} `) : null, number ? `${number} ${said}` : said);
}

export const workText = ([name, what, , text]) => [[name, what].filter(Boolean).join(": "), text].filter(Boolean).join(" – ");

// Whether the work of a holder that needs somebody has ended: what one has to know before freeing its lock.
function workLeft(jobs) {
  const first = (code) => jobs.find((job) => job[2] === code)?.[3];
  const runs = first("runs");
  if (runs) return runs;
  if (jobs.some(([, , code]) => code === undefined)) return "asking about its work…";
  return first("silent") ?? first("away") ?? first("untold") ?? "work has ended";
}

function stateCell(row) {
  if (row.members) return h("span", { class: "cut" }, row.kinds.map(({ kind, label, number }) => stateTag(kind, label, number)));
  const { label, why } = stateOf(row);
  const { at, jobs = [] } = row.lease ?? {};
  const kind = kindOf(row);
  const known = jobs.length === 0 ? "" : kind === "needs" ? workLeft(jobs) : jobs.map(([, what]) => what).join("; ");
  return h("span", { class: "cut", title: [why, ...jobs.map(workText)].join("\n") }, stateTag(kind, label),
    h("span", { class: "muted cut" }, at && kind !== "works" ? [since(at), known ? " · " : ""] : null, h("span", { class: "head" }, known)));
}

export function locksTable(open) {
  const columns = [
    { name: "object", title: "Object", class: "c-object", order: (row) => row.object, cell: lockedCell },
    { name: "mode", title: "Mode", class: "c-mode", order: (row) => row.mode, cell: (row) => modeTag(row.mode) },
    { name: "owner", title: "Held by", class: "c-owner", order: (row) => row.text, cell: (row) => (row.members ? groupOwner(row) : ownerCell(row.owner)) },
    { name: "state", title: "What it does", class: "c-state", order: (row) => `${KINDS.indexOf(kindOf(row))} ${stateOf(row).label}`, cell: stateCell },
    { name: "waiting", title: "Waiting", label: "waiting", class: "c-number", order: (row) => [needsYou(row) ? 0 : 1, -row.waiters.size, row.object],
      cell: (row) => (row.waiters.size ? h("span", { class: "waiting", title: `${count(row.waiters.size, "request waits", "requests wait")} for it, or for what it lies in` }, String(row.waiters.size)) : "") },
    { name: "since", title: "Held for", label: "held for", class: "c-held", order: (row) => row.since, cell: (row) => since(row.since) },
    { name: "open", title: h("span", { class: "unseen" }, "Details"), class: "c-open", cell: (row) => openButton(row, open) },
  ];
  return new Table({ name: "locks", label: "Locks", columns, sort: "waiting", open });
}

const KINDS = ["needs", "ends", "idle", "works", "hand", "untold", "hive"];

function lockedCell(row) {
  if (!row.members) return objectCell(row.object, row.above);
  return h("span", { class: "cut" }, h("span", { "aria-hidden": "true", class: "twist" }, row.open ? "▾" : "▸"), objectCell(row.common), h("span", { class: "muted tail" }, ` ${count(row.members.length, row.common === row.members[0].object ? "lease" : "partition")}`));
}

function openButton(row, open) {
  const [said, label] = row.members
    ? [row.open ? "Close" : "Open", `${row.open ? "Close" : "Open"} the ${row.members.length} locks ${row.object}`]
    : ["Details", `Details of ${row.object}, held by ${ownerText(row.owner)}`];
  return h("button", { type: "button", class: "small", tabindex: -1, onclick: row.members ? undefined : () => open(row), "aria-label": label }, said);
}

export function locksRows(model, filter, opened) {
  const rows = model.locks.filter(filter).map((lock) => {
    const { lease } = lock;
    return Object.assign(lock, {
      member: false, tone: needsYou(lock) ? "bad" : "",
      sign: `${kindOf(lock)} ${stateOf(lock).label} ${lock.mode} ${lock.waiters.size} ${lock.since} ${lease?.at} ${lease?.why} ${lease?.jobs.flat().join()}`,
    });
  });
  return grouped(rows, opened);
}

export function waitingTable(open) {
  const columns = [
    { name: "place", title: "Place", label: "place", class: "c-number", order: (row) => [WAITS.indexOf(row.for), row.place, row.since], cell: (row) => h("span", { class: "number" }, row.place > 0 ? String(row.place) : "–") },
    { name: "owner", title: "Who waits", class: "c-owner", order: (row) => row.text, cell: (row) => ownerCell(row.owner) },
    { name: "wanted", title: "Wants", class: "c-object", order: (row) => row.wanted[0]?.[0] ?? "", cell: wantedCell },
    { name: "for", title: "Waits for", class: "c-for", order: (row) => `${WAITS.indexOf(row.for)} ${row.since}`, cell: forCell },
    { name: "priority", title: "Priority", label: "priority", class: "c-priority", order: (row) => -row.priority, cell: (row) => h("span", { class: "number" }, String(row.priority)) },
    { name: "since", title: "Waited", label: "waited", class: "c-time", order: (row) => row.since, cell: (row) => since(row.since) },
    { name: "held", title: "In the way", class: "c-behind", order: (row) => (row.held.length ? ownerText(row.held[0].owner) : ""), cell: heldCell },
    { name: "open", title: h("span", { class: "unseen" }, "Holder"), class: "c-open", cell: (row) => holderButton(row, open) },
  ];
  return new Table({ name: "waiting", label: "Requests that wait", columns, sort: "place", open });
}

const WAITS = ["lock", "lease", "free", "slot"];

function holderButton(row, open) {
  if (row.held.length === 0) return "";
  const label = `Holder of what ${ownerText(row.owner)} waits for: ${ownerText(row.held[0].owner)}`;
  return h("button", { type: "button", class: "small", tabindex: -1, onclick: () => open(row), "aria-label": label }, "Holder");
}

function forCell(row) {
  const [said, why] = {
    lock: ["a lock", "It is in the queue of what it wants, and gets it when its turn comes"],
    lease: [aLease(row), `As many leases of its group as may be out at a time are out, ${row.out} of them; it holds nothing, and is in no other request’s way`],
    free: ["free data", "A sensor: it takes no lock, and succeeds once no lock is in its way"],
    slot: ["a worker slot", "It could have its locks; it holds nothing and is in no other request’s way until it gets a slot, and asks again then"],
  }[row.for];
  return h("span", { class: `waits-for for-${row.for}`, title: why }, said);
}

function wantedCell(row) {
  const [first, ...more] = row.wanted;
  if (first === undefined) return "";
  const rest = more.length ? h("span", { class: "muted tail", title: more.slice(0, 40).map(([name]) => name).join("\n") }, ` and ${more.length} more`) : null;
  return h("span", { class: "cut" }, modeTag(first[1]), objectCell(first[0]), rest);
}

// Who holds what it waits for in the end; who waits ahead of it is in the title.
function heldCell(row) {
  const first = row.held[0] ?? row.behind[0];
  const ahead = row.ahead > 0 ? `${row.ahead.toLocaleString("en")} ahead` : "";
  if (row.for === "slot") return h("span", { class: "muted" }, "nothing; it holds no lock");
  if (first === undefined) return h("span", { class: "muted" }, ahead || (row.for === "free" ? "nothing that is known here" : "nothing; it is its turn"));
  const title = [...row.held, ...row.behind.filter((arrow) => arrow.waiting)].map((arrow) => reasonOf(row, arrow));
  return h("span", { class: "cut", title: [ahead, ...title].filter(Boolean).join("\n") },
    h("span", { class: "muted tail" }, first.waiting ? "waits ahead: " : row.held.length > 1 ? `${row.held.length} hold: ` : "holds: "), ownerCell(first.owner));
}

export function waitingRows(model, filter) {
  return model.waiters.filter(filter).map((waiter) => Object.assign(waiter, {
    wanted: waiter.locks.filter(([, , above]) => above !== 1),
    sign: `${waiter.place} ${waiter.for} ${waiter.group} ${waiter.priority} ${waiter.out} ${waiter.since} ${waiter.ahead} ${[...waiter.held, ...waiter.behind].map((arrow) => `${arrow.o}${arrow.waiting}`).join()}`,
  }));
}

export function auditTable() {
  const columns = [
    { name: "at", title: "When", class: "c-when", order: (row) => -row.at, cell: (row) => h("span", {}, moment(row.at)) },
    { name: "user", title: "Who", label: "by", class: "c-user", order: (row) => row.user, cell: (row) => h("span", { title: row.user }, row.user) },
    { name: "reason", title: "Why", class: "c-reason", cell: (row) => h("span", { title: row.reason }, row.reason) },
    { name: "owner", title: "Whose lease", class: "c-owner", order: (row) => row.text, cell: (row) => ownerCell(row.owner) },
    { name: "locks", title: "Locks", class: "c-object", cell: (row) => wantedCell({ wanted: row.locks }) },
  ];
  return new Table({ name: "audit", label: "Force releases", columns, sort: "at" });
}

export function auditRows(answer, filter) {
  return answer.entries
    .map((entry, place) => ({ ...entry, reason: entry.reason ?? "", key: `${entry.at} ${entry.id} ${place}`, owner: answer.owners[entry.o], text: ownerKey(answer.owners[entry.o]), sign: "" }))
    .filter(filter);
}

export function tenuresTable() {
  const columns = [
    { name: "owner", title: "Held by", class: "c-owner", order: (row) => row.text, cell: (row) => ownerCell(row.owner) },
    { name: "locks", title: "Locks", class: "c-object", order: (row) => row.locks[0]?.[0] ?? "", cell: (row) => wantedCell({ wanted: row.locks }) },
    { name: "asked", title: "Asked", label: "asked", class: "c-when", order: (row) => -row.asked, cell: (row) => moment(row.asked) },
    { name: "granted", title: "Granted", label: "granted", class: "c-when", order: (row) => -row.granted, cell: (row) => moment(row.granted) },
    { name: "ended", title: "Ended", label: "ended", class: "c-when", order: (row) => -(row.ended ?? Infinity), cell: (row) => (row.ended ? moment(row.ended) : h("span", { class: "muted" }, "held")) },
  ];
  return new Table({ name: "tenures", label: "Leases of the last days", columns, sort: "granted" });
}

