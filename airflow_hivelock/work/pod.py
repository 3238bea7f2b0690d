"""A Kubernetes pod that runs tasks. Its cluster can report its end, and then all of its processes have ended."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.spark import driver_work
from airflow_hivelock.work.asking import ANSWER_S, in_time

POD_UID = "AIRFLOW_HIVELOCK_POD_UID"
"""The environment variable with the pod's uid, from Kubernetes' downward API. It is read before the pod's mounts."""

MOUNTS = Path("/proc/self/mountinfo")

PAGE = 500
ENDED = ("Succeeded", "Failed")

_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MOUNTED = re.compile(rf"^(?:\S+ ){{3}}\S*/pods/({_UID.pattern})/\S+ /(?:etc/hosts|dev/termination-log) ", re.MULTILINE)
"""Mounts from the pod's own directory, which the kubelet adds to each container. Mounts of other pods can exist too."""


@dataclass(frozen=True)
class Pod:
    """A pod with its uid, because the next pod of a StatefulSet has the same name.

    :param name: the host's name. It is also the pod's, except with ``hostNetwork`` or ``spec.hostname``.
    :param cluster: a digest of the cluster's certificate authority. Only this cluster can report on the pod.
    """

    namespace: str
    name: str
    uid: str
    cluster: str

    def __post_init__(self) -> None:
        """Check the fields, because they come from a store and become parts of a URL.

        :raises ValueError: no pod has such a name or uid.
        """
        for name in ("namespace", "name"):
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}", validate.text(getattr(self, name), name)):
                raise ValueError(f"{name}={getattr(self, name)!r:.80}")
        if not _UID.fullmatch(validate.text(self.uid, "uid")):
            raise ValueError(f"uid={self.uid!r:.80}")
        validate.one_line(self.cluster, "cluster")

    def __str__(self) -> str:
        return f"pod {self.name} of namespace {self.namespace}"

    def has_ended(self) -> bool:
        """Whether the cluster reports that the pod has ended, or does not exist.

        :raises CannotTell: the cluster does not answer, or refuses this process.
        """
        try:
            ours, found = in_time(f"{self!r}", self._ask)
        except ImportError as error:
            raise CannotTell(
                f"{self} cannot be checked here: {error}. Run pip install 'airflow-hivelock[kubernetes]'"
            ) from error
        except Exception as error:
            hint = (
                ". Give the service account of this process get and list on pods there"
                if getattr(error, "status", 0) == 403
                else ""
            )
            reason = " ".join(str(error).split())[:300]
            raise CannotTell(
                f"{self} cannot be checked through connection kubernetes_default: {reason}{hint}"
            ) from error
        if not ours:
            raise CannotTell(f"{self} is in another cluster than connection kubernetes_default names")
        return found is None or found.status.phase in ENDED

    def _ask(self) -> tuple[bool, Any]:
        """Return whether the default connection leads to the pod's cluster, and the pod there or None."""
        from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

        api = KubernetesHook().core_v1_client
        authority = Path(api.api_client.configuration.ssl_ca_cert or "").read_bytes()
        ours = driver_work.digest(authority) == self.cluster
        return ours, self._find(api) if ours else None

    def _find(self, api: Any) -> Any:
        """Return the pod from the cluster; None if it does not exist.

        A missing name is no proof, because the name can be the host's. So this also looks for the uid.
        """
        from kubernetes.client.exceptions import ApiException

        try:
            pod = api.read_namespaced_pod(self.name, self.namespace, _request_timeout=ANSWER_S)
            if pod.metadata.uid == self.uid:
                return pod
        except ApiException as error:
            if error.status != 404:
                raise
        after = None
        while True:
            pods = api.list_namespaced_pod(self.namespace, limit=PAGE, _continue=after, _request_timeout=ANSWER_S)
            for pod in pods.items:
                if pod.metadata.uid == self.uid:
                    return pod
            if not (after := pods.metadata._continue):
                return None


def here() -> Pod | None:
    """Return the pod of this process; None if there is none, or if its uid is unknown."""
    try:
        namespace = (driver_work.ACCOUNT / "namespace").read_text().strip()
        authority = (driver_work.ACCOUNT / "ca.crt").read_bytes()
        mounted = _MOUNTED.search(MOUNTS.read_text())
    except OSError:
        return None
    try:
        uid = os.environ.get(POD_UID) or (mounted[1] if mounted else "")
        return Pod(namespace, socket.gethostname(), uid, driver_work.digest(authority))
    except ValueError:  # no valid uid: treat it as an ordinary host
        return None
