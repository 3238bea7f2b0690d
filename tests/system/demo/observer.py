"""Watches Airflow and the lock store from outside, once a second: who used a slot while waiting, since when each waits, and
how late the unrelated DAG was."""

from __future__ import annotations

import statistics
import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.support.airflow_server import AirflowServer

WAITING_TASKS = {"lock", "range_is_free"}
"""Tasks that do nothing but wait."""

IN_A_SLOT = {"queued", "running", "restarting"}


@dataclass
class Observer:
    """Samples until its ``with`` block is left.

    :ivar waited_in_slot: how often it has seen each task that only waits, by DAG, run and task, in a worker's slot.
    :ivar asked: by owner, since when it waits: for its locks, and then for a worker slot.
    """

    airflow: AirflowServer
    locks: LockManager
    waited_in_slot: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    waiting: int = 0
    most_waiting: int = 0
    samples: int = 0
    asked: dict[str, datetime] = field(default_factory=dict)

    def __enter__(self) -> Observer:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer")
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def states(self, dag_id: str, task_id: str) -> Counter[str]:
        """The number of instances of the task in each state."""
        return Counter(str(task.state) for task in self.airflow.task_instances(dag_id, task_id=task_id))

    def unrelated(self, since: datetime, until: datetime) -> list[tuple[str, float]]:
        """Of each run of the unrelated DAG that was due in that time: its state, and how late it began, in seconds.

        One that has not begun is late up to now.
        """
        runs = [
            run for run in self.airflow.runs("unrelated") if run.logical_date and since <= run.logical_date <= until
        ]
        began = {task.run_id: task.start for task in self.airflow.task_instances("unrelated", task_id="work")}
        now = datetime.now(UTC)
        return [
            (run.state, ((began.get(run.run_id) or now) - run.logical_date).total_seconds())
            for run in runs
            if run.logical_date
        ]

    def _run(self) -> None:
        while not self._over.wait(1.0):
            try:
                tasks = self.airflow.task_instances()
            except sa.exc.OperationalError:
                continue  # the database is being written; the next sample comes in a second
            for waiter in self.locks.waiters():
                self.asked[waiter.owner] = min(waiter.since, self.asked.get(waiter.owner, waiter.since))
            self.samples += 1
            self.waiting = sum(task.state == "deferred" for task in tasks)
            self.most_waiting = max(self.most_waiting, self.waiting)
            self.waited_in_slot.update(
                (task.dag_id, task.run_id, task.task_id)
                for task in tasks
                if task.task_id in WAITING_TASKS and task.state in IN_A_SLOT
            )


def summary(delays_s: list[float]) -> str:
    """Median and maximum, as text."""
    return f"median {statistics.median(delays_s):.1f} s, longest {max(delays_s):.1f} s, {len(delays_s)} starts"
