"""The expected waits in a lock store, for the logs of all waiters of this process."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from airflow_hivelock.locks.errors import HiveLockError
from airflow_hivelock.locks.expected import MOST_READ, PastHolds, WaitRange, expected_waits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.pending import PendingLease, PendingLook

FRESH_S = 30.0
"""How long to rely on a read of the queue, in seconds."""

PAST_S = 300.0
"""How long to rely on a read of the history and of the store's clock, in seconds. In ZooKeeper the latter is a write."""

REST = 50.0
"""A read rests at least this many times as long as it took, so it takes at most a fiftieth of the time. A thousand
waiters of a triggerer share it."""


class Outlook:
    """The expected waits of one lock store, read by one thread at a time. Other threads get the last answer.

    :param clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reading = threading.Lock()
        self._past, self._past_until_s = PastHolds(()), -1.0
        self._waits: Mapping[str, WaitRange] = {}
        self._at_s, self._until_s = 0.0, -1.0
        self._store_now: datetime
        self._store_now_s = 0.0

    def of(self, manager: LockManager, owner: str) -> WaitRange | None:
        """How long *owner* will probably wait; None: unknown."""
        if self._clock() > self._until_s and self._reading.acquire(blocking=False):
            try:
                self._read(manager)
            finally:
                self._reading.release()
        passed_s = self._clock() - self._at_s
        wait = self._waits.get(owner)
        if wait is None or wait.most_s <= passed_s:
            return None
        return WaitRange(max(0.0, wait.least_s - passed_s), wait.most_s - passed_s)

    def _read(self, manager: LockManager) -> None:
        began_s = self._clock()
        waits: Mapping[str, WaitRange] = {}
        try:
            if manager.capabilities.audits:
                if began_s > self._past_until_s:
                    self._past = PastHolds(manager.history(most=MOST_READ))
                    self._store_now, self._store_now_s = manager.now(), self._clock()
                    self._past_until_s = began_s + PAST_S
                requests = manager.requests()
                now = self._store_now + timedelta(seconds=self._clock() - self._store_now_s)
                waits = expected_waits(self._past, *requests, now)
        except HiveLockError:
            pass  # the log has no expected wait; the wait itself reports an outage
        now_s = self._clock()
        self._waits, self._at_s = waits, now_s
        self._until_s = now_s + max(FRESH_S, REST * (now_s - began_s))


_outlooks: WeakKeyDictionary[LockManager, Outlook] = WeakKeyDictionary()


def expected_text(manager: LockManager, pending: PendingLease | PendingLook | None) -> str:
    """How long a request will probably wait, as the end of a log line; empty: too little history, or no answer."""
    expected = _outlooks.setdefault(manager, Outlook()).of(manager, pending.request.owner) if pending else None
    return f"; {expected}" if expected else ""
