"""The same rerun with each way to lock its days, and for each way a daily run of the same table with a higher priority."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from airflow_hivelock import HiveLockHook, HiveLockOperator, HiveUnlockOperator, release_locks
from tests.bench import jobs
from tests.bench.rerun.ways import POOL, URGENT, WAYS, Kind, Way


class SleepAndRetry(BashOperator):
    """Sleeps and tries again in its slot until it has its locks, and works."""

    template_fields = (*BashOperator.template_fields, "writes")

    def __init__(self, *, writes: list[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.writes = writes

    def execute(self, context: Any) -> Any:
        lease = jobs.slept_for(context, writes=self.writes)
        try:
            return super().execute(context)
        finally:
            HiveLockHook().manager().release(lease)


def tasks(way: Way, rerun: bool) -> None:
    """Those of a day.

    :param rerun: whether *way* bounds its leases; its daily run is not bounded.
    """
    writes = [f"{way.table}/dt={{{{ ds }}}}"]
    started: dict[str, Any] = {"pre_execute": jobs.noting("start", way.name, "ds")}
    work = {**jobs.work(way.name, "{{ ds }}", writes[0]), **started, "pool": POOL}
    match way.kind:
        case Kind.UNLOCKED:
            BashOperator(**work)
        case Kind.STEPS:
            ended = jobs.noting("first", way.name, "ds")
            BashOperator(task_id="first", bash_command="true", post_execute=ended, **started) >> BashOperator(**work)
        case Kind.SLEEP:
            SleepAndRetry(writes=writes, **work)
        case Kind.ONE_TASK:
            jobs.LockedJob(writes=writes, **work)
        case Kind.CHAIN:
            most = way.max_leases if rerun else None
            lock = HiveLockOperator(task_id="lock", writes=writes, max_leases=most, **started)
            called: dict[str, Any] = {"on_success_callback": release_locks, "on_failure_callback": release_locks}
            chained = jobs.LockedJob(lease=lock.output, **called, **work)
            unlock = HiveUnlockOperator(task_id="unlock", **started).as_teardown(setups=lock)
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
