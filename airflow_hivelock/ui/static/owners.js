// Who holds or waits, in words and as links.

import { airflowLink, cutInTheMiddle, h } from "./dom.js";

let airflow = "/";

export function setAirflow(base) {
  airflow = base;
}

const encode = encodeURIComponent;

export function ownerText(owner) {
  if (owner.hidden) return "a DAG that you may not see";
  if (owner.person !== undefined) return `${owner.person}, by hand`;
  if (owner.dag === undefined) return owner.text;
  const mapped = owner.map === undefined ? "" : `[${owner.map}]`;
  const elsewhere = owner.installation === undefined ? "" : ` (${owner.installation})`;
  return `${owner.dag} ${owner.run} ${owner.task}${mapped}${elsewhere}`;
}

// A run id without what runs have in common: "scheduled", midnight, UTC and fractions of a second.
const TIME = /(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?(\+00:00|Z)?/;
export const runText = (run) =>
  run.replace(/^(scheduled|backfill)__/, "").replace(/^(\w+?)__(?=\d{4}-)/, "$1 ")
    .replace(TIME, (_, day, time) => (time === "00:00:00" ? day : `${day} ${time}`));

// What a filter by owner looks at.
export const ownerKey = (owner) => (owner.hidden ? "" : `${ownerText(owner)} ${owner.person === undefined ? "" : owner.text}`.toLowerCase());

export function ownerCell(owner) {
  if (owner.person !== undefined) return h("span", { class: "cut", title: owner.text }, cutInTheMiddle(ownerText(owner), 9));
  if (owner.hidden || owner.dag === undefined) return h("span", { class: "muted cut", title: ownerText(owner) }, cutInTheMiddle(ownerText(owner), 10));
  const mapped = owner.map === undefined ? "" : `[${owner.map}]`;
  if (owner.installation !== undefined) {
    return h("span", { class: "cut", title: `a task of the Airflow “${owner.installation}”` },
      h("span", { class: "tag" }, owner.installation), cutInTheMiddle(` ${owner.dag} · ${owner.task}${mapped} · ${runText(owner.run)}`, 12));
  }
  const run = `${airflow}dags/${encode(owner.dag)}/runs/${encode(owner.run)}`;
  const task = `${run}/tasks/${encode(owner.task)}${owner.map === undefined ? "" : `/mapped/${owner.map}`}`;
  const dot = () => h("span", { class: "dot tail" }, " · ");
  return h("span", { class: "owner", title: ownerText(owner) },
    airflowLink(`${airflow}dags/${encode(owner.dag)}`, cutInTheMiddle(owner.dag, 6), `DAG ${owner.dag}`),
    h("span", { class: "o-task" }, dot(), airflowLink(task, cutInTheMiddle(`${owner.task}${mapped}`, 6), `task ${owner.task}${mapped} in run ${owner.run}`)),
    h("span", { class: "o-run" }, dot(), airflowLink(run, cutInTheMiddle(runText(owner.run), 8), `run ${owner.run}`)));
}
