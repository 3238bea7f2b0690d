"""HiveLockHook: makes the lock manager for a connection of type ``hivelock``."""

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
    """The lock store of a connection of type ``hivelock``.

    ===========================  ====================================================================================
    field                        meaning
    ===========================  ====================================================================================
    ``host``                     the servers, as in ``zk1:2181,zk2:2181``; for ``sqlite`` the file
    ``port``                     the port of each server that has none in ``host``
    ``schema``                   Hive's ``hive.zookeeper.namespace``, or the name of the database
    ``login``, ``password``      for a lock store that authenticates its clients
    ===========================  ====================================================================================

    All other fields are in the extra. Only ``installation`` is required:

    ===========================  ====================================================================================
    field of the extra           meaning
    ===========================  ====================================================================================
    ``installation``             a name for this Airflow. Each Airflow on one lock store needs its own
    ``backend``                  the kind of lock store: ``zookeeper`` (the default), ``metastore``, ``postgresql``,
                                 ``mysql``, ``sqlite``, ``hiveserver2`` or ``memory``
    ``metastore_uri``            the Hive metastore in which tasks look up partitions, as in
                                 ``thrift://metastore1:9083,metastore2:9083``
    ``hive_site``                a hive-site.xml on the host of each Airflow component. It supplies settings that the
                                 connection does not have: servers, namespace, lock manager, security, time-outs
    ``concurrency``              false turns locking off, as Hive's ``hive.support.concurrency`` does
    ``numretries``               Hive's number of tries. Multiplied by ``sleep_between_retries``, it is the time-out
                                 of a task that sets none
    ``sleep_between_retries``    Hive's pause between two tries, as in ``60s``
    ``locks``                    the table of commands that decides what SQL locks: ``documented``, ``hive``, or
                                 ``stricter``, the default, which takes the stricter of both for each command
    ``invitation_s``             how long a task at its turn keeps its queue position while it gets a worker slot, in
                                 seconds; 20 by default. With 0 the task keeps no position
    ``root`` and others          the options of the lock store's URL: see :func:`airflow_hivelock.locks.connect`
    ===========================  ====================================================================================

    :param hivelock_conn_id: the id of the connection.
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
        """The settings of the connection.

        :raises InvalidRequest: the connection does not exist, or one of its settings is invalid.
        """
        try:
            found = self._read(self.get_connection(self.hivelock_conn_id))
        except AirflowNotFoundException as error:
            raise self._missing() from error
        for secret in secrets(found.url):
            mask_secret(secret)
        return found

    async def load(self) -> None:
        """Read the connection without blocking the event loop. After that, the hook does not ask Airflow again."""
        try:
            # Shielded: before Airflow 3.2, a cancelled question receives the answer to the next question.
            connection = await asyncio.shield(self.aget_connection(self.hivelock_conn_id))
        except AirflowNotFoundException as error:
            raise self._missing() from error
        self.settings = await asyncio.to_thread(self._read, connection)  # its hive-site.xml may be on a slow disk
        for secret in secrets(self.settings.url):
            await amask_secret(secret)

    @property
    def url(self) -> str:
        """The URL of the lock store. It can contain a password."""
        return self.settings.url

    @property
    def installation(self) -> str:
        """The id of this Airflow among those that share the lock store."""
        return self.settings.installation

    def manager(self) -> LockManager:
        """The lock manager. A process has one for each URL, so all waiters of a triggerer share one session.

        :raises StoreUnavailable: the lock store does not answer.
        """
        url, site = self.url, self.settings.site  # an error here names the connection already
        try:
            return _shared_manager(url, site)
        except HiveLockError as error:
            raise self._of_connection(error) from error

    def catalog(self) -> Catalog | None:
        """The catalog of tables. None: the connection has no ``metastore_uri``."""
        uri = self.settings.metastore_uri
        try:
            return connect_catalog(uri) if uri else None
        except HiveLockError as error:
            raise self._of_connection(error) from error

    def get_conn(self) -> LockManager:
        """The same as :meth:`manager`."""
        return self.manager()

    def test_connection(self) -> tuple[bool, str]:
        """Whether the lock store answers, and a text for the user."""
        known = self.hivelock_conn_id in _current
        try:
            connect(self.url).close()
        except HiveLockError as error:
            return False, str(error)
        finally:
            # Airflow tests each form under a new id. A shared manager would keep its session in the API server for ever.
            if not known:
                _forget_connection(self.hivelock_conn_id)
        return True, f"{self.settings.shown_url} answers. This Airflow is installation {self.installation!r}"

    def _read(self, connection: Any) -> Settings:
        try:
            found = Settings.of(connection)
            _change(self.hivelock_conn_id, found.url)
            return found
        except InvalidRequest as error:
            raise self._of_connection(error) from error

    def _of_connection(self, error: HiveLockError) -> HiveLockError:
        """*error* with the connection's id. It is marked as an error of the connection."""
        named = type(error)(f"connection {self.hivelock_conn_id!r}: {error}")
        named.of_connection = True
        return named

    def _missing(self) -> InvalidRequest:
        return InvalidRequest(
            f"connection {self.hivelock_conn_id!r} does not exist. Add one of type {self.conn_type}, "
            "or name another one (hivelock_conn_id)"
        )


_managers: dict[str, LockManager] = {}
"""The managers that connections use now, by the fingerprint of the lock store."""

_replaced: WeakValueDictionary[str, LockManager] = WeakValueDictionary()
"""The managers that connections used before. The session is closed when the last waiting task drops its manager."""

_current: dict[str, str] = {}
"""The fingerprint of the lock store of each connection, by the connection's id."""

_connecting: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""A lock for each lock store, so that a store that does not answer delays no other store."""

_changing = threading.Lock()


def _change(connection: str, url: str) -> None:
    """Note that *connection* uses *url* from now on. Drop its earlier manager unless another connection uses it."""
    key = fingerprint(url)
    with _changing:
        before, _current[connection] = _current.get(connection, key), key
        if before not in _current.values() and (old := _managers.pop(before, None)):
            _let_go(before, old)


def _forget_connection(connection: str) -> None:
    with _changing:
        _current.pop(connection, None)


def _let_go(key: str, manager: LockManager) -> None:
    _replaced[key] = manager
    weakref.finalize(manager, _close, manager.backend, os.getpid()).atexit = False


def _close(backend: Backend, pid: int) -> None:
    """Close *backend* in a new thread, because that can take seconds. A forked process must not close it: the session
    is the parent's."""
    if os.getpid() == pid:
        threading.Thread(target=backend.close, name="hivelock-close", daemon=True).start()


def _shared_manager(url: str, site: Site | None = None) -> LockManager:
    key = fingerprint(url)
    with _connecting[key]:
        if found := _managers.get(key) or _replaced.get(key):
            return found
        made = connect(url)
        try:
            for finding in coverage.check(made, site) if site else ():
                if finding.warning:
                    log.warning("%s", finding.text)
        except BaseException:  # a waiter tries again for minutes, each time with a new session
            _close(made.backend, os.getpid())
            raise
        with _changing:
            if key in _current.values():
                _managers[key] = made
            else:  # the connection has changed since it was read
                _let_go(key, made)
        return made


def _forget_managers() -> None:
    """Forget the parent's managers. A forked process has the parent's sockets without its threads, so it must connect
    again."""
    global _connecting, _changing
    _managers.clear()
    _replaced.clear()
    _connecting, _changing = defaultdict(threading.Lock), threading.Lock()


os.register_at_fork(after_in_child=_forget_managers)
