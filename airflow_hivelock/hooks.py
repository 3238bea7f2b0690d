"""HiveLockHook: from an Airflow connection to a lock manager."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from airflow_hivelock.locks.catalog import connect_catalog
from airflow_hivelock.locks.connect import connect
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest

if TYPE_CHECKING:
    from airflow_hivelock.locks.catalog import Catalog
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.plan import Dynamic

ZOOKEEPER_PORT = 2181
HIVE_NAMESPACE = "hive_zookeeper_namespace"
"""Hive's default of ``hive.zookeeper.namespace``."""

NUMRETRIES, SLEEP = 100, "60s"
"""Hive's defaults of ``hive.lock.numretries`` and ``hive.lock.sleep.between.retries``."""

_EXTRA = (
    *("backend", "installation", "root", "timeout_s", "metastore_uri"),
    *("concurrency", "numretries", "sleep_between_retries", "dynamic"),
)
_UNITS_S = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hour": 3600.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


@dataclass(frozen=True)
class Settings:
    """What a connection of type ``hivelock`` says.

    :param url: the lock store, as :func:`airflow_hivelock.locks.connect` takes it.
    :param installation: the id of this Airflow among those that share the lock store.
    :param metastore_uri: where partitions are looked up; empty for nowhere.
    :param concurrency: whether to lock at all, as ``hive.support.concurrency``.
    :param lock_timeout_s: how long to wait for locks where a task does not say; None: as long as it takes.
    :param dynamic: what SQL with dynamic partitions locks, as :func:`~airflow_hivelock.locks.plan.plan_statements` has it.
    """

    url: str
    installation: str
    metastore_uri: str = ""
    concurrency: bool = True
    lock_timeout_s: float | None = None
    dynamic: Dynamic = "documented"

    @classmethod
    def of(cls, connection: Any) -> Settings:
        """Read *connection*.

        :raises InvalidRequest: for one that cannot be meant.
        """
        extra: dict[str, Any] = connection.extra_dejson
        if unknown := sorted(extra.keys() - set(_EXTRA)):
            raise InvalidRequest(f"unknown extra {', '.join(unknown)}; it takes {', '.join(_EXTRA)}")
        backend = extra.get("backend") or "zookeeper"
        match backend:
            case "zookeeper":
                url, installation = _zookeeper_url(connection, extra), extra.get("installation")
            case "memory":
                url, installation = f"memory://{connection.host or ''}", extra.get("installation") or "local"
            case _:
                raise InvalidRequest(
                    f"backend {backend!r} is not known; use zookeeper, or memory for trying things out"
                )
        if not installation:
            raise InvalidRequest(
                'it has no installation id; name this Airflow in the extra, as in {"installation": "prod"}, '
                "differently from every other Airflow on the same lock store"
            )
        dynamic = extra.get("dynamic", "documented")
        if dynamic not in ("documented", "hive"):
            raise InvalidRequest(f"dynamic={dynamic!r} is neither 'documented' nor 'hive'")
        concurrency = extra.get("concurrency", True)
        if not isinstance(concurrency, bool):
            raise InvalidRequest(f"concurrency={concurrency!r} is neither true nor false")
        return cls(url, installation, extra.get("metastore_uri") or "", concurrency, _lock_timeout_s(extra), dynamic)


