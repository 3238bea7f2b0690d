"""The requests of this process that wait: those that were taken for dead together come back in the order they had.

A process that stands still for longer than its session lasts is taken for dead: where nobody else is in the way, whoever
stands behind breaks its waiters' places, one by one. They queue again behind everybody who stayed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition


class Lineup:
    """Their places, the last that each of them was known to have."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: WeakKeyDictionary[ZooKeeperAcquisition, int] = WeakKeyDictionary()

    def stands(self, acquisition: ZooKeeperAcquisition, place: int) -> None:
        with self._lock:
            self._places[acquisition] = place

    def leaves(self, acquisition: ZooKeeperAcquisition) -> None:
        """It has got its lease, or waits no more."""
        with self._lock:
            self._places.pop(acquisition, None)

    def before(self, place: int) -> list[ZooKeeperAcquisition]:
        """Those with an earlier place, in their order."""
        with self._lock:
            earlier = [(theirs, acquisition) for acquisition, theirs in self._places.items() if theirs < place]
        return [acquisition for _, acquisition in sorted(earlier, key=lambda entry: entry[0])]

    def is_back(self, acquisition: ZooKeeperAcquisition, place: int) -> bool:
        """Note the place that it was given again; False if it has left meanwhile."""
        with self._lock:
            if acquisition not in self._places:
                return False
            self._places[acquisition] = place
            return True
