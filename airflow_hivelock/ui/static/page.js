// The page: the user's choices, when to ask the server, and which view to draw.

import { byId, h } from "./dom.js";
import { tick } from "./format.js";
import { drawGraph } from "./graph.js";
import { showFreshness, showProblem, summarise } from "./header.js";
import { openLease } from "./lease.js";
import { groupsRows, groupsTable } from "./limits.js";
import { auditRows, auditTable, locksRows, locksTable, tenuresRows, tenuresTable, waitingRows, waitingTable } from "./lists.js";
import { build, EMPTY, lockFilter, lockOf, rowFilter } from "./model.js";
import { setAirflow } from "./owners.js";
import { openRequest } from "./request.js";
import { openReservation } from "./reservation.js";
import { connections, lookAtAudit, lookAtGroups, lookAtHistory, lookAtLocks } from "./server.js";
import { followTheme } from "./theme.js";
import { drawTimeline, hiveSpans, waiterSpans } from "./timeline.js";

/**
 * @typedef {import("./model.js").Lock} Lock
 * @typedef {import("./model.js").Model} Model
 *
 * @typedef {"locks" | "waiting" | "graph" | "timeline" | "groups" | "audit"} View
 *
 * @typedef {object} State
 * @property {string | null} connection
 * @property {View} view
 * @property {number} hours of the timeline
 * @property {boolean} paused
 * @property {number} failures since the last answer
 * @property {boolean} mayRelease
 * @property {Model} model
 * @property {Answer.History | null} history
 * @property {Answer.Groups | null} groups
 * @property {Answer.Audit | null} audit
 * @property {number | null} receivedAt of the last answer
 * @property {number} slowAt when to ask again for the history, the groups or the audit trail
 */

const EVERY_MS = 3_000;
const SOON_MS = 1_000;
const MOST_MS = 30_000;
const ANNOUNCED_MS = 30_000;
const SLOW_MS = new Map([["timeline", 20_000], ["groups", 3_000], ["audit", 5_000]]);
/** @type {View[]} */
const VIEWS = ["locks", "waiting", "graph", "timeline", "groups", "audit"];
/** @type {[hours: number, text: string][]} */
const RANGES = [[1, "1 hour"], [6, "6 hours"], [24, "1 day"], [72, "3 days"], [168, "7 days"]];

const query = new URLSearchParams(location.search || outerQuery());
/** @type {State} */
const state = {
  connection: query.get("connection"),
  view: VIEWS.find((view) => view === query.get("view")) ?? "locks",
  hours: 6,
  paused: false,
  failures: 0,
  mayRelease: false,
  model: EMPTY,
  history: null,
  groups: null,
  audit: null,
  receivedAt: null,
  slowAt: 0,
};
const inputs = {
  object: byId("filter-object", HTMLInputElement), owner: byId("filter-owner", HTMLInputElement),
  state: byId("filter-state", HTMLSelectElement), parents: byId("filter-parents", HTMLInputElement),
};
const panel = byId("panel", HTMLElement);
const announcer = byId("announcer", HTMLElement);
const tables = {
  locks: locksTable(openLock), waiting: waitingTable(openWaiter, openHolder),
  groups: groupsTable(), audit: auditTable(), timeline: tenuresTable(),
};
const timeline = { element: h("div", { id: "drawn", class: "drawn" }), asTable: h("input", { type: "checkbox", id: "as-table" }), tools: h("div", { class: "tools" }) };
/** @type {number | undefined} */
let timer;
/** @type {number | undefined} */
let announcing;
let asking = false;
let again = false; // another answer was wanted while one was on its way

function filters() {
  return { object: inputs.object.value, owner: inputs.owner.value, state: inputs.state.value, parents: inputs.parents.checked };
}

// The query of the page around the frame. Airflow 3.1 opens the frame without a query.
function outerQuery() {
  try {
    return window.parent === window ? "" : window.parent.location.search;
  } catch {
    return "";
  }
}

