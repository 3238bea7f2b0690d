"""Work on Google's Dataproc: jobs of a cluster, and batches without one.

Each question goes to the project and the region of the submission, even if the connection has changed. Dataproc deletes
only work that has ended: otherwise jobs.delete and batches.delete answer FAILED_PRECONDITION. So missing work has
ended.
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
from airflow_hivelock.work.jobs.job import NOT_FOUND, Job, filled, lines, several

if TYPE_CHECKING:
    from collections.abc import Callable

_OPERATORS = "airflow.providers.google.cloud.operators.dataproc"
_JOB_OVER = {"DONE", "ERROR", "CANCELLED"}
"""ATTEMPT_FAILURE is not an end: Dataproc starts such a job again."""
_BATCH_OVER = {"SUCCEEDED", "FAILED", "CANCELLED"}


@dataclass(frozen=True)
class DataprocWork(Job):
    """The base class of work on Dataproc.

    :param impersonation: the service accounts to act as: the operator's ``impersonation_chain``.
    """

    package: ClassVar = "apache-airflow-providers-google"
    conn_types: ClassVar = ("google_cloud_platform",)
    own: ClassVar = {"connection": "gcp_conn_id", "accounts": "impersonation_chain"}
    # Project, region and id become parts of a host's name and of paths.
    checks: ClassVar = {
        "conn_id": filled,
        "impersonation": lines,
        "project": re.compile(r"[A-Za-z0-9][\w.:-]{0,127}"),
        "region": trust.REGION,
        "job_id": re.compile(r"[\w-]{1,128}"),
    }

    conn_id: str
    impersonation: tuple[str, ...]
    project: str
    region: str
    job_id: str

    @classmethod
    def by(cls, operator: Any, job_id: str) -> Self:
        """Return the work of *operator* with that id."""
        chain, project = several(operator.impersonation_chain or ()), operator.project_id or operator.hook.project_id
        return cls(operator.gcp_conn_id, chain, project, operator.region, job_id)

    def check(self) -> None:
        trust.check_accounts(self.impersonation, self.extra())

    def hook(self) -> Any:
        """Return Airflow's own hook, which holds the credentials."""
        hooks = import_module("airflow.providers.google.cloud.hooks.dataproc")
        return hooks.DataprocHook(gcp_conn_id=self.conn_id, impersonation_chain=list(self.impersonation) or None)

    def found(self, ask: Callable[..., Any], **which: str) -> Any:
        """Return the answer of *ask*, a method of a hook. None if the work does not exist, although its project does.

        The call does not retry, because Google's own clients would retry for a quarter of an hour.
        """
        try:
            return ask(**which, project_id=self.project, region=self.region, retry=None, timeout=ANSWER_S)
        except Exception as error:
            if getattr(error, "code", None) == NOT_FOUND and self.job_id in str(error):
                return None
            raise


@dataclass(frozen=True)
class DataprocJob(DataprocWork):
    """The job that DataprocSubmitJobOperator has submitted to a cluster."""

    kind: ClassVar = "dataproc-job"
    operators: ClassVar = {f"{_OPERATORS}.DataprocSubmitJobOperator": "job_id"}
    shown: ClassVar = "Dataproc job {job_id} in {region} of {project}"

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        given = operator.job.get("reference", {}).get("job_id") if isinstance(operator.job, dict) else None
        job_id = operator.job_id or given
        return cls.by(operator, job_id) if job_id and operator.hook is not None else None

    def running(self) -> bool:
        job = self.found(self.hook().get_job, job_id=self.job_id)
        return job is not None and job.status.state.name not in _JOB_OVER

    def cancel(self) -> None:
        self.found(self.hook().cancel_job, job_id=self.job_id)


@dataclass(frozen=True)
class DataprocBatch(DataprocWork):
    """The batch that DataprocCreateBatchOperator has created.

    :param uuid: the batch's uuid, because a later batch can have the same name. Empty if the operator has attached
        itself to an existing batch.
    """

    kind: ClassVar = "dataproc-batch"
    operators: ClassVar = {f"{_OPERATORS}.DataprocCreateBatchOperator": "operation"}
    checks: ClassVar = {**DataprocWork.checks, "uuid": validate.one_line}
    shown: ClassVar = "Dataproc batch {job_id} in {region} of {project}"

    uuid: str = ""

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        if operator.operation is not None and operator.operation.metadata:
            made = operator.operation.metadata
            _, project, _, region, _, batch_id = made.batch.split("/")
            chain = several(operator.impersonation_chain or ())
            return cls(operator.gcp_conn_id, chain, project, region, batch_id, made.batch_uuid)
        return cls.by(operator, operator.batch_id) if operator.batch_id else None

    def running(self) -> bool:
        batch = self._found(self.hook())
        if batch is not None and batch.state.name == "STATE_UNSPECIFIED":
            raise CannotTell(f"{self}: Dataproc does not report its state")
        return batch is not None and batch.state.name not in _BATCH_OVER

    def cancel(self) -> None:
        hook = self.hook()
        if (batch := self._found(hook)) is not None:
            client = hook.get_operations_client(region=self.region)
            client.cancel_operation(name=batch.operation, retry=None, timeout=ANSWER_S)

    def _found(self, hook: Any) -> Any:
        batch = self.found(hook.get_batch, batch_id=self.job_id)
        return batch if batch is not None and self.uuid in ("", batch.uuid) else None
