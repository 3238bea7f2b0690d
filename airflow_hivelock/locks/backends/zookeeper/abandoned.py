"""The requests of this process that could not leave the queue, because ZooKeeper did not answer.

Their session may survive the outage. Then their liveness nodes stay, and other clients wait for requests that no caller
wants. The callers are gone, so a thread tries again until each request has left the queue.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.locks.pauses import pauses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Later = Callable[[float, Callable[[], None]], Callable[[], None]]

log = logging.getLogger(__name__)

FIRST_S, LONGEST_S = 1.0, 30.0


def in_thread(pause_s: float, act: Callable[[], None]) -> Callable[[], None]:
    """Call *act* after *pause_s* in a daemon thread. Return a function that cancels this, and so ends the thread."""
    timer = threading.Timer(pause_s, act)
    timer.daemon, timer.name = True, "hivelock-withdrawal"
    timer.start()
    return timer.cancel


class AbandonedRequests:
    """Ends the abandoned requests of this process.

    The tries continue after the end of the session, because a grant whose reply was lost outlives it. The first answer
    of the store ends them. A forked process does not have its parent's thread, and ends no request of its parent.

    :param later: see :func:`in_thread`. A test can pass its own.
    """

    def __init__(self, later: Later) -> None:
        self._later = later
        self._lock = threading.Lock()
        self._ends: dict[str, Callable[[], None]] = {}
        self._pauses: Iterator[float] | None = None
        self._cancel: Callable[[], None] = lambda: None
        self._closed = False

    def add(self, process: str, end: Callable[[], None]) -> None:
        """Call *end* later, until it succeeds. It replaces an earlier *end* of the same acquisition's *process*."""
        with self._lock:
            if self._closed:
                return
            self._ends[process] = end
            if self._pauses is None:
                self._pauses = pauses(FIRST_S, LONGEST_S)
                self._cancel = self._later(next(self._pauses), self._try)

    def close(self) -> None:
        """Try no longer. The end of the session deletes the liveness nodes."""
        with self._lock:
            self._closed = True
            self._ends.clear()
            self._cancel()

    def _try(self) -> None:
        for process in list(self._ends):
            if (end := self._ends.get(process)) is None:
                continue
            try:
                end()
            except StoreUnavailable:
                continue
            except Exception:
                log.exception("A request could not leave the queue. Withdraw it by force if other requests wait for it")
            with self._lock:
                if self._ends.get(process) is end:
                    del self._ends[process]
        with self._lock:
            if self._ends and self._pauses:
                self._cancel = self._later(next(self._pauses), self._try)
            else:
                self._pauses = None
