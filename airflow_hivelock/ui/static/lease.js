// The dialog about one lease: its locks, its work, its waiters, and its force release.

import * as announcements from "./announcements.js";
import { facts, messageOf, openDialog, reasonForm } from "./dialogs.js";
import { h } from "./dom.js";
import { count, duration, moment, now, since, until } from "./format.js";
import { modeTag, stateTag, workText } from "./lists.js";
import { kindOf, stateOf, withoutParents } from "./model.js";
import { ownerCell, ownerText } from "./owners.js";
import { hostGone, leaseOf, onHost, release, releaseHive } from "./server.js";

/**
 * @typedef {import("./model.js").Lease} Lease
 * @typedef {import("./model.js").Lock} Lock
 * @typedef {import("./model.js").Model} Model
 * @typedef {import("./dom.js").Child} Child
 *
 * @typedef {object} Context
 * @property {string} connection
 * @property {Lock} lock
 * @property {Model} model
 * @property {boolean} mayRelease
 * @property {(text: string) => void} announce after a change
 */

const MOST_SHOWN = 100;
const MOST_WAITERS = 100;
const HELD = "Check whether the lease is still held before you try again.";

/** @param {Context} context */
export function openLease(context) {
  const { lease } = context.lock;
  openDialog("lease", lease ? "Lease" : "Hive’s own lock", (dialog) => (lease ? leaseBody(context, lease, dialog) : hiveBody(context, dialog)));
}

/**
 * @param {Context} context
 * @param {HTMLDialogElement} dialog
 */
function hiveBody({ connection, lock, model, mayRelease, announce }, dialog) {
  const { hiveId, heartbeat } = lock;
  const body = h("div", { class: "body" }, facts([
    ["Object", h("span", { class: "object" }, lock.object)],
    ["Mode", modeTag(lock.mode)],
    ["Query id", ownerText(lock.owner)],
    ["Since", h("span", {}, moment(lock.since), ", ", since(lock.since))],
    ["Last heartbeat", heartbeat ? h("span", {}, moment(heartbeat), ", ", since(heartbeat), " ago") : null],
    ["Query", lock.query ? h("code", {}, lock.query) : null],
  ]), h("p", { class: "note" }, "A Hive session, or another client of Hive’s metastore, holds this lock. It ends with the query or the session. If LOCK TABLE made it, UNLOCK TABLE in Hive releases it."));
  if (!mayRelease || !hiveId) return body;
  const objects = model.locks.filter((other) => other.hiveId === hiveId).map(({ object }) => object);
  const more = objects.length > 1 ? ` It frees all ${objects.length} locks of this query: ${objects.slice(0, MOST_SHOWN).join(", ")}.` : "";
  const note = h("p", { id: "hive-note", class: "note" }, `A force release stops no query, and its session is not notified. First make sure that it has ended.${more}`);
  const form = reasonForm({
    id: "hive", title: "Force release", note, dialog,
    act: async (reason) => {
      const freed = await releaseHive(connection, hiveId, reason);
      return () => announce(announcements.hiveReleased(freed, lock));
    },
    gone: "The lock has been released meanwhile.", check: HELD,
  });
  form.prepend(h("h3", {}, "Force release"));
  body.append(form);
  return body;
}

/**
 * @param {Context} context
 * @param {Lease} lease
 * @param {HTMLDialogElement} dialog
 */
function leaseBody(context, lease, dialog) {
  const { lock, mayRelease } = context;
  const { label, why } = stateOf(lock);
  const works = h("span", { class: "muted" }, "checking…");
  const isOver = ["needs", "ends"].includes(kindOf(lock));
  const keeper = h("span", { class: "muted" }, "checking…");
  const body = h("div", { class: "body" },
    facts([
      ["Holder", ownerCell(lock.owner)],
      ["State", h("span", {}, stateTag(kindOf(lock), label), ` ${why}`, lease.at ? [", since ", moment(lease.at)] : null)],
      ["Since", h("span", {}, moment(lease.since), ", for ", since(lease.since))],
      ...renewalFacts(lease, context.model.expires),
      ["Token", h("span", { class: "number" }, `${lease.token}, attempt ${lease.attempt}`)],
      ["Lease id", lease.id ? h("code", {}, lease.id) : null],
      ["Purpose", lease.query ? h("code", {}, lease.query) : null],
      ["Its work", works],
      ["The keeper", isOver ? keeper : null],
      ["Locks", locksList(lease)],
      waitersFact(context, lease),
    ]));
  if (mayRelease && lease.id) body.append(releaseForm(context, lease, lease.id, dialog));
  showWorks(context.connection, lease, works, isOver ? keeper : null).then((hosts) => {
    if (mayRelease) for (const host of hosts) body.insertBefore(hostForm(context, host, dialog), body.querySelector(".release"));
  });
  return body;
}

/**
 * @param {Lease} lease
 * @param {boolean} expires whether the lock store releases an expired lease
 * @returns {[name: string, value: Child][]}
 */
function renewalFacts({ expires: at, lease_s }, expires) {
  if (!at) return [];
  const renewed = duration(now() - at + lease_s * 1000);
  return expires
    ? [["Expires in", h("span", {}, until(at), `. It lasts ${duration(lease_s * 1000)}, and was renewed ${renewed} ago`)]]
    : [["Renewed", h("span", {}, `${renewed} ago. An expired lease stays held until it is released or freed`)]];
}

