// The dialog on one lease: what it locks, what runs under it, who waits for it, and its release by force.

import { h } from "./dom.js";
import { count, duration, moment, now, since, until } from "./format.js";
import { modeTag, stateTag, workText } from "./lists.js";
import { kindOf, stateOf } from "./model.js";
import { ownerCell, ownerText } from "./owners.js";
import { hostGone, leaseOf, onHost, release } from "./server.js";

const MOST_SHOWN = 100;
const MOST_WAITERS = 100;

export function openLease({ connection, lock, model, mayRelease, released, declared }) {
  const { lease } = lock;
  const dialog = h("dialog", { "aria-labelledby": "lease-title", onclose: () => dialog.remove() });
  const close = h("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => dialog.close() }, "×");
  dialog.append(h("header", {}, h("h2", { id: "lease-title" }, lease ? "Lease" : "Lock of Hive’s own"), close));
  dialog.append(lease ? leaseBody({ connection, lock, model, mayRelease, released, declared, dialog }) : hiveBody(lock));
  document.body.append(dialog);
  dialog.showModal();
}

const facts = (rows) =>
  h("dl", {}, rows.filter(([, value]) => value !== undefined && value !== null && value !== false && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

function hiveBody(lock) {
  return h("div", { class: "body" }, facts([
    ["Object", h("span", { class: "object" }, lock.object ?? "")],
    ["Mode", lock.mode && modeTag(lock.mode)],
    ["Query id", ownerText(lock.owner)],
    ["Since", lock.since && h("span", {}, moment(lock.since), ", ", since(lock.since))],
    ["Query", lock.query && h("code", {}, lock.query)],
  ]), h("p", { class: "note" }, "A session of Hive’s holds it, by its own rules. It ends with the query or the session; UNLOCK TABLE in Hive frees an explicit one."));
}

function leaseBody({ connection, lock, model, mayRelease, released, declared, dialog }) {
  const { lease } = lock;
  const locks = lease.locks.filter(([, , above]) => above !== 1);
  const above = lease.locks.length - locks.length;
  const waiting = model.waiters.filter((waiter) => lock.waiters.has(waiter.o));
  const elsewhere = new Set(model.locks.filter((other) => other.lease === lease).flatMap((other) => [...other.waiters]).filter((o) => !lock.waiters.has(o))).size;
  const { label, why } = stateOf(lock);
  const works = h("span", { class: "muted" }, "asking…");
  const over = ["needs", "ends"].includes(kindOf(lock));
  const keeper = h("span", { class: "muted" }, "asking…");
  const renewed = lease.expires && now() - lease.expires + lease.lease_s * 1000;
  const body = h("div", { class: "body" },
    facts([
      ["Held by", ownerCell(lock.owner)],
      ["What it does", h("span", {}, stateTag(kindOf(lock), label), ` ${why}`, lease.at ? [", since ", moment(lease.at)] : null)],
      ["Since", h("span", {}, moment(lease.since), ", for ", since(lease.since))],
      ["Lease left", lease.expires && model.expires && h("span", {}, until(lease.expires), `; it is for ${duration(lease.lease_s * 1000)}, renewed ${duration(renewed)} ago`)],
      ["Renewed", lease.expires && !model.expires && h("span", {}, `${duration(renewed)} ago. Time does not free it: it is held until it is released or freed`)],
      ["Token", h("span", { class: "number" }, `${lease.token}, attempt ${lease.attempt}`)],
      ["Lease id", lease.id && h("code", {}, lease.id)],
      ["What it is for", lease.query && h("code", {}, lease.query)],
      ["Its work", works],
      ["The keeper", over && keeper],
      ["Locks", h("ul", { class: "plain" }, locks.slice(0, MOST_SHOWN).map(([name, mode]) => h("li", {}, modeTag(mode), " ", h("span", { class: "object" }, name))),
        locks.length > MOST_SHOWN ? h("li", { class: "muted" }, `and ${locks.length - MOST_SHOWN} more`) : null,
        above ? h("li", { class: "muted" }, `and ${count(above, "shared lock")} on what lies above`) : null)],
      [waiting.length ? `${waiting.length} waiting` : "Waiting", h("ul", { class: "plain" }, h("li", { class: "muted" }, waiting.length ? `for ${lock.object}` : `nothing for ${lock.object}`),
        waiting.slice(0, MOST_WAITERS).map((waiter) => h("li", {}, ownerCell(waiter.owner), h("span", { class: "muted" }, " for "), since(waiter.since))),
        waiting.length > MOST_WAITERS ? h("li", { class: "muted" }, `and ${waiting.length - MOST_WAITERS} more`) : null,
        elsewhere ? h("li", { class: "muted" }, `and ${elsewhere} more for its other locks`) : null)],
    ]));
  if (mayRelease && lease.id) body.append(releaseForm({ connection, lease, released, dialog }));
  tellWorks(connection, lease, works, over ? keeper : null).then((hosts) => {
    if (mayRelease) for (const host of hosts) body.insertBefore(hostForm({ connection, host, declared, dialog }), body.querySelector(".release"));
  });
  return body;
}

// Gives the hosts that it waits for: only there it can be told whether its work still runs.
async function tellWorks(connection, lease, place, keeper) {
  if (!lease.id) {
    place.textContent = lease.jobs?.length ? count(lease.jobs.length, "recorded job") : "nothing is recorded";
    return [];
  }
  try {
    const { works, keeper: said } = await leaseOf(connection, lease.id);
    if (keeper) showVerdict(keeper, said);
    place.classList.toggle("muted", works.length === 0);
    if (works.length === 0) place.textContent = "nothing is recorded";
    else place.replaceChildren(h("ul", { class: "plain" }, works.map(({ name, what, code, how, next }) =>
      h("li", {}, workText([name, what, code, how]), keeper && next && next !== said.next ? h("div", { class: "next" }, next) : null))));
    const alive = works.filter(({ code }) => code !== "ended").length;
    place.dispatchEvent(new CustomEvent("works", { bubbles: true, detail: alive }));
    return [...new Set(works.filter(({ host, code }) => host && code !== "ended").map(({ host }) => host))];
  } catch (error) {
    place.textContent = error.message;
    keeper?.replaceChildren("frees it within a minute, if nothing of it runs, its task is over and Airflow’s triggerer runs");
    return [];
  }
}

// What the keeper has reported itself, and what it finds by the answers that the page has just got.
function showVerdict(place, { at, report, why, next }) {
  place.classList.remove("muted");
  place.replaceChildren(
    ...(report ? [h("div", {}, `could not free it at ${moment(at)}: ${report}`), h("div", {}, `By now: ${why}`)] : [h("div", {}, why)]),
    next ? h("div", { class: "next" }, next) : "");
}

function releaseForm({ connection, lease, released, dialog }) {
  const note = h("p", { id: "release-note", class: "note" },
    "A force release stops no work. Whatever still writes goes on writing without its lock, next to the next holder. Make sure first that it has ended.");
  dialog.addEventListener("works", (event) => {
    if (event.detail > 0) note.classList.add("strong");
  });
  const form = reasonForm({
    id: "release", title: "Force release", note, dialog,
    act: (reason) => release(connection, lease.id, reason),
    done: (freed) => released(freed, lease),
    gone: "It has been released meanwhile.",
  });
  form.prepend(h("h3", {}, "Force release"));
  return form;
}

function hostForm({ connection, host, declared, dialog }) {
  const ends = h("ul", { class: "plain" }, h("li", { class: "muted" }, "asking what ran there…"));
  const title = `Say that ${host} is gone`;
  const note = h("div", { id: "gone-note", class: "note" },
    "For a host that is off, or will never reach its network again. All of this has ended then, and what holds a lock for it is freed once its task is over. What still runs there would write on, next to the next holder.");
  const details = h("details", { class: "release" }, h("summary", {}, `Is its host ${host} gone?`), reasonForm({
    id: "gone", title, note: [note, ends], dialog,
    act: (reason) => hostGone(connection, host, reason),
    done: (ended) => declared(host, ended),
    gone: "Nothing is recorded there any more.",
  }));
  details.addEventListener("toggle", async () => {
    try {
      const works = await onHost(connection, host);
      ends.replaceChildren(...works.slice(0, MOST_SHOWN).map(({ owner, name }) => h("li", {}, `${name}, of `, ownerCell(owner))),
        works.length > MOST_SHOWN ? h("li", { class: "muted" }, `and ${works.length - MOST_SHOWN} more`) : "");
    } catch (error) {
      ends.replaceChildren(h("li", {}, error.message));
    }
  }, { once: true });
  return details;
}

function reasonForm({ id, title, note, dialog, act, done, gone }) {
  const reason = h("textarea", { id: `${id}-reason`, rows: 2, maxlength: 1000, required: true, "aria-describedby": `${id}-note` });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const button = h("button", { type: "submit", class: "danger" }, title);
  const form = h("form", { class: "release", "aria-label": title }, note,
    h("label", { for: `${id}-reason` }, "Why? Kept in the audit trail, with your name."), reason, problem,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), button));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!reason.value.trim()) {
      reason.value = "";
      reason.reportValidity();
      return;
    }
    button.disabled = true;
    try {
      const answer = await act(reason.value.trim());
      dialog.close();
      done(answer);
    } catch (error) {
      problem.textContent = error.status === 403 ? "You may not do this." : error.status === 404 ? gone : `${error.message}. Look whether it still stands before you try again.`;
      problem.hidden = false;
      button.disabled = false;
    }
  });
  return form;
}
