"""Rerun a range of days in one job, under one lease.

The sensor shows the blockers early and locks nothing. The job's own locks protect the data.
Trigger it with ``{"first": "2013-01-01", "last": "2013-01-31"}``.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, Param

from airflow_hivelock import HiveLockedSparkSubmitOperator, HiveLockSensor, release_locks

JOBS = Path(__file__).parent / "jobs"
READS = ["dw.flights/dt={{ params.first }}..{{ params.last }}"]
WRITES = ["dw.delays/dt={{ params.first }}..{{ params.last }}"]

with DAG(
    "flights_range_rerun",
    description=__doc__.partition("\n")[0],
    schedule=None,
    params={
        "first": Param("2013-01-01", type="string", format="date"),
        "last": Param("2013-01-07", type="string", format="date"),
    },
    tags=["hivelock"],
):
    free = HiveLockSensor(task_id="range_is_free", reads=READS, writes=WRITES, timeout=timedelta(hours=12))
    delays = HiveLockedSparkSubmitOperator(
        task_id="delays",
        reads=READS,
        writes=WRITES,
        application=str(JOBS / "daily_delays.py"),
        application_args=["--from", "{{ params.first }}", "--to", "{{ params.last }}"],
        on_failure_callback=release_locks,
    )
    free >> delays
