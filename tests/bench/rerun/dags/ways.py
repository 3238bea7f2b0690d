"""The same rerun with each way to lock its days, and for each way a daily run of the same table with a higher priority."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from airflow_hivelock import HiveLockHook, HiveLockMixin, HiveLockOperator, HiveUnlockOperator, release_locks
from airflow_hivelock.locks import LockTimeout
from airflow_hivelock.spec import Owner
from tests.bench.rerun import job
from tests.bench.rerun.ways import HIVES_SLEEP_S, POOL, URGENT, WAYS, Kind, Way

SCRATCH = Path(os.environ["RERUN_SCRATCH"])
JOB_S = os.environ["RERUN_JOB_S"]


class LockedJob(HiveLockMixin, BashOperator):
    """One task that locks, works and frees."""


class SleepAndRetry(BashOperator):
    """A Hive client with ``hive.lock.sleep.between.retries`` at its default: it sleeps in the worker's slot."""

    template_fields = (*BashOperator.template_fields, "writes")

    def __init__(self, *, writes: list[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.writes = writes

    def execute(self, context: Any) -> Any:
        hook = HiveLockHook()
        owner = str(Owner.of(hook.installation, context["ti"]))
        while True:
            try:
                lease = hook.manager().acquire(owner=owner, writes=self.writes)
                break
            except LockTimeout:
                time.sleep(HIVES_SLEEP_S)
        try:
            return super().execute(context)
        finally:
            hook.manager().release(lease)


def started(context: Any) -> None:
    """Note that a worker has started a task, also after it was deferred."""
    way = context["dag"].dag_id.removesuffix("_daily")
    job.note(SCRATCH / f"{way}.notes", "start", context["ds"])


def ended(context: Any, result: Any = None) -> None:
    """Note that the task before the job has ended."""
    job.note(SCRATCH / f"{context['dag'].dag_id.removesuffix('_daily')}.notes", "first", context["ds"])


def work(way: Way) -> dict[str, Any]:
    script = f"{sys.executable} -IS {job.__file__}"
    partition = f"{SCRATCH}/{way.table}/dt={{{{ ds }}}}"
    return {
        "task_id": "job",
        "bash_command": f"exec {script} {SCRATCH}/{way.name}.notes {{{{ ds }}}} {JOB_S} {partition}",
        "pre_execute": started,
        "pool": POOL,
    }


def tasks(way: Way, rerun: bool) -> None:
    """Those of a day.

    :param rerun: whether *way* bounds its leases; its daily run is not bounded.
    """
    writes = [f"{way.table}/dt={{{{ ds }}}}"]
    match way.kind:
        case Kind.UNLOCKED:
            BashOperator(**work(way))
        case Kind.STEPS:
            first = BashOperator(task_id="first", bash_command="true", pre_execute=started, post_execute=ended)
            first >> BashOperator(**work(way))
        case Kind.SLEEP:
            SleepAndRetry(writes=writes, **work(way))
        case Kind.ONE_TASK:
            LockedJob(writes=writes, **work(way))
        case Kind.CHAIN:
            most = way.max_leases if rerun else None
            lock = HiveLockOperator(task_id="lock", writes=writes, max_leases=most, pre_execute=started)
            called: dict[str, Any] = {"on_success_callback": release_locks, "on_failure_callback": release_locks}
            chained = LockedJob(lease=lock.output, **called, **work(way))
            unlock = HiveUnlockOperator(task_id="unlock", pre_execute=started).as_teardown(setups=lock)
            lock >> chained >> unlock


for _way in WAYS:
    for _dag_id, _weight in ((_way.name, 1), (f"{_way.name}_daily", URGENT)):
        with DAG(
            _dag_id,
            schedule=None,
            start_date=datetime(2013, 1, 1, tzinfo=UTC),
            max_active_runs=1_000,
            max_active_tasks=1_000,
            default_args={"priority_weight": _weight},
        ):
            tasks(_way, rerun=_dag_id == _way.name)
