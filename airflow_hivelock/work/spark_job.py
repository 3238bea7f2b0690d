"""A job that a cluster manager runs, and the operator that submits it.

All that is touched of what SparkSubmitOperator and its hook keep to themselves stands here.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell, InvalidRequest
from airflow_hivelock.locks.url import secrets
from airflow_hivelock.spark import URL
from airflow_hivelock.work import yarn
from airflow_hivelock.work.asking import ANSWER_S
from airflow_hivelock.work.jobs import trust
from airflow_hivelock.work.jobs.job import NOT_FOUND, Job, knows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,512}")
"""``driver-20130101000000-0000``, ``application_1357000000000_0001``, ``namespace:pod-name``."""

_SUBMITTED = re.compile(r"(?<![\w/])application_\d+_\d+")
"""An application that YARN knows: not one whose id it has given, and whose files are uploaded to a path of that name."""


@dataclass(frozen=True)
class SparkJob(Job):
    """What a cluster manager runs: a driver of a standalone master, an application of YARN's, a driver pod.

    :param conn_id: the Spark connection that it was submitted through.
    :param job_id: as SparkSubmitOperator records it for its own retries.
    """

    kind: ClassVar = "spark"
    conn_types: ClassVar = ("spark", "yarn", "k8s")
    over_with_success: ClassVar = True

    conn_id: str
    job_id: str
    deploy_mode: str | None = None

    def __post_init__(self) -> None:
        """:raises ValueError: what no cluster calls a job: it becomes part of a command, or of a URL."""
        validate.one_line(self.conn_id, "conn_id")
        if not _JOB_ID.fullmatch(self.job_id):
            raise ValueError(f"job_id={self.job_id!r:.80}")
        if self.deploy_mode not in (None, "client", "cluster"):
            raise ValueError(f"deploy_mode={self.deploy_mode!r:.80}")

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        """None: :class:`TellsItsJob` tells of it before the operator knows."""
        return None

    @classmethod
    def submitted_by(cls, operator: Any, job_id: str) -> Self:
        """The job of that id, which *operator*, a SparkSubmitOperator, has submitted."""
        trust.learn(cls.names_of(operator))
        return cls(operator._conn_id, job_id, operator._deploy_mode)

    @classmethod
    def names_of(cls, operator: Any) -> Iterable[tuple[str, ...]]:
        return [("connection", getattr(operator, "_conn_id", ""))]

    def running(self) -> bool:
        """Whether the cluster has it as neither ended nor unknown.

        :raises CannotTell: the cluster does not answer.
        """
        asking = self._operator()
        asking._hook = hook = asking._get_hook()
        if hook._is_yarn_cluster_mode:
            return yarn.running(hook._get_yarn_rm_base_url(), self.job_id, hook._resolved_yarn_rm_auth)
        if hook._is_kubernetes:
            return self._driver_pod_runs()
        status = asking.get_job_status(self.job_id, {})
        return bool(asking.is_job_active(status))

    def reconnects(self, operator: Any, context: Any) -> bool:
        return knows(operator, context, self.job_id) and self.running()

    def cancel(self) -> None:
        operator = self._operator()
        operator._hook = hook = operator._get_hook()
        if hook._is_yarn_cluster_mode:
            hook._yarn_application_id = self.job_id
        elif hook._is_kubernetes:
            self._delete_driver_pod()
            return
        else:
            hook._driver_id = self.job_id
        operator.on_kill()

    def __str__(self) -> str:
        return f"Spark job {self.job_id}"

    def _driver_pod_runs(self) -> bool:
        """As SparkSubmitOperator asks, which has no time-out for it."""
        client, namespace, name = self._driver_pod()
        try:
            phase = client.read_namespaced_pod(name, namespace, _request_timeout=ANSWER_S).status.phase or "Pending"
        except Exception as error:
            if getattr(error, "status", None) == NOT_FOUND:
                return False
            raise
        if phase == "Unknown":  # its node does not answer
            raise CannotTell(f"{self}: the cluster does not know how it is")
        return phase in ("Pending", "Running")

    def _delete_driver_pod(self) -> None:
        client, namespace, name = self._driver_pod()
        pod = client.read_namespaced_pod(name, namespace, _request_timeout=ANSWER_S)
        if (pod.metadata.labels or {}).get("spark-role") != "driver":
            raise CannotTell(f"{self} is not deleted: it has no label spark-role=driver, so Spark did not make it")
        uid = import_module("kubernetes.client").V1Preconditions(uid=pod.metadata.uid)
        options = import_module("kubernetes.client").V1DeleteOptions(preconditions=uid)
        client.delete_namespaced_pod(name, namespace, body=options, _request_timeout=ANSWER_S)

    def _driver_pod(self) -> tuple[Any, str, str]:
        """What asks for driver pods, and the namespace and name of its own."""
        namespace, name = SparkSubmitOperator._parse_k8s_external_id(self.job_id)
        client = import_module("airflow.providers.cncf.kubernetes.kube_client").get_kube_client()
        return client, namespace, name

    def _operator(self) -> SparkSubmitOperator:
        return SparkSubmitOperator(
            task_id="asks", conn_id=self.conn_id, deploy_mode=self.deploy_mode, yarn_track_via_rm_api=True
        )


class TellsItsJob(SparkSubmitOperator):
    """SparkSubmitOperator that tells of its job as soon as there is one; HiveLockMixin is told."""

    def submits(self) -> None:
        """Called before a job is submitted that outlives spark-submit."""

    def record_application(self, application: SparkJob) -> None:
        """Called once the cluster has given that job an id."""

    def _get_hook(self) -> Any:
        hook: Any = super()._get_hook()
        if hook._connection["deploy_mode"] == "cluster":
            if not (
                hook._should_track_driver_status
                or hook._should_track_driver_via_k8s_api()
                or hook._should_track_yarn_application_via_rm_api()
            ):
                raise InvalidRequest(
                    f"{self.task_id}: in cluster mode the job outlives spark-submit, and nobody could tell when it ends; "
                    "set yarn_track_via_rm_api=True or track_driver_via_k8s_api=True"
                )
            self.submits()
            hook._conf = _driver_environment(hook) | hook._conf
            hook._process_spark_submit_log = partial(self._record_from, hook, hook._process_spark_submit_log)
        return hook

    def _record_from(self, hook: Any, process: Callable[[Iterator[str]], None], lines: Iterator[str]) -> None:
        """Record the job as soon as spark-submit has said its id: it then goes on for seconds, and the job runs."""
        for line in lines:
            process(iter((line,)))
            job_id = hook._driver_id or (hook._yarn_application_id if _SUBMITTED.search(line) else None)
            if hook._kubernetes_driver_pod:
                job_id = f"{hook._connection['namespace']}:{hook._kubernetes_driver_pod}"
            if job_id:
                self.record_application(self.spark_job(job_id))

    def spark_job(self, job_id: str) -> SparkJob:
        """The job of that id, submitted as this operator does."""
        return SparkJob.submitted_by(self, job_id)


def _driver_environment(hook: Any) -> dict[str, str]:
    """The settings that tell a driver in a cluster, which inherits no environment, where its lease is kept.

    None where that would show a password, as Spark's own page shows all settings; nor on a standalone cluster.
    """
    prefix = "spark.yarn.appMasterEnv" if hook._is_yarn else "spark.kubernetes.driverEnv" if hook._is_kubernetes else ""
    url = os.environ.get(URL, "")
    return {f"{prefix}.{URL}": url} if prefix and url and not secrets(url) else {}
