"""A person changes the priority of a request that waits."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks.errors import InvalidRequest, Unsupported
from airflow_hivelock.locks.model import DeferredGrant, LeaseLimit
from tests.conformance.priority import A_MOMENT, wait_until
from tests.conformance.suite import DAY1, DAY2, Polling, Suite, where

if TYPE_CHECKING:
    from airflow_hivelock.locks.manager import LockManager
    from tests.conformance.suite import Connect

BY = {"reason": "the board waits for it", "user": "ops"}


def order(manager: LockManager) -> list[str]:
    return [waiter.owner for waiter in manager.waiters()]


def queue(*managers: LockManager, **asked: int) -> dict[str, Polling]:
    """Requests of these priorities that arrive one after another, in turns at the managers."""
    waiting = {}
    for number, (owner, priority) in enumerate(asked.items()):
        waiting[owner] = Polling(managers[number % len(managers)], owner, writes=[DAY1], priority=priority)
        waiting[owner].blocked()
    return waiting


def follow(manager: LockManager, lease: Any, waiting: dict[str, Polling], *expected: str) -> None:
    """Release *lease*; the requests are granted in this order, each while the later ones wait."""
    for number, owner in enumerate(expected):
        manager.release(lease)
        lease = waiting[owner].granted()
        for behind in expected[number + 1 :]:
            waiting[behind].blocked()
    manager.release(lease)


class ChangingPriority(Suite):
    @where(prioritized=True)
    def test_a_raised_request_overtakes_those_of_lower_priority(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        waiting = queue(manager, other, urgent=5, first=1, second=1, last=1)
        asked = waiting["last"].listed().since
        assert manager.force_priority("last", 5, **BY)
        waiting["last"].woken()
        assert order(other) == ["urgent", "last", "first", "second"]
        listed = waiting["last"].listed()
        assert (listed.priority, listed.position, listed.since) == (5, 2, asked)
        assert "urgent" in waiting["last"].blocked_by()
        follow(manager, lease, waiting, "urgent", "last", "first", "second")
        (entry,) = other.audit(DAY1)
        assert (entry.owner, entry.user, entry.reason) == ("last", "ops", f"priority 5: {BY['reason']}")

    @where(prioritized=True)
    def test_a_lowered_request_goes_behind_those_of_its_new_priority(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        waiting = queue(manager, other, lowered=5, first=3, second=3, last=1)
        assert other.force_priority("lowered", 3, **BY)
        for request in waiting.values():
            request.blocked()
        assert order(manager) == ["first", "second", "lowered", "last"]
        follow(manager, lease, waiting, "first", "second", "lowered", "last")

    @where(prioritized=True)
    def test_a_raised_request_does_not_lose_its_place_to_equals_behind_it(
        self, manager: LockManager, other: LockManager
    ) -> None:
        manager.acquire(owner="holder", writes=[DAY1, DAY2])
        first, between = Polling(manager, "first", writes=[DAY1]), Polling(other, "between", writes=[DAY2], priority=5)
        for request in (first, between, Polling(other, "behind", writes=[DAY1, DAY2], priority=5)):
            request.blocked()
        assert other.force_priority("first", 5, **BY)
        assert first.blocked_by() == ["holder"]
        assert order(manager) == ["first", "between", "behind"]

    @where(prioritized=True)
    def test_no_request_is_overtaken_after_the_bound(self, manager: LockManager, connect: Connect) -> None:
        manager.acquire(owner="holder", writes=[DAY1])
        waiting = queue(manager, patient=1, later=1)
        # On a slow disk the steps until the last two changes take longer than a moment.
        wait_until(manager, waiting["later"].listed().since + 5 * A_MOMENT)
        with connect(passing_s=A_MOMENT.total_seconds() / 2) as strict:
            with pytest.raises(InvalidRequest, match="later can overtake no request"):
                strict.force_priority("later", 9, **BY)
            assert strict.audit() == []
            Polling.queued(strict, "young", writes=[DAY1])
        bound = manager.now() - waiting["later"].listed().since - timedelta(seconds=0.1)
        with connect(passing_s=bound.total_seconds()) as strict:
            assert strict.force_priority("young", 9, **BY)
            assert order(manager) == ["patient", "later", "young"]
            assert strict.force_priority("patient", 0, **BY)
            assert order(manager) == ["later", "young", "patient"]

    @where(prioritized=True)
    def test_a_lease_that_was_granted_to_one_that_it_overtakes_stays(
        self, manager: LockManager, other: LockManager
    ) -> None:
        first = manager.acquire(owner="holder", writes=[DAY1])
        waits = Polling.queued(manager, "waits", writes=[DAY1, DAY2])
        urgent = other.acquire(owner="urgent", writes=[DAY2], priority=5)
        assert other.force_priority("waits", 9, **BY)
        assert {*waits.blocked_by()} == {"holder", "urgent"}
        manager.release(first)
        assert waits.blocked_by() == ["urgent"]
        other.verify(urgent)
        other.release(urgent)
        assert waits.granted()

    @where(prioritized=True)
    def test_the_owners_next_process_keeps_the_new_priority(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        waiting = queue(manager, first=1, raised=1)
        waiting["raised"].pending.hand_over()
        assert other.force_priority("raised", 7, **BY)
        waiting["raised"] = Polling(other, "raised", writes=[DAY1])
        waiting["raised"].blocked()
        assert waiting["raised"].listed().priority == 7
        follow(manager, lease, waiting, "raised", "first")

    @where(prioritized=True, invites=True)
    def test_a_deferred_request_keeps_it_until_its_worker_comes(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        queue(other, first=1)
        late = Polling.queued(manager, "late", writes=[DAY1], deferred=DeferredGrant(30.0))
        assert other.force_priority("late", 7, **BY)
        late.blocked()
        manager.release(lease)
        late.free()
        assert late.listed().priority == 7
        assert not other.force_priority("late", 1, **BY)
        assert Polling(other, "late", writes=[DAY1], deferred=DeferredGrant(30.0, has_slot=True)).granted()

    @where(prioritized=True)
    def test_only_a_request_that_waits_for_its_locks_can_have_another(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        Polling(manager, "waits", writes=[DAY1]).blocked()
        with pytest.raises(InvalidRequest, match="waits has priority 1 already"):
            other.force_priority("waits", 1, **BY)
        assert not other.force_priority("holder", 5, **BY)
        assert not other.force_priority("nobody", 5, **BY)
        for priority in (True, 10**10, "5"):
            with pytest.raises(InvalidRequest, match="priority="):
                other.force_priority("holder", priority, **BY)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="reason"):
            other.force_priority("holder", 5, reason=" ", user="ops")
        manager.verify(lease)
        assert other.audit() == []

    @where(prioritized=True, limits=True)
    def test_a_request_that_waits_for_a_permit_keeps_its_priority(
        self, manager: LockManager, other: LockManager
    ) -> None:
        limit = LeaseLimit("nightly", 1)
        lease = manager.acquire(owner="holder", writes=[DAY1], limit=limit)
        parked = Polling.queued(manager, "parked", writes=[DAY2], limit=limit)
        assert not other.force_priority("parked", 5, **BY)
        assert parked.listed().priority == 1
        manager.release(lease)
        manager.release(parked.granted())

    @where(prioritized=True, limits=True)
    def test_a_request_that_waits_for_a_permit_again_has_its_new_priority(
        self, manager: LockManager, other: LockManager
    ) -> None:
        one = LeaseLimit("group", 1)
        holder = manager.acquire(owner="holder", writes=[DAY1])
        permitted = manager.acquire(owner="permitted", writes=["dw.a"], limit=one)
        first = Polling.queued(manager, "first", writes=[DAY1], limit=one, priority=0)
        manager.release(permitted)
        assert first.blocked_by() == ["holder"]
        permitted = manager.acquire(owner="permitted", writes=["dw.a"], limit=one)
        daily = Polling.queued(other, "daily", writes=["dw.c"], limit=one)
        assert other.force_priority("first", 5, **BY)
        manager.release(holder)
        assert first.blocked_by() == ["permitted"]
        third = Polling.queued(other, "third", writes=["dw.b"], limit=one, priority=3)
        manager.release(permitted)
        manager.release(first.granted())
        other.release(third.granted())
        other.release(daily.granted())

    @where(acquires=None, prioritized=False)
    def test_a_store_without_priorities_changes_none(self, manager: LockManager) -> None:
        with pytest.raises(Unsupported, match="first"):
            manager.force_priority("first", 5, **BY)
