"""Reads of the lock store that cannot hang the API server: in threads, one at a time for each key, for a bounded time."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_hivelock.locks.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")

THREADS = 8
MOST_KEPT = 200


@dataclass
class _Flight:
    future: Future[Any]
    landed: float | None = None


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
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), self._patience_s)
        except TimeoutError as error:
            if future.done():
                raise
            raise StoreUnavailable(f"the lock store gave no answer within {self._patience_s:g} s") from error

    def forget(self, *keys: Hashable) -> None:
        """Have the next who asks read anew."""
        with self._lock:
            for key in keys:
                self._flights.pop(key, None)

    def _flight(self, key: Hashable, read: Callable[[], T], max_age_s: float) -> _Flight:
        with self._lock:
            flight = self._flights.get(key)
            if flight is None or (flight.landed is not None and self._clock() - flight.landed > max_age_s):
                flight = self._flights[key] = _Flight(self._pool.submit(read))
                flight.future.add_done_callback(partial(self._land, flight))
            return flight

    def _land(self, flight: _Flight, _: Future[Any]) -> None:
        flight.landed = self._clock()
        if len(self._flights) > MOST_KEPT:
            with self._lock:
                self._flights = {key: kept for key, kept in self._flights.items() if kept.landed is None}
