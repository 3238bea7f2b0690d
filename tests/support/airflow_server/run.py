"""One run of a DAG: what a user does to it, and what becomes of it."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.airflow_server.server import AirflowServer

T = TypeVar("T")
OVER = ("success", "failed")


@dataclass
class Run:
    """A run that was triggered. Its task is called ``job``, unless another one is named.

    :cvar wait_s: how long to wait for any one thing: only what hangs takes so long.
    """

    af: AirflowServer
    dag_id: str
    run_id: str
    wait_s: ClassVar[float] = 900.0

    def owner(self, task_id: str = "job", map_index: int = -1) -> str:
        """The owner of the task's locks, in the installation ``here``."""
        return f"here/{self.dag_id}/{self.run_id}/{task_id}/{map_index}"

    def state(self, task_id: str = "job") -> str | None:
        return self.af.task(self.dag_id, self.run_id, task_id).state

    def try_number(self) -> int:
        return self.af.task(self.dag_id, self.run_id, "job").try_number

    def is_over(self) -> bool:
        """Ended, or deleted."""
        found = self.af.runs(self.dag_id)
        return all(run.state in OVER for run in found if run.run_id == self.run_id)

    def await_end(self) -> None:
        self.until(self.is_over, "it to end")

    def ended(self) -> str:
        """Wait for its end, and return its state."""
        self.await_end()
        return self.af.run(self.dag_id, self.run_id).state

    def reach(self, state: str, task_id: str = "job") -> None:
        self.until(lambda: self.state(task_id) == state, f"{task_id} to be {state}")

    def await_deferred(self, task_id: str = "job") -> None:
        """Wait until a worker has deferred the task, and the scheduler knows that the worker has ended.

        Airflow fails a task that is resumed and runs before the scheduler has learned that.
        """
        self.reach("deferred", task_id)
        started = f"<TaskInstance: {self.dag_id}.{task_id} {self.run_id} [scheduled]"
        ended = re.compile(f"Received executor event.*task_id='{task_id}', run_id='{re.escape(self.run_id)}'")

        def told() -> bool:
            log = (self.af.home / "scheduler.log").read_text()
            return ended.search(log, max(0, log.rfind(started))) is not None

        self.until(told, f"the scheduler to learn that {task_id} is deferred")

    def until(self, condition: Callable[[], T], what: str) -> T:
        return self.af.wait(condition, self.wait_s, f"{self.run_id}: {what}")

    def kill(self, task_id: str = "job", map_index: int = -1, *, task: bool = True, supervisor: bool = False) -> None:
        """SIGKILL the task's process, what supervises it, or both."""
        found = self.af.task_process(self.dag_id, self.run_id, task_id, map_index)
        for pid in [found.supervisor_pid] * supervisor + [found.pid] * task:
            os.kill(pid, signal.SIGKILL)

    def mark(self, state: str, task_id: str = "job") -> None:
        self.af.set_task_state(self.dag_id, self.run_id, task_id, state)

    def mark_run(self, state: str) -> None:
        self.af.set_run_state(self.dag_id, self.run_id, state)

    def clear(self, *task_ids: str, **more: Any) -> None:
        self.af.clear(self.dag_id, self.run_id, task_ids or None, **more)

    def delete(self) -> None:
        """While its tasks are at work; Airflow deletes no run that it has as running."""
        self.mark_run("failed")
        self.af.api.call("DELETE", f"dags/{self.dag_id}/dagRuns/{self.run_id}")
