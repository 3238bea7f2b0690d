"""What the suite's subjects share: stores, requests that wait in the open, and tests by capability."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Blocked, Capabilities, Free
from airflow_hivelock.locks.model import Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import LeaseLimit, LockObject, Waiter

    Connect = Callable[..., LockManager]

PATIENCE_S = 60.0
DAY1, DAY2 = "dw.flights/dt=2013-01-01", "dw.flights/dt=2013-01-02"


class Polling:
    """A request that waits in the open: poll it, or wait for its grant."""

    def __init__(
        self,
        manager: LockManager,
        owner: str,
        *,
        reads: Iterable[str | LockObject] = (),
        writes: Iterable[str | LockObject] = (),
        attempt: int = 0,
        priority: int = 1,
        limit: LeaseLimit | None = None,
        late: bool = False,
        asked: datetime | None = None,
    ) -> None:
        self._changed = threading.Event()
        self._manager, self._owner = manager, owner
        given: dict[str, Any] = {"priority": priority, "limit": limit, "late": late, "asked": asked}
        request = rules.request(owner, reads, writes, attempt=attempt, **given)
        self.pending = manager.begin(request, self._changed.set)

    def blocked(self) -> Blocked:
        """Take the place in the queue; it must not be granted."""
        self._changed.clear()
        outcome = self.pending.poll()
        assert isinstance(outcome, Blocked), f"granted, where it had to wait: {outcome}"
        return outcome

    def blocked_by(self) -> list[str]:
        """Take the place in the queue, and see who is listed as being in the way."""
        self.blocked()
        return [blocker.owner for blocker in self.listed().blocked_by]

    def listed(self) -> Waiter:
        """What is told of it to those who ask who waits."""
        (waiter,) = (waiter for waiter in self._manager.waiters() if waiter.owner == self._owner)
        return waiter

    def woken(self) -> None:
        """Wait until it is told to poll again."""
        assert self._changed.wait(PATIENCE_S), "never woken"

    def granted(self, within_s: float = PATIENCE_S) -> Lease:
        """Wait for the grant, polling only when woken."""
        outcome = self._outcome(within_s)
        assert isinstance(outcome, Lease), "stepped aside, where it had to be granted"
        return outcome

    def free(self, within_s: float = PATIENCE_S) -> Free:
        """Wait until it has stepped aside, polling only when woken."""
        outcome = self._outcome(within_s)
        assert isinstance(outcome, Free), f"granted, where it had to step aside: {outcome}"
        return outcome

    def _outcome(self, within_s: float) -> Lease | Free:
        deadline = time.monotonic() + within_s
        while True:
            self._changed.clear()
            outcome = self.pending.poll()
            if isinstance(outcome, Lease | Free):
                return outcome
            left = min(deadline - time.monotonic(), outcome.recheck_s or within_s)
            assert left > 0, f"not granted within {within_s} s: {outcome}"
            assert self._changed.wait(left) or outcome.recheck_s, f"never woken while {outcome}"


def where(**declared: bool | None) -> Callable[[Any], Any]:
    """A test for backends that declare just that, and take locks unless it says ``acquires=False``; None: or not."""

    def mark(test: Any) -> Any:
        test.declared = {"acquires": True} | declared
        return test

    return mark


class Suite:
    """Managers over one empty store."""

    declares = Capabilities()

    @pytest.fixture
    def connect(self) -> Connect:
        """Override: a function that gives a new manager, with a session of its own, over one empty store.

        Where the store orders by priority it takes ``passing_s``, for how long a waiter is passed, in seconds.
        """
        raise NotImplementedError

    @pytest.fixture
    def manager(self, connect: Connect) -> Any:
        with connect() as manager:
            yield manager

    @pytest.fixture
    def other(self, connect: Connect) -> Any:
        with connect() as manager:
            yield manager
