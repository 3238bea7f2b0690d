"""Free the locks that dead runs have left, and report each lease with its owner and the reason.

A lease is stale if it belongs to this Airflow, its task and its run have ended or are unknown, none of its work runs, and
it is older than ``grace_minutes``. While this DAG is active, the triggerer runs the keeper, which frees most stale leases
within a minute. The DAG starts for the leases that the keeper cannot check, and every twelve hours. Only a task on the same
host can check the processes of a Celery worker: name the queue of each host in ``QUEUES``, and each queue gets a task.
Trigger the DAG with ``{"dry_run": true}`` to list the stale leases and free none.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Param

from airflow_hivelock import HiveForceUnlockOperator
from airflow_hivelock.triggers.keeper import SUSPECT_LEASES

try:
    from airflow.sdk import AssetOrTimeSchedule, DeltaTriggerTimetable
except ImportError:  # before Airflow 3.2
    from airflow.timetables.assets import AssetOrTimeSchedule  # type: ignore[assignment]
    from airflow.timetables.trigger import DeltaTriggerTimetable  # type: ignore[assignment]

QUEUES: list[str] = []
"""The queues of single hosts: ``airflow celery worker --queues default,worker-7``."""

with DAG(
    "force_release_stale_locks",
    description=__doc__.partition("\n")[0],
    schedule=AssetOrTimeSchedule(timetable=DeltaTriggerTimetable(timedelta(hours=12)), assets=[SUSPECT_LEASES]),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=False,  # paused, it would run no keeper
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},  # the first run may come before the API server
    render_template_as_native_obj=True,
    params={
        "dry_run": Param(False, type="boolean", description="only list what would be freed"),
        "grace_minutes": Param(5, type="number", minimum=0, description="do not free younger leases"),
    },
    tags=["hivelock"],
):
    arguments: dict[str, Any] = {
        "dry_run": "{{ params.dry_run }}",
        "min_age": "{{ macros.timedelta(minutes=params.grace_minutes) }}",
        "reason": "the run that held it is over",
    }
    HiveForceUnlockOperator(task_id="force_release", **arguments)
    for queue in QUEUES:
        HiveForceUnlockOperator(task_id=f"force_release_on_{queue}", queue=queue, **arguments)
