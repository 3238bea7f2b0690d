"""A user's actions in Airflow's UI, through the REST API of the UI."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

if TYPE_CHECKING:
    from collections.abc import Mapping

LOCKED_TIMEOUT_S = 60


class RestError(AssertionError):
    """The API refused: the request, the status and what it said."""


class RestApi:
    """A client of /api/v2, logged in as one user."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    @classmethod
    def login(cls, url: str, user: str, password: str | None) -> RestApi:
        """Log in. If every user is an admin, neither the user nor the password matters."""
        client = httpx.Client(base_url=url, timeout=60, trust_env=False)
        token = _checked(client.post("/auth/token", json={"username": user, "password": password or "-"}))
        client.headers["Authorization"] = f"Bearer {token['access_token']}"
        return cls(client)

    def call(self, method: str, path: str, **request: Any) -> Any:
        """The decoded answer of a call to /api/v2/PATH. Raises RestError for any status from 400 on.

        On SQLite the server gives up when it cannot have the lock; then nothing was changed, and we ask again.
        """
        deadline = time.monotonic() + LOCKED_TIMEOUT_S
        while True:
            answer = self.client.request(method, f"/api/v2/{path}", **request)
            is_locked = answer.is_server_error and "database is locked" in answer.text.lower()
            if not is_locked or time.monotonic() > deadline:
                return _checked(answer)
            time.sleep(0.2)

    def knows_dag(self, dag_id: str) -> bool:
        """Whether the DAG is there. Raises RestError with the trace-backs when some DAG file fails to import."""
        found: bool = self.call("GET", "dags", params={"dag_id_pattern": dag_id})["total_entries"] > 0
        errors = [] if found else self.call("GET", "importErrors")["import_errors"]
        if errors:
            raise RestError("\n".join(error["stack_trace"] for error in errors))
        return found

    def add_connection(self, conn_id: str, fields: Mapping[str, Any]) -> None:
        """Store a connection; `extra` may be a mapping."""
        extra = fields.get("extra")
        body = {"connection_id": conn_id, **fields}
        body |= {} if extra is None or isinstance(extra, str) else {"extra": json.dumps(extra)}
        self.call("POST", "connections", json=body)

    def pause(self, dag_id: str, is_paused: bool) -> None:
        self.call("PATCH", f"dags/{quote(dag_id)}", json={"is_paused": is_paused})

    def trigger(self, dag_id: str, logical_date: datetime | None, conf: Mapping[str, Any], run_id: str | None) -> str:
        body = {"logical_date": _iso(logical_date), "conf": conf, "dag_run_id": run_id}
        run_id = self.call("POST", f"dags/{quote(dag_id)}/dagRuns", json=body)["dag_run_id"]
        return str(run_id)

    def backfill(
        self, dag_id: str, from_date: datetime, to_date: datetime, max_active_runs: int, reprocess: str
    ) -> int:
        body = {
            "dag_id": dag_id,
            "from_date": _iso(from_date),
            "to_date": _iso(to_date),
            "max_active_runs": max_active_runs,
            "reprocess_behavior": reprocess,
        }
        return int(self.call("POST", "backfills", json=body)["id"])

    def set_task_state(self, dag_id: str, run_id: str, task_id: str, state: str, map_index: int) -> None:
        path = _task_path(dag_id, run_id, task_id) + (f"/{map_index}" if map_index >= 0 else "")
        self.call("PATCH", path, json={"new_state": state})

    def set_run_state(self, dag_id: str, run_id: str, state: str) -> None:
        self.call("PATCH", _run_path(dag_id, run_id), json={"state": state})

    def clear(self, dag_id: str, run_id: str, **options: Any) -> None:
        body = {"dag_run_id": run_id, "dry_run": False, "only_failed": False, **options}
        self.call("POST", f"dags/{quote(dag_id)}/clearTaskInstances", json=body)

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int, map_index: int) -> str:
        path = f"{_task_path(dag_id, run_id, task_id)}/logs/{try_number}"
        log = self.call("GET", path, params={"map_index": map_index, "full_content": True})
        return "\n".join(map(_log_line, log["content"]))


def _run_path(dag_id: str, run_id: str) -> str:
    return f"dags/{quote(dag_id)}/dagRuns/{quote(run_id, safe='')}"


def _task_path(dag_id: str, run_id: str, task_id: str) -> str:
    return f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}"


def _iso(time: datetime | None) -> str | None:
    """A time without a zone is UTC."""
    if time is None:
        return None
    return (time.replace(tzinfo=UTC) if time.tzinfo is None else time).isoformat()


def _log_line(message: dict[str, Any]) -> str:
    """The event; for an exception its trace-back too, which Airflow keeps apart."""
    detail = message.get("error_detail")
    return f"{message['event']}\n{json.dumps(detail)}" if detail else str(message["event"])


def _checked(answer: httpx.Response) -> Any:
    if answer.is_error:
        request = f"{answer.request.method} {answer.request.url} {answer.request.content.decode()}"
        raise RestError(f"{request}\n{answer.status_code} {answer.text}")
    return answer.json() if answer.content else None
