"""Jobs that lock a whole table and work in one task; a daily run of higher weight, an ALTER TABLE, and tasks that only take slots."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from tests.bench.contention.scenes import ALTER, BUSY, CROWD, DAILY, POOL, URGENT
from tests.bench.jobs import LockedJob, noting, work

for _dag_id, _weight in ((CROWD, 1), (DAILY, URGENT), (ALTER, 1), (BUSY, 2 * URGENT)):
    with DAG(
        _dag_id,
        schedule=None,
        start_date=datetime(2013, 1, 1, tzinfo=UTC),
        max_active_runs=2_000,
        max_active_tasks=2_000,
        default_args={"priority_weight": _weight, "pool": POOL},
    ):
        if _dag_id == BUSY:
            BashOperator(task_id="job", bash_command=f"sleep {os.environ['BENCH_BUSY_S']}")
        else:
            LockedJob(
                writes=["dw.t{{ ds_nodash }}"],
                pre_execute=noting("start", "all", "run_id"),
                **work("all", "{{ run_id }}", "{{ run_id }}"),
            )
