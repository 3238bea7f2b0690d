// The page: what is chosen, when to ask the server, and which view to draw.

import { byId, h } from "./dom.js";
import { count, tick } from "./format.js";
import { drawGraph } from "./graph.js";
import { summarise, tellFreshness, tellProblem } from "./header.js";
import { openLease } from "./lease.js";
import { auditRows, auditTable, locksRows, locksTable, tenuresTable, waitingRows, waitingTable } from "./lists.js";
import { build, EMPTY, lockFilter, lockOf, rowFilter } from "./model.js";
import { ownerText, setAirflow } from "./owners.js";
import { connections, look } from "./server.js";
import { followTheme } from "./theme.js";
import { drawTimeline, hiveRows, tenuresRows, waitersRows } from "./timeline.js";

const EVERY_MS = 3_000;
const SOON_MS = 1_000;
const MOST_MS = 30_000;
const SAID_MS = 30_000;
const SLOW = { timeline: 20_000, audit: 5_000 };
const VIEWS = ["locks", "waiting", "graph", "timeline", "audit"];
const RANGES = [[1, "1 hour"], [6, "6 hours"], [24, "1 day"], [72, "3 days"], [168, "7 days"]];

const asked = new URLSearchParams(location.search || around());
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
let saying;
let asking = false;
let again = false; // somebody wanted an answer while one was on its way

function filters() {
  return { object: inputs.object.value, owner: inputs.owner.value, state: inputs.state.value, parents: inputs.parents.checked };
}

// What was asked of the page around: Airflow 3.1 opens the frame without it.
function around() {
  try {
    return window.parent === window ? "" : window.parent.location.search;
  } catch {
    return "";
  }
}

// What a row means: a lock, a request that waits, whose holder is opened, or a lease out of the drawing.
function openRow(row) {
  const lock = row.held !== undefined ? row.held[0] && lockOf(state.model, row.held[0])
    : row.lease !== undefined || row.hive ? row : lockOf(state.model, row);
  if (lock === undefined) return;
  openLease({ connection: state.connection, lock, model: state.model, mayRelease: state.mayRelease, released, declared });
}

function released(freed, lease) {
  const locks = lease.locks.filter(([, , above]) => above !== 1).map(([name]) => name);
  const what = `${locks[0]}${locks.length > 1 ? ` and ${locks.length - 1} more` : ""}`;
  const whose = `the lease of ${ownerText(lease.owner)} on ${what}`;
  told(freed ? `Freed ${whose}. “Force releases” has it, with your name and reason.` : `Nothing was freed: ${whose} was gone already.`);
}

function declared(host, ended) {
  told(`${host} is gone, and ${count(ended, "work")} with it; what is over now is freed within a minute. “Force releases” has it, with your name and reason.`);
}

function told(text) {
  say(text);
  state.slowAt = 0;
  refresh();
}

function say(text) {
  byId("announcer").textContent = text;
  clearTimeout(saying);
  saying = setTimeout(() => (byId("announcer").textContent = ""), SAID_MS);
}

const draw = {
  locks() {
    const rows = locksRows(state.model, lockFilter(filters()), tables.locks.opened);
    tables.locks.set(rows, whyEmpty("Nothing is locked."));
    mount(tables.locks.element);
  },
  waiting() {
    tables.waiting.set(waitingRows(state.model, rowFilter(filters())), whyEmpty("Nobody waits."));
    mount(tables.waiting.element);
  },
  graph() {
    const focused = document.activeElement?.closest?.(".box")?.getAttribute("aria-label")?.split(",")[0];
    drawGraph(panel, state.model, rowFilter(filters()), openRow, whyEmpty("Nobody waits."));
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
      if (tables.timeline.element.parentNode !== place) place.replaceChildren(tables.timeline.element);
      tables.timeline.set(rows, whyEmpty("No lease was held in that time."));
    } else {
      drawTimeline(place, [...rows, ...waitersRows(state.model, rowFilter(filters())), ...hiveRows(state.model, rowFilter(filters()))], state.hours, state.history.left_out);
    }
  },
  audit() {
    const rows = state.audit === null ? [] : auditRows(state.audit, rowFilter(filters()));
    tables.audit.set(rows, state.audit === null ? "loading…" : whyEmpty("Nothing has been freed by force."));
    mount(tables.audit.element);
  },
};

function whyEmpty(nothing) {
  if (state.heard === null) return state.failures ? "Nothing is known yet." : "loading…";
  const { object, owner, state: kind } = filters();
  return object || owner || (kind && state.view === "locks") ? "Nothing fits the filter." : nothing;
}

function mount(element) {
  if (element.parentNode === panel && panel.childNodes.length === 1) return;
  panel.replaceChildren(element);
  draw[state.view]();
}

function redraw() {
  const { object, owner, state: kind, parents } = filters();
  byId("filter-clear").hidden = !(object || owner || kind || parents);
  draw[state.view]();
  summarise(state.heard === null ? null : state.model);
}

async function refresh() {
  clearTimeout(timer);
  again = asking;
  if (asking || state.connection === null) return;
  asking = true;
  const { connection } = state;
  try {
    const { answer, fresh, mayRelease } = await look(connection, "current");
    if (connection !== state.connection) return;
    const first = state.heard === null;
    const changed = fresh || mayRelease !== state.mayRelease || first;
    state.mayRelease = mayRelease;
    if (fresh || first) state.model = build(answer);
    const slow = await refreshSlow();
    state.failures = 0;
    state.heard = performance.now();
    problem(null);
    if (first && asked.has("task") && onlyWaits()) select("waiting", false);
    else if (changed || slow) redraw();
  } catch (error) {
    state.failures += 1;
    problem(error);
  } finally {
    asking = false;
    if (again) refresh();
    else plan();
  }
}

// A visitor from a waiting task wants to see what it waits for.
function onlyWaits() {
  return state.view === "locks" && !state.model.locks.some(lockFilter(filters())) && state.model.waiters.some(rowFilter(filters()));
}

async function refreshSlow() {
  const { view, connection, hours } = state;
  if (SLOW[view] === undefined || performance.now() < state.slowAt) return false;
  const { answer, fresh } = await look(connection, view === "timeline" ? `history?hours=${hours}` : "audit");
  if (view !== state.view || connection !== state.connection || hours !== state.hours) return false;
  state.slowAt = performance.now() + SLOW[view];
  if (view === "timeline") state.history = answer;
  else state.audit = answer;
  return fresh || view === "timeline";
}

function plan() {
  clearTimeout(timer);
  if (state.paused || document.hidden) return;
  const every = state.heard !== null && state.model.hive === undefined ? SOON_MS : EVERY_MS;
  timer = setTimeout(refresh, Math.min(MOST_MS, every * 2 ** state.failures));
}

function problem(error) {
  tellProblem(error, state.heard !== null);
  if (error !== null && state.heard === null) redraw();
  tellFreshness(state);
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
    tellFreshness(state);
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
    tellFreshness(state);
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
    state.failures += 1;
    problem(error);
    setTimeout(() => location.reload(), MOST_MS);
    return;
  }
  select(state.view, false);
  refresh();
}

start();

