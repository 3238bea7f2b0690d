"""The order of waiters, how a queue position is kept, and listings of locks and their history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.errors import Superseded
from airflow_hivelock.locks.model import LockMode
from tests.conformance.suite import DAY1, Polling, Suite, where

if TYPE_CHECKING:
    from airflow_hivelock.locks.manager import LockManager
    from tests.conformance.suite import Connect


class Queueing(Suite):
    def test_first_come_first_served(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="reader", reads=[DAY1])
        writer = Polling.queued(other, "writer", writes=[DAY1])
        later = Polling(manager, "late reader", reads=[DAY1])
        assert later.blocked().by[0].owner == "writer", "a stream of readers would starve the writer"
        manager.release(lease)
        other.release(writer.granted())
        assert later.granted()

    def test_waiters_are_listed_in_their_order(self, manager: LockManager, other: LockManager) -> None:
        manager.acquire(owner="holder", writes=[DAY1])
        queue = [Polling.queued(other, name, writes=[DAY1]) for name in ("first", "second", "third")]
        waiters = manager.waiters("dw.flights")
        assert [waiter.owner for waiter in waiters] == ["first", "second", "third"]
        assert [waiter.position for waiter in waiters] == [1, 2, 3]
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
        Polling.queued(manager, "both", writes=["dw.flights", "dw.delays"])
        Polling.queued(other, "whole", writes=["dw"])
        waiter = manager.waiters()[1]
        assert (waiter.position, [blocker.owner for blocker in waiter.blocked_by]) == (2, ["both", "holder"])

    @where(remembers=True)
    def test_a_place_that_was_handed_over_keeps_nobody_waiting_and_is_kept_meanwhile(
        self, manager: LockManager, connect: Connect
    ) -> None:
        """The session of the first process lives on, like that of a triggerer that has lost its triggers to another."""
        lease = manager.acquire(owner="holder", writes=[DAY1])
        with connect() as first, connect() as second:
            early, later = Polling.queued(first, "early", writes=[DAY1]), Polling.queued(second, "late", writes=[DAY1])
            early.pending.hand_over()
            later.blocked()
            successor = Polling.queued(second, "early", writes=[DAY1])
            early.pending.hand_over()  # another process has taken it up by now
            assert [waiter.owner for waiter in manager.waiters()] == ["early", "late"]
            manager.release(lease)
            second.release(successor.granted())
            lease = later.granted()
            again = Polling.queued(first, "early", writes=[DAY1])
            newcomer = Polling.queued(second, "newcomer", writes=[DAY1])
            again.pending.hand_over()
            second.release(lease)
            assert newcomer.granted()
            assert manager.waiters() == []

    def test_a_place_in_the_queue_outlives_the_process_that_took_it(
        self, manager: LockManager, connect: Connect
    ) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        with connect() as first, connect() as second:
            dying = Polling.queued(first, "early", writes=[DAY1], attempt=1)
            behind = Polling.queued(second, "late", writes=[DAY1])
            successor = Polling.queued(second, "early", writes=[DAY1], attempt=1)
            if self.declares.remembers:
                with pytest.raises(Superseded):
                    dying.pending.poll()
            manager.release(lease)
            second.release(successor.granted())
            second.release(behind.granted())

    def test_leases_are_found_by_id_and_by_owner(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="me", writes=[DAY1])
        assert list(other.leases()) == [lease]
        assert other.leases()[0].expires == manager.show(DAY1)[0].expires
        assert other.find(lease.id) == lease
        assert other.lease_of("me") == lease
        assert other.find("no-such-lease-1") is None
        assert other.lease_of("nobody") is None
        other.release(lease)
        assert list(manager.leases()) == []
        assert manager.find(lease.id) is None
        assert manager.lease_of("me") is None

    def test_show_tells_who_holds_what(self, manager: LockManager) -> None:
        lease = manager.acquire(owner="me", reads=["dw.airports"], writes=[DAY1], query="insert overwrite …")
        shown = {str(holder.object): holder for holder in manager.show()}
        named = {"dw.airports": LockMode.SHARED, DAY1: LockMode.EXCLUSIVE}
        parents = dict.fromkeys(("dw", "dw.flights") if self.declares.parents else (), LockMode.SHARED)
        assert {name: holder.mode for name, holder in shown.items()} == parents | named
        assert {(holder.owner, holder.lease_id, holder.token) for holder in shown.values()} == {
            ("me", lease.id, lease.token)
        }
        assert [str(holder.object) for holder in manager.show("dw.airports")] == ["dw.airports"]
        assert shown[DAY1].query.startswith("insert overwrite")

    @where(audits=True)
    def test_the_history_tells_who_held_what_from_when_to_when(self, manager: LockManager, other: LockManager) -> None:
        first = manager.acquire(owner="first", writes=[DAY1])
        waiting = Polling.queued(other, "second", writes=[DAY1])
        manager.release(first)
        second = waiting.granted()
        ended, held = manager.history(DAY1)
        assert (ended.owner, ended.lease_id, ended.locks) == ("first", first.id, first.locks)
        assert (held.owner, held.lease_id, held.ended) == ("second", second.id, None)
        assert ended.ended
        assert ended.asked <= ended.granted <= ended.ended
        assert held.asked <= ended.ended <= held.granted
        assert manager.history("dw.other") == []
        (one,) = manager.history(most=1)
        assert one in (ended, held)

    @where(audits=False)
    def test_the_history_tells_who_holds_what(self, manager: LockManager) -> None:
        ended = manager.acquire(owner="first", writes=[DAY1])
        manager.release(ended)
        lease = manager.acquire(owner="second", writes=[DAY1])
        (held,) = manager.history(DAY1)
        assert (held.owner, held.lease_id, held.locks, held.ended) == ("second", lease.id, lease.locks, None)
        assert manager.history("dw.other") == []
