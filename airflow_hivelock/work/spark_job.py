"""A job that a cluster manager runs.

This module and :mod:`.tells_spark_job` are the only ones that use what SparkSubmitOperator and its hook keep to themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work import yarn
from airflow_hivelock.work.asking import ANSWER_S
from airflow_hivelock.work.jobs import trust
from airflow_hivelock.work.jobs.job import NOT_FOUND, Job, knows

if TYPE_CHECKING:
    from collections.abc import Iterable

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,512}")
"""``driver-20130101000000-0000``, ``application_1357000000000_0001``, ``namespace:pod-name``."""


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
        namespace, name = _spark_submit()._parse_k8s_external_id(self.job_id)
        client = import_module("airflow.providers.cncf.kubernetes.kube_client").get_kube_client()
        return client, namespace, name

    def _operator(self) -> Any:
        options = {"conn_id": self.conn_id, "deploy_mode": self.deploy_mode, "yarn_track_via_rm_api": True}
        return _spark_submit()(task_id="asks", **options)


def _spark_submit() -> Any:
    """Imported only where a cluster is asked: its provider is 2,000 modules, and every locked task loads the kinds of jobs."""
    return import_module("airflow.providers.apache.spark.operators.spark_submit").SparkSubmitOperator
