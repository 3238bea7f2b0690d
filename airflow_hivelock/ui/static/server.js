// The calls to the server: answers that have not changed are not sent again.

import { setNow } from "./format.js";

const PATIENCE_MS = 15_000;
const kept = new Map();

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function call(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE_MS) });
  } catch (error) {
    throw new Refused(0, error.name === "TimeoutError" ? "Airflow does not answer" : "Airflow cannot be reached");
  }
  if (response.status === 304 || response.ok) return response;
  const said = await response.json().catch(() => ({}));
  const detail = typeof said.detail === "string" ? said.detail : response.statusText;
  throw new Refused(response.status, response.status === 401 ? "You are signed out of Airflow; reload the page" : detail);
}

export async function look(connection, what) {
  const path = `api/${encodeURIComponent(connection)}/${what}`;
  const known = kept.get(path);
  const response = await call(path, { headers: known ? { "If-None-Match": known.tag } : {} });
  setNow(Number(response.headers.get("X-Store-Now")));
  const mayRelease = response.headers.get("X-May-Release") === "true";
  if (response.status === 304) return { answer: known.answer, fresh: false, mayRelease };
  const answer = await response.json();
  if (kept.size > 8) kept.clear();
  kept.set(path, { tag: response.headers.get("ETag"), answer });
  return { answer, fresh: true, mayRelease };
}

export const connections = async () => (await call("api/connections")).json();

export const leaseOf = async (connection, id) =>
  (await call(`api/${encodeURIComponent(connection)}/leases/${encodeURIComponent(id)}`)).json();

async function change(connection, what, said) {
  const response = await call(`api/${encodeURIComponent(connection)}/${what}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Hivelock": "release" },
    body: JSON.stringify(said),
  });
  return response.json();
}

export const release = async (connection, id, reason) => (await change(connection, `leases/${encodeURIComponent(id)}/release`, { reason })).freed;

export const onHost = async (connection, host) =>
  (await (await call(`api/${encodeURIComponent(connection)}/hosts?host=${encodeURIComponent(host)}`)).json()).works;

export const hostGone = async (connection, host, reason) => (await change(connection, "hosts/gone", { host, reason })).ended;
