"""The same day's job, capped in each of the ways."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from airflow_hivelock import HiveLockMixin
from tests.bench.caps.ways import WAYS
from tests.bench.rerun import job

SCRATCH = Path(os.environ["CAPS_SCRATCH"])
JOB_S = os.environ["CAPS_JOB_S"]


class LockedJob(HiveLockMixin, BashOperator):
    """One task that locks, works and frees."""


for _way in WAYS:
    _options: dict[str, Any] = {"max_active_runs": 100, "max_active_tasks": 100, **_way.dag}
    with DAG(_way.name, schedule=None, start_date=datetime(2013, 1, 1, tzinfo=UTC), **_options):
        _partition = f"{SCRATCH}/{_way.table}/dt={{{{ ds }}}}"
        LockedJob(
            task_id="job",
            writes=[f"{_way.table}/dt={{{{ ds }}}}"],
            bash_command=f"exec {sys.executable} -IS {job.__file__} {SCRATCH}/{_way.name}.notes {{{{ ds }}}} {JOB_S} {_partition}",
            **_way.task,
        )
