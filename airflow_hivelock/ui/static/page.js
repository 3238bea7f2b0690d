// The page: what is chosen, when to ask the server, and which view to draw.

import { byId, h } from "./dom.js";
import { count, duration, tick } from "./format.js";
import { drawGraph } from "./graph.js";
import { openLease } from "./lease.js";
import { auditRows, auditTable, locksRows, locksTable, tenuresTable, waitingRows, waitingTable } from "./lists.js";
import { build, EMPTY, isSuspect, lockFilter, rowFilter } from "./model.js";
import { setAirflow } from "./owners.js";
import { connections, look } from "./server.js";
import { followTheme } from "./theme.js";
import { drawTimeline, tenuresRows, waitersRows } from "./timeline.js";

const EVERY_MS = 3_000;
const MOST_MS = 30_000;
const SLOW = { timeline: 20_000, audit: 5_000 };
const VIEWS = ["locks", "waiting", "graph", "timeline", "audit"];
const RANGES = [[1, "1 hour"], [6, "6 hours"], [24, "1 day"], [72, "3 days"], [168, "7 days"]];

const asked = new URLSearchParams(location.search);
const state = {
  connection: asked.get("connection"),
  view: VIEWS.includes(asked.get("view")) ? asked.get("view") : "locks",
  hours: 6,
  paused: false,
  failures: 0,
  mayRelease: false,
  model: EMPTY,
  history: null,
  audit: null,
  heard: null,
  slowAt: 0,
};
const inputs = {
  object: byId("filter-object"), owner: byId("filter-owner"), state: byId("filter-state"), parents: byId("filter-parents"),
};
const panel = byId("panel");
const tables = { locks: locksTable(openRow), waiting: waitingTable(openRow), audit: auditTable(), timeline: tenuresTable() };
let timer;
let asking = false;

function filters() {
  return { object: inputs.object.value, owner: inputs.owner.value, state: inputs.state.value, parents: inputs.parents.checked };
}

// What a row stands for: a lock, a request that waits, or a lease out of the drawing.
function openRow(row) {
  if (row.behind !== undefined) {
    const [first] = row.behind;
    const lease = first && state.model.byOwner.get(first.o);
    if (!lease) return;
    row = lease;
  }
  const lock = row.lease !== undefined || row.hive ? row : state.model.locks.find((held) => held.lease === row || held.lease?.o === row.o);
  if (lock === undefined) return;
  openLease({ connection: state.connection, lock, model: state.model, mayRelease: state.mayRelease, released });
}

function released(freed) {
  say(freed ? "The lease was freed." : "The lease was gone already.");
  state.slowAt = 0;
  refresh();
}

function say(text) {
  byId("announcer").textContent = text;
}

const draw = {
  locks() {
    const rows = locksRows(state.model, lockFilter(filters()));
    tables.locks.set(rows);
    mount(tables.locks.element);
  },
  waiting() {
    tables.waiting.set(waitingRows(state.model, rowFilter(filters())));
    mount(tables.waiting.element);
  },
  graph() {
    const focused = document.activeElement?.closest?.(".box")?.getAttribute("aria-label")?.split(",")[0];
    drawGraph(panel, state.model, rowFilter(filters()), openRow);
    if (focused) [...panel.querySelectorAll(".box[aria-label]")].find((box) => box.getAttribute("aria-label").split(",")[0] === focused)?.focus();
  },
  timeline() {
    if (panel.querySelector("#range") === null) {
      const range = h("select", { id: "range" }, RANGES.map(([hours, text]) => h("option", { value: hours, selected: hours === state.hours }, text)));
      range.addEventListener("change", () => {
        state.hours = Number(range.value);
        state.history = null;
        state.slowAt = 0;
        refresh();
      });
      const table = h("input", { type: "checkbox", id: "as-table" });
      table.addEventListener("change", () => draw.timeline());
      panel.replaceChildren(h("div", { class: "tools" }, h("label", { class: "field" }, h("span", {}, "The last"), range),
        h("label", { class: "check" }, table, h("span", {}, "as a table"))), h("div", { id: "drawn", class: "drawn" }));
    }
    const place = byId("drawn");
    if (state.history === null) {
      place.replaceChildren(h("p", { class: "empty" }, "loading…"));
      return;
    }
    const rows = tenuresRows(state.history, rowFilter(filters()));
    if (byId("as-table").checked) {
      tables.timeline.set(rows);
      if (tables.timeline.element.parentNode !== place) place.replaceChildren(tables.timeline.element);
      tables.timeline.set(rows);
    } else {
      drawTimeline(place, [...rows, ...waitersRows(state.model, rowFilter(filters()))], state.hours, state.history.left_out);
    }
  },
  audit() {
    tables.audit.set(state.audit === null ? [] : auditRows(state.audit, rowFilter(filters())));
    mount(tables.audit.element);
  },
};

function mount(element) {
  if (element.parentNode === panel && panel.childNodes.length === 1) return;
  panel.replaceChildren(element);
  draw[state.view]();
}

function redraw() {
  const { object, owner, state: kind, parents } = filters();
  byId("filter-clear").hidden = !(object || owner || kind || parents);
  draw[state.view]();
  summarise();
}