class HiveLockHook(BaseHook):
    """The locks behind a connection of type ``hivelock``.

    :param hivelock_conn_id: the connection: ``host`` the ZooKeeper servers (``zk1:2181,zk2:2181``; ``port`` for those
        that name none), ``schema`` Hive's ``hive.zookeeper.namespace``, and in the extra ``installation``
        (required: the id of this Airflow), ``metastore_uri``, ``root``, ``timeout_s`` and ``backend``; and Hive's
        ``concurrency`` (false turns locking off), ``numretries`` and ``sleep_between_retries`` (their product is the
        time-out of tasks that name none) and ``dynamic`` (``hive``: lock dynamic partitions as weakly as Hive does).
    """

    conn_name_attr = "hivelock_conn_id"
    default_conn_name = "hivelock_default"
    conn_type = "hivelock"
    hook_name = "Hive locks"

    def __init__(self, hivelock_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.hivelock_conn_id = hivelock_conn_id

    @cached_property
    def settings(self) -> Settings:
        """What the connection says.

        :raises InvalidRequest: it does not exist, or cannot be meant.
        """
        try:
            return self._read(self.get_connection(self.hivelock_conn_id))
        except AirflowNotFoundException as error:
            raise self._missing() from error

    async def load(self) -> None:
        """Read the connection without blocking the event loop; the rest of the hook then needs Airflow no more."""
        try:
            self.settings = self._read(await self.aget_connection(self.hivelock_conn_id))
        except AirflowNotFoundException as error:
            raise self._missing() from error

    @property
    def url(self) -> str:
        """The lock store."""
        return self.settings.url

    @property
    def installation(self) -> str:
        """The id of this Airflow among those that share the lock store."""
        return self.settings.installation

    def manager(self) -> LockManager:
        """The lock manager: one for each process and URL, so that all waiters of a triggerer share one session.

        :raises StoreUnavailable: nothing answers there.
        """
        try:
            return _shared_manager(self.url)
        except HiveLockError as error:
            raise type(error)(f"connection {self.hivelock_conn_id!r}: {error}") from error

    def catalog(self) -> Catalog | None:
        """Where tables are looked up; None when the connection names no metastore."""
        uri = self.settings.metastore_uri
        return connect_catalog(uri) if uri else None

    def get_conn(self) -> LockManager:
        """The same as :meth:`manager`."""
        return self.manager()

    def test_connection(self) -> tuple[bool, str]:
        """Whether the lock store answers, and what it says."""
        try:
            self.manager()
        except HiveLockError as error:
            return False, str(error)
        return True, f"{self.url} answers; this Airflow is installation {self.installation!r}"

    def _read(self, connection: Any) -> Settings:
        try:
            return Settings.of(connection)
        except InvalidRequest as error:
            raise InvalidRequest(f"connection {self.hivelock_conn_id!r}: {error}") from error

    def _missing(self) -> InvalidRequest:
        return InvalidRequest(
            f"connection {self.hivelock_conn_id!r} does not exist; add one of type {self.conn_type}, "
            "or name another one (hivelock_conn_id)"
        )


def _zookeeper_url(connection: Any, extra: dict[str, Any]) -> str:
    hosts = [host.strip() for host in (connection.host or "").split(",") if host.strip()]
    if not hosts:
        raise InvalidRequest("it has no host; name the ZooKeeper servers, as in zk1:2181,zk2:2181")
    port = connection.port or ZOOKEEPER_PORT
    servers = ",".join(host if ":" in host else f"{host}:{port}" for host in hosts)
    namespace = quote((connection.schema or HIVE_NAMESPACE).strip("/"))
    options = urlencode({name: extra[name] for name in ("root", "timeout_s") if extra.get(name)})
    return f"zookeeper://{servers}/{namespace}" + (f"?{options}" if options else "")


def _lock_timeout_s(extra: dict[str, Any]) -> float | None:
    """What ``hive.lock.numretries`` and ``hive.lock.sleep.between.retries`` amount to: Hive waits so long at most."""
    retries, sleep = extra.get("numretries"), extra.get("sleep_between_retries")
    if retries is None and sleep is None:
        return None
    retries = NUMRETRIES if retries is None else retries
    found = _TIME.fullmatch(str(SLEEP if sleep is None else sleep).strip().lower())
    unit = _UNITS_S.get((found[2] or "s").removesuffix("s") or "s") if found else None
    if isinstance(retries, bool) or not str(retries).isdecimal() or found is None or unit is None:
        raise InvalidRequest(
            f"numretries={retries!r} and sleep_between_retries={sleep!r} must be a whole number and a time, as in 100, '60s'"
        )
    return int(retries) * float(found[1]) * unit


_managers: dict[str, LockManager] = {}
_connecting = threading.Lock()


def _shared_manager(url: str) -> LockManager:
    with _connecting:
        if url not in _managers:
            _managers[url] = connect(url)
        return _managers[url]


def _forget_managers() -> None:
    """A forked process has its parent's sockets but not its threads: it connects anew."""
    global _managers, _connecting
    _managers, _connecting = {}, threading.Lock()


os.register_at_fork(after_in_child=_forget_managers)
