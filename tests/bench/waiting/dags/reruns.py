"""A rerun over a locked partition, in each way to wait, one that waits for time, and a DAG that has nothing to do with it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import DAG, BaseOperator, task
from airflow.triggers.base import StartTriggerArgs

from airflow_hivelock import HiveLockOperator
from tests.bench.jobs import slept_for

LOCKED = ["dw.flights/dt=2013-01-15"]
MANY: dict[str, Any] = {"schedule": None, "max_active_runs": 5_000, "max_active_tasks": 5_000}


class SleepAndRetry(BaseOperator):
    """Sleeps and tries again in its slot until it has its locks."""

    def execute(self, context: Any) -> None:
        slept_for(context, reads=LOCKED)


class WaitsForTime(BaseOperator):
    """Waits in the triggerer from its start, as this package's tasks do, but only for time: the cost of Airflow itself."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_from_trigger = True
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=f"{TimeDeltaTrigger.__module__}.{TimeDeltaTrigger.__name__}",
            trigger_kwargs={"delta": timedelta(days=1)},
            next_method="execute",
        )

    def execute(self, context: Any, event: Any = None) -> None:
        pass


with DAG("rerun_timedelta", **MANY):
    WaitsForTime(task_id="lock")

with DAG("rerun_sleep", **MANY):
    SleepAndRetry(task_id="lock")

for way in ("poke", "reschedule", "defer", "trigger"):
    with DAG(f"rerun_{way}", **MANY):
        HiveLockOperator(task_id="lock", reads=LOCKED, waiting=way)

with DAG("one_by_one", **MANY):
    HiveLockOperator(task_id="lock", writes=LOCKED)

with DAG("unrelated", **MANY):

    @task
    def work() -> None:
        """Anything."""

    work()
