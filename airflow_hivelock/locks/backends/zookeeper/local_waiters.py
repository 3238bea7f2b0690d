"""The waiting requests of this process: their positions, and those that could not leave the queue."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from airflow_hivelock.locks import queueing

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.queueing import Position


class LocalWaiter(Protocol):
    """A waiting request of this process; *path* is that of its owner's record."""

    path: str

    def queue_again(self, free: Record) -> None: ...


class LocalWaiters:
    """The waiting requests of this process. If they are removed as dead together, they come back in their order.

    A process that pauses for longer than its session lasts is regarded as dead. The waiter behind removes its requests,
    one by one, where no other is ahead. They queue again behind the requests that stayed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._positions: WeakKeyDictionary[LocalWaiter, Position] = WeakKeyDictionary()
        self._abandoned: list[Callable[[], None]] = []

    def waits_at(self, waiter: LocalWaiter, position: Position) -> None:
        with self._lock:
            self._positions[waiter] = position

    def leaves(self, waiter: LocalWaiter) -> None:
        """Forget it: it has its lease, or no longer waits."""
        with self._lock:
            self._positions.pop(waiter, None)

    def before(self, position: Position) -> list[LocalWaiter]:
        """The waiters with an earlier position, in their order."""
        with self._lock:
            return queueing.earlier(position, self._positions)

    def is_back(self, waiter: LocalWaiter, position: Position) -> bool:
        """Note the position that it has got again; False if it has left meanwhile."""
        with self._lock:
            if waiter not in self._positions:
                return False
            self._positions[waiter] = position
            return True

    def abandon(self, end: Callable[[], None]) -> None:
        """Remember how to *end* a request that could not be withdrawn or handed over. The next step of any request does
        that: its ticket must not block others as long as this session lives."""
        with self._lock:
            self._abandoned.append(end)

    def end_abandoned(self) -> None:
        """End the abandoned requests. If one cannot be ended again, it stays remembered."""
        while self._abandoned:
            with self._lock:
                end = self._abandoned.pop() if self._abandoned else None
            if end:
                end()
