"""Reads of the lock store that neither hang nor wear out the API server: in threads, one at a time for each key, for a
bounded time, with a rest in between."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_hivelock.locks.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

T = TypeVar("T")

THREADS = 32
MOST_KEPT = 200

REST = 4.0
"""How many times as long as a read has taken it is left alone at least: none takes more than a fifth of the time."""


@dataclass
class _Flight:
    future: Future[Any]
    started: float
    landed: float | None = None
    before: _Flight | None = None

    def is_old(self, now: float, max_age_s: float) -> bool:
        if self.landed is None:
            return False
        rest_s = 0.0 if self.future.exception() else REST * (self.landed - self.started)
        return now - self.landed > max(max_age_s, rest_s)


class Flights:
    """Whoever asks while a read is under way shares it, and an answer that is young enough is given again.

    :param patience_s: how long one who asks waits; the read goes on without them, and nobody starts another meanwhile.
    """

    def __init__(self, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._pool = ThreadPoolExecutor(THREADS, "hivelock-page")
        self._flights: dict[Hashable, _Flight] = {}
        self._lock = threading.RLock()  # a read that is done at once lands while its flight is being entered

    async def ask(self, key: Hashable, read: Callable[[], T], max_age_s: float = 0.0) -> T:
        """What *read* gives, or gave no longer than *max_age_s* ago.

        :raises StoreUnavailable: nothing came in time.
        """
        future: Future[T] = self._flight(key, read, max_age_s).future
        if await _landing(future, self._patience_s):
            return future.result()
        raise StoreUnavailable(f"the lock store gave no answer within {self._patience_s:g} s")

    async def glance(
        self, key: Hashable, read: Callable[[], T], max_age_s: float, keep_s: float, wait_s: float
    ) -> T | None:
        """As :meth:`ask`, but nobody waits for long: while a new answer is on its way the last one does, if it is not
        older than *keep_s*; None: there is none within *wait_s*."""
        flight = self._flight(key, read, max_age_s)
        before = flight.before
        if flight.landed is None and before and before.landed and self._clock() - before.landed < keep_s:
            flight = before
        future: Future[T] = flight.future
        return future.result() if await _landing(future, wait_s) else None

    def forget(self, *keys: Hashable) -> None:
        """Have the next who asks read anew."""
        with self._lock:
            for key in keys:
                self._flights.pop(key, None)

    def _flight(self, key: Hashable, read: Callable[[], T], max_age_s: float) -> _Flight:
        with self._lock:
            flight, now = self._flights.get(key), self._clock()
            if flight is None or flight.is_old(now, max_age_s):
                if flight is not None:
                    flight.before = None
                flight = self._flights[key] = _Flight(self._pool.submit(read), now, before=flight)
                flight.future.add_done_callback(partial(self._land, flight))
            return flight

    def _land(self, flight: _Flight, _: Future[Any]) -> None:
        flight.landed = self._clock()
        if len(self._flights) > MOST_KEPT:
            with self._lock:
                self._flights = {key: kept for key, kept in self._flights.items() if kept.landed is None}


class Uncollected:
    """Keeps the garbage collector from running meanwhile, in all threads of the process.

    A look at thousands of locks makes a hundred thousand objects, none of them garbage: of its time the collector would
    take half, which goes through all that the API server has whenever so many have come.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._was_enabled = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0 and self._was_enabled:
                    gc.enable()


async def _landing(future: Future[Any], wait_s: float) -> bool:
    """Whether it is done within *wait_s*; nothing is cancelled."""
    with suppress(Exception):  # the future has it
        await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), wait_s)
    return future.done()
