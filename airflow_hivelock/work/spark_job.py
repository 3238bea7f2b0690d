"""A Spark job that a cluster manager runs.

Only this module and :mod:`airflow_hivelock.operators.spark_submit` use private attributes of SparkSubmitOperator and
its hook.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

import requests

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.asking import ANSWER_S
from airflow_hivelock.work.jobs import trust
from airflow_hivelock.work.jobs.job import NOT_FOUND, Job, knows
from airflow_hivelock.work.jobs.kubernetes_answers import check_cluster, cluster_of, delete_options, found

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

_YARN_S = 20.0
"""The time-out of a request to a ResourceManager, in seconds."""

LINGERS_S = 15.0
"""The time that a driver can run after its application ended without success, in seconds. The ResourceManager reports
KILLED at once. The NodeManager gets the order with a heartbeat, sends SIGTERM, and later SIGKILL.
"""

_KUBE_SETTINGS = "[kubernetes_executor] in the configuration of this Airflow process"
"""The settings that name the cluster of driver pods."""

_OVER = ("FINISHED", "FAILED", "KILLED")
_DONE = "SUCCEEDED"
"""The final status of an application if the driver's code has returned. After SIGTERM the status is another one."""


_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,255}"


def _deploy_mode(value: Any, name: str) -> str | None:
    if value not in (None, "client", "cluster"):
        raise ValueError(f"{name}={value!r:.80}")
    return value  # type: ignore[no-any-return]


