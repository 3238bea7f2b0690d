"""A metastore's locks below the backend and its acquisitions: connections, its time-out, its clock."""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_hivelock.locks.backends.metastore.client import LockClient
from airflow_hivelock.locks.backends.metastore.row import Metadata
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.duration import seconds
from airflow_hivelock.locks.model import Lock, LockMode, LockObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_hivelock.locks.backends.metastore.row import Row
    from airflow_hivelock.locks.hive.thrift import Metastore

TIMEOUT_S = 300.0
"""``hive.txn.timeout``, as Hive has it by default."""

_PROBE = Lock(LockObject("airflow_hivelock", "clock"), LockMode.SHARED)


class MetastoreStore:
    """:param timeout_s: after how long without a heartbeat the server frees a lock; None to ask the server.

    :param recheck_s: how often a waiter asks again, once it has waited for a while.
    """

    def __init__(self, metastore: Metastore, timeout_s: float | None, recheck_s: float) -> None:
        self._metastore = metastore
        self._recheck_s = recheck_s
        self._timeout_s = timeout_s
        self._offset_s = -math.inf
        self._clock_set = False
        self._lock = threading.Lock()

    @property
    def timeout_s(self) -> float:
        """After how long without a heartbeat the server frees a lock."""
        if self._timeout_s is None:
            with self.client() as client:
                given = client.setting("metastore.txn.timeout") or client.setting("hive.txn.timeout")
            self._timeout_s = _timeout_s(given) if given else TIMEOUT_S
        return self._timeout_s

    @property
    def recheck_s(self) -> float:
        """How often a waiter asks again: in time for its own request not to expire."""
        return min(self._recheck_s, self.timeout_s / 3)

    @contextmanager
    def client(self) -> Iterator[LockClient]:
        """One connection for one task."""
        with self._metastore.client() as client:
            yield LockClient(client)

    def rows(self, target: LockObject | None) -> list[Row]:
        """All locks in the database of *target*, or everywhere, held and waited for."""
        with self.client() as client:
            rows = client.rows([target.database if target else None])
        self.note_time(rows)
        return rows

    def now(self) -> datetime:
        """The server's clock: no call tells it, so that the first time a lock is made, read and given back."""
        if not self._clock_set:
            with self.client() as client:
                number, _ = client.lock([_PROBE], Metadata("clock", 0, 1, ""))
                try:
                    self.note_time(client.rows([_PROBE.object.database]), fresh=True)
                finally:
                    client.unlock(number)
        return datetime.fromtimestamp(self._offset_s + time.monotonic(), UTC)

    def note_time(self, rows: Iterable[Row], *, fresh: bool = False) -> None:
        """Set the clock by the newest heartbeat: it is no later than now, and, where one is *fresh*, as good as now."""
        read = time.monotonic()
        stamps = [row.heartbeat.timestamp() - read for row in rows if row.heartbeat]
        with self._lock:
            self._offset_s = max(self._offset_s, *stamps, -math.inf)
            self._clock_set = self._clock_set or (fresh and bool(stamps))


def _timeout_s(text: str) -> float:
    found = seconds(text)
    if found is None:
        raise InvalidRequest(f"hive.txn.timeout is {text!r}, which cannot be read; give its seconds as timeout_s")
    return found
