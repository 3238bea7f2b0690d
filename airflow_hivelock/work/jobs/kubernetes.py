"""Work on Kubernetes: a pod, a Job of pods, and a SparkApplication of the Spark operator's.

Each is known by its name and its uid, so that a later one of its name is not taken for it. It is gone when its API server
does not know it any more, by the word of the same cluster that it was created in: another one knows nothing of it, either.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.jobs.job import Job
from airflow_hivelock.work.pod import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OPERATORS = "airflow.providers.cncf.kubernetes.operators"
_HOOKS = "airflow.providers.cncf.kubernetes.hooks.kubernetes"
_SIDECARS = {"airflow-xcom-sidecar", "istio-proxy"}
"""Containers that go on after the work until the task, which may be dead, ends them."""
_APPLICATION_OVER = {"COMPLETED", "FAILED"}
"""In its other states the Spark operator may still submit it, or submit it again."""
_DRIVER = "-driver"


@dataclass(frozen=True)
class KubernetesWork(Job):
    """What is asked for through a connection, as the operator has asked.

    :param in_cluster: as the operator's, as are ``cluster_context`` and ``config_file``.
    :param cluster: which cluster that was: a digest of its certificate authority, or else its address.
    :param uid: empty where it was not told.
    """

    package: ClassVar = "apache-airflow-providers-cncf-kubernetes"

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
        for name in ("conn_id", "cluster", "namespace", "name", "uid"):
            if not validate.one_line(getattr(self, name), name) and name != "uid":
                raise ValueError(f"{name} is empty")
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

    def hook(self) -> Any:
        """Airflow's own, which holds the credentials."""
        return import_module(_HOOKS).KubernetesHook(
            conn_id=self.conn_id,
            in_cluster=self.in_cluster,
            cluster_context=self.cluster_context,
            config_file=self.config_file,
        )

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
            with suppress(Exception):
                uid = operator.hook.get_pod(name, namespace).metadata.uid
        return cls(**where, namespace=namespace, name=name, uid=uid or "")

    def running(self) -> bool:
        with self.asking(self.conn_id):
            pod = self._pod()
            return pod is not None and not _has_ended(pod)

    def cancel(self) -> None:
        with self.asking(self.conn_id):
            hook = self.hook()
            delete = hook.core_v1_client.delete_namespaced_pod
            self.found(hook, delete, name=self.name, namespace=self.namespace, body=self.delete_options())

    def reconnects(self, operator: Any, context: Any) -> bool:
        with self.asking(self.conn_id):
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
            with suppress(Exception):
                uid = operator.hook.get_job(name, namespace).metadata.uid
        return cls(**where, namespace=namespace, name=name, uid=uid or "")

    def running(self) -> bool:
        with self.asking(self.conn_id):
            hook = self.hook()
            job = self.found(hook, hook.get_job, self.name, self.namespace)
            if job is not None and self.is_same(job.metadata.uid):
                conditions = (job.status and job.status.conditions) or []
                if not any(each.type in ("Complete", "Failed") and each.status == "True" for each in conditions):
                    return True
            pods = hook.core_v1_client.list_namespaced_pod(self.namespace, label_selector=f"job-name={self.name}")
            return any(self._owns(pod) and not _has_ended(pod) for pod in pods.items)

    def cancel(self) -> None:
        with self.asking(self.conn_id):
            hook, options = self.hook(), self.delete_options()
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
        launcher, uid = operator.launcher, ""
        api = {"group": launcher.api_group, "version": launcher.api_version, "plural": launcher.plural}
        with suppress(Exception):
            uid = operator.hook.get_custom_object(name=name, namespace=namespace, **api)["metadata"]["uid"]
        return cls(**where, namespace=namespace, name=name, uid=uid, **api)

    def running(self) -> bool:
        with self.asking(self.conn_id):
            hook = self.hook()
            made = self.found(hook, hook.get_custom_object, name=self.name, namespace=self.namespace, **self._api())
            if made is not None and self.is_same(made["metadata"]["uid"]):
                state = made.get("status", {}).get("applicationState", {}).get("state")
                if state not in _APPLICATION_OVER:
                    return True
            driver = self._driver(hook)
            return driver is not None and not _has_ended(driver)

    def cancel(self) -> None:
        with self.asking(self.conn_id):
            hook = self.hook()
            delete, options = hook.custom_object_client.delete_namespaced_custom_object, self.delete_options()
            self.found(hook, delete, name=self.name, namespace=self.namespace, body=options, **self._api())

    def reconnects(self, operator: Any, context: Any) -> bool:
        with self.asking(self.conn_id):
            return bool(operator.reattach_on_restart) and _is_taken_up(self._driver(self.hook()), operator)

    def __str__(self) -> str:
        return f"SparkApplication {self.name} in namespace {self.namespace}"

    def _api(self) -> dict[str, str]:
        return {"group": self.group, "version": self.version, "plural": self.plural}

    def _driver(self, hook: Any) -> Any:
        """Its driver, called as the operator expects it to be; None if there is none."""
        pod = self.found(hook, hook.get_pod, f"{self.name}{_DRIVER}", self.namespace)
        return pod if pod is not None and (not self.uid or self.uid in (_owners(pod) or {self.uid})) else None


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
