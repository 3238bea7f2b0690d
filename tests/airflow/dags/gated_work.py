"""Work under locks that runs until its gate opens. The gate is a file with the name of the run."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset, AssetWatcher, BaseOperator, Variable

from airflow_hivelock import (
    HiveForceUnlockOperator,
    HiveLockMixin,
    HiveLockOperator,
    HiveLockSensor,
    HiveUnlockOperator,
    release_locks,
)
from airflow_hivelock.triggers.keeper import HiveLockKeeper

START = datetime(2013, 1, 1, tzinfo=UTC)
WORK_TIMEOUT_S = 120
OPTIONS: dict[str, Any] = {"schedule": None, "start_date": START, "params": {"table": "dw.delays"}}
NAMES: dict[str, Any] = {"reads": ["dw.flights/dt=2013-01-15"], "writes": ["{{ params.table }}/dt=2013-01-15"]}


def pass_gate(run_id: str) -> None:
    deadline = time.monotonic() + WORK_TIMEOUT_S
    while not (Path(Variable.get("gates")) / run_id).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody opened the gate of {run_id}")
        time.sleep(0.1)


class Gate(BaseOperator):
    def execute(self, context: Any) -> None:
        pass_gate(context["run_id"])


class Locked(HiveLockMixin, Gate):
    """Passes its gate under locks of its own."""

    work_ends_with_process = True


with DAG("chain", **OPTIONS):
    lock = HiveLockOperator(task_id="lock", **NAMES)
    lock >> Gate(task_id="job") >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)

with DAG("single", **OPTIONS):
    Locked(task_id="work", **NAMES)


class LockedBash(HiveLockMixin, BashOperator):
    pass


# The started process outlives its task, as spark-submit does. It writes its process id, and waits at the gate too.
SHELL = """
echo $$ >> {{ var.value.gates }}/{{ run_id }}.pids
until [ -e {{ var.value.gates }}/{{ run_id }} ]; do sleep 0.1; done
"""

with DAG("shell", **OPTIONS):
    LockedBash(task_id="work", bash_command=SHELL, **NAMES)

with DAG("shell_again", **OPTIONS):
    LockedBash(task_id="work", bash_command=SHELL, retries=1, retry_delay=timedelta(0), **NAMES)

with DAG("called_back", on_failure_callback=release_locks, **OPTIONS):
    Locked(task_id="work", **NAMES)

with DAG("senses", **OPTIONS):
    HiveLockSensor(task_id="free", reads=NAMES["writes"])

with DAG("unrelated", **OPTIONS):
    BashOperator(task_id="nothing", bash_command="true")

with DAG("kept", **OPTIONS):
    HiveLockOperator(task_id="lock", lease_duration=timedelta(seconds=3), **NAMES) >> Gate(task_id="job")

SUSPECTS = Asset("suspects", watchers=[AssetWatcher(name="keeper", trigger=HiveLockKeeper(every_s=1))])

with DAG("frees", **OPTIONS | {"schedule": [SUSPECTS]}):
    HiveForceUnlockOperator(task_id="force", min_age=timedelta(0), objects=["dw.kept"])

with DAG("force", **OPTIONS):
    HiveForceUnlockOperator(task_id="force", min_age=timedelta(0), objects=["{{ params.table }}"])