/** @param {Lock} lock */
function openLock(lock) {
  const { connection, model, mayRelease } = state;
  if (connection !== null) openLease({ connection, lock, model, mayRelease, announce });
}

/** @param {{o?: number, owner: Answer.Owner, object?: string}} holder */
function openHolder(holder) {
  const lock = lockOf(state.model, holder);
  if (lock !== undefined) openLock(lock);
}

/** @param {import("./model.js").Waiter} waiter */
function openWaiter(waiter) {
  const { connection, model, mayRelease } = state;
  if (connection !== null) openRequest({ connection, waiter, model, mayRelease, openHolder, announce });
}

/** @param {string} text of a change that the next answer contains */
function announce(text) {
  announcer.textContent = text;
  clearTimeout(announcing);
  announcing = setTimeout(() => (announcer.textContent = ""), ANNOUNCED_MS);
  state.slowAt = 0;
  refresh();
}

/** @type {Record<View, () => void>} */
const draw = {
  locks() {
    const rows = locksRows(state.model, lockFilter(filters()), tables.locks.opened);
    tables.locks.set(rows, whyEmpty("No lock is held."));
    mount(tables.locks.element);
  },
  waiting() {
    tables.waiting.set(waitingRows(state.model, rowFilter(filters())), whyEmpty("No request waits."));
    mount(tables.waiting.element);
  },
  graph() {
    const focused = document.activeElement?.closest(".box");
    const owner = focused ? boxOwner(focused) : null;
    const open = { waiter: openWaiter, holder: openHolder };
    drawGraph(panel, state.model, rowFilter(filters()), open, whyEmpty("No request waits."));
    /** @type {NodeListOf<SVGElement>} */
    const boxes = panel.querySelectorAll(".box[aria-label]");
    if (owner) [...boxes].find((box) => boxOwner(box) === owner)?.focus();
  },
  timeline() {
    if (!panel.contains(timeline.element)) panel.replaceChildren(timeline.tools, timeline.element);
    if (state.history === null) {
      timeline.element.replaceChildren(h("p", { class: "empty" }, "loading…"));
      return;
    }
    const filter = rowFilter(filters());
    const rows = tenuresRows(state.history, filter);
    if (timeline.asTable.checked) {
      if (tables.timeline.element.parentNode !== timeline.element) timeline.element.replaceChildren(tables.timeline.element);
      tables.timeline.set(rows, whyEmpty("No lease was held in that time."));
    } else {
      drawTimeline(timeline.element, [...rows, ...waiterSpans(state.model, filter), ...hiveSpans(state.model, filter)], state.hours, state.history.left_out);
    }
  },
  groups() {
    tables.groups.set(groupsRows(state.groups, inputs.owner.value), state.groups === null ? "loading…" : whyEmpty("No lease is counted in a group."));
    mount(tables.groups.element);
  },
  audit() {
    const rows = state.audit === null ? [] : auditRows(state.audit, rowFilter(filters()));
    tables.audit.set(rows, state.audit === null ? "loading…" : whyEmpty("There has been no force release."));
    mount(tables.audit.element);
  },
};

/** @param {Element} box of the graph */
const boxOwner = (box) => box.getAttribute("aria-label")?.split(",")[0];

/** @param {string} nothing the text if no filter is the cause */
function whyEmpty(nothing) {
  if (state.receivedAt === null) return state.failures ? "No data yet." : "loading…";
  const { object, owner, state: kind } = filters();
  return object || owner || (kind && state.view === "locks") ? "No row matches the filter." : nothing;
}

/** @param {HTMLElement} element */
function mount(element) {
  if (element.parentNode === panel && panel.childNodes.length === 1) return;
  panel.replaceChildren(element);
  draw[state.view]();
}

function redraw() {
  const { object, owner, state: kind, parents } = filters();
  byId("filter-clear", HTMLElement).hidden = !(object || owner || kind || parents);
  byId("reserve", HTMLElement).hidden = !state.mayRelease;
  draw[state.view]();
  summarise(state.receivedAt === null ? null : state.model);
}

