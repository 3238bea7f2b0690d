"""The order of waiters, and how a place in it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.errors import Superseded
from airflow_hivelock.locks.testing.conformance.suite import DAY1, Polling, Suite, where

if TYPE_CHECKING:
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.testing.conformance.suite import Connect


class Queueing(Suite):
    def test_first_come_first_served(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="reader", reads=[DAY1])
        writer = Polling(other, "writer", writes=[DAY1])
        writer.blocked()
        late = Polling(manager, "late reader", reads=[DAY1])
        assert late.blocked().by[0].owner == "writer", "a stream of readers would starve the writer"
        manager.release(lease)
        other.release(writer.granted())
        assert late.granted()

    def test_waiters_are_listed_in_their_order(self, manager: LockManager, other: LockManager) -> None:
        manager.acquire(owner="holder", writes=[DAY1])
        queue = [Polling(other, name, writes=[DAY1]) for name in ("first", "second", "third")]
        for waiting in queue:
            waiting.blocked()
        waiters = manager.waiters("dw.flights")
        assert [waiter.owner for waiter in waiters] == ["first", "second", "third"]
        assert [waiter.place for waiter in waiters] == [1, 2, 3]
        assert waiters[0].blocked_by[0].owner == "holder"
        assert manager.waiters("dw.other") == []
        leases, waiters = manager.requests()
        assert [lease.owner for lease in leases] == ["holder"]
        assert [waiter.owner for waiter in waiters] == ["first", "second", "third"]
        for waiting in queue:
            waiting.pending.withdraw()
        assert manager.waiters() == []

    def test_a_request_for_two_tables_counts_once_among_those_ahead(
        self, manager: LockManager, other: LockManager
    ) -> None:
        manager.acquire(owner="holder", writes=["dw.flights"])
        both, whole = (
            Polling(manager, "both", writes=["dw.flights", "dw.delays"]),
            Polling(other, "whole", writes=["dw"]),
        )
        both.blocked()
        whole.blocked()
        waiter = manager.waiters()[1]
        assert (waiter.place, [blocker.owner for blocker in waiter.blocked_by]) == (2, ["both", "holder"])

    @where(remembers=True)
    def test_a_place_that_was_handed_over_keeps_nobody_waiting_and_is_kept_meanwhile(
        self, manager: LockManager, connect: Connect
    ) -> None:
        """Its session lives on: as a triggerer's, whose triggers Airflow has given to another."""
        lease = manager.acquire(owner="holder", writes=[DAY1])
        with connect() as first, connect() as second:
            early, late = Polling(first, "early", writes=[DAY1]), Polling(second, "late", writes=[DAY1])
            early.blocked()
            late.blocked()
            early.pending.hand_over()
            late.blocked()
            heir = Polling(second, "early", writes=[DAY1])
            heir.blocked()
            early.pending.hand_over()  # it is another's by now
            assert [waiter.owner for waiter in manager.waiters()] == ["early", "late"]
            manager.release(lease)
            second.release(heir.granted())
            lease = late.granted()
            again = Polling(first, "early", writes=[DAY1])
            again.blocked()
            newcomer = Polling(second, "newcomer", writes=[DAY1])
            newcomer.blocked()
            again.pending.hand_over()
            second.release(lease)
            assert newcomer.granted()
            assert manager.waiters() == []

    @where(remembers=True)
    def test_a_place_in_the_queue_outlives_the_process_that_took_it(
        self, manager: LockManager, connect: Connect
    ) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        with connect() as first, connect() as second:
            dying = Polling(first, "early", writes=[DAY1], attempt=1)
            dying.blocked()
            behind = Polling(second, "late", writes=[DAY1])
            behind.blocked()
            heir = Polling(second, "early", writes=[DAY1], attempt=1)
            heir.blocked()
            with pytest.raises(Superseded):
                dying.pending.poll()
            manager.release(lease)
            second.release(heir.granted())
            second.release(behind.granted())

    @where(remembers=False)
    def test_an_owner_finds_its_place_in_the_queue_again(self, manager: LockManager, connect: Connect) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        with connect() as first, connect() as second:
            Polling(first, "early", writes=[DAY1]).blocked()
            behind = Polling(second, "late", writes=[DAY1])
            behind.blocked()
            heir = Polling(second, "early", writes=[DAY1])
            heir.blocked()
            manager.release(lease)
            second.release(heir.granted())
            second.release(behind.granted())
