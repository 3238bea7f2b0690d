"""HiveLockHook: what a connection of type ``hivelock`` says, and the lock manager that it gives."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import weakref
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode
from weakref import WeakValueDictionary

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, mask_secret

from airflow_hivelock.compat import amask_secret
from airflow_hivelock.locks.connect import connect
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest
from airflow_hivelock.locks.hive import coverage, lock_store
from airflow_hivelock.locks.hive.catalog import connect_catalog
from airflow_hivelock.locks.hive.duration import seconds
from airflow_hivelock.locks.hive.lock_store import Sourced
from airflow_hivelock.locks.hive.settings import DEFAULT_TXN, TRANSACTIONS, Setting, TxnSettings
from airflow_hivelock.locks.hive.site import Site
from airflow_hivelock.locks.plan import check_follows
from airflow_hivelock.locks.url import check, fingerprint, secrets, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_hivelock.locks.backend import Backend
    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.plan import Follows

log = logging.getLogger(__name__)

HIVE_NAMESPACE = "hive_zookeeper_namespace"
"""Hive's default of ``hive.zookeeper.namespace``."""

NUMRETRIES, SLEEP = 100, "60s"
"""Hive's defaults of ``hive.lock.numretries`` and ``hive.lock.sleep.between.retries``."""

PORTS = {"zookeeper": 2181, "metastore": 9083, "hiveserver2": 10000, "postgresql": 5432, "mysql": 3306}
BACKENDS = (*PORTS, "sqlite", "memory")
LOGINS = ("zookeeper", "postgresql", "mysql", "hiveserver2")

_TO_AIRFLOW = ("installation", "concurrency", "numretries", "sleep_between_retries", "locks", "hive_site")
_OURS = ("backend", "metastore_uri", *_TO_AIRFLOW)
"""What the extra says to Airflow's side, and what a lock store's URL begins with; all else in it are the URL's options."""

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
    :param site: the hive-site.xml that says what the connection does not.
    :param said: what the connection and its hive-site.xml say, by name.
    :param txn: what Hive's transactional manager takes, for SQL that is locked as Hive does in its metastore.
    """

    url: str = field(repr=False)
    installation: str
    metastore_uri: str = field(default="", repr=False)
    concurrency: bool = True
    lock_timeout_s: float | None = None
    locks: Follows = "stricter"
    site: Site | None = field(default=None, repr=False, compare=False)
    said: Mapping[str, Sourced] = field(default_factory=dict, repr=False, compare=False)
    txn: TxnSettings = DEFAULT_TXN

    @classmethod
    def of(cls, connection: Any) -> Settings:
        """Read *connection*.

        :raises InvalidRequest: for one that cannot be meant.
        """
        for what in ("host", "schema", "login"):
            if not (getattr(connection, what) or "").isprintable():
                raise InvalidRequest(f"its {what} holds characters that are in no {what}")
        own: dict[str, Any] = connection.extra_dejson
        site, of_site = _of_site(own, connection)
        host, schema = (_given(getattr(connection, name), of_site.pop(name, None)) for name in ("host", "schema"))
        extra: dict[str, Any] = {name: each.value for name, each in of_site.items()} | own
        backend = extra.get("backend") or "zookeeper"
        if backend not in BACKENDS:
            raise InvalidRequest(f"backend {backend!r} is not known; use one of {', '.join(BACKENDS)}")
        url = _url(backend, connection, host.value.strip(), schema.value.strip("/"))
        txn = [Setting(name, _text(value)) for name, value in extra.items() if name in TRANSACTIONS]
        ours = {*_OURS, *TRANSACTIONS}
        options = {name: value for name, value in extra.items() if name not in ours and value not in (None, "")}
        if backend == "zookeeper" and (chroot := host.value.partition("/")[2]):
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
                'it has no installation id; name this Airflow in the extra, as in {"installation": "etl-prod"}, '
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
        if metastore_uri:
            check(metastore_uri, "the metastore, as in thrift://metastore:9083,")
        said = {"host": host, "schema": schema} | of_site
        said |= {name: Sourced(name, _text(value), _CONNECTION) for name, value in own.items()}
        return cls(
            url,
            installation,
            metastore_uri,
            concurrency,
            _lock_timeout_s(extra),
            locks,
            site,
            said,
            DEFAULT_TXN.after(*txn) if txn else DEFAULT_TXN,
        )

    def sourced(self) -> Iterator[Sourced]:
        """Each of these settings, and who said it."""
        found = {name: each.value for name, each in lock_store.of_url(self.url, "").items()}
        found |= {"metastore_uri": shown(self.metastore_uri)} if self.metastore_uri else {}
        found |= {name: self.said[name].value for name in _TO_AIRFLOW if name in self.said}
        found |= {"installation": self.installation, "concurrency": _text(self.concurrency), "locks": self.locks}
        for name, value in found.items():
            yield Sourced(name, value, self.said[name].source if name in self.said else "the default")
        yield from lock_store.unused(self.site) if self.site else ()

    @property
    def shown_url(self) -> str:
        """The lock store without its passwords."""
        return shown(self.url)


_CONNECTION = "the connection"


def _of_site(extra: dict[str, Any], connection: Any) -> tuple[Site | None, dict[str, Sourced]]:
    """What the hive-site.xml says that the connection names, but for what goes with what the connection says itself."""
    file = extra.get("hive_site")
    if file in (None, ""):
        return None, {}
    if not isinstance(file, str):
        raise InvalidRequest(f"hive_site={_digits(file)!r:.80} is not the path of a hive-site.xml")
    site = Site.read(file)
    named = extra.get("backend")
    said = lock_store.of_site(site, named if isinstance(named, str) else "")
    for own, theirs in ((connection.host, "chroot"), (connection.login, "auth")):
        if own:
            said.pop(theirs, None)
    return site, said


def _given(own: str | None, of_site: Sourced | None) -> Sourced:
    """What the connection says in a field of its own; what it does not, its hive-site.xml."""
    return Sourced("", own, _CONNECTION) if own else of_site or Sourced("", "", "the default")


def _url(backend: str, connection: Any, host: str, schema: str) -> str:
    """The lock store's URL, but for its options."""
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
        case "postgresql" | "mysql":
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
        (``zookeeper`` unless it says ``postgresql``, ``mysql``, ``sqlite``, ``metastore``, ``hiveserver2`` or ``memory``),
        ``metastore_uri``, and the options of that backend's URL (:func:`airflow_hivelock.locks.connect`: ``root``,
        ``timeout_s``, ``passing_s``, …). ``host`` are the servers (``zk1:2181,zk2:2181``; ``port`` for those that name none), for sqlite
        the file; ``schema`` is Hive's ``hive.zookeeper.namespace``, or the database; ``login`` and ``password`` are for
        those that take them. ``hive_site`` names a hive-site.xml on each component's host, that says what the connection
        does not: servers, namespace, which lock manager, security, time-outs. And Hive's ``concurrency`` (false turns locking off), ``numretries`` and ``sleep_between_retries`` (their product is the
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
            # Shielded, for before Airflow 3.2 who asks next would find this answer.
            connection = await asyncio.shield(self.aget_connection(self.hivelock_conn_id))
        except AirflowNotFoundException as error:
            raise self._missing() from error
        self.settings = await asyncio.to_thread(self._read, connection)  # its hive-site.xml may lie on a slow disk
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
            return _shared_manager(self.url, self.settings.site)
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
            found = Settings.of(connection)
            _lead(self.hivelock_conn_id, found.url)
            return found
        except InvalidRequest as error:
            raise InvalidRequest(f"connection {self.hivelock_conn_id!r}: {error}") from error

    def _missing(self) -> InvalidRequest:
        return InvalidRequest(
            f"connection {self.hivelock_conn_id!r} does not exist; add one of type {self.conn_type}, "
            "or name another one (hivelock_conn_id)"
        )


