// Rows that say the same of many partitions, as a rerun's do, are one row that opens.

import { cutInTheMiddle, h } from "./dom.js";
import { count } from "./format.js";
import { kindOf, needsYou } from "./model.js";
import { ownerCell } from "./owners.js";

const MOST_ALONE = 10;

// rows: as locksRows makes them; those of one table, mode and task, apart from those that need somebody.
export function grouped(rows, opened) {
  const found = new Map();
  for (const row of rows) {
    const { owner } = row;
    const who = owner.dag === undefined ? (owner.text ?? "") : `${owner.dag}/${owner.task}/${owner.installation ?? ""}`;
    const key = `group ${[row.object.split("/")[0], row.above, row.mode, needsYou(row), who].join(" ")}`;
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(row);
  }
  return [...found].flatMap(([key, members]) => (members.length > MOST_ALONE ? [group(key, members, opened.has(key))] : members));
}

function group(key, members, open) {
  const names = members.map((row) => row.object).sort();
  const waiters = new Set(members.flatMap((row) => [...row.waiters]));
  const since = Math.min(...members.map((row) => row.since));
  const kinds = tally(members);
  for (const member of members) member.member = true;
  const [first] = members;
  return {
    key, members, open, waiters, since, kinds, object: range(names[0], names.at(-1)), common: names[0] === names.at(-1) ? names[0] : names[0].split("/")[0], mode: first.mode, owner: first.owner, text: first.text,
    lease: first.lease, hive: first.hive, lost: first.lost, tone: first.tone,
    sign: [open, members.length, waiters.size, since, ...kinds.map(({ kind, label, number }) => `${kind}${label}${number}`)].join(" "),
  };
}

// How many holders do what: the locks of one lease have one holder.
export function tally(rows) {
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

// "dw.t/dt=2013-01-01 … 2013-03-01"
function range(first, last) {
  if (first === last) return first;
  let same = 0;
  while (first[same] === last[same]) same += 1;
  const cut = Math.max(...["=", "/", "."].map((sign) => first.lastIndexOf(sign, same - 1))) + 1;
  return `${first} … ${last.slice(cut)}`;
}

export function groupOwner(row) {
  const { owner } = row;
  if (owner.dag === undefined || owner.hidden) return ownerCell(owner);
  const runs = count(new Set(row.members.map((member) => member.owner.run)).size, "run");
  return h("span", { class: "cut", title: `${owner.dag} ${owner.task}, ${runs}` },
    owner.installation ? h("span", { class: "tag" }, owner.installation) : null,
    h("span", { class: "cut" }, cutInTheMiddle(`${owner.dag} · ${owner.task}`, 10)), h("span", { class: "tail" }, ` · ${runs}`));
}
