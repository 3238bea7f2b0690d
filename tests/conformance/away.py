"""A deferred request waits for its locks and takes none: it goes away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.errors import Superseded
from airflow_hivelock.locks.model import DeferredGrant, WaitsFor
from tests.conformance.suite import DAY1, Polling, Suite, where

if TYPE_CHECKING:
    from airflow_hivelock.locks.manager import LockManager


class GoingAway(Suite):
    @where(invites=None)
    def test_at_its_turn_a_deferred_request_takes_no_lock(self, manager: LockManager, other: LockManager) -> None:
        """Otherwise a rerun of a year locks all its days while a few have a worker slot."""
        holder = other.acquire(owner="holder", writes=[DAY1])
        deferred = Polling.queued(manager, "late", writes=[DAY1], deferred=DeferredGrant())
        other.release(holder)
        assert deferred.free().until is None
        assert manager.show() == []
        assert other.release(other.acquire(owner="quicker", writes=[DAY1]))
        with_slot = Polling(manager, "late", writes=[DAY1], deferred=DeferredGrant(has_slot=True)).granted()
        again = Polling(other, "late", writes=[DAY1], attempt=2, deferred=DeferredGrant()).granted()
        assert again.id == with_slot.id, "an owner that holds its lease keeps it"
        assert other.release(again)

    @where(prioritized=True)
    def test_a_deferred_request_goes_away_and_blocks_no_request(self, manager: LockManager, other: LockManager) -> None:
        deferred = Polling(manager, "late", writes=[DAY1], deferred=DeferredGrant())
        deferred.free()
        waiter = deferred.listed()
        assert (waiter.waits_for, waiter.position, waiter.blocked_by) == (WaitsFor.SLOT, 0, ())
        assert waiter.locks == deferred.pending.request.locks
        assert manager.show() == []
        assert other.acquire(owner="quicker", writes=[DAY1])
        assert Polling(other, "next", writes=[DAY1]).blocked_by() == ["quicker"]

    @where(prioritized=True)
    def test_a_request_that_was_away_comes_back_as_a_new_arrival(
        self, manager: LockManager, other: LockManager
    ) -> None:
        Polling(manager, "late", writes=[DAY1], priority=10, deferred=DeferredGrant()).free()
        reader = other.acquire(owner="reader", reads=[DAY1])
        alter = Polling.queued(other, "alter", writes=["dw.flights"])
        back = Polling(other, "late", writes=[DAY1])
        assert back.blocked_by()[0] == "alter", "it went before a request that came while it was away"
        assert back.listed().priority == 1
        other.release(reader)
        altered = alter.granted()
        back.blocked()
        other.release(altered)
        lease = back.granted()
        assert manager.waiters() == []
        assert manager.release(lease)

    @where(prioritized=True, audits=True)
    def test_who_comes_back_is_listed_since_it_first_asked(self, manager: LockManager, other: LockManager) -> None:
        first = Polling(manager, "late", writes=[DAY1], deferred=DeferredGrant())
        first.free()
        asked = first.pending.asked
        assert asked == first.listed().since
        holder = other.acquire(owner="quicker", writes=[DAY1])
        again = Polling.queued(other, "late", writes=[DAY1], deferred=DeferredGrant(), asked=asked)
        assert again.listed().since == again.pending.asked == asked
        manager.release(holder)
        again.free()
        assert again.listed().since == again.pending.asked == asked
        taken_over = Polling(manager, "late", writes=[DAY1], asked=asked)
        lease = taken_over.granted()
        assert [tenure.asked for tenure in other.history() if tenure.lease_id == lease.id] == [asked]
        assert manager.release(lease)

    @where(prioritized=True, audits=True)
    def test_an_earlier_request_gives_no_earlier_position(self, manager: LockManager, other: LockManager) -> None:
        first = Polling(manager, "late", writes=[DAY1], deferred=DeferredGrant())
        first.free()
        holder = other.acquire(owner="holder", writes=[DAY1])
        before = Polling.queued(other, "before", writes=[DAY1])
        back = Polling(manager, "late", writes=[DAY1], asked=first.pending.asked)
        assert back.blocked_by()[0] == "before"
        other.release(holder)
        other.release(before.granted())
        assert manager.release(back.granted())

    @where(prioritized=True)
    def test_a_deferred_request_waits_in_the_queue_until_it_is_woken(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        deferred, behind = (
            Polling(other, "late", writes=[DAY1], deferred=DeferredGrant()),
            Polling(manager, "behind", writes=[DAY1]),
        )
        assert deferred.blocked_by() == ["holder"]
        assert deferred.listed().waits_for is WaitsFor.LOCK
        assert behind.blocked_by()[0] == "late"
        manager.release(lease)
        deferred.free()
        manager.release(behind.granted())

    @where(prioritized=True)
    def test_a_deferred_request_of_an_owner_that_holds_gets_its_lease(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.acquire(owner="task", writes=[DAY1], attempt=1)
        again = Polling(other, "task", writes=[DAY1], attempt=2, deferred=DeferredGrant()).granted()
        assert (again.id, again.attempt) == (lease.id, 2)
        assert other.release(again)

    @where(prioritized=True)
    def test_an_away_request_may_be_deferred_again_and_for_other_locks(
        self, manager: LockManager, other: LockManager
    ) -> None:
        Polling(manager, "task", writes=[DAY1], deferred=DeferredGrant()).free()
        Polling(other, "task", writes=[DAY1], deferred=DeferredGrant()).free()
        assert [waiter.owner for waiter in manager.waiters()] == ["task"]
        assert other.acquire(owner="task", writes=["dw.weather"])
        assert manager.waiters() == []

    @where(prioritized=True)
    def test_only_who_acts_for_the_owner_takes_its_mark_away(self, manager: LockManager, other: LockManager) -> None:
        first, second = (
            Polling(session, "task", writes=[DAY1], deferred=DeferredGrant()) for session in (manager, other)
        )
        first.free()
        second.free()
        first.pending.withdraw()
        assert [waiter.waits_for for waiter in manager.waiters()] == [WaitsFor.SLOT]
        with pytest.raises(Superseded):
            first.pending.poll()
        second.pending.withdraw()
        assert manager.waiters() == []

    @where(prioritized=True)
    def test_who_will_not_come_back_is_forgotten_and_may_come_back_all_the_same(
        self, manager: LockManager, other: LockManager
    ) -> None:
        Polling(manager, "task", writes=[DAY1], deferred=DeferredGrant(), attempt=1).free()
        assert manager.waiters()[0].attempt == 1
        assert other.forget_deferred("task", 1)
        assert not other.forget_deferred("task", 1)
        assert manager.waiters() == []
        assert manager.release(manager.acquire(owner="task", writes=[DAY1], attempt=1))

    @where(prioritized=True)
    def test_only_the_attempt_that_is_away_is_forgotten(self, manager: LockManager, other: LockManager) -> None:
        Polling(manager, "task", writes=[DAY1], deferred=DeferredGrant(), attempt=1).free()
        Polling(manager, "task", writes=[DAY1], deferred=DeferredGrant(), attempt=2).free()
        holder = manager.acquire(owner="holder", writes=["dw.weather"], attempt=1)
        Polling.queued(manager, "queued", writes=["dw.weather"], deferred=DeferredGrant(), attempt=1)
        assert not any(other.forget_deferred(owner, 1) for owner in ("task", "holder", "queued", "nobody"))
        assert {waiter.owner for waiter in manager.waiters()} == {"task", "queued"}
        assert manager.find(holder.id)
