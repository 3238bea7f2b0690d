"""A user's actions on a running Airflow, and what the user sees."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tests.support.airflow_server.metadata import Metadata, RunState, TaskState
from tests.support.airflow_server.rest import RestApi

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

T = TypeVar("T")
POLL_S = 0.1


class WaitTimeout(AssertionError):
    """A condition did not come true in time. The message has the condition and the last task states."""


class Control:
    """Changes go through the REST API, as the UI's do; states are read from the database.

    passwords: by user; empty where everyone is an admin.
    """

    def __init__(self, url: str, database_url: str, passwords: Mapping[str, str]) -> None:
        self.url = url
        self.database_url = database_url
        self._passwords = dict(passwords)
        self._metadata = Metadata(database_url)
        self._apis: dict[str, RestApi] = {}

    @property
    def api(self) -> RestApi:
        """The REST API, as admin."""
        return self.api_as("admin")

    def api_as(self, user: str) -> RestApi:
        """The REST API, logged in once as one of the users."""
        if user not in self._apis:
            self._apis[user] = RestApi.login(self.url, user, self._passwords.get(user))
        return self._apis[user]

    def password(self, user: str) -> str:
        """Of one of the users; where everyone is an admin there is none."""
        return self._passwords[user]

    def log_out(self) -> None:
        """Close the REST API's connections; the next use logs in again."""
        while self._apis:
            self._apis.popitem()[1].client.close()

    def unpause(self, dag_id: str, timeout_s: float = 60) -> None:
        """Wait until the DAG has been parsed, and unpause it. Raises RestError when a DAG file is broken."""
        self.wait(lambda: self.api.knows_dag(dag_id), timeout_s, f"DAG {dag_id} to be parsed")
        self.api.pause(dag_id, False)

    def trigger(
        self,
        dag_id: str,
        logical_date: datetime | None = None,
        conf: Mapping[str, Any] | None = None,
        run_id: str | None = None,
    ) -> str:
        """Trigger a run, and return its run id. A logical date without a zone is UTC."""
        return self.api.trigger(dag_id, logical_date, conf or {}, run_id)

    def backfill(
        self,
        dag_id: str,
        from_date: datetime,
        to_date: datetime,
        max_active_runs: int = 20,
        reprocess: Literal["none", "failed", "completed"] = "none",
    ) -> int:
        """Start a backfill of the dates, both included, and return its id."""
        return self.api.backfill(dag_id, from_date, to_date, max_active_runs, reprocess)

    def set_task_state(self, dag_id: str, run_id: str, task_id: str, state: str, map_index: int = -1) -> None:
        """Mark a task "success", "failed" or "skipped"."""
        self.api.set_task_state(dag_id, run_id, task_id, state, map_index)

    def set_run_state(self, dag_id: str, run_id: str, state: str) -> None:
        """Mark a run "queued", "success" or "failed"."""
        self.api.set_run_state(dag_id, run_id, state)

    def clear(self, dag_id: str, run_id: str, task_ids: Sequence[str] | None = None, **options: Any) -> None:
        """Clear tasks of a run, all without task_ids; options are the API's, such as include_downstream=True."""
        chosen = {} if task_ids is None else {"task_ids": list(task_ids)}
        self.api.clear(dag_id, run_id, **chosen, **options)

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1) -> str:
        """The log as the UI shows it, a message a line."""
        return self.api.task_log(dag_id, run_id, task_id, try_number, map_index)

    def task_instances(
        self, dag_id: str | None = None, run_id: str | None = None, task_id: str | None = None
    ) -> list[TaskState]:
        return self._metadata.tasks(dag_id=dag_id, run_id=run_id, task_id=task_id)

    def task(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> TaskState:
        """One task instance. Raises LookupError when there is none."""
        found = self._metadata.tasks(dag_id=dag_id, run_id=run_id, task_id=task_id, map_index=map_index)
        if not found:
            raise LookupError(f"no task instance {dag_id} {run_id} {task_id} [{map_index}]")
        return found[0]

    def triggerers(self, trigger_ids: Sequence[int]) -> set[int | None]:
        """The triggerers that Airflow has given those triggers to, by the ids of their jobs; None if it has not yet."""
        return self._metadata.triggerers(trigger_ids)

    def runs(self, dag_id: str | None = None, backfill_id: int | None = None) -> list[RunState]:
        return self._metadata.runs(dag_id=dag_id, backfill_id=backfill_id)

    def run(self, dag_id: str, run_id: str) -> RunState:
        """One run. Raises LookupError when there is none."""
        found = self._metadata.runs(dag_id=dag_id, run_id=run_id)
        if not found:
            raise LookupError(f"no run {dag_id} {run_id}")
        return found[0]

    def check(self) -> None:
        """Raises when Airflow itself is broken, so that waiting is vain."""

    def wait(self, condition: Callable[[], T], timeout_s: float, what: str) -> T:
        """The first true value of the condition. Raises WaitTimeout, or what `check` raises."""
        deadline = time.monotonic() + timeout_s
        while not (value := condition()):
            self.check()
            if time.monotonic() > deadline:
                states = "\n".join(map(str, self.task_instances()))
                raise WaitTimeout(f"waited {timeout_s} s for {what}; task instances:\n{states}")
            time.sleep(POLL_S)
        return value
