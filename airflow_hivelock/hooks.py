"""HiveLockHook: from an Airflow connection to a lock manager."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook
from airflow.sdk.log import amask_secret, mask_secret

from airflow_hivelock.locks.connect import connect
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest
from airflow_hivelock.locks.hive.catalog import connect_catalog
from airflow_hivelock.locks.url import secrets
from airflow_hivelock.settings import Settings

if TYPE_CHECKING:
    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.manager import LockManager


class HiveLockHook(BaseHook):
    """The locks behind a connection of type ``hivelock``.

    :param hivelock_conn_id: the connection. In its extra ``installation`` (required: the id of this Airflow), ``backend``
        (``zookeeper`` unless it says ``postgresql``, ``sqlite``, ``metastore``, ``hiveserver2`` or ``memory``),
        ``metastore_uri``, and the options of that backend's URL (:func:`airflow_hivelock.locks.connect`: ``root``,
        ``timeout_s``, …). ``host`` are the servers (``zk1:2181,zk2:2181``; ``port`` for those that name none), for sqlite
        the file; ``schema`` is Hive's ``hive.zookeeper.namespace``, or the database; ``login`` and ``password`` are for
        those that take them. And Hive's ``concurrency`` (false turns locking off), ``numretries`` and ``sleep_between_retries`` (their product is the
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
