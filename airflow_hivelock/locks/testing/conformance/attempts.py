"""A later attempt of an owner takes over from an earlier one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.errors import LockLost, Superseded
from airflow_hivelock.locks.testing.conformance.suite import DAY1, Polling, Suite, where

if TYPE_CHECKING:
    from airflow_hivelock.locks.manager import LockManager


class Attempts(Suite):
    @where(remembers=True)
    def test_a_later_attempt_takes_over_and_the_late_release_of_the_earlier_frees_nothing(
        self, manager: LockManager, other: LockManager
    ) -> None:
        first = manager.acquire(owner="task", writes=[DAY1], attempt=1)
        second = other.acquire(owner="task", writes=[DAY1], attempt=2)
        assert (second.id, second.attempt) == (first.id, 2)
        assert not manager.release(first)
        with pytest.raises(LockLost):
            manager.renew(first)
        with pytest.raises(Superseded):
            manager.acquire(owner="task", writes=[DAY1], attempt=1)
        assert manager.show(), "the earlier attempt freed what the later one holds"
        other.renew(second)
        assert other.release(second)

    @where(remembers=False)
    def test_attempts_are_told_by_the_one_that_acquired(self, manager: LockManager, other: LockManager) -> None:
        second = manager.acquire(owner="task", writes=[DAY1], attempt=2)
        with pytest.raises(Superseded):
            other.acquire(owner="task", writes=[DAY1], attempt=1)
        assert not other.release(replace(second, attempt=1))
        third = other.acquire(owner="task", writes=[DAY1], attempt=3)
        assert (third.id, third.attempt) == (second.id, 3)
        assert other.release(third)
        assert manager.show() == []

    @where(remembers=True)
    def test_a_call_that_was_taken_over_stays_so_when_the_later_one_has_ended(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        slow, heir = (Polling(session, "task", writes=[DAY1]) for session in (manager, other))
        slow.blocked()
        heir.blocked()
        manager.release(lease)
        other.release(heir.granted())
        with pytest.raises(Superseded):
            slow.pending.poll()
        assert manager.show() == [], "a lease that nobody owns"
