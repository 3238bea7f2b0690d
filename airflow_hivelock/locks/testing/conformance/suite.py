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

    from airflow_hivelock.locks.manager import LockManager

    Connect = Callable[[], LockManager]

PATIENCE_S = 60.0
DAY1, DAY2 = "dw.flights/dt=2013-01-01", "dw.flights/dt=2013-01-02"


class Polling:
    """A request that waits in the open: :meth:`poll` it, or wait for its grant."""

    def __init__(self, manager: LockManager, owner: str, *, attempt: int = 0, **locks: Iterable[str]) -> None:
        self._changed = threading.Event()
        request = rules.request(owner, locks.get("reads", ()), locks.get("writes", ()), attempt=attempt)
        self.pending = manager.begin(request, self._changed.set)

    def blocked(self) -> Blocked:
        """Take the place in the queue; it must not be granted."""
        outcome = self.pending.poll()
        assert isinstance(outcome, Blocked), f"granted, where it had to wait: {outcome}"
        return outcome

    def granted(self, within_s: float = PATIENCE_S) -> Lease:
        """Wait for the grant, polling only when woken."""
        deadline = time.monotonic() + within_s
        while True:
            self._changed.clear()
            outcome = self.pending.poll()
            if isinstance(outcome, Lease):
                return outcome
            assert not isinstance(outcome, Free), "stepped aside, where it had to be granted"
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
        """Override: a function that gives a new manager, with a session of its own, over one empty store."""
        raise NotImplementedError

    @pytest.fixture
    def manager(self, connect: Connect) -> Any:
        with connect() as manager:
            yield manager

    @pytest.fixture
    def other(self, connect: Connect) -> Any:
        with connect() as manager:
            yield manager
