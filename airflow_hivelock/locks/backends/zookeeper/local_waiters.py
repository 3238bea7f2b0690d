"""The waiting requests of this process, and their positions."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from airflow_hivelock.locks import queueing

if TYPE_CHECKING:
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
