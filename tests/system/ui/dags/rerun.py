"""A day's job under a lock; it goes on once the file ``gate`` is there."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from airflow_hivelock import HiveLockOperator, HiveUnlockOperator

GATE = Path(os.environ["AIRFLOW_HOME"]) / "gate"

FIRST, LAST = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 31, tzinfo=UTC)

with DAG("rerun", schedule="@daily", start_date=FIRST, end_date=LAST, catchup=False, max_active_runs=3):
    lock = HiveLockOperator(task_id="lock", writes=["dw.rerun/dt={{ ds }}"])
    work = BashOperator(task_id="work", bash_command=f"timeout 600 sh -c \"until [ -e '{GATE}' ]; do sleep 1; done\"")
    unlock = HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
    lock >> work >> unlock
