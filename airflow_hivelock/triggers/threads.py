"""Threads for the triggers' calls to lock stores, which block.

Each connection has its own threads, so that a silent store delays no waiter or keeper of another store. No call uses
asyncio's own threads: a triggerer has few of them, and a few silent stores would block them all.
"""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from airflow_hivelock.locks.url import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.hooks import HiveLockHook

P = ParamSpec("P")
T = TypeVar("T")

MOST = 8
"""The largest number of threads of a connection's waiters, and of a keeper."""


class Threads:
    """A few threads. A thread starts when no other one is idle. All end when this object is dropped."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most

    @cached_property  # made late: Airflow copies an asset with its keeper, and a pool cannot be copied
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._most, "hivelock")

    def start(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Call *function* in a thread. Its log lines go to the log of the caller's task."""
        call = partial(contextvars.copy_context().run, function, *args, **kwargs)
        return asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call *function* in a thread, and return its result."""
        return await self.start(function, *args, **kwargs)


_of_waiters: WeakValueDictionary[tuple[str, str], Threads] = WeakValueDictionary()


def of_waiters(hook: HiveLockHook) -> Threads:
    """The threads that all waiters of a connection share.

    A changed connection gets new ones, because waiters with its former settings can block the old ones for minutes.
    """
    key = hook.hivelock_conn_id, fingerprint(hook.url)
    threads = _of_waiters.get(key)
    if threads is None:
        threads = _of_waiters[key] = Threads()
    return threads
