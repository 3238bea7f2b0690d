"""Work on Google's Dataproc: jobs of a cluster, and batches without one.

Each is asked for in the project and the region that it was submitted in, whatever the connection says by now. There only
what has ended can be deleted (jobs.delete and batches.delete answer FAILED_PRECONDITION otherwise), so that one that is
not found has ended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.asking import ANSWER_S
from airflow_hivelock.work.jobs import trust
from airflow_hivelock.work.jobs.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_OPERATORS = "airflow.providers.google.cloud.operators.dataproc"
_JOB_OVER = {"DONE", "ERROR", "CANCELLED"}
"""ATTEMPT_FAILURE is none: Dataproc starts such a job again."""
_BATCH_OVER = {"SUCCEEDED", "FAILED", "CANCELLED"}
_NAMES = {
    "project": re.compile(r"[A-Za-z0-9][\w.:-]{0,127}"),
    "region": trust.REGION,
    "job_id": re.compile(r"[\w-]{1,128}"),
}
"""What Google calls a project, a region, a job and a batch. They become parts of a host's name and of paths."""


@dataclass(frozen=True)
class DataprocWork(Job):
    """What is asked for through a connection.

    :param impersonation: the service accounts to act as: the operator's ``impersonation_chain``.
    """

    package: ClassVar = "apache-airflow-providers-google"
    conn_types: ClassVar = ("google_cloud_platform",)

    conn_id: str
    impersonation: tuple[str, ...]
    project: str
    region: str
    job_id: str

    def __post_init__(self) -> None:
        if not validate.one_line(self.conn_id, "conn_id"):
            raise ValueError("conn_id is empty")
        for name, pattern in _NAMES.items():
            if not pattern.fullmatch(validate.text(getattr(self, name), name)):
                raise ValueError(f"{name}={getattr(self, name)!r:.80}")
        if not isinstance(self.impersonation, list | tuple):
            raise TypeError(f"impersonation={self.impersonation!r:.80}")
        chain = tuple(validate.one_line(account, "impersonation") for account in self.impersonation)
        object.__setattr__(self, "impersonation", chain)

    @classmethod
    def names_of(cls, operator: Any) -> Iterable[tuple[str, ...]]:
        return [
            ("connection", getattr(operator, "gcp_conn_id", "")),
            ("accounts", *_chain(getattr(operator, "impersonation_chain", None))),
        ]

    def check(self) -> None:
        trust.check_accounts(self.impersonation, self.extra())

    def hook(self) -> Any:
        """Airflow's own, which holds the credentials."""
        hooks = import_module("airflow.providers.google.cloud.hooks.dataproc")
        return hooks.DataprocHook(gcp_conn_id=self.conn_id, impersonation_chain=list(self.impersonation) or None)

    def found(self, ask: Callable[..., Any], **which: str) -> Any:
        """What *ask*, a method of a hook's, finds; None where it says that this, and not its project, is not found.

        Google's own clients would try again for a quarter of an hour.
        """
        try:
            return ask(**which, project_id=self.project, region=self.region, retry=None, timeout=ANSWER_S)
        except Exception as error:
            if getattr(error, "code", None) == 404 and self.job_id in str(error):
                return None
            raise


def _chain(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


@dataclass(frozen=True)
class DataprocJob(DataprocWork):
    """The job that DataprocSubmitJobOperator has submitted to a cluster."""

    kind: ClassVar = "dataproc-job"
    operators: ClassVar[Mapping[str, str]] = {f"{_OPERATORS}.DataprocSubmitJobOperator": "job_id"}

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        given = operator.job.get("reference", {}).get("job_id") if isinstance(operator.job, dict) else None
        if operator.hook is None or not (job_id := operator.job_id or given):
            return None
        project = operator.project_id or operator.hook.project_id
        chain = _chain(operator.impersonation_chain)
        return cls(operator.gcp_conn_id, chain, project, operator.region, job_id)

    def running(self) -> bool:
        job = self.found(self.hook().get_job, job_id=self.job_id)
        return job is not None and job.status.state.name not in _JOB_OVER

    def cancel(self) -> None:
        self.found(self.hook().cancel_job, job_id=self.job_id)

    def __str__(self) -> str:
        return f"Dataproc job {self.job_id} in {self.region} of {self.project}"


@dataclass(frozen=True)
class DataprocBatch(DataprocWork):
    """The batch that DataprocCreateBatchOperator has created.

    :param uuid: tells it from a later one of its name; empty for one that was there before, to which the operator has
        attached itself.
    """

    kind: ClassVar = "dataproc-batch"
    operators: ClassVar[Mapping[str, str]] = {f"{_OPERATORS}.DataprocCreateBatchOperator": "operation"}

    uuid: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.one_line(self.uuid, "uuid")

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        conn_id, chain = operator.gcp_conn_id, _chain(operator.impersonation_chain)
        if operator.operation is not None and operator.operation.metadata:
            made = operator.operation.metadata
            _, project, _, region, _, batch_id = made.batch.split("/")
            return cls(conn_id, chain, project, region, batch_id, made.batch_uuid)
        if operator.batch_id:
            project = operator.project_id or operator.hook.project_id
            return cls(conn_id, chain, project, operator.region, operator.batch_id)
        return None

    def running(self) -> bool:
        batch = self._found(self.hook())
        if batch is not None and batch.state.name == "STATE_UNSPECIFIED":
            raise CannotTell(f"{self}: Dataproc does not say how it is")
        return batch is not None and batch.state.name not in _BATCH_OVER

    def cancel(self) -> None:
        hook = self.hook()
        if (batch := self._found(hook)) is not None:
            client = hook.get_operations_client(region=self.region)
            client.cancel_operation(name=batch.operation, retry=None, timeout=ANSWER_S)

    def __str__(self) -> str:
        return f"Dataproc batch {self.job_id} in {self.region} of {self.project}"

    def _found(self, hook: Any) -> Any:
        batch = self.found(hook.get_batch, batch_id=self.job_id)
        return batch if batch is not None and self.uuid in ("", batch.uuid) else None
