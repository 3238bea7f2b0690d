"""A task that locks and works in one: the trigger that it defers to, and its call on a worker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.model import WaitsFor
from airflow_hivelock.triggers.lock import HiveLockTrigger
from tests.airflow.acts import Acts

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager

OBJECT = "dw.delays/dt=2013-01-15"
OWNER = "here/dag/run/lock/-1"


def on_worker(event: Any, **options: Any) -> Any:
    """What becomes of a task that its trigger has resumed with *event*."""
    ti = SimpleNamespace(dag_id="dag", run_id="run", task_id="lock", map_index=-1, try_number=1)
    return Acts(task_id="lock", writes=[OBJECT], **options).execute_locked({"ti": ti}, event)


def trigger(**options: Any) -> HiveLockTrigger:
    """The trigger that a worker defers to for the first time."""
    arguments = {
        "hivelock_conn_id": "hivelock_default",
        "reads": [],
        "writes": [OBJECT],
        "lease_s": 60.0,
        "owner": OWNER,
    }
    return HiveLockTrigger(**{**arguments, "attempt": 1, "ends_task": False, "round_number": 1, **options})


def away(manager: LockManager) -> list[str]:
    """The deferred requests."""
    return [waiter.owner for waiter in manager.waiters() if waiter.waits_for is WaitsFor.SLOT]
