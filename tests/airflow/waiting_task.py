"""A deferred task of one DAG, its trigger, and the lease of another owner in its way."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from airflow_hivelock import HiveLockOperator
from airflow_hivelock.triggers.lock import HiveLockTrigger

if TYPE_CHECKING:
    from airflow_hivelock.locks import Lease, LockManager
    from tests.airflow.triggerer import Triggerer


DAY = datetime(2013, 1, 15, tzinfo=UTC)
OBJECT = "dw.delays/dt=2013-01-15"
OWNER = "here/dag/run/lock/-1"


def lock(cls: Any = HiveLockOperator, **options: Any) -> Any:
    with DAG("dag", schedule=None, start_date=DAY):
        return cls(**{"task_id": "lock", "writes": ["dw.delays/dt={{ ds }}"], **options})


def trigger(**options: Any) -> HiveLockTrigger:
    """The trigger that a worker defers to."""
    given = {"hivelock_conn_id": "hivelock_default", "reads": [], "writes": [OBJECT], "lease_s": 60.0, "owner": OWNER}
    return HiveLockTrigger(**{**given, "attempt": 1, **options})


def other(manager: LockManager, owner: str = "somebody") -> Lease:
    return manager.acquire(owner=owner, writes=[OBJECT])


async def start_waiting(triggerer: Triggerer, manager: LockManager) -> int:
    trigger_id = await triggerer.start(lock(), logical_date=DAY)
    await triggerer.until(manager.waiters, "a waiter")
    return trigger_id


async def start_granted(triggerer: Triggerer, manager: LockManager) -> int:
    trigger_id = await triggerer.start(lock(), logical_date=DAY)
    await triggerer.event(trigger_id)
    return trigger_id


OVER = ["failed", "skipped", "upstream_failed", "removed", None]
ALIVE = ["deferred", "running", "queued", "scheduled", "restarting", "up_for_retry", "up_for_reschedule"]