/** @param {Lease} lease */
function locksList(lease) {
  const locks = withoutParents(lease.locks);
  const onParents = lease.locks.length - locks.length;
  return h("ul", { class: "plain" }, locks.slice(0, MOST_SHOWN).map(([name, mode]) => h("li", {}, modeTag(mode), " ", h("span", { class: "object" }, name))),
    locks.length > MOST_SHOWN ? h("li", { class: "muted" }, `and ${locks.length - MOST_SHOWN} more`) : null,
    onParents ? h("li", { class: "muted" }, `and ${count(onParents, "shared lock")} on objects above them`) : null);
}

/**
 * @param {Context} context
 * @param {Lease} lease
 * @returns {[name: string, value: Child]}
 */
function waitersFact({ lock, model }, lease) {
  const waiting = model.waiters.filter((waiter) => lock.waiters.has(waiter.o));
  const elsewhere = new Set(model.locks.filter((other) => other.lease === lease).flatMap((other) => [...other.waiters]).filter((o) => !lock.waiters.has(o))).size;
  return [waiting.length ? `${waiting.length} waiting` : "Waiting", h("ul", { class: "plain" }, h("li", { class: "muted" }, waiting.length ? `for ${lock.object}` : `no request for ${lock.object}`),
    waiting.slice(0, MOST_WAITERS).map((waiter) => h("li", {}, ownerCell(waiter.owner), h("span", { class: "muted" }, " for "), since(waiter.since))),
    waiting.length > MOST_WAITERS ? h("li", { class: "muted" }, `and ${waiting.length - MOST_WAITERS} more`) : null,
    elsewhere ? h("li", { class: "muted" }, `and ${elsewhere} more for its other locks`) : null)];
}

/**
 * Show the work, and return the hosts that this Airflow cannot ask whether it has ended.
 * @param {string} connection
 * @param {Lease} lease
 * @param {HTMLElement} element
 * @param {HTMLElement | null} keeper
 */
async function showWorks(connection, lease, element, keeper) {
  if (!lease.id) {
    element.textContent = lease.jobs?.length ? count(lease.jobs.length, "recorded job") : "none is recorded";
    return [];
  }
  try {
    const { works, keeper: verdict } = await leaseOf(connection, lease.id);
    if (keeper) showVerdict(keeper, verdict);
    element.classList.toggle("muted", works.length === 0);
    if (works.length === 0) element.textContent = "none is recorded";
    else {
      element.replaceChildren(h("ul", { class: "plain" }, works.map(({ name, what, code, how, next }) =>
        h("li", {}, workText([name, what, code, how]), keeper && next && next !== verdict.next ? h("div", { class: "next" }, next) : null))));
    }
    const notEnded = works.filter(({ code }) => code !== "ended");
    element.dispatchEvent(new CustomEvent("works", { bubbles: true, detail: notEnded.length }));
    return [...new Set(notEnded.map(({ host }) => host).filter(Boolean))];
  } catch (error) {
    element.textContent = messageOf(error);
    keeper?.replaceChildren("frees it within a minute, if its task and its work have ended and Airflow’s triggerer runs");
    return [];
  }
}

/**
 * Show the keeper's last report, and its verdict by the answers that the page has just received.
 * @param {HTMLElement} element
 * @param {Answer.Keeper} verdict
 */
function showVerdict(element, { at, report, why, next }) {
  element.classList.remove("muted");
  element.replaceChildren(
    ...(report && at ? [h("div", {}, `could not free it at ${moment(at)}: ${report}`), h("div", {}, `Now: ${why}`)] : [h("div", {}, why)]),
    next ? h("div", { class: "next" }, next) : "");
}

/**
 * @param {Context} context
 * @param {Lease} lease
 * @param {string} id
 * @param {HTMLDialogElement} dialog
 */
function releaseForm({ connection, announce }, lease, id, dialog) {
  const note = h("p", { id: "release-note", class: "note" },
    "A force release stops no work. A job that still writes continues without its lock, at the same time as the next holder. First make sure that the work has ended.");
  dialog.addEventListener("works", (event) => {
    if (event instanceof CustomEvent && event.detail > 0) note.classList.add("strong");
  });
  const form = reasonForm({
    id: "release", title: "Force release", note, dialog,
    act: async (reason) => {
      const freed = await release(connection, id, reason);
      return () => announce(announcements.released(freed, lease));
    },
    gone: "The lease has been released meanwhile.", check: HELD,
  });
  form.prepend(h("h3", {}, "Force release"));
  return form;
}

/**
 * @param {Context} context
 * @param {string} host
 * @param {HTMLDialogElement} dialog
 */
function hostForm({ connection, announce }, host, dialog) {
  const list = h("ul", { class: "plain" }, h("li", { class: "muted" }, "reading the work on that host…"));
  const title = `Declare ${host} gone`;
  const note = h("div", { id: "gone-note", class: "note" },
    "Only for a host that is off, or that will never reach its network again. The work below then counts as ended, and the keeper frees each lease whose task has ended. Work that still runs there continues without its lock, at the same time as the next holder.");
  const details = h("details", { class: "release" }, h("summary", {}, `Is its host ${host} gone?`), reasonForm({
    id: "gone", title, note: [note, list], dialog,
    act: async (reason) => {
      const ended = await hostGone(connection, host, reason);
      return () => announce(announcements.hostGone(host, ended));
    },
    gone: "No work is recorded on that host any more.", check: HELD,
  }));
  details.addEventListener("toggle", async () => {
    try {
      const works = await onHost(connection, host);
      list.replaceChildren(...works.slice(0, MOST_SHOWN).map(({ owner, name }) => h("li", {}, `${name}, of `, ownerCell(owner))),
        works.length > MOST_SHOWN ? h("li", { class: "muted" }, `and ${works.length - MOST_SHOWN} more`) : "");
    } catch (error) {
      list.replaceChildren(h("li", {}, messageOf(error)));
    }
  }, { once: true });
  return details;
}
