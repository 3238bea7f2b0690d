// Rows that differ only in the partition, as those of a rerun do, are shown as one row that opens.

import { cutInTheMiddle, h } from "./dom.js";
import { count } from "./format.js";
import { kindOf, needsAction } from "./model.js";
import { ownerCell } from "./owners.js";

/**
 * @typedef {import("./model.js").Lock} Lock
 *
 * @typedef {{kind: ReturnType<typeof kindOf>, label: string, number: number}} Tally
 *
 * @typedef {object} Group a row that stands for others
 * @property {string} key
 * @property {Lock[]} members
 * @property {boolean} open
 * @property {Set<number>} waiters
 * @property {number} since
 * @property {Tally[]} kinds
 * @property {string} object the first and the last
 * @property {string} common the object that all have in common
 * @property {Answer.Mode} mode
 * @property {Answer.Owner} owner
 * @property {string} text
 * @property {import("./model.js").Lease} [lease]
 * @property {boolean} lost
 * @property {string} [tone]
 * @property {boolean} [member]
 * @property {string} [sign]
 */

const MOST_ALONE = 10;

/**
 * Replace the rows of one table, mode and task by one row, if they are many. Rows that need action stay apart.
 * @param {Lock[]} rows
 * @param {Set<string>} opened the keys of the groups that are open
 * @returns {(Lock | Group)[]}
 */
export function grouped(rows, opened) {
  /** @type {Map<string, Lock[]>} */
  const found = new Map();
  for (const row of rows) {
    const { owner } = row;
    const who = owner.dag === undefined ? (owner.text ?? "") : `${owner.dag}/${owner.task}/${owner.installation ?? ""}`;
    const key = `group ${[row.object.split("/")[0], row.onParent, row.mode, needsAction(row), who].join(" ")}`;
    const members = found.get(key);
    if (members) members.push(row);
    else found.set(key, [row]);
  }
  /** @type {(Lock | Group)[][]} */
  const parts = [...found].map(([key, members]) => (members.length > MOST_ALONE ? [group(key, members, opened.has(key))] : members));
  return parts.flat();
}

/**
 * @param {string} key
 * @param {Lock[]} members
 * @param {boolean} open
 * @returns {Group}
 */
function group(key, members, open) {
  const names = members.map((row) => row.object).sort();
  const last = names[names.length - 1];
  const waiters = new Set(members.flatMap((row) => [...row.waiters]));
  const since = Math.min(...members.map((row) => row.since));
  const kinds = tally(members);
  for (const member of members) member.member = true;
  const [first] = members;
  return {
    key, members, open, waiters, since, kinds, object: range(names[0], last), common: names[0] === last ? names[0] : names[0].split("/")[0], mode: first.mode, owner: first.owner, text: first.text,
    lease: first.lease, lost: first.lost, tone: first.tone,
    sign: [open, members.length, waiters.size, since, ...kinds.map(({ kind, label, number }) => `${kind}${label}${number}`)].join(" "),
  };
}

/**
 * The number of holders in each state. The locks of one lease have one holder.
 * @param {Lock[]} rows
 * @returns {Tally[]}
 */
function tally(rows) {
  /** @type {Map<string, {kind: ReturnType<typeof kindOf>, label: string, holders: Set<number | string | undefined>}>} */
  const found = new Map();
  for (const row of rows) {
    const kind = kindOf(row);
    const label = row.lost ? "lost" : (row.lease?.state ?? "Hive’s own");
    const entry = found.get(kind + label) ?? { kind, label, holders: new Set() };
    found.set(kind + label, entry);
    entry.holders.add(row.lease?.o ?? row.owner.text);
  }
  return [...found.values()].map(({ kind, label, holders }) => ({ kind, label, number: holders.size }));
}

/**
 * For example "dw.t/dt=2013-01-01 … 2013-03-01".
 * @param {string} first
 * @param {string} last
 */
function range(first, last) {
  if (first === last) return first;
  let same = 0;
  while (first[same] === last[same]) same += 1;
  const cut = Math.max(...["=", "/", "."].map((sign) => first.lastIndexOf(sign, same - 1))) + 1;
  return `${first} … ${last.slice(cut)}`;
}

/** @param {Group} row */
export function groupOwner(row) {
  const { owner } = row;
  if (owner.dag === undefined) return ownerCell(owner);
  const runs = count(new Set(row.members.map((member) => (member.owner.dag === undefined ? undefined : member.owner.run))).size, "run");
  return h("span", { class: "cut", title: `${owner.dag} ${owner.task}, ${runs}` },
    owner.installation ? h("span", { class: "tag" }, owner.installation) : null,
    h("span", { class: "cut" }, cutInTheMiddle(`${owner.dag} · ${owner.task}`, 10)), h("span", { class: "tail" }, ` · ${runs}`));
}
