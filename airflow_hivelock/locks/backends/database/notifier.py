"""The thread that notices other clients' changes. It wakes the waiters concerned, and gives signs of life for them.

Each backend has one. The first waiter starts it. It finds a change without a notification within a few seconds.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import defaultdict
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakValueDictionary

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backends.database.record import CLIENT_LENGTH
from airflow_hivelock.locks.errors import HiveLockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_hivelock.locks.backends.database.candidate import Living
    from airflow_hivelock.locks.backends.database.dialect import Listener, Notified
    from airflow_hivelock.locks.backends.database.store import Store
    from airflow_hivelock.locks.queueing import Position

    Wake = Callable[[], None]

log = logging.getLogger(__name__)

LOOK_S = 5.0
"""How often it polls without a notification, and gives signs of life for this process's waiters, in seconds."""

RECONNECT_S = 1.0


class Expected(NamedTuple):
    """See :meth:`Notifier.expect`."""

    epoch: int | None
    marked: bool

    def over(self, living: Living) -> bool:
        return self.epoch not in (None, living.epoch) or (self.marked and not living.watched)


class Waits(NamedTuple):
    """The wait of an acquisition.

    :param position: its own, in the queue that it is in.
    :param place: its own.
    :param epoch: its own.
    :param watch: the places of the requests that it waits for, each with its :func:`.candidate.phase`. A change of one
        of them is worth another look.
    """

    position: Position
    place: int
    epoch: int
    watch: Mapping[int, str]


class Waiting(Protocol):
    """The parts of an acquisition that the notifier uses."""

    process: str
    waits: Waits | None
    wake: Wake

    def come_back(self) -> None: ...


class Notifier:
    """Wakes the waiters of this process.

    :ivar client: identifies this process among all clients of the store.
    """

    def __init__(self, store: Store) -> None:
        self.client = uuid.uuid4().hex[:CLIENT_LENGTH]
        self._store = store
        self._lock = threading.Lock()
        self._acquisitions: WeakValueDictionary[str, Waiting] = WeakValueDictionary()
        self._expected: defaultdict[int, dict[Wake, Expected]] = defaultdict(dict)
        self._thread: threading.Thread | None = None
        self._listener: Listener | None = None
        self._over = threading.Event()
        self._silent = False

    def know(self, acquisition: Waiting) -> None:
        """Register an acquisition, so that a notification can wake it. The notifier does not keep it alive."""
        with self._lock:
            self._acquisitions[acquisition.process] = acquisition

    def expect(self, place: int, epoch: int | None, wake: Wake, *, marked: bool = False) -> None:
        """Call *wake* once when the request at *place* is gone or expired, or has another *epoch* (None: any).

        :param marked: the request is marked as watched. A partial release removes the mark, and then *wake* is called
            too.
        """
        with self._lock:
            self._expected[place][wake] = Expected(epoch, marked)
        self.begin()

    def waiting_before(self, mine: Waits) -> list[Waiting]:
        """The acquisitions of this process that wait before *mine*, in their order."""
        waiting = queueing.earlier(mine.position, {p: waits.position for p, waits in self._waiting().items()})
        with self._lock:
            known = [self._acquisitions.get(process) for process in waiting]
        return [acquisition for acquisition in known if acquisition is not None]

    def begin(self) -> None:
        """Start the thread if necessary, and poll often, because there is a new waiter."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hivelock-notifier", daemon=True)
                self._thread.start()
        if self._listener:
            self._listener.sooner()

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        if self._listener:
            self._listener.interrupt()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._listen()
            except HiveLockError as error:
                level = logging.DEBUG if self._silent else logging.WARNING  # one line for each outage, not for each try
                self._silent = True
                log.log(level, "%s. Until the lock store answers, the waiters of this process are not woken", error)
                self._over.wait(RECONNECT_S)
            except Exception:  # if the thread ended by an error, no waiter of this process would ever be woken
                log.exception("The waiters of this process are not woken. Trying again in %g s", RECONNECT_S)
                self._over.wait(RECONNECT_S)

    def _listen(self) -> None:
        """Wake waiters, until it is closed or the connection ends."""
        # The listener opens before the first look, so that no change in between is missed.
        with closing(self._store.listener(self.client)) as self._listener:
            look_at = 0.0
            while not self._over.is_set():
                if time.monotonic() >= look_at:
                    self._look()
                    self._store.sign({waits.place: waits.epoch for waits in self._waiting().values()})
                    self._silent = False
                    look_at = time.monotonic() + LOOK_S
                self._wake_notified(self._listener.wait(max(0.0, look_at - time.monotonic())))

    def _wake_notified(self, notified: Notified) -> None:
        self._wake(notified.processes, notified.places)
        if notified.unsure:
            self._look()

    def _look(self) -> None:
        """Read the requests that are waited for, and wake the waiters of those that have changed."""
        waiting = self._waiting()
        with self._lock:
            expected = {place: set(wakes.values()) for place, wakes in self._expected.items()}
        places = {place for waits in waiting.values() for place in (waits.place, *waits.watch)}.union(expected)
        living = self._store.living(places) if places else {}
        phases = {place: one.phase for place, one in living.items()}
        living_epochs = {place: one.epoch for place, one in living.items()}
        called = [
            process
            for process, waits in waiting.items()
            if waits.watch.items() - phases.items()
            or living_epochs.get(waits.place) != waits.epoch
            or not living[waits.place].waits
        ]
        gone = [
            place
            for place, those in expected.items()
            if place not in living or any(each.over(living[place]) for each in those)
        ]
        self._wake(called, gone)

    def _waiting(self) -> dict[str, Waits]:
        with self._lock:
            known = list(self._acquisitions.items())
        return {process: acquisition.waits for process, acquisition in known if acquisition.waits}

    def _wake(self, processes: Iterable[str], places: Iterable[int]) -> None:
        with self._lock:
            called = [self._acquisitions.get(process) for process in processes]
            wakes = {wake for place in places for wake in self._expected.pop(place, ())}
        for wake in wakes.union(acquisition.wake for acquisition in called if acquisition):
            wake()
