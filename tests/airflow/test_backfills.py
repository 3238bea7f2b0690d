"""The daily run of a DAG goes before the runs of a backfill of the same DAG."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.providers.standard.operators.empty import EmptyOperator

from airflow_hivelock import BackfillsLast, HiveLockOperator
from airflow_hivelock.locks.model import LeaseLimit
from tests.airflow.tasks import DAY, OBJECT, Acts, dag, lock
from tests.support.airflow_names import DagSerialization

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow.triggerer import Triggerer

BACKFILL = ["backfill__2012-06-01T00:00:00+00:00", "backfill__2012-06-02T00:00:00+00:00"]
DAILY = "scheduled__2013-01-15T00:00:00+00:00"


@pytest.mark.parametrize("cls", [Acts, HiveLockOperator])
@pytest.mark.parametrize("terms", [{}, {"max_leases": 1}], ids=["the table", "a lease of the DAG"])
async def test_a_daily_run_waits_before_the_runs_of_a_backfill(
    cls: Any, terms: dict[str, Any], manager: LockManager, triggerer: Triggerer
) -> None:
    limit = LeaseLimit("dag", 1) if terms else None
    held = manager.acquire(owner="the first day", writes=[OBJECT], limit=limit)

    def waiting(run_id: str) -> bool:
        return any(run_id in waiter.owner for waiter in manager.waiters())

    triggers = []
    for run_id in (*BACKFILL, DAILY):
        task = lock(cls, priority_weight=10, **terms)
        triggers.append(await triggerer.start(task, logical_date=DAY, run_id=run_id))
        await triggerer.until(partial(waiting, run_id), f"{run_id} to wait")
    waiters = sorted(manager.waiters(), key=lambda waiter: waiter.position)
    assert [(waiter.owner.split("/")[2], waiter.priority) for waiter in waiters] == [
        (DAILY, 10),
        *((run_id, 0) for run_id in BACKFILL),
    ]
    triggerer.states = {"lock": "failed"}
    for trigger in triggers:
        await triggerer.user_acts(trigger)
    manager.release(held)


def test_the_scheduler_gives_it_the_next_worker_slot() -> None:
    with dag("works") as works:
        EmptyOperator(task_id="work", priority_weight=10, weight_rule=BackfillsLast())
        EmptyOperator(task_id="later", priority_weight=-5, weight_rule=BackfillsLast())
    stored = DagSerialization.from_dict(DagSerialization.to_dict(works))

    def weights(run_id: str) -> list[int | None]:
        found = []
        for task in map(stored.get_task, ("work", "later")):
            ti = TaskInstance(task=task, run_id=run_id, dag_version_id=None)
            ti.refresh_from_task(task)  # before Airflow 3.3 a new instance does not know its run yet
            found.append(ti.priority_weight)
        return found

    assert weights(DAILY) == [10, -5]
    assert weights(BACKFILL[0]) == [0, -5]
