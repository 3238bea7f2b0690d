"""The record of a driver under its leases, so that an Airflow's keeper can find out whether the driver has ended.

The record has the form of :mod:`airflow_hivelock.work`. This module does not import that one, which needs Airflow.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KEEPER_SETTING = "spark.hivelock.keeper"

_KEEPER = re.compile(r"(?P<installation>[^/]+)(?:/(?P<conn_id>[^/]+))?")
_CLUSTERS = ("yarn", "k8s://")
_POD, _NAMESPACE = "spark.kubernetes.driver.pod.name", "spark.kubernetes.namespace"

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder of a pod's service account, with the namespace's name and the cluster's certificate authority."""


def work_name(installation: str) -> str:
    """The name of a driver's work under its leases.

    :param installation: the Airflow whose keeper frees these leases.
    """
    return f"driver for {installation}"


def work_of(context: Any, keeper: str, pid: Callable[[], int]) -> tuple[str, str]:
    """The name of the driver's work, and its record as text.

    :param context: the SparkContext.
    :param keeper: the id of an Airflow, optionally with a connection to the cluster: ``etl-prod/spark_default``.
    :param pid: returns the id of the driver's process.
    :raises InvalidRequest: *keeper* has another form, or this cluster cannot be asked through a connection.
    """
    found = _KEEPER.fullmatch(keeper) if isinstance(keeper, str) else None
    if found is None:
        raise InvalidRequest(
            f"keeper={keeper!r:.80}: use the id of an Airflow installation, or add its connection to the cluster, as "
            "in 'etl-prod/spark_default'"
        )
    if found["conn_id"]:
        settings = dict(context.getConf().getAll())
        recorded = _in_cluster(context.master, context.applicationId, settings, found["conn_id"])
    else:
        recorded = processes(pid())
    return work_name(found["installation"]), json.dumps(recorded, separators=(",", ":"))


def _in_cluster(master: str, application: str, settings: Mapping[str, str], conn_id: str) -> dict[str, Any]:
    job_id, cluster = application, ""
    if not master.startswith(_CLUSTERS):
        raise InvalidRequest(
            f"keeper: the state of a driver of master {master} is not available through a connection. Name the "
            "installation alone, so that the driver's process is recorded"
        )
    if master.startswith("k8s://"):
        if _POD not in settings:
            raise InvalidRequest(
                f"keeper: the pod of this driver is not known. Set {_POD} and {_NAMESPACE} to the driver's pod"
            )
        job_id = f"{settings.get(_NAMESPACE, 'default')}:{settings[_POD]}"
        with suppress(OSError):  # the pod has no service account
            cluster = digest((ACCOUNT / "ca.crt").read_bytes())
    # With "cluster" the keeper asks YARN or Kubernetes by the id, even if the driver runs elsewhere.
    return {"kind": "spark", "conn_id": conn_id, "job_id": job_id, "deploy_mode": "cluster", "cluster": cluster}


def digest(authority: bytes) -> str:
    """Return a cluster's id: the digest of its certificate *authority* without white space."""
    return hashlib.sha256(b"".join(authority.split())).hexdigest()[:32]


def processes(pid: int) -> dict[str, Any]:
    """The record of one process of this host.

    :raises InvalidRequest: this host does not run Linux.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():
        raise InvalidRequest("keeper: a driver's process can be recorded on Linux only; remove keeper")
    return {
        "kind": "processes",
        "pid": pid,
        "started": started(pid),
        "host": socket.gethostname(),
        "boot": boot.read_text().strip(),
        "mark": uuid.uuid4().hex,
    }


def started(pid: int) -> int:
    """The start of the process, in the kernel's ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
