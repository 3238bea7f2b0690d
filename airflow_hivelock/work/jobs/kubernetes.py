"""Work on Kubernetes: a pod, a Job of pods, and a SparkApplication of the Spark operator's.

Each is known by its name and its uid, so that a later one of its name is not taken for it. It is gone when its API server
does not know it any more, by the word of the same cluster that it was created in: another one knows nothing of it, either.
"""

from __future__ import annotations

import logging
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.asking import ANSWER_S, ASK_S, in_time
from airflow_hivelock.work.jobs import trust
from airflow_hivelock.work.jobs.job import Job
from airflow_hivelock.work.pod import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

log = logging.getLogger(__name__)

_OPERATORS = "airflow.providers.cncf.kubernetes.operators"
_HOOKS = "airflow.providers.cncf.kubernetes.hooks.kubernetes"
_SIDECARS = {"airflow-xcom-sidecar", "istio-proxy"}
"""Containers that go on after the work until the task, which may be dead, ends them."""
_APPLICATION_OVER = {"COMPLETED", "FAILED"}
"""In its other states the Spark operator may still submit it, or submit it again."""
_DRIVER = "-driver"

_NAMES = {
    "namespace": re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"),
    "name": re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"),
    "uid": re.compile(r"[A-Za-z0-9-]{0,64}"),
}
"""What Kubernetes calls its objects. These become parts of a URL."""

_GROUP, _VERSION, _PLURAL = "sparkoperator.k8s.io", re.compile(r"v\d+(?:(?:alpha|beta)\d+)?"), "sparkapplications"
"""Of the Spark operator's API. By another group and plural, a record would have any object of the cluster deleted."""

_OF_AIRFLOW = ("kubernetes_pod_operator", "True")
"""The label of all pods that KubernetesPodOperator, and those derived from it, make. No other pod is deleted."""


