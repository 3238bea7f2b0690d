"""Jobs that lock a whole table and work in one task; a daily run of higher weight, an ALTER TABLE, and tasks that only take slots."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from airflow_hivelock import HiveLockMixin
from tests.bench.contention.scenes import ALTER, BUSY, CROWD, DAILY, POOL, URGENT
from tests.bench.rerun import job

SCRATCH = Path(os.environ["CONTENTION_SCRATCH"])
JOB_S = os.environ["CONTENTION_JOB_S"]
BUSY_S = os.environ["CONTENTION_BUSY_S"]


class LockedJob(HiveLockMixin, BashOperator):
    """One task that locks, works and frees."""


def started(context: Any) -> None:
    """Note that a worker has started the task, also after it was deferred."""
    job.note(SCRATCH / "notes", "start", context["run_id"])


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
            BashOperator(task_id="job", bash_command=f"sleep {BUSY_S}")
        else:
            LockedJob(
                task_id="job",
                writes=["dw.t{{ ds_nodash }}"],
                bash_command=f"exec {sys.executable} -IS {job.__file__} {SCRATCH}/notes {{{{ run_id }}}} {JOB_S} "
                f"{SCRATCH}/{{{{ run_id }}}}",
                pre_execute=started,
            )