async function refresh() {
  clearTimeout(timer);
  again = asking;
  if (asking || state.connection === null) return;
  asking = true;
  const { connection } = state;
  try {
    const { answer, fresh, mayRelease } = await lookAtLocks(connection);
    if (connection !== state.connection) return;
    const first = state.receivedAt === null;
    const changed = fresh || mayRelease !== state.mayRelease || first;
    state.mayRelease = mayRelease;
    if (fresh || first) state.model = build(answer);
    const slow = await refreshSlow(connection);
    state.failures = 0;
    state.receivedAt = performance.now();
    setProblem(null);
    if (first && query.has("run") && onlyWaits()) select("waiting", false);
    else if (changed || slow) redraw();
  } catch (error) {
    state.failures += 1;
    setProblem(error);
  } finally {
    asking = false;
    if (again) refresh();
    else plan();
  }
}

// A visitor from a waiting task or its run wants to see what it waits for.
function onlyWaits() {
  return state.view === "locks" && !state.model.locks.some(lockFilter(filters())) && state.model.waiters.some(rowFilter(filters()));
}

/**
 * Ask for the history, the groups or the audit trail, if the view shows it, and return whether to draw it again.
 * @param {string} connection
 */
async function refreshSlow(connection) {
  const { view, hours } = state;
  const every = SLOW_MS.get(view);
  if (every === undefined || performance.now() < state.slowAt) return false;
  const history = view === "timeline" ? await lookAtHistory(connection, hours) : null;
  const groups = view === "groups" ? await lookAtGroups(connection) : null;
  const audit = view === "audit" ? await lookAtAudit(connection) : null;
  if (view !== state.view || connection !== state.connection || hours !== state.hours) return false;
  state.slowAt = performance.now() + every;
  Object.assign(state, history && { history: history.answer }, groups && { groups: groups.answer }, audit && { audit: audit.answer });
  return Boolean(history ?? groups?.fresh ?? audit?.fresh);
}

function plan() {
  clearTimeout(timer);
  if (state.paused || document.hidden) return;
  const every = state.receivedAt !== null && state.model.hive === undefined ? SOON_MS : EVERY_MS;
  timer = setTimeout(refresh, Math.min(MOST_MS, every * 2 ** state.failures));
}

/** @param {unknown} error */
function setProblem(error) {
  showProblem(error === null || error instanceof Error ? error : new Error(String(error)), state.receivedAt !== null);
  if (error !== null && state.receivedAt === null) redraw();
  showFreshness(state);
}

/**
 * @param {View} view
 * @param {boolean} focus
 */
function select(view, focus) {
  state.view = view;
  state.slowAt = 0;
  /** @type {NodeListOf<HTMLElement>} */
  const tabs = document.querySelectorAll("#tabs [role=tab]");
  for (const tab of tabs) {
    const isSelected = tab.id === `tab-${view}`;
    tab.setAttribute("aria-selected", String(isSelected));
    tab.tabIndex = isSelected ? 0 : -1;
    if (isSelected && focus) tab.focus();
  }
  panel.setAttribute("aria-labelledby", `tab-${view}`);
  panel.replaceChildren();
  for (const field of [inputs.state, inputs.parents]) field.disabled = view !== "locks";
  remember();
  redraw();
  if (SLOW_MS.has(view)) refresh();
}

// The choices are kept in the address, so that they stay when the frame is loaded again.
function remember() {
  const { object, owner, state: kind, parents } = filters();
  const wanted = { connection: state.connection ?? "", view: state.view === "locks" ? "" : state.view, object, owner, state: kind, parents: parents ? "1" : "" };
  const text = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value)).toString();
  history.replaceState(null, "", text ? `?${text}` : location.pathname);
}

