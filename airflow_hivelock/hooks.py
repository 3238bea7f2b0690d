"""HiveLockHook: the lock manager that a connection of type ``hivelock`` gives."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, mask_secret

from airflow_hivelock.compat import amask_secret
from airflow_hivelock.locks.connect import connect
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest
from airflow_hivelock.locks.hive import coverage
from airflow_hivelock.locks.hive.catalog import connect_catalog
from airflow_hivelock.locks.url import fingerprint, secrets
from airflow_hivelock.settings import Settings

if TYPE_CHECKING:
    from airflow_hivelock.locks.backend import Backend
    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.hive.site import Site
    from airflow_hivelock.locks.manager import LockManager

log = logging.getLogger(__name__)


class HiveLockHook(BaseHook):
    """The locks behind a connection of type ``hivelock``.

    :param hivelock_conn_id: the connection. In its extra ``installation`` (required: the id of this Airflow), ``backend``
        (``zookeeper`` unless it says ``postgresql``, ``mysql``, ``sqlite``, ``metastore``, ``hiveserver2`` or ``memory``),
        ``metastore_uri``, and the options of that backend's URL (:func:`airflow_hivelock.locks.connect`: ``root``,
        ``timeout_s``, ``passing_s``, …). ``host`` are the servers (``zk1:2181,zk2:2181``; ``port`` for those that name none), for sqlite
        the file; ``schema`` is Hive's ``hive.zookeeper.namespace``, or the database; ``login`` and ``password`` are for
        those that take them. ``hive_site`` names a hive-site.xml on each component's host. It supplies what the
        connection leaves out: servers, namespace, lock manager, security, time-outs. Hive's ``concurrency``: false turns
        locking off. Hive's ``numretries`` and ``sleep_between_retries``: their product is the time-out of tasks without
        one. ``locks``: the table of commands that decides what SQL locks; ``documented``, ``hive``, or by default the
        ``stricter`` of the two. ``invitation_s``: how long a task keeps its queue position at its turn while it gets a
        worker slot, in seconds; by default 20; 0: it keeps none.
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
            # Shielded, because before Airflow 3.2 the next question would get this answer.
            connection = await asyncio.shield(self.aget_connection(self.hivelock_conn_id))
        except AirflowNotFoundException as error:
            raise self._missing() from error
        self.settings = await asyncio.to_thread(self._read, connection)  # its hive-site.xml may be on a slow disk
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
        return True, f"{self.settings.shown_url} answers. This Airflow is installation {self.installation!r}"

    def _read(self, connection: Any) -> Settings:
        try:
            found = Settings.of(connection)
            _lead(self.hivelock_conn_id, found.url)
            return found
        except InvalidRequest as error:
            raise InvalidRequest(f"connection {self.hivelock_conn_id!r}: {error}") from error

    def _missing(self) -> InvalidRequest:
        return InvalidRequest(
            f"connection {self.hivelock_conn_id!r} does not exist. Add one of type {self.conn_type}, "
            "or name another one (hivelock_conn_id)"
        )


_managers: dict[str, LockManager] = {}
"""Those that connections lead to now, by the fingerprints of the lock stores."""

_replaced: WeakValueDictionary[str, LockManager] = WeakValueDictionary()
"""Those that connections led to before. Tasks that still wait keep them; the last one to let go closes the session."""

_current: dict[str, str] = {}
"""The fingerprint of each connection's lock store."""

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
