r"""Compute the delays of a day. The task locks the day's flights to read them, and the day's delays to write them.

A rerun over a date range is an ordinary backfill of this DAG::

    airflow backfill create --dag-id flights_daily --from-date 2013-01-01 --to-date 2013-01-31 \
        --reprocess-behavior completed --max-active-runs 20

A run that meets a lock waits in the triggerer, and uses no worker slot. So a month of runs can wait for one Hive session
while all other DAGs continue. Only the days being processed are locked. The daily run goes before the rerun.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG

from airflow_hivelock import (
    BackfillsLast,
    HiveLockedSparkSubmitOperator,
    HiveLockOperator,
    HiveUnlockOperator,
    release_locks,
)

JOBS = Path(__file__).parent / "jobs"

with DAG(
    "flights_daily",
    description=__doc__.partition("\n")[0],
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 12, 31, tzinfo=UTC),
    catchup=False,
    max_active_runs=20,
    default_args={"weight_rule": BackfillsLast()},  # a daily run gets a worker slot before the runs of a backfill
    tags=["hivelock"],
):
    lock = HiveLockOperator(
        task_id="lock",
        reads=["dw.flights/dt={{ ds }}"],
        writes=["dw.delays/dt={{ ds }}"],
        max_leases=2,  # as many jobs as the cluster runs; without it, all days could be locked at once
    )
    delays = HiveLockedSparkSubmitOperator(
        task_id="delays",
        lease=lock.output,
        application=str(JOBS / "daily_delays.py"),
        application_args=["--dt", "{{ ds }}"],
        on_success_callback=release_locks,
        on_failure_callback=release_locks,
    )
    # A callback releases at once. If none runs, because the task was killed, the teardown releases.
    unlock = HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
    lock.as_setup() >> delays >> unlock
