"""A deferred request is invited at its turn: it keeps its queue position while its task gets a worker slot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.errors import LockTimeout, Superseded
from airflow_hivelock.locks.model import DeferredGrant, LeaseLimit, Member, WaitsFor
from tests.conformance.suite import DAY1, DAY2, PATIENCE_S, Polling, Suite, where

if TYPE_CHECKING:
    from typing import Any

    from airflow_hivelock.locks.manager import LockManager

LONG = DeferredGrant(600.0)
BRIEF = DeferredGrant(0.2)
WITH_SLOT = DeferredGrant(600.0, has_slot=True)
ONE = LeaseLimit("group", 1)


def invited(manager: LockManager, owner: str, deferred: DeferredGrant = LONG, **names: Any) -> Polling:
    """A request that has waited until it is invited."""
    polling = Polling(manager, owner, deferred=deferred, **({"writes": [DAY1]} | names))
    assert polling.free().until is not None, "it is away, but should be invited"
    return polling


def worker(manager: LockManager, owner: str, **names: Any) -> Polling:
    """The request of its task's worker, with its slot."""
    return Polling(manager, owner, deferred=WITH_SLOT, **({"writes": [DAY1]} | names))


def is_over(polling: Polling, manager: LockManager) -> None:
    """Wait until its invitation is over by the store's clock."""
    until, deadline = polling.listed().until, time.monotonic() + PATIENCE_S
    assert until is not None
    while manager.now() <= until:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def gone_away(manager: LockManager, other: LockManager, owner: str = "late", **options: Any) -> None:
    """Invite a request of *owner*, and end the invitation by another request."""
    polling = invited(manager, owner, BRIEF, **options)
    ended_by = Polling(other, "the next", writes=[DAY1])
    lease = ended_by.granted()
    assert (polling.listed().waits_for, polling.listed().position) == (WaitsFor.SLOT, 0)
    other.release(lease)