function summarise() {
  const { leases, locks, waiters } = state.model;
  const suspects = leases.filter(isSuspect).length;
  const hive = locks.filter((lock) => lock.hive).length;
  const parts = [
    [count(leases.length, "lease"), ""], [count(locks.length, "lock"), ""], [`${waiters.length.toLocaleString("en")} waiting`, waiters.length ? "info" : ""],
    [`${suspects} suspect`, suspects ? "warn" : ""], [`${hive} of Hive’s own`, ""],
  ];
  const text = parts.map(([said]) => said).join();
  const list = byId("summary");
  if (list.dataset.text === text) return;
  list.dataset.text = text;
  list.replaceChildren(...parts.map(([said, tone]) => h("li", { class: tone ? `tone-${tone}` : "" }, said)));
}

async function refresh() {
  clearTimeout(timer);
  if (asking || state.connection === null) return;
  asking = true;
  try {
    const { answer, fresh, mayRelease } = await look(state.connection, "current");
    const changed = fresh || mayRelease !== state.mayRelease || state.heard === null;
    state.mayRelease = mayRelease;
    if (fresh) state.model = build(answer);
    const slow = await refreshSlow();
    state.failures = 0;
    state.heard = performance.now();
    problem(null);
    if (changed || slow) redraw();
  } catch (error) {
    state.failures += 1;
    problem(error);
  } finally {
    asking = false;
    plan();
  }
}

async function refreshSlow() {
  const { view } = state;
  if (SLOW[view] === undefined || performance.now() < state.slowAt) return false;
  const { answer, fresh } = await look(state.connection, view === "timeline" ? `history?hours=${state.hours}` : "audit");
  state.slowAt = performance.now() + SLOW[view];
  if (view === "timeline") state.history = answer;
  else state.audit = answer;
  return fresh || view === "timeline";
}

function plan() {
  clearTimeout(timer);
  if (state.paused || document.hidden) return;
  timer = setTimeout(refresh, Math.min(MOST_MS, EVERY_MS * 2 ** state.failures));
}

function problem(error) {
  const place = byId("problem");
  place.hidden = error === null;
  if (error !== null) place.textContent = `${error.message}. ${state.heard === null ? "" : "What you see is old. "}Trying again.`;
  freshness();
}

function freshness() {
  const text = byId("freshness-text");
  const dot = byId("freshness-dot");
  const age = state.heard === null ? null : performance.now() - state.heard;
  dot.className = state.failures ? "bad" : state.paused ? "" : "good";
  const said = state.paused ? "paused" : age === null ? "loading…" : age < 8_000 ? "live" : `${duration(age)} old`;
  if (text.textContent !== said) text.textContent = said;
}

function select(view, focus) {
  state.view = view;
  state.slowAt = 0;
  for (const tab of byId("tabs").children) {
    const mine = tab.id === `tab-${view}`;
    tab.setAttribute("aria-selected", String(mine));
    tab.tabIndex = mine ? 0 : -1;
    if (mine && focus) tab.focus();
  }
  panel.setAttribute("aria-labelledby", `tab-${view}`);
  panel.replaceChildren();
  for (const field of [inputs.state, inputs.parents]) field.disabled = view !== "locks";
  remember();
  redraw();
  if (SLOW[view] !== undefined) refresh();
}

// The choice stays over a reload of the frame.
function remember() {
  const { object, owner, state: kind, parents } = filters();
  const wanted = { connection: state.connection, view: state.view === "locks" ? "" : state.view, object, owner, state: kind, parents: parents ? "1" : "" };
  const query = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value)).toString();
  history.replaceState(null, "", query ? `?${query}` : location.pathname);
}

function listen() {
  byId("tabs").addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) select(tab.id.slice(4), true);
  });
  byId("tabs").addEventListener("keydown", (event) => {
    const at = VIEWS.indexOf(state.view);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: VIEWS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    select(VIEWS.at(to % VIEWS.length), true);
  });
  const form = byId("filters");
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
  byId("pause").addEventListener("click", () => {
    state.paused = !state.paused;
    byId("pause").setAttribute("aria-pressed", String(state.paused));
    byId("pause").textContent = state.paused ? "Go on" : "Pause";
    freshness();
    if (state.paused) plan();
    else refresh();
  });
  byId("connection").addEventListener("change", (event) => {
    Object.assign(state, { connection: event.target.value, model: EMPTY, history: null, audit: null, heard: null, slowAt: 0 });
    remember();
    redraw();
    refresh();
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? plan() : refresh()));
  addEventListener("resize", () => state.view === "timeline" && redraw());
  setInterval(() => {
    tick();
    freshness();
  }, 1_000);
}

async function start() {
  followTheme();
  inputs.object.value = asked.get("object") ?? "";
  const owner = ["dag", "run", "task"].map((name) => asked.get(name)).filter(Boolean).join(" ");
  inputs.owner.value = asked.get("owner") ?? (owner && asked.get("map") ? `${owner}[${asked.get("map")}]` : owner);
  inputs.state.value = asked.get("state") ?? "";
  inputs.parents.checked = asked.get("parents") === "1";
  listen();
  try {
    const { connections: ids, airflow } = await connections();
    setAirflow(airflow);
    if (ids.length === 0) throw new Error("There is no connection of type hivelock; add one in Airflow");
    if (!ids.includes(state.connection)) state.connection = ids.includes("hivelock_default") ? "hivelock_default" : ids[0];
    byId("connection").replaceChildren(...ids.map((id) => h("option", { value: id, selected: id === state.connection }, id)));
    byId("connection-field").hidden = ids.length < 2;
  } catch (error) {
    problem(error);
    setTimeout(() => location.reload(), MOST_MS);
    return;
  }
  select(state.view, false);
  refresh();
}

start();

