"""A group never holds more leases than a request's limit."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.errors import InvalidRequest, LockTimeout
from airflow_hivelock.locks.model import DeferredGrant, LeaseLimit, WaitsFor
from tests.conformance.suite import DAY1, PATIENCE_S, Polling, Suite, where

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease
    from tests.conformance.suite import Connect

ONE, TWO, THREE = (LeaseLimit("rerun", most) for most in (1, 2, 3))


def day(number: int) -> str:
    return f"dw.flights/dt=2013-02-{number:02}"


class Limiting(Suite):
    @where(limits=False)
    def test_a_limit_is_refused_where_nobody_counts(self, manager: LockManager) -> None:
        with pytest.raises(InvalidRequest, match="max_leases"):
            manager.acquire(owner="me", writes=[DAY1], limit=TWO)
        assert manager.show() == []

    @where(limits=True)
    def test_no_more_leases_of_a_group_than_a_request_says(self, manager: LockManager, other: LockManager) -> None:
        leases = _hold(manager, 1, 2)
        with pytest.raises(LockTimeout, match="rerun") as refused:
            other.acquire(owner="day 3", writes=[day(3)], limit=TWO)
        assert {(blocker.owner, blocker.group) for blocker in refused.value.blocked_by} <= {
            ("day 1", "rerun"),
            ("day 2", "rerun"),
        }
        assert manager.waiters() == []
        assert other.acquire(owner="of another group", writes=[day(4)], limit=LeaseLimit("daily", 1))
        assert other.acquire(owner="of no group", writes=[day(5)])
        manager.release(leases[0])
        assert other.acquire(owner="day 3", writes=[day(3)], limit=TWO)

    @where(limits=True)
    def test_the_next_in_order_gets_what_is_released(self, manager: LockManager, other: LockManager) -> None:
        leases = _hold(manager, 1, 2)
        third, fourth, fifth = _ask(other, 3, 4, 5)
        manager.release(leases[0])
        lease = third.granted()
        assert not {"day 1"} & {*fourth.blocked_by()}
        fifth.blocked()
        manager.force_release(leases[1].id, reason="testing", user="ops")
        fourth.granted()
        fifth.blocked()
        other.release(lease)
        assert fifth.granted()
        assert manager.waiters() == []

    @where(limits=True)
    def test_who_goes_away_lets_the_next_have_the_lease(self, manager: LockManager, other: LockManager) -> None:
        leases = _hold(manager, 1, 2)
        third, fourth = _ask(other, 3, 4)
        manager.release(leases[0])
        newcomer = Polling(manager, "day 5", writes=[day(5)], limit=TWO)
        assert [blocker.waiting for blocker in newcomer.blocked().by] != [], "it went before those that wait"
        third.pending.withdraw()
        assert fourth.granted()
        newcomer.pending.withdraw()
        assert manager.waiters() == []

    @where(limits=True)
    def test_who_waits_for_a_lease_is_listed_with_who_has_one(self, manager: LockManager, other: LockManager) -> None:
        _hold(manager, 1, 2)
        third, fourth = _ask(other, 3, 4)
        for place, waiter in enumerate((third.listed(), fourth.listed()), 1):
            assert (waiter.waits_for, waiter.position) == (WaitsFor.LEASE, place)
            assert {blocker.group for blocker in waiter.blocked_by} == {"rerun"}
            assert {blocker.owner for blocker in waiter.blocked_by[:2]} == {"day 1", "day 2"}
            assert [(one.owner, one.waiting) for one in waiter.blocked_by[2:]] == [("day 3", True)][: place - 1]
        assert "rerun" in str(third.blocked().by[0])

    @where(limits=True)
    def test_who_waits_for_a_lease_is_in_no_locks_way(self, manager: LockManager, other: LockManager) -> None:
        leases = _hold(manager, 1, 2)
        (third,) = _ask(other, 3)
        hive = manager.acquire(owner="of no group", writes=[day(3)])
        manager.release(hive)
        alter = Polling(manager, "alter", writes=["dw.flights"])
        assert {*alter.blocked_by()} == {"day 1", "day 2"}
        manager.release(leases[0])
        assert "alter" in third.blocked_by(), "each of a rerun's days would go before what came after them"
        assert third.listed().waits_for is WaitsFor.LOCK
        manager.release(leases[1])
        manager.release(alter.granted())
        assert third.granted()

    @where(limits=True)
    def test_who_is_blocked_on_locks_keeps_nobody_from_a_lease(self, manager: LockManager, other: LockManager) -> None:
        leases = _hold(manager, 1, 2)
        holder = manager.acquire(owner="holder", writes=[day(3)])
        third, fourth = _ask(other, 3, 4)
        manager.release(leases[0])
        fourth.blocked()
        assert third.blocked_by() == ["holder"]
        fourth.woken()
        lease = fourth.granted()
        manager.release(holder)
        ends = time.monotonic() + PATIENCE_S
        while third.listed().waits_for is WaitsFor.LOCK:  # no request blocks it there any longer
            assert time.monotonic() < ends
            third.blocked()
        other.release(lease)
        assert third.granted()

    @where(limits=True)
    def test_each_is_held_to_its_own_number_and_the_strict_are_not_passed(
        self, manager: LockManager, other: LockManager
    ) -> None:
        first, second = _hold(manager, 1, 2)
        third = other.acquire(owner="day 3", writes=[day(3)], limit=THREE)
        strict = Polling.queued(other, "strict", writes=[day(4)], limit=TWO)
        lax = Polling.queued(manager, "lax", writes=[day(5)], limit=THREE)
        manager.release(first)
        strict.blocked()
        assert "strict" in lax.blocked_by()
        other.release(third)
        assert strict.granted()
        assert lax.granted()
        manager.verify(second)

    @where(limits=True, prioritized=True)
    def test_the_more_urgent_gets_a_lease_first(self, manager: LockManager, other: LockManager) -> None:
        leases = _hold(manager, 1, 2)
        asked = {"low": 1, "high": 5, "low too": 1}
        waiting = {
            owner: Polling.queued(other, owner, writes=[day(place)], limit=TWO, priority=asked[owner])
            for place, owner in enumerate(asked, 3)
        }
        order = ["high", "low", "low too"]
        assert [waiter.owner for waiter in manager.waiters()] == order
        lease = leases[0]
        for owner in order:
            manager.release(lease)
            lease = waiting[owner].granted()

    @where(limits=True, remembers=True)
    def test_an_owners_next_process_takes_over_its_lease_or_its_place(
        self, manager: LockManager, other: LockManager
    ) -> None:
        leases = _hold(manager, 1, 2)
        again = other.acquire(owner="day 2", writes=[day(2)], limit=TWO, attempt=1)
        assert again.id == leases[1].id
        _, fourth = _ask(manager, 3, 4)
        successor = Polling.queued(other, "day 3", writes=[day(3)], limit=TWO)
        assert [waiter.owner for waiter in manager.waiters()] == ["day 3", "day 4"]
        other.release(again)
        successor.granted()
        fourth.blocked()

    @where(limits=True, remembers=True)
    def test_who_has_handed_its_place_over_keeps_nobody_from_a_lease(
        self, manager: LockManager, other: LockManager
    ) -> None:
        leases = _hold(manager, 1, 2)
        third, fourth = _ask(other, 3, 4)
        third.pending.hand_over()
        fourth.blocked()
        manager.release(leases[0])
        assert fourth.granted()

    @where(limits=True, prioritized=True)
    def test_a_deferred_request_waits_for_a_lease_and_takes_none(
        self, manager: LockManager, other: LockManager
    ) -> None:
        leases = _hold(manager, 1, 2)
        deferred = Polling.queued(other, "late", writes=[day(3)], limit=TWO, deferred=DeferredGrant())
        assert deferred.listed().waits_for is WaitsFor.LEASE
        manager.release(leases[0])
        deferred.free()
        assert deferred.listed().waits_for is WaitsFor.SLOT
        assert manager.acquire(owner="quicker", writes=[day(4)], limit=TWO)

    @where(limits=True, expires=True)
    def test_a_lease_that_expires_is_another_ones_of_its_group(self, manager: LockManager, other: LockManager) -> None:
        dead = manager.acquire(owner="dead", writes=[day(1)], lease_s=1, limit=ONE)
        waiting = Polling(other, "next", writes=[day(2)], limit=ONE)
        ends = time.monotonic() + PATIENCE_S
        while isinstance(waiting.pending.poll(), Blocked):
            assert time.monotonic() < ends, "still blocked by a lease that nobody renews"
            time.sleep(waiting.pending.wait_s() or 0.1)
        assert not manager.release(dead), "two leases were out, where one may be"

    @where(limits=True)
    def test_many_at_once_never_hold_more(self, connect: Connect) -> None:
        assert 1 <= most_at_once(connect, [TWO] * 6, rounds=5) <= TWO.most


def _hold(manager: LockManager, *days: int) -> list[Lease]:
    """Take a lease for each of these days."""
    return [manager.acquire(owner=f"day {number}", writes=[day(number)], limit=TWO) for number in days]


def _ask(manager: LockManager, *days: int) -> list[Polling]:
    """Start a waiter for each of these days, in this order."""
    return [Polling.queued(manager, f"day {number}", writes=[day(number)], limit=TWO) for number in days]


def most_at_once(
    connect: Connect, limits: Sequence[LeaseLimit], *, rounds: int, meanwhile: Callable[[], object] = lambda: None
) -> int:
    """The largest sum of weights that was held at once, by a worker for each of *limits* that takes and releases leases.

    :param meanwhile: called once while they run.
    """
    counting, out, most = threading.Lock(), [0], [0]

    def run(number: int, limit: LeaseLimit) -> None:
        with connect() as session:
            for turn in range(rounds):
                owner, table = f"{number}/{turn}", f"dw.table_{number}"
                lease = session.acquire(owner=owner, writes=[table], limit=limit, timeout_s=PATIENCE_S)
                with counting:
                    out[0] += limit.weight or 1
                    most[0] = max(most[0], out[0])
                time.sleep(0)  # let another in, if the store allows it
                with counting:
                    out[0] -= limit.weight or 1
                session.release(lease)

    with ThreadPoolExecutor(len(limits)) as threads:
        running = [threads.submit(run, number, limit) for number, limit in enumerate(limits)]
        meanwhile()
        for one in running:
            one.result(2 * PATIENCE_S)
    return most[0]
