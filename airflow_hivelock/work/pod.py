"""A Kubernetes pod that tasks run in. Its host is gone when it is, and its cluster says so."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.asking import ANSWER_S, in_time

POD_UID = "AIRFLOW_HIVELOCK_POD_UID"
"""The environment variable that says a pod's uid, by Kubernetes' downward API, where its mounts do not."""

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""What a pod gets with its service account: the name of its namespace, and its cluster's own certificate authority."""

MOUNTS = Path("/proc/self/mountinfo")

PAGE = 500
ENDED = ("Succeeded", "Failed")

_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MOUNTED = re.compile(rf"^(?:\S+ ){{3}}\S*/pods/({_UID.pattern})/\S+ /(?:etc/hosts|dev/termination-log) ", re.MULTILINE)
"""What the kubelet mounts into each container out of the pod's own directory; others' may be there, too."""


@dataclass(frozen=True)
class Pod:
    """A pod, by what tells it from all others: a StatefulSet's next one has its name.

    :param name: its host's, which is its own unless somebody has said otherwise (``hostNetwork``, ``spec.hostname``).
    :param cluster: a digest of its cluster's certificate authority: another cluster knows nothing of it.
    """

    namespace: str
    name: str
    uid: str
    cluster: str

    def __post_init__(self) -> None:
        """:raises ValueError: what no pod is called: it comes out of a store, and becomes part of a URL."""
        for name in ("namespace", "name"):
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}", validate.text(getattr(self, name), name)):
                raise ValueError(f"{name}={getattr(self, name)!r:.80}")
        if not _UID.fullmatch(validate.text(self.uid, "uid")):
            raise ValueError(f"uid={self.uid!r:.80}")
        validate.one_line(self.cluster, "cluster")

    def __str__(self) -> str:
        return f"pod {self.name} of namespace {self.namespace}"

    def has_ended(self) -> bool:
        """Whether its cluster has it as ended, or as not there any more.

        :raises CannotTell: the cluster does not answer, or not to this process.
        """
        try:
            ours, found = in_time(f"{self!r}", self._ask)
        except ImportError as error:
            raise CannotTell(
                f"{self} cannot be asked for without pip install 'airflow-hivelock[kubernetes]' here: {error}"
            ) from error
        except Exception as error:
            hint = (
                "; its service account needs get and list on pods there" if getattr(error, "status", 0) == 403 else ""
            )
            said = " ".join(str(error).split())[:300]
            raise CannotTell(f"{self} cannot be asked for through kubernetes_default: {said}{hint}") from error
        if not ours:
            raise CannotTell(f"{self} is of another cluster than the one that kubernetes_default leads to")
        return found is None or found.status.phase in ENDED

    def _ask(self) -> tuple[bool, Any]:
        """Whether the default connection leads to its cluster, and what that has of it."""
        from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

        api = KubernetesHook().core_v1_client
        authority = Path(api.api_client.configuration.ssl_ca_cert or "").read_bytes()
        ours = digest(authority) == self.cluster
        return ours, self._find(api) if ours else None

    def _find(self, api: Any) -> Any:
        """The pod as the cluster has it; None: it is not there.

        That nobody has its name is not believed alone: it may be its host's.
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
    """The pod that this process runs in; None: in none, or in one that keeps to itself which it is."""
    try:
        namespace, authority = (ACCOUNT / "namespace").read_text().strip(), (ACCOUNT / "ca.crt").read_bytes()
        mounted = _MOUNTED.search(MOUNTS.read_text())
    except OSError:
        return None
    try:
        uid = os.environ.get(POD_UID) or (mounted[1] if mounted else "")
        return Pod(namespace, socket.gethostname(), uid, digest(authority))
    except ValueError:  # no uid, or none of Kubernetes': then it is a host like others
        return None


def digest(authority: bytes) -> str:
    """What tells a cluster from others: of its certificate *authority*, in whatever form that was given."""
    return hashlib.sha256(b"".join(authority.split())).hexdigest()[:32]
