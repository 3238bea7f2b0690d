"""Runs reads of lock stores and questions to clusters in threads, so that they do not block the API server.

One read runs at a time for each key. A request waits for a limited time. After a slow read, the next one is delayed. Each
lock store has its own threads, so that a silent store delays no other store's reads.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_hivelock.locks.errors import CannotTell, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    Key = tuple[Hashable, ...]

T = TypeVar("T")

THREADS = 8
MOST_KEPT = 200
MOST_UNDER_WAY = 200
"""The largest number of one store's reads that wait for a thread or an answer. More reads are refused at once."""

REST = 4.0
"""The pause after a read, as a multiple of the read's duration. So reads use at most a fifth of the time."""


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
    """Pools of threads for slow reads. Requests for the same key share one read, and reuse a recent answer.

    The first item of a key is the connection of the read, or another name of what is read. Each has its own threads.

    :param name: the name of the threads.
    :param patience_s: the longest wait of a request. The read then continues, and no other read of its key starts.
    :param threads: the largest number of threads of each pool.
    """

    def __init__(
        self, name: str, patience_s: float, clock: Callable[[], float] = time.monotonic, threads: int = THREADS
    ) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._pools: dict[Hashable, ThreadPoolExecutor] = defaultdict(
            lambda: ThreadPoolExecutor(threads, f"hivelock-{name}")
        )
        self._reads: dict[Key, _SharedRead] = {}
        self._lock = threading.RLock()  # reentrant, because a quick read can end while it is being stored

    async def ask(self, key: Key, read: Callable[[], T], max_age_s: float = 0.0) -> T:
        """Return the result of *read*, or a cached result that is at most *max_age_s* old.

        :raises StoreUnavailable: there was no result in time.
        """
        future: Future[T] = self._shared(key, read, max_age_s).future
        if await _done_within(future, self._patience_s):
            return future.result()
        raise StoreUnavailable(f"the lock store gave no answer within {self._patience_s:g} s")

    async def glance(self, key: Key, read: Callable[[], T], max_age_s: float, keep_s: float, wait_s: float) -> T | None:
        """As :meth:`ask`, but wait for at most *wait_s*.

        After that, return the last answer if it is at most *keep_s* old. None if there is none.
        """
        try:
            shared = self._shared(key, read, max_age_s)
        except StoreUnavailable:
            return None
        before = shared.before
        if shared.ended is None and before and before.ended and self._clock() - before.ended < keep_s:
            shared = before
        future: Future[T] = shared.future
        return future.result() if await _done_within(future, wait_s) else None

    def is_asked(self, key: Key, at_least_s: float) -> bool:
        """Whether the read of *key* has run in a thread for *at_least_s* without an answer."""
        shared = self._reads.get(key)
        return shared is not None and shared.future.running() and self._clock() - shared.started >= at_least_s

    def forget(self, *keys: Key) -> None:
        """Drop the cached answers of these keys."""
        with self._lock:
            for key in keys:
                self._reads.pop(key, None)

    def _shared(self, key: Key, read: Callable[[], T], max_age_s: float) -> _SharedRead:
        with self._lock:
            shared, now = self._reads.get(key), self._clock()
            if shared is None or shared.is_old(now, max_age_s):
                under_way = [each for each in self._reads if each[0] == key[0] and self._reads[each].ended is None]
                if len(under_way) >= MOST_UNDER_WAY:
                    raise StoreUnavailable(f"{MOST_UNDER_WAY} reads are under way, and none of them has been answered")
                if shared is not None:
                    shared.before = None
                shared = self._reads[key] = _SharedRead(self._pools[key[0]].submit(safely, read), now, before=shared)
                shared.future.add_done_callback(partial(self._end, shared))
            return shared

    def _end(self, shared: _SharedRead, _: Future[Any]) -> None:
        shared.ended = self._clock()
        if len(self._reads) > MOST_KEPT:
            with self._lock:
                self._reads = {key: kept for key, kept in self._reads.items() if kept.ended is None}


def safely(read: Callable[[], T]) -> T:
    """Return the result of *read*. Convert exceptions that would end the API server's process into ordinary errors."""
    try:
        return read()
    except Exception:
        raise
    except BaseException as error:
        raise CannotTell(f"it ended with {error!r}") from error


class Uncollected:
    """Pauses the garbage collector in all threads of the process.

    A read of thousands of locks creates a hundred thousand objects, none of them garbage. The collector would use half
    of the read's time, because it repeatedly scans all objects of the API server.
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
    """Whether *future* is done within *wait_s*. It is not cancelled."""
    with suppress(Exception):  # the error stays in the future
        await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), wait_s)
    return future.done()
