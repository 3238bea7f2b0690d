// Who holds or waits, in words and as links.

import { airflowLink, h } from "./dom.js";

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
  if (owner.hidden || owner.dag === undefined) return h("span", { class: "muted", title: ownerText(owner) }, ownerText(owner));
  const mapped = owner.map === undefined ? "" : `[${owner.map}]`;
  if (owner.installation !== undefined) {
    return h("span", { title: `a task of the Airflow “${owner.installation}”` },
      h("span", { class: "tag" }, owner.installation), ` ${owner.dag} · ${owner.task}${mapped} · ${runText(owner.run)}`);
  }
  const run = `${airflow}dags/${encode(owner.dag)}/runs/${encode(owner.run)}`;
  const task = `${run}/tasks/${encode(owner.task)}${owner.map === undefined ? "" : `/mapped/${owner.map}`}`;
  return h("span", { title: ownerText(owner) },
    airflowLink(`${airflow}dags/${encode(owner.dag)}`, owner.dag, `DAG ${owner.dag}`), h("span", { class: "dot" }, " · "),
    airflowLink(task, `${owner.task}${mapped}`, `task ${owner.task}${mapped} in run ${owner.run}`), h("span", { class: "dot" }, " · "),
    airflowLink(run, runText(owner.run), `run ${owner.run}`));
}
