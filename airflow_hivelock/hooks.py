"""HiveLockHook: what a connection of type ``hivelock`` says, and the lock manager that it gives."""

from __future__ import annotations

import os
import re
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook
from airflow.sdk.log import amask_secret, mask_secret

from airflow_hivelock.locks.connect import connect
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest
from airflow_hivelock.locks.hive.catalog import connect_catalog
from airflow_hivelock.locks.hive.duration import seconds
from airflow_hivelock.locks.plan import check_follows
from airflow_hivelock.locks.url import check, secrets, shown

if TYPE_CHECKING:
    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.plan import Follows

HIVE_NAMESPACE = "hive_zookeeper_namespace"
"""Hive's default of ``hive.zookeeper.namespace``."""

NUMRETRIES, SLEEP = 100, "60s"
"""Hive's defaults of ``hive.lock.numretries`` and ``hive.lock.sleep.between.retries``."""

PORTS = {"zookeeper": 2181, "metastore": 9083, "hiveserver2": 10000, "postgresql": 5432}
BACKENDS = (*PORTS, "sqlite", "memory")
LOGINS = ("zookeeper", "postgresql", "hiveserver2")

_OURS = ("backend", "installation", "metastore_uri", "concurrency", "numretries", "sleep_between_retries", "locks")
"""What the extra says to Airflow's side; all else in it are options of the lock store's URL."""

_COUNT = re.compile("[0-9]{1,12}")
MOST_INSTALLATION = 250


@dataclass(frozen=True)
class Settings:
    """What a connection says.

    :param url: the lock store, as :func:`airflow_hivelock.locks.connect` takes it; may hold a password.
    :param installation: the id of this Airflow among those that share the lock store.
    :param metastore_uri: where partitions are looked up; empty for nowhere.
    :param concurrency: whether to lock at all, as ``hive.support.concurrency``.
    :param lock_timeout_s: how long to wait for locks where a task does not say; None: as long as it takes.
    :param locks: whose table of commands SQL is locked by, as :func:`~airflow_hivelock.locks.plan.plan_statements` has it.
    """

    url: str = field(repr=False)
    installation: str
    metastore_uri: str = field(default="", repr=False)
    concurrency: bool = True
    lock_timeout_s: float | None = None
    locks: Follows = "stricter"

    @classmethod
    def of(cls, connection: Any) -> Settings:
        """Read *connection*.

        :raises InvalidRequest: for one that cannot be meant.
        """
        for what in ("host", "schema", "login"):
            if not (getattr(connection, what) or "").isprintable():
                raise InvalidRequest(f"its {what} holds characters that are in no {what}")
        extra: dict[str, Any] = connection.extra_dejson
        backend = extra.get("backend") or "zookeeper"
        if backend not in BACKENDS:
            raise InvalidRequest(f"backend {backend!r} is not known; use one of {', '.join(BACKENDS)}")
        url = _url(backend, connection)
        options = {name: value for name, value in extra.items() if name not in _OURS and value not in (None, "")}
        if backend == "zookeeper" and (chroot := (connection.host or "").partition("/")[2]):
            options["chroot"] = chroot.strip()  # as in ZooKeeper's own connect string
        if options:
            url += "?" + urlencode({name: _text(value) for name, value in options.items()}, errors="replace")
        check(url)
        installation = extra.get("installation") or ("local" if backend == "memory" else "")
        if not isinstance(installation, str) or not installation.isprintable() or len(installation) > MOST_INSTALLATION:
            raise InvalidRequest(
                f"installation={installation!r:.80} is not an id; give a text of up to {MOST_INSTALLATION} printable characters"
            )
        if not installation.strip():
            raise InvalidRequest(
                'it has no installation id; name this Airflow in the extra, as in {"installation": "prod"}, '
                "differently from every other Airflow on the same lock store"
            )
        locks = extra.get("locks", "stricter")
        check_follows(locks)
        concurrency = extra.get("concurrency", True)
        if not isinstance(concurrency, bool):
            raise InvalidRequest(f"concurrency={concurrency!r} is neither true nor false")
        metastore_uri = extra.get("metastore_uri") or ""
        if not isinstance(metastore_uri, str):
            raise InvalidRequest(f"metastore_uri={metastore_uri!r:.80} is not a URI; write thrift://metastore:9083")
        return cls(url, installation, metastore_uri, concurrency, _lock_timeout_s(extra), locks)

    @property
    def shown_url(self) -> str:
        """The lock store without its passwords."""
        return shown(self.url)