@dataclass(frozen=True)
class SparkJob(Job):
    """A driver of a standalone master, an application of YARN, or a driver pod.

    :param conn_id: the Spark connection that submitted the job.
    :param job_id: the id that SparkSubmitOperator keeps for its own retries.
    :param cluster: the id of the driver pod's cluster (:func:`.cluster_of`). Empty for another kind of driver, or if it
        is unknown. No answer then shows that a pod is gone.
    """

    kind: ClassVar = "spark"
    conn_types: ClassVar = ("spark", "yarn", "k8s")
    over_with_success: ClassVar = True
    forgets: ClassVar = False  # a standalone master answers without 404

    own: ClassVar = {"connection": "_conn_id"}
    # The id is a part of commands and URLs: driver-20130101000000-0000, application_1357000000000_0001, namespace:pod.
    # Namespace and pod are two parts of a path.
    checks: ClassVar = {
        "conn_id": validate.one_line,
        "job_id": re.compile(rf"{_PART}(?::{_PART})?"),
        "deploy_mode": _deploy_mode,
        "cluster": validate.one_line,
    }
    shown: ClassVar = "Spark job {job_id}"

    conn_id: str
    job_id: str
    deploy_mode: str | None = None
    cluster: str = ""

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        """None: :class:`.HiveLockedSparkSubmitOperator` records the job before the operator has its id."""
        return None

    @classmethod
    def submitted_by(cls, operator: Any, job_id: str) -> Self:
        """Return the job with that id, which *operator*, a SparkSubmitOperator, has submitted."""
        trust.learn(cls.names_of(operator))
        cluster = ""
        if ":" in job_id:  # namespace:pod
            try:
                cluster = cluster_of(_kube_client())
            except Exception as error:  # noqa: BLE001 - the driver runs in any case, and must be recorded
                log.warning(
                    "The cluster of driver pod %s is unknown (%r). If the task dies and the pod is deleted, the lease is kept "
                    "until a user frees it. Check %s",
                    job_id,
                    error,
                    _KUBE_SETTINGS,
                )
        return cls(operator._conn_id, job_id, operator._deploy_mode, cluster)

    def running(self) -> bool:
        """Whether the cluster knows the job, and it has not ended.

        :raises CannotTell: the cluster does not answer.
        """
        asking = self._operator()
        asking._hook = hook = asking._get_hook()
        if hook._is_yarn_cluster_mode:
            return _yarn_runs(hook._get_yarn_rm_base_url(), self.job_id, hook._resolved_yarn_rm_auth)
        if hook._is_kubernetes:
            return self._driver_pod_runs()
        asking._fetch_driver_status = _driver_status
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

    def _driver_pod_runs(self) -> bool:
        """Ask as SparkSubmitOperator does, but with a time-out."""
        client, namespace, name = self._driver_pod()
        pod = self._found(client, client.read_namespaced_pod, name, namespace)
        if pod is None:
            return False
        phase = pod.status.phase or "Pending"
        if phase == "Unknown":  # the pod's node does not answer
            raise CannotTell(f"{self}: the cluster does not know its state")
        if phase in ("Pending", "Running"):
            return True
        if self.cluster:  # a pod of another cluster can have the same name
            check_cluster(self, client, _KUBE_SETTINGS)
        return False

    def _delete_driver_pod(self) -> None:
        client, namespace, name = self._driver_pod()
        pod = self._found(client, client.read_namespaced_pod, name, namespace)
        if pod is None:
            return
        if (pod.metadata.labels or {}).get("spark-role") != "driver":
            raise CannotTell(f"{self} is not deleted: it has no label spark-role=driver, so Spark did not make it")
        self._found(client, client.delete_namespaced_pod, name, namespace, body=delete_options(pod.metadata.uid))

    def _found(self, client: Any, ask: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        """Return the answer of *ask*, a method of *client*, about the pod *name*. None if the pod is gone.

        :raises CannotTell: the answer does not show whether the pod is gone.
        """
        asks = partial(ask, name, *args, **kwargs, _request_timeout=ANSWER_S)
        return found(asks, self, name, client, _KUBE_SETTINGS)

    def _driver_pod(self) -> tuple[Any, str, str]:
        """Return the client for driver pods, and the namespace and name of this job's pod."""
        namespace, name = _spark_submit()._parse_k8s_external_id(self.job_id)
        return _kube_client(), namespace, name

    def _operator(self) -> Any:
        options = {"conn_id": self.conn_id, "deploy_mode": self.deploy_mode, "yarn_track_via_rm_api": True}
        return _spark_submit()(task_id="asks", **options)


def _spark_submit() -> Any:
    """The operator's class, imported only to ask a cluster: the import loads 2,000 modules."""
    return import_module("airflow.providers.apache.spark.operators.spark_submit").SparkSubmitOperator


def _kube_client() -> Any:
    """The client that SparkSubmitOperator uses for driver pods. No connection leads to their cluster."""
    return import_module("airflow.providers.cncf.kubernetes.kube_client").get_kube_client()


def _driver_status(url: str, driver_id: str) -> str:
    """Ask one standalone master, once. The operator's own question to a silent master takes 90 s, and no other master
    is asked in time.

    :raises CannotTell: the master does not know the driver, or is not the active one.
    """
    answer = requests.get(url, timeout=ANSWER_S)
    answer.raise_for_status()
    status = answer.json()
    if not status.get("success"):
        raise CannotTell(f"the Spark master does not know {driver_id}: {status.get('message', 'without a reason')}")
    return str(status["driverState"])


def _yarn_runs(manager_url: str, application_id: str, auth: Any) -> bool:
    """Whether an application's driver can still run, from the REST service of YARN's ResourceManager.

    https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/ResourceManagerRest.html

    :param manager_url: the ResourceManager's URL: ``http://rm:8088``.
    :raises CannotTell: it does not know the application, for example after a restart.
    :raises requests.RequestException: it does not answer.
    """
    answer = requests.get(f"{manager_url}/ws/v1/cluster/apps/{application_id}", auth=auth, timeout=_YARN_S)
    if answer.status_code == NOT_FOUND:
        raise CannotTell(
            f"the ResourceManager does not know {application_id}. It forgets old applications that have ended. Without "
            "yarn.resourcemanager.recovery.enabled it forgets all at a restart. Check whether the application still "
            "runs on a node of the cluster. If not, free the lease"
        )
    answer.raise_for_status()
    application = answer.json()["app"]
    if application["state"] not in _OVER:
        return True
    if application["finalStatus"] == _DONE:
        return False
    now_s = parsedate_to_datetime(answer.headers["Date"]).timestamp()
    return bool(now_s < application["finishedTime"] / 1000 + LINGERS_S)