@dataclass(frozen=True)
class KubernetesWork(Job):
    """What is asked for through a connection, as the operator has asked.

    :param in_cluster: as the operator's, as are ``cluster_context`` and ``config_file``.
    :param cluster: which cluster that was: a digest of its certificate authority, or else its address.
    :param uid: empty where it was not told.
    """

    package: ClassVar = "apache-airflow-providers-cncf-kubernetes"
    conn_types: ClassVar = ("kubernetes",)

    conn_id: str
    in_cluster: bool | None
    cluster_context: str | None
    config_file: str | None
    cluster: str
    namespace: str
    name: str
    uid: str

    def __post_init__(self) -> None:
        """:raises ValueError: what cannot be asked for: it comes out of a store."""
        for name in ("conn_id", "cluster"):
            if not validate.one_line(getattr(self, name), name):
                raise ValueError(f"{name} is empty")
        for name, pattern in _NAMES.items():
            if not pattern.fullmatch(validate.text(getattr(self, name), name)):
                raise ValueError(f"{name}={getattr(self, name)!r:.80}")
        for name in ("cluster_context", "config_file"):
            if getattr(self, name) is not None:
                validate.one_line(getattr(self, name), name, most=4096)
        if self.in_cluster is not None and not isinstance(self.in_cluster, bool):
            raise TypeError(f"in_cluster={self.in_cluster!r:.80}")

    @classmethod
    def where(cls, operator: Any) -> dict[str, Any] | None:
        """The fields that say how *operator* asks; None for a hook of its own, as GKE's, for which they do not suffice."""
        hook = operator.hook
        if f"{type(hook).__module__}.{type(hook).__qualname__}" != f"{_HOOKS}.KubernetesHook":
            return None
        return {
            "conn_id": hook.conn_id,
            "in_cluster": hook.in_cluster,
            "cluster_context": hook.cluster_context,
            "config_file": hook.config_file,
            "cluster": _cluster(hook),
        }

    @classmethod
    def names_of(cls, operator: Any) -> Iterable[tuple[str, ...]]:
        attributes = {"connection": "kubernetes_conn_id", "config_file": "config_file"}
        return [(name, value) for name, each in attributes.items() if (value := getattr(operator, each, None))]

    def check(self) -> None:
        trust.check_config_file(self.config_file, self.extra())

    def hook(self) -> Any:
        """Airflow's own, which holds the credentials, with a time-out for each request."""
        hook = import_module(_HOOKS).KubernetesHook(
            conn_id=self.conn_id,
            in_cluster=self.in_cluster,
            cluster_context=self.cluster_context,
            config_file=self.config_file,
        )
        limit(hook.api_client)
        return hook

    def found(self, hook: Any, ask: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What *ask*, a method of *hook* or of its clients, finds; None if it is gone.

        :raises CannotTell: *hook* asks another cluster than the one that it was created in.
        """
        try:
            return ask(*args, **kwargs)
        except Exception as error:
            # Of a missing kind of objects, say, or of a proxy's, a 404 does not name it.
            if getattr(error, "status", None) != 404 or self.name not in str(getattr(error, "body", "")):
                raise
            if _cluster(hook) != self.cluster:
                raise CannotTell(f"{self} was not found, but another cluster was asked than created it") from error
            return None

    def is_same(self, uid: str) -> bool:
        """Whether what is found has its *uid*; it is a later one of its name otherwise."""
        return self.uid in ("", uid)

    def _check_is_airflows(self, pod: Any) -> None:
        """
        :param pod: what is to be deleted, or the template of its pods; None for nothing.
        :raises CannotTell: Airflow has not made it.
        """
        name, value = _OF_AIRFLOW
        if pod is not None and (pod.metadata.labels or {}).get(name) != value:
            raise CannotTell(
                f"{self} is not deleted: it has no label {name}={value}, so no operator of Airflow made it"
            )

    def delete_options(self) -> Any:
        """By which nothing else of its name is deleted in its place."""
        client = import_module("kubernetes.client")
        return client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=self.uid) if self.uid else None)


@dataclass(frozen=True)
class KubernetesPod(KubernetesWork):
    """The pod of a KubernetesPodOperator."""

    kind: ClassVar = "pod"
    operators: ClassVar[Mapping[str, str]] = {f"{_OPERATORS}.pod.KubernetesPodOperator": "pod"}

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        pod = operator.pod or operator.pod_request_obj
        if pod is None or (where := cls.where(operator)) is None:
            return None
        name, namespace, uid = pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
        if not uid:  # the operator keeps what it has asked for, not what it was answered
            uid = _uid(f"pod {name}", lambda: operator.hook.get_pod(name, namespace).metadata.uid)
        return cls(**where, namespace=namespace, name=name, uid=uid)

    def running(self) -> bool:
        pod = self._pod()
        return pod is not None and not _has_ended(pod)

    def cancel(self) -> None:
        hook = self.hook()
        self._check_is_airflows(self.found(hook, hook.get_pod, self.name, self.namespace))
        delete = hook.core_v1_client.delete_namespaced_pod
        self.found(hook, delete, name=self.name, namespace=self.namespace, body=self.delete_options())

    def reconnects(self, operator: Any, context: Any) -> bool:
        return bool(operator.reattach_on_restart) and _is_taken_up(self._pod(), operator)

    def __str__(self) -> str:
        return f"pod {self.name} in namespace {self.namespace}"

    def _pod(self) -> Any:
        hook = self.hook()
        pod = self.found(hook, hook.get_pod, self.name, self.namespace)
        return pod if pod is not None and self.is_same(pod.metadata.uid) else None


@dataclass(frozen=True)
class KubernetesJob(KubernetesWork):
    """The Job of a KubernetesJobOperator, and its pods, which may outlive it."""

    kind: ClassVar = "kubernetes-job"
    operators: ClassVar[Mapping[str, str]] = {f"{_OPERATORS}.job.KubernetesJobOperator": "job"}

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        job = operator.job or operator.job_request_obj
        if job is None or (where := cls.where(operator)) is None:
            return None
        name, namespace, uid = job.metadata.name, job.metadata.namespace, job.metadata.uid
        if not uid:
            uid = _uid(f"Job {name}", lambda: operator.hook.get_job(name, namespace).metadata.uid)
        return cls(**where, namespace=namespace, name=name, uid=uid)

    def running(self) -> bool:
        hook = self.hook()
        job = self.found(hook, hook.get_job, self.name, self.namespace)
        if job is not None and self.is_same(job.metadata.uid):
            conditions = (job.status and job.status.conditions) or []
            if not any(each.type in ("Complete", "Failed") and each.status == "True" for each in conditions):
                return True
        pods = hook.core_v1_client.list_namespaced_pod(self.namespace, label_selector=f"job-name={self.name}")
        return any(self._owns(pod) and not _has_ended(pod) for pod in pods.items)

    def cancel(self) -> None:
        hook, options = self.hook(), self.delete_options()
        job = self.found(hook, hook.get_job, self.name, self.namespace)
        self._check_is_airflows(job and job.spec.template)
        options.propagation_policy = "Foreground"  # it stays until its pods are gone
        delete = hook.batch_v1_client.delete_namespaced_job
        self.found(hook, delete, name=self.name, namespace=self.namespace, body=options)

    def __str__(self) -> str:
        return f"Job {self.name} in namespace {self.namespace}"

    def _owns(self, pod: Any) -> bool:
        return not self.uid or self.uid in _owners(pod)


@dataclass(frozen=True)
class SparkApplication(KubernetesWork):
    """The SparkApplication of a SparkKubernetesOperator, and its driver, which may outlive it.

    The operator sets a pod on itself once the driver runs, which may be many minutes after it has created the application;
    so the answer to that is read as it comes in.
    """

    kind: ClassVar = "spark-application"
    operators: ClassVar[Mapping[str, str]] = {f"{_OPERATORS}.spark_kubernetes.SparkKubernetesOperator": "pod"}

    group: str
    version: str
    plural: str

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("group", "version", "plural"):
            validate.one_line(getattr(self, name), name)

    @classmethod
    def watch(cls, operator: Any, record: Callable[[Job], None]) -> None:
        where = cls.where(operator)  # which configures the client of custom objects, too
        if where is None:
            return
        api = operator.custom_obj_api
        create = api.create_namespaced_custom_object

        def created(group: str, version: str, namespace: str, plural: str, **kwargs: Any) -> Any:
            made = create(group=group, version=version, namespace=namespace, plural=plural, **kwargs)
            name, uid = made["metadata"]["name"], made["metadata"]["uid"]
            record(cls(**where, namespace=namespace, name=name, uid=uid, group=group, version=version, plural=plural))
            return made

        api.create_namespaced_custom_object = created  # of this operator's own client, not of its class

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        pod = operator.pod
        if pod is None or (where := cls.where(operator)) is None:
            return None
        name, namespace = pod.metadata.name.removesuffix(_DRIVER), pod.metadata.namespace
        launcher = operator.launcher
        api = {"group": launcher.api_group, "version": launcher.api_version, "plural": launcher.plural}
        ask = partial(operator.hook.get_custom_object, name=name, namespace=namespace, **api)
        uid = _uid(f"SparkApplication {name}", lambda: ask()["metadata"]["uid"])
        return cls(**where, namespace=namespace, name=name, uid=uid, **api)

    def running(self) -> bool:
        hook = self.hook()
        made = self.found(hook, hook.get_custom_object, name=self.name, namespace=self.namespace, **self._api())
        if made is not None and self.is_same(made["metadata"]["uid"]):
            state = made.get("status", {}).get("applicationState", {}).get("state")
            if state not in _APPLICATION_OVER:
                return True
        driver = self._driver(hook)
        return driver is not None and not _has_ended(driver)

    def cancel(self) -> None:
        hook = self.hook()
        delete, options = hook.custom_object_client.delete_namespaced_custom_object, self.delete_options()
        self.found(hook, delete, name=self.name, namespace=self.namespace, body=options, **self._api())

    def reconnects(self, operator: Any, context: Any) -> bool:
        return bool(operator.reattach_on_restart) and _is_taken_up(self._driver(self.hook()), operator)

    def __str__(self) -> str:
        return f"SparkApplication {self.name} in namespace {self.namespace}"

    def check(self) -> None:
        super().check()
        if (self.group, self.plural) != (_GROUP, _PLURAL) or not _VERSION.fullmatch(self.version):
            raise CannotTell(
                f"{self}: {self.plural} of {self.group} {self.version} are no applications of the Spark operator"
            )

    def _api(self) -> dict[str, str]:
        return {"group": self.group, "version": self.version, "plural": self.plural}

    def _driver(self, hook: Any) -> Any:
        """Its driver, called as the operator expects it to be; None if there is none."""
        pod = self.found(hook, hook.get_pod, f"{self.name}{_DRIVER}", self.namespace)
        return pod if pod is not None and (not self.uid or self.uid in (_owners(pod) or {self.uid})) else None


def limit(client: Any) -> None:
    """Have each request of *client*, Kubernetes' own, end in time: it would wait for ever by default."""
    call, until = client.call_api, time.monotonic() + ASK_S

    def bounded(*args: Any, **kwargs: Any) -> Any:
        if (left_s := until - time.monotonic()) <= 0:
            raise TimeoutError("the time for this question is over")  # its hook would ask again and again
        return call(*args, **{**kwargs, "_request_timeout": min(left_s, ANSWER_S)})

    client.call_api = bounded


def _uid(what: str, ask: Callable[[], str | None]) -> str:
    """The uid of what an operator has just created; ``""`` if its cluster does not say it."""
    try:
        if uid := in_time(f"uid of {what} {ask!r}", ask):
            return uid
        error: Exception | None = None
    except Exception as failed:  # noqa: BLE001 - the work runs all the same, and has to be recorded
        error = failed
    log.warning(
        "The uid of %s is unknown (%r): it is recorded by its name only, so a later one of that name is taken for it",
        what,
        error or "the cluster has not set one",
    )
    return ""


def _has_ended(pod: Any) -> bool:
    """Whether the work of *pod* has: none of its containers starts again, and those left wait for the task only.

    :raises CannotTell: its node does not answer.
    """
    if pod.status.phase == "Unknown":
        raise CannotTell(f"pod {pod.metadata.name}: the cluster does not know how it is")
    if pod.status.phase in ("Succeeded", "Failed"):
        return True
    ended = {status.name for status in pod.status.container_statuses or [] if status.state and status.state.terminated}
    works = {container.name for container in pod.spec.containers} - _SIDECARS
    return pod.spec.restart_policy == "Never" and works <= ended


def _is_taken_up(pod: Any, operator: Any) -> bool:
    """Whether a later try of *operator*'s goes on with *pod*: one that it has looked at, it leaves alone."""
    if pod is None or (pod.metadata.labels or {}).get(operator.POD_CHECKED_KEY) == "True":
        return False
    return not _has_ended(pod)


def _owners(pod: Any) -> set[str]:
    return {owner.uid for owner in pod.metadata.owner_references or []}


def _cluster(hook: Any) -> str:
    """Which cluster *hook* asks: a digest of its certificate authority, or else its address."""
    configuration = hook.api_client.configuration
    with suppress(OSError, TypeError):  # there are none, or their file is gone
        return digest(Path(configuration.ssl_ca_cert).read_bytes())
    return str(configuration.host)