def _url(backend: str, connection: Any) -> str:
    """The lock store's URL, but for its options."""
    host, schema = (connection.host or "").strip(), (connection.schema or "").strip("/")
    if (connection.login or connection.password) and backend not in LOGINS:
        raise InvalidRequest(f"it has a login or a password, and {backend} takes none; leave them out")
    match backend:
        case "memory":
            return f"memory://{host}"
        case "sqlite":
            if not host:
                raise InvalidRequest("it has no host; for sqlite that is the file, as in /var/lib/airflow/leases.db")
            return f"sqlite:///{quote(host)}"
        case "zookeeper":
            host, path = host.partition("/")[0], schema or HIVE_NAMESPACE
        case "postgresql":
            path = schema or "airflow"
        case _:
            path = schema
    hosts = [each.strip() for each in host.split(",") if each.strip()]
    if not hosts:
        raise InvalidRequest(f"it has no host; name the servers, as in host1:{PORTS[backend]},host2:{PORTS[backend]}")
    port = connection.port or PORTS[backend]
    servers = ",".join(each if ":" in each else f"{each}:{port}" for each in hosts)
    return f"{backend}://{_login(connection)}{servers}" + (f"/{quote(path)}" if path else "")


def _login(connection: Any) -> str:
    user, password = (quote(part or "", safe="", errors="replace") for part in (connection.login, connection.password))
    return f"{user}:{password}@" if password else f"{user}@" if user else ""


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else _digits(value)


def _digits(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # Python writes no number of thousands of digits
        return ""


def _lock_timeout_s(extra: dict[str, Any]) -> float | None:
    """What ``hive.lock.numretries`` and ``hive.lock.sleep.between.retries`` amount to: Hive waits so long at most."""
    retries, sleep = extra.get("numretries"), extra.get("sleep_between_retries")
    if retries is None and sleep is None:
        return None
    retries = NUMRETRIES if retries is None else retries
    sleep_s = seconds(_digits(SLEEP if sleep is None else sleep))
    if isinstance(retries, bool) or not _COUNT.fullmatch(_digits(retries)) or sleep_s is None:
        raise InvalidRequest(
            f"numretries={_digits(retries)!r:.80} and sleep_between_retries={_digits(sleep)!r:.80} must be a whole number and a time, as in 100, '60s'"
        )
    return int(retries) * sleep_s


class HiveLockHook(BaseHook):
    """The locks behind a connection of type ``hivelock``.

    :param hivelock_conn_id: the connection. In its extra ``installation`` (required: the id of this Airflow), ``backend``
        (``zookeeper`` unless it says ``postgresql``, ``sqlite``, ``metastore``, ``hiveserver2`` or ``memory``),
        ``metastore_uri``, and the options of that backend's URL (:func:`airflow_hivelock.locks.connect`: ``root``,
        ``timeout_s``, ``passing_s``, …). ``host`` are the servers (``zk1:2181,zk2:2181``; ``port`` for those that name none), for sqlite
        the file; ``schema`` is Hive's ``hive.zookeeper.namespace``, or the database; ``login`` and ``password`` are for
        those that take them. And Hive's ``concurrency`` (false turns locking off), ``numretries`` and ``sleep_between_retries`` (their product is the
        time-out of tasks that name none) and ``locks`` (whose table of commands SQL is
        locked by: ``documented``, ``hive``, or, where nothing is said, the ``stricter`` of the two).
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
            found = self._read(self.get_connection(self.hivelock_conn_id))
        except AirflowNotFoundException as error:
            raise self._missing() from error
        for secret in secrets(found.url):
            mask_secret(secret)
        return found

    async def load(self) -> None:
        """Read the connection without blocking the event loop; the rest of the hook then needs Airflow no more."""
        try:
            self.settings = self._read(await self.aget_connection(self.hivelock_conn_id))
        except AirflowNotFoundException as error:
            raise self._missing() from error
        for secret in secrets(self.settings.url):
            await amask_secret(secret)

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
        return True, f"{self.settings.shown_url} answers; this Airflow is installation {self.installation!r}"

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


_managers: dict[str, LockManager] = {}
_connecting: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def _shared_manager(url: str) -> LockManager:
    with _connecting[url]:  # who waits for a store that does not answer keeps nobody from the others
        if url not in _managers:
            _managers[url] = connect(url)
        return _managers[url]


def _forget_managers() -> None:
    """A forked process has its parent's sockets but not its threads: it connects anew."""
    global _managers, _connecting
    _managers, _connecting = {}, defaultdict(threading.Lock)


os.register_at_fork(after_in_child=_forget_managers)
