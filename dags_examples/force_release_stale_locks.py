"""Free the locks that dead runs have left behind, and say which, whose and why.

Stale is a lease of this Airflow's own whose task and run are over, or unknown, under which nothing runs any more, and
which has rested for the grace time. Because of this DAG the triggerer always runs the keeper, which frees most of them
within a minute. What runs on a Celery worker's host is told there: name in ``QUEUES`` the queues that one host each serves,
and each gets a task. The DAG starts for those that the keeper cannot judge, and twice a day besides. Trigger it with
``{"dry_run": true}`` to be told what it would free, and free nothing.
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
"""Of workers that serve a queue of their own: ``airflow celery worker --queues default,worker-7``."""

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
        "dry_run": Param(False, type="boolean", description="only say what would be freed"),
        "grace_minutes": Param(5, type="number", minimum=0, description="leave alone what is younger than this"),
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
