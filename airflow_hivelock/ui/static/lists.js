// The three tables: what is locked, who waits, what was freed by force.

import { h } from "./dom.js";
import { count, moment, since, until } from "./format.js";
import { STATES, stateOf } from "./model.js";
import { ownerCell, ownerKey, ownerText } from "./owners.js";
import { Table } from "./table.js";

export const modeTag = (mode) =>
  h("span", { class: `mode mode-${mode}`, title: mode === "X" ? "EXCLUSIVE" : "SHARED" }, mode === "X" ? "exclusive" : "shared");

const objectCell = (object, above) => h("span", { class: above ? "object above" : "object", title: object }, object);

function stateCell(lock) {
  const state = STATES[stateOf(lock)];
  if (state.tone === "plain") return "";
  return h("span", { class: `state tone-${state.tone}`, title: lock.lease?.why ?? state.title }, state.label);
}

export function locksTable(open) {
  const columns = [
    { name: "object", title: "Object", class: "c-object", order: (row) => row.object, cell: (row) => objectCell(row.object, row.above) },
    { name: "mode", title: "Mode", class: "c-mode", order: (row) => row.mode, cell: (row) => modeTag(row.mode) },
    { name: "owner", title: "Held by", class: "c-owner", order: (row) => row.text, cell: (row) => ownerCell(row.owner) },
    { name: "state", title: "State", class: "c-state", order: (row) => stateOf(row), cell: stateCell },
    { name: "waiting", title: "Waiting", class: "c-number", order: (row) => -row.waiting,
      cell: (row) => (row.waiting ? h("span", { class: "waiting", title: `${count(row.waiting, "request")} wait for it` }, String(row.waiting)) : "") },
    { name: "since", title: "Held for", class: "c-time", order: (row) => row.since, cell: (row) => since(row.since) },
    { name: "left", title: "Lease left", class: "c-time", order: (row) => row.lease?.expires ?? Infinity,
      cell: (row) => (row.lease?.expires === undefined ? h("span", { class: "muted" }, "–") : until(row.lease.expires)) },
    { name: "token", title: "Token", class: "c-token", cell: (row) => (row.lease ? h("span", { class: "number" }, String(row.lease.token)) : "") },
    { name: "open", title: h("span", { class: "unseen" }, "Details"), class: "c-open",
      cell: (row) => h("button", { type: "button", class: "small", tabindex: -1, onclick: () => open(row), "aria-label": `Details of ${row.object}, held by ${ownerText(row.owner)}` }, "Details") },
  ];
  return new Table({ label: "Locks", columns, sort: "object", open });
}

export function locksRows(model, filter) {
  return model.locks.filter(filter).map((lock) => {
    const state = stateOf(lock);
    const tone = STATES[state].tone;
    return Object.assign(lock, {
      tone: tone === "warn" || tone === "bad" ? tone : "",
      sign: `${state} ${lock.mode} ${lock.waiting} ${lock.since} ${lock.lease?.expires} ${lock.lease?.token} ${lock.lease?.over}`,
    });
  });
}

export function waitingTable(open) {
  const columns = [
    { name: "place", title: "Place", class: "c-number", order: (row) => row.place, cell: (row) => h("span", { class: "number" }, String(row.place)) },
    { name: "owner", title: "Who waits", class: "c-owner", order: (row) => row.text, cell: (row) => ownerCell(row.owner) },
    { name: "wanted", title: "Wants", class: "c-object", order: (row) => row.wanted[0]?.[0] ?? "", cell: wantedCell },
    { name: "since", title: "Waits for", class: "c-time", order: (row) => row.since, cell: (row) => since(row.since) },
    { name: "behind", title: "In the way", class: "c-behind", cell: behindCell },
  ];
  return new Table({ label: "Requests that wait", columns, sort: "since", open });
}

function wantedCell(row) {
  const [first, ...more] = row.wanted;
  if (first === undefined) return "";
  const rest = more.length ? h("span", { class: "muted", title: more.slice(0, 40).map(([name]) => name).join("\n") }, ` and ${more.length} more`) : null;
  return h("span", {}, modeTag(first[1]), " ", objectCell(first[0]), rest);
}

function behindCell(row) {
  const [first] = row.behind;
  if (first === undefined) return h("span", { class: "muted" }, "its turn");
  const verb = first.waiting ? "waits ahead: " : "holds: ";
  const more = row.ahead > 1 ? h("span", { class: "muted" }, ` and ${row.ahead - 1} more`) : null;
  return h("span", { title: `${ownerText(first.owner)} ${first.waiting ? "waits ahead for" : "holds"} ${first.object}` },
    h("span", { class: "muted" }, verb), ownerCell(first.owner), more);
}

export function waitingRows(model, filter) {
  return model.waiters.filter(filter).map((waiter) => Object.assign(waiter, {
    wanted: waiter.locks.filter(([, , above]) => above !== 1),
    sign: `${waiter.place} ${waiter.since} ${waiter.ahead} ${waiter.behind.map((arrow) => `${arrow.o}${arrow.waiting}`).join()}`,
  }));
}

export function auditTable() {
  const columns = [
    { name: "at", title: "When", class: "c-when", order: (row) => -row.at, cell: (row) => h("span", {}, moment(row.at)) },
    { name: "user", title: "Who", class: "c-user", order: (row) => row.user, cell: (row) => h("span", { title: row.user }, row.user) },
    { name: "reason", title: "Why", class: "c-reason", cell: (row) => h("span", { title: row.reason }, row.reason) },
    { name: "owner", title: "Whose lease", class: "c-owner", order: (row) => row.text, cell: (row) => ownerCell(row.owner) },
    { name: "locks", title: "Locks", class: "c-object", cell: (row) => wantedCell({ wanted: row.locks }) },
  ];
  return new Table({ label: "Force releases", columns, sort: "at" });
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
    { name: "asked", title: "Asked", class: "c-when", order: (row) => -row.asked, cell: (row) => moment(row.asked) },
    { name: "granted", title: "Granted", class: "c-when", order: (row) => -row.granted, cell: (row) => moment(row.granted) },
    { name: "ended", title: "Ended", class: "c-when", order: (row) => -(row.ended ?? Infinity), cell: (row) => (row.ended ? moment(row.ended) : h("span", { class: "muted" }, "held")) },
  ];
  return new Table({ label: "Leases of the last days", columns, sort: "granted" });
}

