"""The thread that waits for others: it hears or looks for changes, wakes whom they concern, and gives signs of life.

One for each backend, started by the first who waits. Whatever it does not hear, it finds every few seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from contextlib import closing
from typing import TYPE_CHECKING
from weakref import WeakSet

from airflow_hivelock.locks.backends.database.dialect import Change
from airflow_hivelock.locks.errors import HiveLockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_hivelock.locks.backends.database.acquisition import DatabaseAcquisition
    from airflow_hivelock.locks.backends.database.dialect import Ears
    from airflow_hivelock.locks.backends.database.store import Store

    Wake = Callable[[], None]

log = logging.getLogger(__name__)

LOOK_S = 5.0
"""How often it looks although it has heard nothing, and gives signs of life for those who wait here."""

RECONNECT_S = 1.0


class Attendant:
    """Wakes who waits in this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._places: defaultdict[int, dict[Wake, int | None]] = defaultdict(dict)
        self._units: defaultdict[int, set[Wake]] = defaultdict(set)
        self._waiting: WeakSet[DatabaseAcquisition] = WeakSet()
        self._thread: threading.Thread | None = None
        self._ears: Ears | None = None
        self._over = threading.Event()

    def attend(self, acquisition: DatabaseAcquisition, ahead: int) -> bool:
        """Wake *acquisition* when the request at *ahead* is gone, or another process has taken its own over.

        :return: False where either has happened already: look again.
        """
        mine = {ahead: None, acquisition.place: acquisition.epoch}
        with self._lock:
            self._waiting.add(acquisition)
            for place, epoch in mine.items():
                self._places[place][acquisition.wake] = epoch
        self._begin()
        return not self._gone({place: {epoch} for place, epoch in mine.items()})

    def leave(self, acquisition: DatabaseAcquisition) -> None:
        """It waits no longer."""
        with self._lock:
            self._waiting.discard(acquisition)
            self._places.get(acquisition.place, {}).pop(acquisition.wake, None)

    def expect(self, place: int, epoch: int, wake: Wake) -> None:
        """Call *wake* once when the request at *place* is gone, expired, or no longer of that *epoch*."""
        with self._lock:
            self._places[place][wake] = epoch
        self._begin()

    def watch(self, units: Iterable[int], wake: Wake) -> None:
        """Call *wake* once when a lock comes or goes in one of the *units*."""
        with self._lock:
            for unit in units:
                self._units[unit].add(wake)
        self._begin()

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        if self._ears:
            self._ears.interrupt()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join()

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hivelock-attendant", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._attend()
            except HiveLockError as error:
                log.warning("%s; until it does, those who wait here are not woken", error)
                self._over.wait(RECONNECT_S)

    def _attend(self) -> None:
        """Hear, look and wake, until it is over or the connection is."""
        with closing(self._store.ears()) as self._ears:
            self._tell(Change(units=None, unsure=True))  # whatever has happened while nobody listened
            look_at = 0.0
            while not self._over.is_set():
                if time.monotonic() >= look_at:
                    self._look()
                    self._live()
                    look_at = time.monotonic() + LOOK_S
                self._tell(self._ears.wait(max(0.0, look_at - time.monotonic())))

    def _tell(self, change: Change) -> None:
        with self._lock:
            units = self._units.keys() & change.units if change.units is not None else set(self._units)
            wakes = {wake for unit in units for wake in self._units.pop(unit)}
        self._wake(change.places, wakes)
        if change.unsure:
            self._look()

    def _look(self) -> None:
        with self._lock:
            expected = {place: set(wakes.values()) for place, wakes in self._places.items() if wakes}
        self._wake(self._gone(expected))

    def _wake(self, places: Iterable[int], also: Iterable[Wake] = ()) -> None:
        with self._lock:
            wakes = {wake for place in places for wake in self._places.pop(place, ())}
        for wake in wakes.union(also):
            wake()

    def _gone(self, expected: Mapping[int, set[int | None]]) -> set[int]:
        """Those places where no request waits or holds any more, or one of another epoch."""
        if not expected:
            return set()
        living = self._store.epochs(expected)
        return {
            place for place, epochs in expected.items() if epochs - {None, living.get(place)} or place not in living
        }

    def _live(self) -> None:
        """Say of those who wait here that they do."""
        with self._lock:
            waiting = [(acquisition.place, acquisition.epoch) for acquisition in self._waiting]
        self._store.sign(waiting)