class Inviting(Suite):
    @where(invites=True)
    def test_an_invited_request_keeps_its_position(self, manager: LockManager, other: LockManager) -> None:
        holder = manager.acquire(owner="holder", writes=[DAY1])
        first, second = (
            Polling.queued(session, name, writes=[DAY1], deferred=LONG)
            for session, name in ((manager, "1"), (other, "2"))
        )
        manager.release(holder)
        outcome = first.free()
        listed = first.listed()
        assert (listed.waits_for, listed.position, listed.until) == (WaitsFor.SLOT, 1, outcome.until)
        assert manager.show() == [], "an invited request holds locks"
        (ahead,) = second.blocked().by
        assert (ahead.owner, ahead.waiting, ahead.until) == ("1", True, outcome.until)
        lease = worker(other, "1").granted()
        assert [blocker.until for blocker in second.blocked().by] == [None]
        assert manager.release(lease)
        second.free()

    @where(invites=True)
    def test_one_that_arrives_where_no_other_is_in_its_way_is_invited_at_once(
        self, manager: LockManager, other: LockManager
    ) -> None:
        deferred = invited(manager, "late")
        assert deferred.listed().position == 1
        assert Polling(other, "behind", writes=[DAY1]).blocked_by() == ["late"]
        assert other.acquire(owner="elsewhere", writes=[DAY2], timeout_s=0)

    @where(invites=True, prioritized=True)
    def test_a_more_urgent_request_passes_an_invited_one(self, manager: LockManager, other: LockManager) -> None:
        invited(manager, "late")
        urgent = Polling(other, "urgent", writes=[DAY1], priority=10).granted()
        assert [blocker.owner for blocker in worker(manager, "late").blocked().by] == ["urgent"]
        assert other.release(urgent)
        assert manager.release(worker(manager, "late").granted())

    @where(invites=True)
    def test_a_request_that_does_not_wait_is_told_until_when(self, manager: LockManager, other: LockManager) -> None:
        deferred = invited(manager, "late")
        until = deferred.listed().until
        assert until is not None
        with pytest.raises(LockTimeout, match=f"late waits ahead .* until {until:%H:%M:%S}Z"):
            other.acquire(owner="impatient", writes=[DAY1], timeout_s=0)

    @where(invites=True)
    def test_a_worker_that_comes_after_the_end_is_granted_while_no_other_waits(
        self, manager: LockManager, other: LockManager
    ) -> None:
        is_over(invited(manager, "late", BRIEF), manager)
        assert other.release(worker(other, "late").granted())

    @where(invites=True)
    def test_a_waiter_ends_an_invitation_that_is_over(self, manager: LockManager, other: LockManager) -> None:
        deferred = invited(manager, "late", BRIEF)
        behind = Polling(other, "behind", writes=[DAY1])
        lease = behind.granted()
        listed = deferred.listed()
        assert (listed.waits_for, listed.position, listed.until) == (WaitsFor.SLOT, 0, None)
        assert [blocker.owner for blocker in worker(manager, "late").blocked().by] == ["behind"]
        assert other.release(lease)
        assert manager.release(worker(manager, "late").granted())

    @where(invites=True)
    def test_a_new_arrival_ends_all_invitations_in_its_way_that_are_over(
        self, manager: LockManager, other: LockManager
    ) -> None:
        days = [f"dw.flights/dt=2013-01-0{day}" for day in range(1, 6)]
        for deferred in [invited(manager, day, BRIEF, writes=[day]) for day in days]:
            is_over(deferred, manager)
        lease = other.acquire(owner="alter", writes=["dw.flights"], timeout_s=0)
        assert {(waiter.owner, waiter.position) for waiter in manager.waiters()} == {(day, 0) for day in days}
        assert other.release(lease)

    @where(invites=True)
    def test_a_worker_that_must_wait_changes_nothing(self, manager: LockManager, other: LockManager) -> None:
        invited(manager, "late")
        urgent = other.acquire(owner="urgent", writes=[DAY1], priority=10)
        behind = Polling.queued(other, "behind", writes=[DAY1])
        before = manager.waiters()
        arrived = worker(manager, "late")
        arrived.blocked()
        arrived.blocked()
        fresh = worker(manager, "has not asked before")
        fresh.blocked()
        assert manager.waiters() == before
        fresh.pending.withdraw()
        assert manager.waiters() == before
        other.release(urgent)
        assert behind.blocked_by() == ["late"]

    @where(invites=True)
    def test_a_trigger_takes_an_invitation_up_at_its_position(self, manager: LockManager, other: LockManager) -> None:
        invited(manager, "late")
        urgent = other.acquire(owner="urgent", writes=[DAY1], priority=10)
        behind = Polling.queued(other, "behind", writes=[DAY1])
        worker(manager, "late").blocked()
        again = Polling(other, "late", writes=[DAY1], deferred=LONG)
        assert again.blocked_by() == ["urgent"]
        assert (again.listed().waits_for, again.listed().until) == (WaitsFor.LOCK, None)
        other.release(urgent)
        assert again.free().until
        assert behind.blocked_by() == ["late"]

    @where(invites=True)
    def test_one_whose_invitation_is_over_comes_back_to_its_position(
        self, manager: LockManager, other: LockManager
    ) -> None:
        gone_away(manager, other)
        holder = other.acquire(owner="holder", writes=[DAY1])
        behind = Polling.queued(other, "behind", writes=[DAY1])
        back = Polling(manager, "late", writes=[DAY1], deferred=LONG)
        assert back.blocked_by() == ["holder"]
        assert "late" in behind.blocked_by()
        other.release(holder)
        back.free()

    @where(invites=True, prioritized=True)
    @pytest.mark.parametrize("what", ["urgent", "for the table", "for much else", "new attempt", "other locks"])
    def test_one_that_comes_back_does_not_pass(self, manager: LockManager, other: LockManager, what: str) -> None:
        gone_away(manager, other)
        holder = other.acquire(owner="holder", writes=[DAY1])
        much = [f"dw.flights/dt=2013-01-0{day}" for day in range(1, 6)]
        names = {"for the table": ["dw.flights"], "for much else": much}.get(what, [DAY1])
        Polling.queued(other, "first", writes=names, priority=10 if what == "urgent" else 1)
        attempt, more = int(what == "new attempt"), ["dw.weather"] if what == "other locks" else []
        back = Polling(manager, "late", writes=[DAY1, *more], deferred=LONG, attempt=attempt)
        assert back.blocked_by()[0] == "first"
        other.release(holder)

    @where(invites=True, limits=True)
    def test_an_invited_request_has_its_permit(self, manager: LockManager, other: LockManager) -> None:
        invited(manager, "late", limit=ONE)
        parked = Polling(other, "parked", writes=[DAY2], limit=ONE)
        assert parked.blocked_by() == ["late"]
        lease = worker(other, "late", limit=ONE).granted()
        assert parked.blocked_by() == ["late"], "the permit was free between the invitation and the lease"
        assert manager.release(lease)
        assert other.release(parked.granted())

    @where(invites=True, limits=True)
    def test_the_first_of_a_group_ends_an_invitation_that_has_its_permit(
        self, manager: LockManager, other: LockManager
    ) -> None:
        deferred = invited(manager, "late", BRIEF, limit=ONE)
        lease = Polling(other, "parked", writes=[DAY2], limit=ONE).granted()
        assert (deferred.listed().waits_for, deferred.listed().position) == (WaitsFor.SLOT, 0)
        assert [use.holding for use in other.groups()] == [(Member("parked"),)], "a request that is away has no permit"
        assert [blocker.group for blocker in worker(manager, "late", limit=ONE).blocked().by] == [ONE.group]
        assert other.release(lease)

    @where(invites=True, limits=True, prioritized=True)
    def test_one_that_waits_again_gives_its_permit_back(self, manager: LockManager, other: LockManager) -> None:
        invited(manager, "late", limit=ONE)
        urgent = other.acquire(owner="urgent", writes=[DAY1], priority=10)
        parked = Polling(other, "parked", writes=[DAY2], limit=ONE)
        assert parked.blocked_by() == ["late"]
        worker(manager, "late", limit=ONE).blocked()
        Polling(manager, "late", writes=[DAY1], deferred=LONG, limit=ONE).blocked()
        assert other.release(parked.granted())
        assert other.release(urgent)

    @where(invites=True)
    def test_only_the_attempt_that_is_invited_is_forgotten(self, manager: LockManager, other: LockManager) -> None:
        invited(manager, "task", attempt=2)
        behind = Polling.queued(other, "behind", writes=[DAY1])
        assert not other.forget_deferred("task", 1)
        assert other.forget_deferred("task", 2)
        assert [waiter.owner for waiter in manager.waiters()] == ["behind"]
        assert other.release(behind.granted())
        gone_away(manager, other, "away", attempt=1)
        assert other.forget_deferred("away", 1)
        assert manager.waiters() == []

    @where(invites=True)
    def test_what_is_invited_can_be_withdrawn(self, manager: LockManager, other: LockManager) -> None:
        deferred = invited(manager, "late")
        deferred.pending.withdraw()
        assert manager.waiters() == []
        invited(manager, "late")
        arrived = worker(other, "late")
        urgent = other.acquire(owner="urgent", writes=[DAY1], priority=10)
        arrived.blocked()
        arrived.pending.withdraw()
        assert manager.waiters() == [], "a worker that gives up leaves an invitation"
        assert other.release(urgent)

    @where(invites=True)
    def test_handing_over_leaves_an_invitation_as_it_is(self, manager: LockManager, other: LockManager) -> None:
        deferred = invited(manager, "late")
        deferred.pending.hand_over()
        assert Polling(other, "behind", writes=[DAY1]).blocked_by() == ["late"]

    @where(invites=True)
    def test_the_next_attempt_takes_an_invitation_up(self, manager: LockManager, other: LockManager) -> None:
        first = invited(manager, "task", attempt=1)
        behind = Polling.queued(other, "behind", writes=[DAY1])
        second = Polling(other, "task", writes=[DAY1], attempt=2, deferred=LONG)
        second.free()
        assert behind.blocked_by() == ["task"]
        with pytest.raises(Superseded):
            first.pending.poll()
        assert other.release(worker(manager, "task", attempt=2).granted())

    @where(invites=True)
    def test_an_invitation_is_given_up_for_other_locks(self, manager: LockManager, other: LockManager) -> None:
        invited(manager, "task")
        behind = Polling.queued(other, "behind", writes=[DAY1])
        assert worker(manager, "task", writes=["dw.weather"]).granted()
        assert other.release(behind.granted())

    @where(invites=True, audits=True)
    def test_the_wait_is_told_from_the_first_request(self, manager: LockManager, other: LockManager) -> None:
        deferred = invited(manager, "late")
        asked = deferred.pending.asked
        assert asked == deferred.listed().since
        lease = worker(other, "late").granted()
        assert [tenure.asked for tenure in other.history() if tenure.lease_id == lease.id] == [asked]
        assert other.release(lease)

    @where(invites=None)
    def test_a_worker_joins_no_queue(self, manager: LockManager, other: LockManager) -> None:
        holder = other.acquire(owner="holder", writes=[DAY1])
        arrived = worker(manager, "late")
        arrived.blocked()
        behind = Polling.queued(other, "behind", writes=[DAY1])
        other.release(holder)
        assert other.release(behind.granted())
        assert manager.release(arrived.granted())
