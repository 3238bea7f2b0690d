// Who holds or waits, in words and as links.

import { airflowLink, cutInTheMiddle, h } from "./dom.js";

let airflow = "/";

export function setAirflow(base) {
  airflow = base;
}

const encode = encodeURIComponent;

export function ownerText(owner) {
  if (owner.hidden) return "a DAG that you may not see";
  if (owner.dag === undefined) return owner.text;
  const mapped = owner.map === undefined ? "" : `[${owner.map}]`;
  const elsewhere = owner.installation === undefined ? "" : ` (${owner.installation})`;
  return `${owner.dag} ${owner.run} ${owner.task}${mapped}${elsewhere}`;
}

// That a run was scheduled, and midnight in UTC, say nothing; what tells it from the others comes first.
export const runText = (run) => run.replace(/^(scheduled|backfill)__/, "").replace(/T00:00:00(\.0+)?(\+00:00|Z)/, "");

// What a filter by owner looks at.
export const ownerKey = (owner) => (owner.hidden ? "" : ownerText(owner).toLowerCase());

export function ownerCell(owner) {
  if (owner.hidden || owner.dag === undefined) return h("span", { class: "muted cut", title: ownerText(owner) }, cutInTheMiddle(ownerText(owner), 10));
  const mapped = owner.map === undefined ? "" : `[${owner.map}]`;
  if (owner.installation !== undefined) {
    return h("span", { class: "cut", title: `a task of the Airflow “${owner.installation}”` },
      h("span", { class: "tag" }, owner.installation), cutInTheMiddle(` ${owner.dag} · ${owner.task}${mapped} · ${runText(owner.run)}`, 12));
  }
  const run = `${airflow}dags/${encode(owner.dag)}/runs/${encode(owner.run)}`;
  const task = `${run}/tasks/${encode(owner.task)}${owner.map === undefined ? "" : `/mapped/${owner.map}`}`;
  const dot = () => h("span", { class: "dot tail" }, " · ");
  return h("span", { class: "cut", title: ownerText(owner) },
    airflowLink(`${airflow}dags/${encode(owner.dag)}`, cutInTheMiddle(owner.dag, 6), `DAG ${owner.dag}`), dot(),
    airflowLink(task, cutInTheMiddle(`${owner.task}${mapped}`, 6), `task ${owner.task}${mapped} in run ${owner.run}`), dot(),
    airflowLink(run, cutInTheMiddle(runText(owner.run), 10), `run ${owner.run}`));
}
