"""What all conformance tests share: stores, requests that wait, and the selection of tests by capability."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

import pytest

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Blocked, Capabilities, NeedsSlot
from airflow_hivelock.locks.model import Lease
from airflow_hivelock.locks.pending import Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import DeferredGrant, LeaseLimit, LockObject, Waiter

    Connect = Callable[..., LockManager]

PATIENCE_S = 60.0
DAY1, DAY2 = "dw.flights/dt=2013-01-01", "dw.flights/dt=2013-01-02"


class Polling:
    """A request that waits: poll it, or wait for its grant."""

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
        deferred: DeferredGrant | None = None,
        asked: datetime | None = None,
    ) -> None:
        self._changed = threading.Event()
        self._manager, self._owner = manager, owner
        given: dict[str, Any] = {"priority": priority, "limit": limit, "deferred": deferred, "asked": asked}
        request = rules.request(owner, reads, writes, attempt=attempt, **given)
        self.pending = manager.begin(request, self._changed.set)

    @classmethod
    def queued(cls, manager: LockManager, owner: str, **asked: Any) -> Self:
        """A request that has joined the queue."""
        polling = cls(manager, owner, **asked)
        polling.blocked()
        return polling

    def blocked(self) -> Blocked:
        """Poll once, and so join the queue; it must not be granted. While the store does not answer, poll again."""
        self._changed.clear()
        deadline = time.monotonic() + PATIENCE_S
        while isinstance(outcome := self.pending.poll(), Silent) and time.monotonic() < deadline:
            self._changed.wait(outcome.recheck_s)
        assert isinstance(outcome, Blocked), f"granted, where it had to wait: {outcome}"
        return outcome

    def blocked_by(self) -> list[str]:
        """Poll once, and return the owners that the listing shows as blockers."""
        self.blocked()
        return [blocker.owner for blocker in self.listed().blocked_by]

    def listed(self) -> Waiter:
        """The request as the listing of waiters shows it."""
        (waiter,) = (waiter for waiter in self._manager.waiters() if waiter.owner == self._owner)
        return waiter

    @property
    def is_woken(self) -> bool:
        """Whether ``wake`` has been called since the last poll."""
        return self._changed.is_set()

    def woken(self) -> None:
        """Wait until ``wake`` is called."""
        assert self._changed.wait(PATIENCE_S), "never woken"

    def granted(self, within_s: float = PATIENCE_S) -> Lease:
        """Wait for the grant, polling only when woken."""
        outcome = self._outcome(within_s)
        assert isinstance(outcome, Lease), "its grant was deferred, but should not be"
        return outcome

    def free(self, within_s: float = PATIENCE_S) -> NeedsSlot:
        """Wait until it is invited or goes away, polling only when woken."""
        outcome = self._outcome(within_s)
        assert isinstance(outcome, NeedsSlot), f"granted, but the grant should be deferred: {outcome}"
        return outcome

    def _outcome(self, within_s: float) -> Lease | NeedsSlot:
        deadline = time.monotonic() + within_s
        while True:
            self._changed.clear()
            outcome = self.pending.poll()
            if isinstance(outcome, Lease | NeedsSlot):
                return outcome
            left = min(deadline - time.monotonic(), outcome.recheck_s or within_s)
            assert left > 0, f"not granted within {within_s} s: {outcome}"
            assert self._changed.wait(left) or outcome.recheck_s, f"never woken while {outcome}"


def where(**declared: bool | None) -> Callable[[Any], Any]:
    """Run a test only for backends with exactly these capabilities; None: either. Default: ``acquires=True``."""

    def mark(test: Any) -> Any:
        test.declared = {"acquires": True} | declared
        return test

    return mark


class Suite:
    """Managers over one empty store."""

    declares = Capabilities()

    @pytest.fixture
    def connect(self) -> Connect:
        """Override this: return a function that makes a manager, with a session of its own, over one empty store.

        If the store orders by priority, the function takes ``passing_s``: how long a waiter may be overtaken, in
        seconds.
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
