"""Makes changes of lock stores in threads, and answers for a change that takes too long.

Each lock store has its own threads, which the reads of the page do not use. So slow reads delay no change.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from fastapi import HTTPException

from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks.errors import AccessDenied, CannotTell, StoreUnavailable
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.ui import problems
from airflow_hivelock.ui.reads import THREADS, safely

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

log = structlog.get_logger(__name__)


class ChangePool:
    """Pools of threads for changes, one for each lock store.

    :param patience_s: the longest wait of a request for its change, in seconds.
    :param threads: the largest number of threads of each pool.
    """

    def __init__(self, patience_s: float, threads: int = THREADS) -> None:
        self._patience_s = patience_s
        self._pools: defaultdict[str, ThreadPoolExecutor] = defaultdict(
            lambda: ThreadPoolExecutor(threads, "hivelock-changes")
        )

    async def make(
        self, connection_id: str, what: str, change: Callable[[HiveLockHook], T], note: Callable[[T], None]
    ) -> T:
        """Make a *change*, and return its result.

        A change that has not begun in time is never made. A change that has begun continues after the answer.

        :param what: the change in words, as in "the release of lease 12".
        :param note: called with the result, also after the answer.
        :raises HTTPException: 503. Nothing was changed, or the outcome is unknown.
        """
        what = printable(what)
        turn = threading.Lock()  # the thread takes it to begin, or the request takes it to give up

        def run() -> T:
            hook = HiveLockHook(connection_id)
            hook.manager()  # connects, and can wait longer than the request
            if not turn.acquire(blocking=False):
                raise StoreUnavailable("the request has given up")
            result = change(hook)
            note(result)
            return result

        future: Future[T] = self._pools[connection_id].submit(copy_context().run, safely, run)
        waited = asyncio.wrap_future(future)
        waited.add_done_callback(_retrieve)
        await asyncio.wait({waited}, timeout=self._patience_s)
        if not future.done():
            if turn.acquire(blocking=False):
                future.cancel()
                log.warning("The page gave up %s, which did not begin within %g s", what, self._patience_s)
                raise HTTPException(503, problems.unchanged(what, self._patience_s, connection_id))
            log.warning("The outcome of %s is unknown: no answer within %g s", what, self._patience_s)
            future.add_done_callback(partial(_log_failure, what))
            raise HTTPException(503, problems.unknown(what, connection_id))
        try:
            return future.result()
        except AccessDenied:
            raise
        except (StoreUnavailable, CannotTell) as error:
            if not turn.locked():
                raise
            log.warning("The outcome of %s is unknown: %s", what, error)
            raise HTTPException(503, problems.unknown(what, connection_id)) from error


def _retrieve(waited: asyncio.Future[Any]) -> None:
    """Take the error of a late change. Otherwise asyncio logs it a second time."""
    if not waited.cancelled():
        waited.exception()


def _log_failure(what: str, future: Future[Any]) -> None:
    if error := future.exception():
        log.warning("The outcome of %s is still unknown: %s", what, error)
