"""The tasks of most tests: their day, object, owner and DAG; operators that do what a test wants; and their triggers."""

from __future__ import annotations

import subprocess
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_hivelock import HiveLockMixin, HiveLockOperator
from airflow_hivelock.locks.model import WaitsFor
from airflow_hivelock.triggers.lock import HiveLockTrigger
from airflow_hivelock.work import processes
from tests.support.patience import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from airflow_hivelock.locks import Lease, LockManager
    from tests.airflow.triggerer import Triggerer


DAY = datetime(2013, 1, 15, tzinfo=UTC)
OBJECT = "dw.delays/dt=2013-01-15"
NAMES: dict[str, Any] = {"writes": ["dw.delays/dt={{ ds }}"]}
"""*OBJECT* in a run of that day."""

OWNER = "here/dag/run/lock/-1"
"""Of the task that :func:`context`, :func:`lock` and the triggers are of."""

OVER = ["failed", "skipped", "upstream_failed", "removed", None]
ALIVE = ["deferred", "running", "queued", "scheduled", "restarting", "up_for_retry", "up_for_reschedule"]
"""States of a task; None: Airflow does not know it."""


def dag(name: str = "works", **options: Any) -> DAG:
    return DAG(name, schedule=None, start_date=DAY, **options)


def holders(manager: LockManager) -> list[str]:
    return [holder.owner for holder in manager.show(OBJECT)]


@contextmanager
def orphan(run_id: str, task_id: str) -> Iterator[None]:
    """A process that a task of DAG ``dag`` has left on this host, with Airflow's marks."""
    marks = {"AIRFLOW_CTX_DAG_ID": "dag", "AIRFLOW_CTX_DAG_RUN_ID": run_id, "AIRFLOW_CTX_TASK_ID": task_id}
    shell = ["/bin/sh", "-c", "sleep 300 > /dev/null 2>&1 & echo $!"]
    left = subprocess.run(shell, env=marks, check=True, stdout=subprocess.PIPE, timeout=60)
    try:
        yield
    finally:
        psutil.Process(int(left.stdout)).kill()
        until(lambda: not processes.started("dag", run_id), "the end of a killed process")


# Operators.


class Plain(EmptyOperator):
    def execute(self, context: Any) -> None:
        self.act()  # type: ignore[attr-defined]


class Acts(HiveLockMixin, Plain):
    """Calls *act* as its work."""

    def __init__(self, *, act: Callable[[], Any] = lambda: None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.act = act


class Work(BaseOperator):
    """Does what the test says; ``on_kill`` stops it."""

    def __init__(
        self, *, act: Callable[[Work], Any] = lambda _: None, at_stop: Callable[[], Any] = lambda: None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.act = act
        self.at_stop = at_stop
        self.stopped = threading.Event()
        self.kills: list[str] = []

    def execute(self, context: Any) -> Any:
        return self.act(self)

    def on_kill(self) -> None:
        self.at_stop()
        self.kills.append(threading.current_thread().name)
        self.stopped.set()


class LockedWork(HiveLockMixin, Work):
    pass


class Defers(BaseTrigger):
    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Defers", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent("go on")  # type: ignore[no-untyped-call]


# One task in a worker's process, and its trigger.


def context(task_id: str = "lock") -> Any:
    return {"ti": SimpleNamespace(dag_id="dag", run_id="run", task_id=task_id, map_index=-1, try_number=1)}


def lock(cls: Any = HiveLockOperator, **options: Any) -> Any:
    with dag("dag"):
        return cls(**{"task_id": "lock", **NAMES, **options})


def trigger(**options: Any) -> HiveLockTrigger:
    """The trigger that a lock task's worker defers to."""
    given = {"hivelock_conn_id": "hivelock_default", "reads": [], "writes": [OBJECT], "lease_s": 60.0, "owner": OWNER}
    return HiveLockTrigger(**{**given, "attempt": 1, **options})


def work_trigger(**options: Any) -> HiveLockTrigger:
    """The trigger that the worker of a task that locks and works in one defers to for the first time."""
    return trigger(**{"ends_task": False, "round_number": 1, **options})


def on_worker(event: Any, **options: Any) -> Any:
    """What becomes of such a task that its trigger has resumed with *event*."""
    return Acts(task_id="lock", writes=[OBJECT], **options).execute_locked(context(), event)


def away(manager: LockManager) -> list[str]:
    """The deferred requests."""
    return [waiter.owner for waiter in manager.waiters() if waiter.waits_for is WaitsFor.SLOT]


def other(manager: LockManager, owner: str = "somebody") -> Lease:
    """The lease of another owner in its way."""
    return manager.acquire(owner=owner, writes=[OBJECT])


async def start_waiting(triggerer: Triggerer, manager: LockManager) -> int:
    trigger_id = await triggerer.start(lock(), logical_date=DAY)
    await triggerer.until(manager.waiters, "a waiter")
    return trigger_id


async def start_granted(triggerer: Triggerer, manager: LockManager) -> int:
    trigger_id = await triggerer.start(lock(), logical_date=DAY)
    await triggerer.event(trigger_id)
    return trigger_id
