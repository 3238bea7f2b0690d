"""The waiter of the highest priority goes first, within a bound."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import permutations
from typing import TYPE_CHECKING

from airflow_hivelock.locks.model import LeaseLimit
from tests.conformance.suite import DAY1, DAY2, PATIENCE_S, Polling, Suite, where

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_hivelock.locks.manager import LockManager
    from tests.conformance.suite import Connect

A_MOMENT = timedelta(seconds=0.3)

BACKGROUND = 168
"""A request of priority 0 or less can be overtaken so many times as long."""

BEHIND = 1 << 62
"""ZooKeeper and the databases add it to the position of a request of priority 0 or less."""


def unclaimed(number: int, priority: int) -> int:
    """The position of a request that draws this *number*, if it claims no other."""
    return number if priority > 0 else BEHIND + number


class Prioritizing(Suite):
    @where(prioritized=True)
    def test_the_more_urgent_goes_first_and_equals_in_their_order(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1], priority=1)
        asked = {"first": 1, "urgent": 5, "second": 1, "most urgent": 9, "urgent too": 5}
        waiting = {
            owner: Polling.queued(session, owner, writes=[DAY1], priority=priority)
            for (owner, priority), session in zip(asked.items(), (manager, other) * 3, strict=False)
        }
        order = ["most urgent", "urgent", "urgent too", "first", "second"]
        listed = manager.waiters(DAY1)
        assert [(waiter.owner, waiter.priority, waiter.position) for waiter in listed] == [
            (owner, asked[owner], place) for place, owner in enumerate(order, 1)
        ]
        for place, owner in enumerate(order):
            manager.release(lease)
            lease = waiting[owner].granted()
            for behind in order[place + 1 :]:
                waiting[behind].blocked()

    @where(prioritized=True)
    def test_the_less_urgent_goes_last(self, manager: LockManager, other: LockManager) -> None:
        manager.acquire(owner="holder", writes=[DAY1])
        urgent, idle = (Polling(other, name, writes=[DAY1], priority=n) for name, n in (("urgent", 5), ("idle", -5)))
        urgent.blocked()
        assert idle.blocked_by() == ["urgent", "holder"]
        assert urgent.blocked_by() == ["holder"]

    @where(prioritized=True)
    def test_the_end_of_a_lease_in_the_background_wakes_the_next_waiter_alone(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.acquire(owner="backfill", writes=[DAY1], priority=0)
        daily = [Polling.queued(other, f"daily {number}", writes=[DAY1]) for number in range(4)]
        assert daily[1].blocked_by() == ["daily 0", "backfill"]
        manager.release(lease)
        other.release(daily[0].granted())
        daily[1].woken()
        assert not daily[3].is_woken

    @where(prioritized=True)
    def test_holders_are_not_passed(self, manager: LockManager, other: LockManager) -> None:
        """A request that was granted while an overtaken one waited is a holder too, and is not overtaken."""
        lease = manager.acquire(owner="holder", writes=[DAY1])
        Polling(manager, "waits", writes=[DAY1]).blocked()
        later = manager.acquire(owner="granted later", writes=[DAY2])
        urgent = Polling(other, "urgent", writes=[DAY1, DAY2], priority=9)
        assert {*urgent.blocked_by()} == {"holder", "granted later"}
        manager.release(lease)
        assert urgent.blocked_by() == ["granted later"]
        manager.release(later)
        assert urgent.granted()

    @where(prioritized=True)
    def test_what_only_the_less_urgent_wait_for_is_granted_at_once(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        waits = Polling.queued(other, "waits", writes=[DAY1, DAY2])
        equal = Polling(manager, "equal", writes=[DAY2])
        assert equal.blocked_by() == ["waits"]
        urgent = manager.acquire(owner="urgent", writes=[DAY2], priority=2)
        manager.release(lease)
        assert waits.blocked_by() == ["urgent"]
        manager.release(urgent)
        other.release(waits.granted())
        assert equal.granted()

    @where(prioritized=True)
    def test_who_has_waited_longer_than_the_bound_is_passed_no_more(
        self, manager: LockManager, connect: Connect
    ) -> None:
        manager.acquire(owner="holder", writes=[DAY1])
        patient = Polling.queued(manager, "patient", writes=[DAY1])
        since = patient.listed().since
        Polling(manager, "passes", writes=[DAY1], priority=2).blocked()
        wait_until(manager, since + A_MOMENT)
        with connect(passing_s=A_MOMENT.total_seconds() / 2) as later:
            assert Polling(later, "urgent", writes=[DAY1], priority=9).blocked_by() == ["patient", "passes", "holder"]

    @where(prioritized=True)
    def test_background_work_is_passed_for_longer(self, manager: LockManager, connect: Connect) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        backfill = Polling.queued(manager, "backfill", writes=[DAY1], priority=0)
        wait_until(manager, backfill.listed().since + A_MOMENT)
        bound_s = A_MOMENT.total_seconds() / 2
        with connect(passing_s=bound_s) as later:
            daily = Polling.queued(later, "daily", writes=[DAY1])
            assert daily.blocked_by() == ["holder"]
            with connect(passing_s=bound_s / BACKGROUND) as strict:
                assert "backfill" in Polling(strict, "urgent", writes=[DAY1], priority=9).blocked_by()
            manager.release(lease)
            later.release(daily.granted())
        assert backfill.granted()

    @where(prioritized=True)
    def test_urgent_work_goes_between_the_daily_runs_that_have_passed_background_work(
        self, manager: LockManager, connect: Connect
    ) -> None:
        manager.acquire(owner="holder", writes=[DAY1])
        Polling.queued(manager, "backfill", writes=[DAY1], priority=0)
        first = Polling.queued(manager, "first", writes=[DAY1])
        wait_until(manager, first.listed().since + 6 * A_MOMENT)
        for owner in ("second", "third"):
            Polling.queued(manager, owner, writes=[DAY1])
        with connect(passing_s=5 * A_MOMENT.total_seconds()) as later:
            Polling.queued(later, "urgent", writes=[DAY1], priority=9)
            order = [waiter.owner for waiter in later.waiters(DAY1)]
            assert order == ["first", "urgent", "second", "third", "backfill"]
            assert later.force_priority("third", 99, reason="the report is due", user="ops")
            order = [waiter.owner for waiter in later.waiters(DAY1)]
            assert order == ["first", "third", "urgent", "second", "backfill"]

    @where(prioritized=True, limits=True)
    def test_all_daily_runs_go_before_background_work_in_the_queue_for_permits(
        self, manager: LockManager, other: LockManager
    ) -> None:
        one = LeaseLimit("group", 1)
        lease = manager.acquire(owner="holder", writes=["dw.holder"], limit=one)
        asked = {"backfill 1": 0, "backfill 2": 0, "daily 1": 1, "daily 2": 1, "daily 3": 1}
        waiting = {
            owner: Polling.queued(session, owner, writes=[f"dw.{owner[0]}{owner[-1]}"], limit=one, priority=priority)
            for (owner, priority), session in zip(asked.items(), (manager, other) * 3, strict=False)
        }
        for owner in ("daily 1", "daily 2", "daily 3", "backfill 1", "backfill 2"):
            manager.release(lease)
            lease = waiting[owner].granted()

    @where(prioritized=True, remembers=True)
    def test_background_work_is_passed_while_its_process_is_away(
        self, manager: LockManager, other: LockManager
    ) -> None:
        """As while a triggerer starts again."""
        lease = manager.acquire(owner="holder", writes=[DAY1])
        Polling.queued(manager, "backfill", writes=[DAY1], priority=0).pending.hand_over()
        daily = Polling.queued(other, "daily", writes=[DAY1])
        backfill = Polling.queued(manager, "backfill", writes=[DAY1], priority=0)
        manager.release(lease)
        backfill.blocked()
        other.release(daily.granted())
        assert backfill.granted()

    @where(prioritized=True, limits=True)
    def test_a_wait_for_locks_counts_for_the_bound_in_the_queue_for_permits(
        self, manager: LockManager, connect: Connect
    ) -> None:
        one = LeaseLimit("group", 1)
        locked = manager.acquire(owner="holder", writes=[DAY1])
        patient = Polling.queued(manager, "patient", writes=[DAY1], limit=one)
        since = patient.listed().since
        permitted = manager.acquire(owner="another", writes=[DAY2], limit=one)
        wait_until(manager, since + A_MOMENT)
        manager.release(locked)
        assert patient.blocked_by() == ["another"]
        with connect(passing_s=A_MOMENT.total_seconds() / 2) as later:
            urgent = Polling.queued(later, "urgent", writes=["dw.other"], limit=one, priority=9)
            manager.release(permitted)
            manager.release(patient.granted())
            later.release(urgent.granted())

    @where(prioritized=True)
    def test_who_passes_is_as_old_as_who_is_passed(self, manager: LockManager, connect: Connect) -> None:
        """Otherwise young requests could overtake one after another, and the last would never get its turn."""
        manager.acquire(owner="holder", writes=[DAY1])
        patient = Polling(manager, "patient", writes=[DAY1])
        passes = Polling(manager, "five", writes=[DAY1, DAY2], priority=5)
        patient.blocked()
        wait_until(manager, patient.listed().since + A_MOMENT)
        passes.blocked()
        bound = manager.now() - passes.listed().since + A_MOMENT / 2
        with connect(passing_s=bound.total_seconds()) as later:
            assert Polling(later, "nine", writes=[DAY2], priority=9).blocked_by() == ["five"]

    @where(prioritized=True)
    def test_a_place_that_was_claimed_is_kept_by_the_owners_next_process(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        waits = Polling.queued(manager, "waits", writes=[DAY1])
        Polling.queued(manager, "urgent", writes=[DAY1], priority=5)
        successor = Polling(other, "urgent", writes=[DAY1], priority=5)
        assert successor.blocked_by() == ["holder"]
        assert [waiter.owner for waiter in manager.waiters(DAY1)] == ["urgent", "waits"]
        manager.release(lease)
        other.release(successor.granted())
        assert waits.granted()

    @where(prioritized=True)
    def test_crossing_locks_and_priorities_end_in_no_deadlock(self, manager: LockManager, other: LockManager) -> None:
        tables = ["dw.a", "dw.b", "dw.c"]
        for round_, priorities in enumerate(permutations((1, 2, 3))):
            lease = manager.acquire(owner="holder", writes=tables)
            asked = [
                Polling.queued(session, f"{round_}/{number}", writes=[one, two], priority=priority)
                for number, (session, one, two, priority) in enumerate(
                    zip((manager, other, manager), tables, tables[1:] + tables[:1], priorities, strict=True)
                )
            ]
            with ThreadPoolExecutor(3) as threads:
                done = [threads.submit(lambda mine=request: manager.release(mine.granted())) for request in asked]  # type: ignore[misc]
                manager.release(lease)
                assert all(one.result(PATIENCE_S) for one in done)


def wait_until(manager: LockManager, then: datetime) -> None:
    """Wait until *when* by the store's clock."""
    ends = time.monotonic() + PATIENCE_S
    while (left := then - manager.now()) >= timedelta(0):
        assert time.monotonic() < ends, "the store's clock stands still"
        time.sleep(max(left.total_seconds(), 0.001))
