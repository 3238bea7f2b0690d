// Owners, as text and as links.

import { airflowLink, cutInTheMiddle, h } from "./dom.js";
import { moment } from "./format.js";

/** @typedef {Answer.Owner} Owner */

let airflow = "/";

/** @param {string} base */
export function setAirflow(base) {
  airflow = base;
}

const encode = encodeURIComponent;

/** @param {Owner} owner */
export function ownerText(owner) {
  if (owner.hidden) return "a DAG that you may not see";
  if (owner.person !== undefined) return owner.until === undefined ? `${owner.person}, by hand` : `${owner.person}, reserved until ${moment(owner.until)}`;
  if (owner.dag === undefined) return owner.text;
  const elsewhere = owner.installation === undefined ? "" : ` (${owner.installation})`;
  return `${owner.dag} ${owner.run} ${taskText(owner)}${elsewhere}`;
}

/** @param {Answer.Task} owner */
export const taskText = (owner) => `${owner.task}${owner.map === undefined ? "" : `[${owner.map}]`}`;

const TIME = /(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?(\+00:00|Z)?/;

/**
 * A run id without the parts that many runs have in common: "scheduled", midnight, UTC and fractions of a second.
 * @param {string} run
 */
export const runText = (run) =>
  run.replace(/^(scheduled|backfill)__/, "").replace(/^(\w+?)__(?=\d{4}-)/, "$1 ")
    .replace(TIME, (_, day, time) => (time === "00:00:00" ? day : `${day} ${time}`));

/**
 * The text that a filter by owner searches.
 * @param {Owner} owner
 */
export const ownerKey = (owner) => (owner.hidden ? "" : `${ownerText(owner)} ${owner.person === undefined ? "" : owner.text}`.toLowerCase());

/**
 * Whether a filter by owner selects a text: the text contains each of its words. A word in quotation marks is a whole name, with any map index.
 * @param {string} filter
 * @returns {(text: string) => boolean}
 */
export function ownerFilter(filter) {
  const words = [...filter.toLowerCase().matchAll(/"([^"]+)"|\S+/g)];
  return (text) => words.every(([word, name]) =>
    name === undefined ? text.includes(word.replaceAll('"', "")) : ` ${text} `.includes(` ${name} `) || ` ${text}`.includes(` ${name}[`));
}

/** @param {Owner} owner */
export function ownerCell(owner) {
  if (owner.person !== undefined) return h("span", { class: "cut", title: owner.text }, cutInTheMiddle(ownerText(owner), 9));
  if (owner.dag === undefined) return h("span", { class: "muted cut", title: ownerText(owner) }, cutInTheMiddle(ownerText(owner), 10));
  const task = taskText(owner);
  if (owner.installation !== undefined) {
    return h("span", { class: "cut", title: `a task of the Airflow “${owner.installation}”` },
      h("span", { class: "tag" }, owner.installation), cutInTheMiddle(` ${owner.dag} · ${task} · ${runText(owner.run)}`, 12));
  }
  const runLink = `${airflow}dags/${encode(owner.dag)}/runs/${encode(owner.run)}`;
  const taskLink = `${runLink}/tasks/${encode(owner.task)}${owner.map === undefined ? "" : `/mapped/${owner.map}`}`;
  const dot = () => h("span", { class: "dot tail" }, " · ");
  return h("span", { class: "owner", title: ownerText(owner) },
    airflowLink(`${airflow}dags/${encode(owner.dag)}`, cutInTheMiddle(owner.dag, 6), `DAG ${owner.dag}`),
    h("span", { class: "o-task" }, dot(), airflowLink(taskLink, cutInTheMiddle(task, 6), `task ${task} in run ${owner.run}`)),
    h("span", { class: "o-run" }, dot(), airflowLink(runLink, cutInTheMiddle(runText(owner.run), 8), `run ${owner.run}`)));
}
