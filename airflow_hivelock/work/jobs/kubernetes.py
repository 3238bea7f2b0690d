"""Work on Kubernetes: a pod, a Job of pods, and a SparkApplication of the Spark operator.

Name and uid identify each object, because a later object can have the same name. An object is gone if the API server of
its own cluster does not know it. The answer of another cluster or of a proxy does not count.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.asking import ANSWER_S, ASK_S, in_time
from airflow_hivelock.work.jobs import trust
from airflow_hivelock.work.jobs.job import Job, filled, paths
from airflow_hivelock.work.jobs.kubernetes_answers import check_cluster, cluster_of, delete_options, found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

log = logging.getLogger(__name__)

_OPERATORS = "airflow.providers.cncf.kubernetes.operators"
_HOOKS = "airflow.providers.cncf.kubernetes.hooks.kubernetes"
_ASKS_BY = ("conn_id", "in_cluster", "cluster_context", "config_file")
"""The arguments of Airflow's hook. The hook's attributes and a record's fields have the same names."""
_SIDECARS = {"airflow-xcom-sidecar", "istio-proxy"}
"""Containers that run until the task ends them, even if the work has ended. The task can be dead."""
_APPLICATION_OVER = {"COMPLETED", "FAILED"}
"""The final states. In other states the Spark operator can still submit the application, also for another try."""
_DRIVER = "-driver"

_GROUP, _VERSION, _PLURAL = "sparkoperator.k8s.io", re.compile(r"v\d+(?:(?:alpha|beta)\d+)?"), "sparkapplications"
"""The API of the Spark operator. With another group or plural, a record could delete any object of the cluster."""

_OF_AIRFLOW = ("kubernetes_pod_operator", "True")
"""The label of all pods of KubernetesPodOperator and its subclasses. No other pod is deleted."""


def _text_or_none(value: Any, name: str) -> str | None:
    return None if value is None else validate.one_line(value, name, most=4096)


def _truth_or_none(value: Any, name: str) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{name}={value!r:.80}")
    return value