_managers: dict[str, LockManager] = {}
"""Those that connections lead to now, by the fingerprints of the lock stores."""

_replaced: WeakValueDictionary[str, LockManager] = WeakValueDictionary()
"""Those that connections led to before. Tasks that still wait keep them; the last one to let go closes the session."""

_current: dict[str, str] = {}
"""By connection, the fingerprint of its lock store."""

_connecting: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
_leading = threading.Lock()


def _lead(connection: str, url: str) -> None:
    """The connection leads to *url* from now on: let go of where it led before, if no other one leads there."""
    key = fingerprint(url)
    with _leading:
        before, _current[connection] = _current.get(connection, key), key
        if before not in _current.values() and (old := _managers.pop(before, None)):
            _let_go(before, old)


def _let_go(key: str, manager: LockManager) -> None:
    _replaced[key] = manager
    weakref.finalize(manager, _close, manager.backend, os.getpid()).atexit = False


def _close(backend: Backend, pid: int) -> None:
    """In a thread of its own, for it may take seconds; in a forked process the session is the parent's."""
    if os.getpid() == pid:
        threading.Thread(target=backend.close, name="hivelock-close", daemon=True).start()


def _shared_manager(url: str, site: Site | None = None) -> LockManager:
    key = fingerprint(url)
    with _connecting[key]:  # a store that does not answer delays no other store
        if found := _managers.get(key) or _replaced.get(key):
            return found
        made = connect(url)
        for finding in coverage.check(made, site) if site else ():
            if finding.warning:
                log.warning("%s", finding.text)
        with _leading:
            if key in _current.values():
                _managers[key] = made
            else:  # the connection has changed since it was read
                _let_go(key, made)
        return made


def _forget_managers() -> None:
    """A forked process has its parent's sockets but not its threads: it connects by itself."""
    global _connecting, _leading
    _managers.clear()
    _replaced.clear()
    _connecting, _leading = defaultdict(threading.Lock), threading.Lock()


os.register_at_fork(after_in_child=_forget_managers)
