"""Operators that submit batches to a cluster which is made up, for the tests of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator, ResumableJobMixin
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_hivelock import HiveLockMixin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


CLUSTER: dict[int, str] = {}
"""The state of each job by its id; ids count from 1."""


class Waits(BaseTrigger):
    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Waits", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        CLUSTER[max(CLUSTER)] = "SUCCESS"
        yield TriggerEvent("ended")  # type: ignore[no-untyped-call]


class BatchOperator(ResumableJobMixin, BaseOperator):
    """As Livy's and those of Databricks are: waits for its job, defers to it, or does neither."""

    external_id_key = "batch"
    at: Callable[[str], Any] = staticmethod(lambda _: None)

    def __init__(
        self, *, batch_conn_id: str = "batch_default", deferrable: bool = False, wait: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.batch_conn_id = batch_conn_id
        self.deferrable = deferrable
        self.wait = wait
        self.batch_id: int | None = None

    def execute(self, context: Any) -> Any:
        if not self.deferrable and self.wait:
            return self.execute_resumable(context)
        self.submit_job(context)
        if self.deferrable:
            self.at("defers")
            self.defer(trigger=Waits(), method_name="execute_complete")  # type: ignore[no-untyped-call]
        return None

    def execute_complete(self, context: Any, event: Any) -> None:
        self.at("resumed")

    def submit_job(self, context: Any) -> Any:
        self.at("submits")
        job_id = max(CLUSTER, default=0) + 1
        CLUSTER[job_id] = "RUNNING"
        self.at("submitted")
        self.batch_id = job_id
        self.at("knows")
        return job_id

    def get_job_status(self, external_id: Any, context: Any) -> str:
        if self.batch_conn_id == "away":
            raise ConnectionError("nobody answers")
        return CLUSTER.get(external_id, "NOT_FOUND")

    def is_job_active(self, status: str) -> bool:
        return status == "RUNNING"

    def is_job_succeeded(self, status: str) -> bool:
        return status == "SUCCESS"

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        self.batch_id = external_id
        self.at("polls")
        if CLUSTER[external_id] == "RUNNING":
            CLUSTER[external_id] = "SUCCESS"

    def get_job_result(self, external_id: Any, context: Any) -> None:
        pass

    def on_kill(self) -> None:
        if self.batch_id is not None:
            del CLUSTER[self.batch_id]


class LockedBatch(HiveLockMixin, BatchOperator):
    pass


class Tells(BatchOperator):
    def __init__(self, *, password: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.password = password

    def get_job_status(self, external_id: Any, context: Any) -> str:
        return super().get_job_status(external_id, context)


class LockedTells(HiveLockMixin, Tells):
    pass


def batch(at: Callable[[str], Any], **options: Any) -> None:
    """A task that calls *at* with the name of each moment of its work."""
    LockedBatch(task_id="job", **options).at = at


PATH = f"{__name__}.BatchOperator"