@dataclass(frozen=True)
class KubernetesWork(Job):
    """The base class of work on Kubernetes. Questions use the operator's way to reach its cluster.

    :cvar what: the name of the kind in Kubernetes.
    :cvar get: the method of Airflow's hook that finds the object.
    :param in_cluster: the operator's argument, as are ``cluster_context`` and ``config_file``.
    :param cluster: the cluster's id: a digest of its certificate authority, or else its address.
    :param uid: the object's uid; empty if it is unknown.
    """

    package: ClassVar = "apache-airflow-providers-cncf-kubernetes"
    conn_types: ClassVar = ("kubernetes",)
    forgets: ClassVar = False
    own: ClassVar = {"connection": "kubernetes_conn_id", "config_file": "config_file"}
    # Namespace, name and uid become parts of a URL.
    checks: ClassVar = {
        "conn_id": filled,
        "in_cluster": _truth_or_none,
        "cluster_context": _text_or_none,
        "config_file": _text_or_none,
        "cluster": filled,
        "namespace": re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"),
        "name": re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"),
        "uid": re.compile(r"[A-Za-z0-9-]{0,64}"),
    }
    what: ClassVar[str]
    get: ClassVar[str]

    conn_id: str
    in_cluster: bool | None
    cluster_context: str | None
    config_file: str | None
    cluster: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def where(cls, operator: Any) -> dict[str, Any] | None:
        """Return the fields for the cluster of *operator*. None for other hooks, such as GKE's, which need more."""
        hook = operator.hook
        if next(iter(paths(type(hook)))) != f"{_HOOKS}.KubernetesHook":
            return None
        return {name: getattr(hook, name) for name in _ASKS_BY} | {"cluster": cluster_of(hook)}

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        (attribute,) = cls.operators.values()
        found = getattr(operator, attribute) or getattr(operator, f"{attribute}_request_obj")
        if found is None or (where := cls.where(operator)) is None:
            return None
        name, namespace, uid = found.metadata.name, found.metadata.namespace, found.metadata.uid
        if not uid:  # the operator keeps only its request, not the answer
            uid = _uid(f"{cls.what} {name}", lambda: getattr(operator.hook, cls.get)(name, namespace).metadata.uid)
        return cls(**where, namespace=namespace, name=name, uid=uid)

    def check(self) -> None:
        trust.check_config_file(self.config_file, self.extra())

    def hook(self) -> Any:
        """Return Airflow's own hook, which holds the credentials, with a time-out for each request."""
        hook = import_module(_HOOKS).KubernetesHook(**{name: getattr(self, name) for name in _ASKS_BY})
        limit(hook.api_client)
        return hook

    def found(self, hook: Any, ask: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the answer of *ask*, a method of *hook* or of its clients. None if the object is gone.

        :raises CannotTell: the answer does not show whether the object is gone.
        """
        return found(partial(ask, *args, **kwargs), self, str(kwargs.get("name") or args[0]), hook)

    def running(self) -> bool:
        hook = self.hook()
        found = self._find(hook)
        if found is not None and not self._is_over(found):
            return True
        return any(not _has_ended(pod) for pod in self._pods(hook))

    def _find(self, hook: Any) -> Any:
        """Return the object; None if it is gone, or if a later object has its name."""
        found = self.found(hook, getattr(hook, self.get), self.name, self.namespace)
        return found if found is not None and self._is_it(hook, found.metadata.uid) else None

    def _is_it(self, hook: Any, uid: str) -> bool:
        """Whether the object with this name and *uid* is the recorded one. Otherwise it is a later object.

        :raises CannotTell: the object is in another cluster, so it shows nothing.
        """
        if self.uid in ("", uid):
            return True
        check_cluster(self, hook)
        return False

    def _is_over(self, found: Any) -> bool:
        """Whether the object *found* has ended. Its pods do not count."""
        return _has_ended(found)

    def _pods(self, hook: Any) -> Iterable[Any]:
        """The pods that can run longer than the object."""
        return ()

    def __str__(self) -> str:
        return f"{self.what} {self.name} in namespace {self.namespace}"

    def _delete(self, hook: Any, delete: Callable[..., Any], propagation: str | None = None, **api: str) -> None:
        """Delete this object with *delete*, but no other object of its name."""
        options = delete_options(self.uid)
        options.propagation_policy = propagation
        self.found(hook, delete, name=self.name, namespace=self.namespace, body=options, **api)

    def _check_is_airflows(self, pod: Any) -> None:
        """Check that an operator of Airflow has created the object.

        :param pod: the pod to delete, or the template of the pods; None if there is none.
        :raises CannotTell: Airflow has not created it.
        """
        name, value = _OF_AIRFLOW
        if pod is not None and (pod.metadata.labels or {}).get(name) != value:
            raise CannotTell(
                f"{self} is not deleted: it has no label {name}={value}, so no operator of Airflow made it. End it yourself"
            )


@dataclass(frozen=True)
class KubernetesPod(KubernetesWork):
    """The pod of a KubernetesPodOperator."""

    kind: ClassVar = "pod"
    operators: ClassVar = {f"{_OPERATORS}.pod.KubernetesPodOperator": "pod"}
    what: ClassVar = "pod"
    get: ClassVar = "get_pod"

    def cancel(self) -> None:
        hook = self.hook()
        self._check_is_airflows(self.found(hook, hook.get_pod, self.name, self.namespace))
        self._delete(hook, hook.core_v1_client.delete_namespaced_pod)

    def reconnects(self, operator: Any, context: Any) -> bool:
        return bool(operator.reattach_on_restart) and _is_taken_up(self._find(self.hook()), operator)


@dataclass(frozen=True)
class KubernetesJob(KubernetesWork):
    """The Job of a KubernetesJobOperator, and its pods, which can run longer than the Job."""

    kind: ClassVar = "kubernetes-job"
    operators: ClassVar = {f"{_OPERATORS}.job.KubernetesJobOperator": "job"}
    what: ClassVar = "Job"
    get: ClassVar = "get_job"

    def _is_over(self, found: Any) -> bool:
        conditions = (found.status and found.status.conditions) or []
        return any(each.type in ("Complete", "Failed") and each.status == "True" for each in conditions)

    def _pods(self, hook: Any) -> Iterable[Any]:
        pods = hook.core_v1_client.list_namespaced_pod(self.namespace, label_selector=f"job-name={self.name}")
        return (pod for pod in pods.items if not self.uid or self.uid in _owners(pod))

    def cancel(self) -> None:
        hook = self.hook()
        job = self.found(hook, hook.get_job, self.name, self.namespace)
        self._check_is_airflows(job and job.spec.template)
        # In the foreground: the Job stays until its pods are gone.
        self._delete(hook, hook.batch_v1_client.delete_namespaced_job, propagation="Foreground")


@dataclass(frozen=True)
class SparkApplication(KubernetesWork):
    """The SparkApplication of a SparkKubernetesOperator, and its driver, which can run longer than the application.

    The operator sets its pod only when the driver runs, which can be many minutes after the creation. So this class
    reads the answer to the creation when it arrives.
    """

    kind: ClassVar = "spark-application"
    operators: ClassVar = {f"{_OPERATORS}.spark_kubernetes.SparkKubernetesOperator": "pod"}
    checks: ClassVar = KubernetesWork.checks | dict.fromkeys(("group", "version", "plural"), validate.one_line)
    what: ClassVar = "SparkApplication"

    group: str
    version: str
    plural: str

    @classmethod
    def watch(cls, operator: Any, record: Callable[[Job], None]) -> None:
        where = cls.where(operator)  # this call also configures the client of custom objects
        if where is None:
            return
        api = operator.custom_obj_api
        create = api.create_namespaced_custom_object

        def created(group: str, version: str, namespace: str, plural: str, **kwargs: Any) -> Any:
            made = create(group=group, version=version, namespace=namespace, plural=plural, **kwargs)
            name, uid = made["metadata"]["name"], made["metadata"]["uid"]
            record(cls(**where, namespace=namespace, name=name, uid=uid, group=group, version=version, plural=plural))
            return made

        api.create_namespaced_custom_object = created  # only for this operator's client, not for its class

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

    def _find(self, hook: Any) -> Any:
        found = self.found(hook, hook.get_custom_object, name=self.name, namespace=self.namespace, **self._api())
        return found if found is not None and self._is_it(hook, found["metadata"]["uid"]) else None

    def _is_over(self, found: Any) -> bool:
        return found.get("status", {}).get("applicationState", {}).get("state") in _APPLICATION_OVER

    def _pods(self, hook: Any) -> Iterable[Any]:
        driver = self._driver(hook)
        return () if driver is None else (driver,)

    def cancel(self) -> None:
        hook = self.hook()
        self._delete(hook, hook.custom_object_client.delete_namespaced_custom_object, **self._api())

    def reconnects(self, operator: Any, context: Any) -> bool:
        return bool(operator.reattach_on_restart) and _is_taken_up(self._driver(self.hook()), operator)

    def check(self) -> None:
        super().check()
        if (self.group, self.plural) != (_GROUP, _PLURAL) or not _VERSION.fullmatch(self.version):
            raise CannotTell(
                f"{self}: {self.plural} of {self.group} {self.version} are not applications of the Spark operator"
            )

    def _api(self) -> dict[str, str]:
        return {"group": self.group, "version": self.version, "plural": self.plural}

    def _driver(self, hook: Any) -> Any:
        """Return the driver's pod; None if there is none. The Spark operator derives its name from the application's."""
        pod = self.found(hook, hook.get_pod, f"{self.name}{_DRIVER}", self.namespace)
        return pod if pod is not None and (not self.uid or self.uid in (_owners(pod) or {self.uid})) else None


def limit(client: Any) -> None:
    """Set time-outs for all requests of *client*. Kubernetes' own client waits for ever."""
    call, until = client.call_api, time.monotonic() + ASK_S

    def bounded(*args: Any, **kwargs: Any) -> Any:
        if (left_s := until - time.monotonic()) <= 0:
            # Without an error the hook would repeat the question without end.
            raise TimeoutError("the time limit of this question is over")
        return call(*args, **{**kwargs, "_request_timeout": min(left_s, ANSWER_S)})

    client.call_api = bounded


def _uid(what: str, ask: Callable[[], str | None]) -> str:
    """Return the uid of the object that an operator has just created. Empty if the cluster does not report it."""
    try:
        if uid := in_time(f"uid of {what} {ask!r}", ask):
            return uid
        error: Exception | None = None
    except Exception as failed:  # noqa: BLE001 - the work runs in any case, and must be recorded
        error = failed
    log.warning(
        "The uid of %s is unknown (%r). The lease records only its name, so a later object of that name is taken for it",
        what,
        error or "the cluster has not set one",
    )
    return ""


def _has_ended(pod: Any) -> bool:
    """Whether the work of *pod* has ended: no container starts again, and running containers only wait for the task.

    :raises CannotTell: the pod's node does not answer.
    """
    if pod.status.phase == "Unknown":
        raise CannotTell(
            f"pod {pod.metadata.name}: the cluster does not know its state, because its node does not answer"
        )
    if pod.status.phase in ("Succeeded", "Failed"):
        return True
    ended = {status.name for status in pod.status.container_statuses or [] if status.state and status.state.terminated}
    works = {container.name for container in pod.spec.containers} - _SIDECARS
    return pod.spec.restart_policy == "Never" and works <= ended


def _is_taken_up(pod: Any, operator: Any) -> bool:
    """Whether a later try of *operator* continues *pod*. It ignores a pod that it has already checked."""
    if pod is None or (pod.metadata.labels or {}).get(operator.POD_CHECKED_KEY) == "True":
        return False
    return not _has_ended(pod)


def _owners(pod: Any) -> set[str]:
    return {owner.uid for owner in pod.metadata.owner_references or []}