function listen() {
  const tabs = byId("tabs", HTMLElement);
  tabs.addEventListener("click", ({ target }) => {
    const tab = target instanceof Element ? target.closest("[role=tab]") : null;
    const view = VIEWS.find((each) => tab?.id === `tab-${each}`);
    if (view) select(view, true);
  });
  tabs.addEventListener("keydown", (event) => {
    const index = VIEWS.indexOf(state.view);
    /** @type {Record<string, number>} */
    const steps = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: VIEWS.length - 1 };
    const view = VIEWS.at(steps[event.key] % VIEWS.length);
    if (!(event.key in steps) || view === undefined) return;
    event.preventDefault();
    select(view, true);
  });
  const form = byId("filters", HTMLFormElement);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    remember();
    redraw();
  });
  form.addEventListener("reset", () => setTimeout(() => {
    remember();
    redraw();
    inputs.object.focus();
  }));
  byId("reserve", HTMLButtonElement).addEventListener("click", () => {
    if (state.connection !== null) openReservation({ connection: state.connection, object: inputs.object.value.trim(), announce });
  });
  const pause = byId("pause", HTMLButtonElement);
  pause.addEventListener("click", () => {
    state.paused = !state.paused;
    pause.setAttribute("aria-pressed", String(state.paused));
    pause.textContent = state.paused ? "Resume" : "Pause";
    showFreshness(state);
    if (state.paused) plan();
    else refresh();
  });
  const connection = byId("connection", HTMLSelectElement);
  connection.addEventListener("change", () => {
    Object.assign(state, { connection: connection.value, model: EMPTY, history: null, groups: null, audit: null, receivedAt: null, slowAt: 0 });
    remember();
    redraw();
    refresh();
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? plan() : refresh()));
  addEventListener("resize", () => state.view === "timeline" && redraw());
  setInterval(() => {
    tick();
    showFreshness(state);
  }, 1_000);
}

function addTimelineTools() {
  const range = h("select", { id: "range" }, RANGES.map(([hours, text]) => h("option", { value: hours, selected: hours === state.hours }, text)));
  range.addEventListener("change", () => {
    state.hours = Number(range.value);
    state.history = null;
    state.slowAt = 0;
    refresh();
  });
  timeline.asTable.addEventListener("change", () => draw.timeline());
  timeline.tools.append(h("label", { class: "field" }, h("span", {}, "The last"), range),
    h("label", { class: "check" }, timeline.asTable, h("span", {}, "as a table")));
}

async function start() {
  followTheme();
  inputs.object.value = query.get("object") ?? "";
  // In the tab of a task that is not mapped, Airflow leaves the name of the map index in the address.
  const map = /^\d+$/.exec(query.get("map") ?? "");
  const [dag, run, task] = ["dag", "run", "task"].map((name) => query.get(name));
  // Airflow 3.1 does not encode the + of a run's time zone. Whole names, because runs of two DAGs can have the same id.
  const names = [dag, run?.replace(/ (?=\d\d:\d\d)/, "+"), task && map ? `${task}[${map[0]}]` : task];
  inputs.owner.value = query.get("owner") ?? names.filter(Boolean).map((name) => `"${name}"`).join(" ");
  inputs.state.value = query.get("state") ?? "";
  inputs.parents.checked = query.get("parents") === "1";
  addTimelineTools();
  listen();
  try {
    const { connections: ids, airflow } = await connections();
    setAirflow(airflow);
    if (ids.length === 0) throw new Error("There is no connection of type hivelock; add one in Airflow");
    if (state.connection === null || !ids.includes(state.connection)) state.connection = ids.includes("hivelock_default") ? "hivelock_default" : ids[0];
    byId("connection", HTMLSelectElement).replaceChildren(...ids.map((id) => h("option", { value: id, selected: id === state.connection }, id)));
    byId("connection-field", HTMLElement).hidden = ids.length < 2;
  } catch (error) {
    state.failures += 1;
    setProblem(error);
    setTimeout(() => location.reload(), MOST_MS);
    return;
  }
  select(state.view, false);
  refresh();
}

start();
