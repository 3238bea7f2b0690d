// The dialog about a request that waits: what it waits for, its priority, and its withdrawal.

import { priorityChanged, withdrawn } from "./announcements.js";
import { facts, openDialog, reasonForm } from "./dialogs.js";
import { h } from "./dom.js";
import { moment, since } from "./format.js";
import { modeTag } from "./lists.js";
import { awaitedText, lockOf, reasonOf, waitsForLock } from "./model.js";
import { ownerCell, ownerText } from "./owners.js";
import { changePriority, withdraw } from "./server.js";

/**
 * @typedef {import("./model.js").Arrow} Arrow
 * @typedef {import("./model.js").Model} Model
 * @typedef {import("./model.js").Waiter} Waiter
 *
 * @typedef {object} Context
 * @property {string} connection
 * @property {Waiter} waiter
 * @property {Model} model
 * @property {boolean} mayRelease
 * @property {(holder: Arrow) => void} openHolder
 * @property {(text: string) => void} announce after a change
 */

const MOST_SHOWN = 100;
const MOST_PRIORITY = 1_000_000_000;
const GONE = "The request does not wait any more.";
const CHECK = "Check whether the request still waits before you try again.";

/** @param {Context} context */
export function openRequest(context) {
  openDialog("request", "Request", (dialog) => body(context, dialog));
}

/**
 * @param {Context} context
 * @param {HTMLDialogElement} dialog
 */
function body(context, dialog) {
  const { waiter, mayRelease } = context;
  const element = h("div", { class: "body" }, facts([
    ["Waiter", ownerCell(waiter.owner)],
    ["Waits for", awaitedText(waiter)],
    ["Position", waiter.position > 0 ? h("span", { class: "number" }, String(waiter.position)) : null],
    ["Priority", waiter.for === "free" ? null : h("span", { class: "number" }, String(waiter.priority))],
    ["Since", h("span", {}, moment(waiter.since), ", for ", since(waiter.since))],
    ["Objects", h("ul", { class: "plain" }, waiter.wanted.slice(0, MOST_SHOWN).map(([name, mode]) => h("li", {}, modeTag(mode), " ", h("span", { class: "object" }, name))),
      waiter.wanted.length > MOST_SHOWN ? h("li", { class: "muted" }, `and ${waiter.wanted.length - MOST_SHOWN} more`) : null)],
    ["In the way", blockers(context, dialog)],
  ]));
  const { text } = waiter.owner.hidden ? { text: undefined } : waiter.owner;
  if (!mayRelease || text === undefined) return element;
  if (waitsForLock(waiter)) element.append(priorityForm(context, text, dialog));
  if (waitsForLock(waiter) || waiter.for === "lease") element.append(withdrawForm(context, text, dialog));
  return element;
}

/**
 * @param {Context} context
 * @param {HTMLDialogElement} dialog
 */
function blockers({ waiter, model, openHolder }, dialog) {
  const ahead = waiter.blockers.filter((arrow) => arrow.waiting);
  if (waiter.holders.length + ahead.length === 0) return h("span", { class: "muted" }, waiter.for === "slot" ? "nothing; it holds no lock" : "nothing that is known here");
  /** @param {Arrow} holder */
  const open = (holder) => {
    dialog.close();
    openHolder(holder);
  };
  return h("ul", { class: "plain" },
    waiter.holders.map((holder) => h("li", {}, reasonOf(waiter, holder), " ", lockOf(model, holder)
      ? h("button", { type: "button", class: "small", onclick: () => open(holder), "aria-label": `Details of ${ownerText(holder.owner)}` }, "Details") : null)),
    ahead.map((arrow) => h("li", {}, reasonOf(waiter, arrow))));
}

/**
 * @param {Context} context
 * @param {string} owner
 * @param {HTMLDialogElement} dialog
 */
function priorityForm({ connection, waiter, announce }, owner, dialog) {
  const input = h("input", { id: "priority-value", type: "number", step: 1, min: -MOST_PRIORITY, max: MOST_PRIORITY, required: true, value: waiter.priority });
  const note = h("p", { id: "priority-note", class: "note" },
    "The larger priority goes first. A raised request overtakes those of lower priority that may still be overtaken. A lowered one becomes a new arrival. A later try of the task has the DAG’s priority again.");
  return h("details", { class: "release" }, h("summary", {}, "Change its priority"), reasonForm({
    id: "priority", title: "Change the priority", note, dialog, danger: false, gone: GONE, check: CHECK,
    fields: h("label", { class: "field" }, h("span", {}, "New priority"), input),
    act: async (reason) => {
      const priority = input.valueAsNumber;
      const done = await changePriority(connection, owner, priority, reason);
      return () => announce(priorityChanged(done, waiter, priority));
    },
  }));
}

/**
 * @param {Context} context
 * @param {string} owner
 * @param {HTMLDialogElement} dialog
 */
function withdrawForm({ connection, waiter, announce }, owner, dialog) {
  const note = h("p", { id: "withdraw-note", class: "note" },
    "Its task fails with your reason, and the requests behind it continue. A task with retries asks again: mark it failed in Airflow, too.");
  return h("details", { class: "release" }, h("summary", {}, "Withdraw it"), reasonForm({
    id: "withdraw", title: "Withdraw the request", note, dialog, gone: GONE, check: CHECK,
    act: async (reason) => {
      const done = await withdraw(connection, owner, reason);
      return () => announce(withdrawn(done, waiter));
    },
  }));
}
