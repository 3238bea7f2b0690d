"""The requests of this process that wait: if they are taken for dead together, they come back in the order they had.

A process that stands still for longer than its session lasts is taken for dead: where nobody else is in the way, the
waiter behind breaks its places, one by one. Its requests queue again behind all that stayed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.record import Record


class LocalWaiter(Protocol):
    """A waiting request of this process; *path* is that of its owner's record."""

    @property
    def path(self) -> str: ...

    def queue_again(self, free: Record) -> None: ...


class LocalWaiters:
    """Their places, the last that each of them was known to have."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: WeakKeyDictionary[LocalWaiter, int] = WeakKeyDictionary()

    def stands(self, waiter: LocalWaiter, place: int) -> None:
        with self._lock:
            self._places[waiter] = place

    def leaves(self, waiter: LocalWaiter) -> None:
        """It has got its lease, or waits no more."""
        with self._lock:
            self._places.pop(waiter, None)

    def before(self, place: int) -> list[LocalWaiter]:
        """The waiters with an earlier place, in their order."""
        with self._lock:
            earlier = [(theirs, waiter) for waiter, theirs in self._places.items() if theirs < place]
        return [waiter for _, waiter in sorted(earlier, key=lambda entry: entry[0])]

    def is_back(self, waiter: LocalWaiter, place: int) -> bool:
        """Note the place that it was given again; False if it has left meanwhile."""
        with self._lock:
            if waiter not in self._places:
                return False
            self._places[waiter] = place
            return True
