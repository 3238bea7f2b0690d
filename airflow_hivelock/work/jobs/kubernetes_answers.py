"""Answers of Kubernetes' API servers, and what they show about an object."""

from __future__ import annotations

import json
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.spark.driver_work import digest
from airflow_hivelock.work.jobs.job import NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Callable


def found(ask: Callable[[], Any], job: Any, name: str, client: Any, settings: str = "the connection") -> Any:
    """Return the answer of *ask*. None if the object is gone.

    :param job: the job, which has the id of the object's cluster in ``cluster``.
    :param name: the object's name.
    :param client: the hook or the client that *ask* uses.
    :param settings: the settings that name the cluster to this process, for messages.
    :raises CannotTell: the answer "not found" is not from the API server of that cluster.
    """
    try:
        return ask()
    except Exception as error:
        if getattr(error, "status", None) != NOT_FOUND:
            raise
        if not _names(error, name):
            raise CannotTell(
                f'{job}: the answer "not found" does not name {name}, so it is not about it. A proxy may have sent it. Check '
                f"{settings}"
            ) from error
        if not job.cluster:
            raise CannotTell(
                f"{job} was not found, but its lease does not record its cluster, so another cluster may run it. Look in each "
                "cluster where it can run. If it has ended, free the lease"
            ) from error
        check_cluster(job, client, settings)
        return None


def check_cluster(job: Any, client: Any, settings: str = "the connection") -> None:
    """Check that *client* asks the cluster of *job*. The arguments are those of :func:`found`.

    :raises CannotTell: it asks another cluster.
    """
    if cluster_of(client) != job.cluster:
        raise CannotTell(
            f"{job} was not found, but the answer comes from another cluster than the one that runs it. Check {settings}"
        )


def _names(error: Exception, name: str) -> bool:
    """Whether *error* is the answer of an API server that it does not know the object *name*.

    The text of a proxy, or the answer that a kind is unknown, has no such name.
    """
    try:
        return bool(json.loads(getattr(error, "body", ""))["details"]["name"] == name)
    except (ValueError, TypeError, LookupError):
        return False


def cluster_of(hook: Any) -> str:
    """Return the id of the cluster of *hook*, or of another client: a digest of its certificate authority, or else its address."""
    configuration = hook.api_client.configuration
    with suppress(OSError, TypeError):  # no certificate authority, or its file is gone
        return digest(Path(configuration.ssl_ca_cert).read_bytes())
    return str(configuration.host)


def delete_options(uid: str) -> Any:
    """The options to delete an object only if it has that *uid*. An empty uid allows any."""
    client = import_module("kubernetes.client")
    return client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=uid) if uid else None)
