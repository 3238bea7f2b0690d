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
class _SharedRead:
    future: Future[Any]
    started: float
    ended: float | None = None
    before: _SharedRead | None = None

    def is_old(self, now: float, max_age_s: float) -> bool:
        if self.ended is None:
            return False
        rest_s = 0.0 if self.future.exception() else REST * (self.ended - self.started)
        return now - self.ended > max(max_age_s, rest_s)


class SharedReads:
    """Whoever asks while a read is under way shares it, and an answer that is young enough is given again.

    :param patience_s: how long one who asks waits; the read goes on without them, and nobody starts another meanwhile.
    """

    def __init__(self, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._pool = ThreadPoolExecutor(THREADS, "hivelock-page")
        self._reads: dict[Hashable, _SharedRead] = {}
        self._lock = threading.RLock()  # a read that is done at once ends while it is being entered

    async def ask(self, key: Hashable, read: Callable[[], T], max_age_s: float = 0.0) -> T:
        """What *read* gives, or gave no longer than *max_age_s* ago.

        :raises StoreUnavailable: nothing came in time.
        """
        future: Future[T] = self._shared(key, read, max_age_s).future
        if await _done_within(future, self._patience_s):
            return future.result()
        raise StoreUnavailable(f"the lock store gave no answer within {self._patience_s:g} s")

    async def glance(
        self, key: Hashable, read: Callable[[], T], max_age_s: float, keep_s: float, wait_s: float
    ) -> T | None:
        """As :meth:`ask`, but nobody waits for long: while a new answer is on its way the last one does, if it is not
        older than *keep_s*; None: there is none within *wait_s*."""
        shared = self._shared(key, read, max_age_s)
        before = shared.before
        if shared.ended is None and before and before.ended and self._clock() - before.ended < keep_s:
            shared = before
        future: Future[T] = shared.future
        return future.result() if await _done_within(future, wait_s) else None

    def forget(self, *keys: Hashable) -> None:
        """Have the next who asks read anew."""
        with self._lock:
            for key in keys:
                self._reads.pop(key, None)

    def _shared(self, key: Hashable, read: Callable[[], T], max_age_s: float) -> _SharedRead:
        with self._lock:
            shared, now = self._reads.get(key), self._clock()
            if shared is None or shared.is_old(now, max_age_s):
                if shared is not None:
                    shared.before = None
                shared = self._reads[key] = _SharedRead(self._pool.submit(read), now, before=shared)
                shared.future.add_done_callback(partial(self._end, shared))
            return shared

    def _end(self, shared: _SharedRead, _: Future[Any]) -> None:
        shared.ended = self._clock()
        if len(self._reads) > MOST_KEPT:
            with self._lock:
                self._reads = {key: kept for key, kept in self._reads.items() if kept.ended is None}


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


async def _done_within(future: Future[Any], wait_s: float) -> bool:
    """Whether it is done within *wait_s*; nothing is cancelled."""
    with suppress(Exception):  # the future has it
        await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), wait_s)
    return future.done()
