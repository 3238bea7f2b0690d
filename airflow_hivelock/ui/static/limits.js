// The table of groups: the limit of each, who has its permits, and who waits for them.

import { h } from "./dom.js";
import { count } from "./format.js";
import { ownerCell, ownerFilter, ownerKey, ownerText } from "./owners.js";
import { Table } from "./table.js";

/**
 * @typedef {Answer.Member & {owner: Answer.Owner}} Member
 * @typedef {Omit<Answer.Group, "holding" | "waiting"> & {key: string, sign: string, holding: Member[], waiting: Member[]}} Group
 */

const MOST_NAMED = 40;

/** @param {Group} row */
function limitCell(row) {
  if (row.leases === null) return h("span", { class: "muted", title: "No limit is stored: each request has its own max_leases" }, `${row.taken} taken`);
  const weight = row.weight === 1 ? "" : `. A request counts for ${row.weight} unless it says otherwise`;
  return h("span", { class: "number", title: `${row.taken} of ${count(row.leases, "lease")} taken${weight}` }, `${row.taken} of ${row.leases}`);
}

/** @param {Member[]} members */
function membersCell(members) {
  const [first, ...more] = members;
  if (first === undefined) return "";
  const named = members.slice(0, MOST_NAMED).map(({ owner, weight }) => (weight === 1 ? ownerText(owner) : `${ownerText(owner)} (${weight})`));
  return h("span", { class: "cut", title: named.join("\n") }, ownerCell(first.owner), more.length ? h("span", { class: "muted tail" }, ` and ${more.length} more`) : null);
}

export function groupsTable() {
  /** @type {import("./table.js").Column<Group>[]} */
  const columns = [
    { name: "name", title: "Group", class: "c-user", order: (row) => row.name, cell: (row) => h("span", { title: row.name }, row.name || "(a DAG that you may not see)") },
    { name: "taken", title: "Leases", label: "leases", class: "c-user", order: (row) => -row.taken, cell: limitCell },
    { name: "holding", title: "Holders", class: "c-owner", cell: (row) => membersCell(row.holding) },
    { name: "number", title: "Waiting", label: "waiting", class: "c-number", order: (row) => -row.waiting.length, cell: (row) => (row.waiting.length ? h("span", { class: "waiting" }, String(row.waiting.length)) : "") },
    { name: "waiting", title: "Waiters, in order", class: "c-owner", cell: (row) => membersCell(row.waiting) },
    { name: "comment", title: "Comment", class: "c-reason", cell: (row) => h("span", { title: row.comment }, row.comment) },
  ];
  return new Table({ name: "groups", label: "Groups of leases", columns, sort: "name" });
}

/**
 * @param {Answer.Groups | null} answer
 * @param {string} words of the filter for owners; a group is shown if its name or one of its requests has them all
 * @returns {Group[]}
 */
export function groupsRows(answer, words) {
  if (answer === null) return [];
  const { groups, owners } = answer;
  /** @type {(member: Answer.Member) => Member} */
  const withOwner = (member) => ({ ...member, owner: owners[member.o] });
  const matches = ownerFilter(words);
  return groups
    .map((group, index) => ({ ...group, key: `${group.name} ${index}`, sign: JSON.stringify(group), holding: group.holding.map(withOwner), waiting: group.waiting.map(withOwner) }))
    .filter((group) => {
      const texts = [group.name.toLowerCase(), ...[...group.holding, ...group.waiting].map(({ owner }) => ownerKey(owner))];
      return texts.some(matches);
    });
}
