"""What is told of leases, locks and their history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.model import LockMode
from airflow_hivelock.locks.testing.conformance.suite import DAY1, Polling, Suite, where

if TYPE_CHECKING:
    from airflow_hivelock.locks.manager import LockManager


class Listings(Suite):
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
        waiting = Polling(other, "second", writes=[DAY1])
        waiting.blocked()
        manager.release(first)
        second = waiting.granted()
        ended, held = manager.history(DAY1)
        assert (ended.owner, ended.lease_id, ended.locks) == ("first", first.id, first.locks)
        assert (held.owner, held.lease_id, held.ended) == ("second", second.id, None)
        assert ended.ended
        assert ended.asked <= ended.granted <= ended.ended
        assert held.asked <= ended.ended <= held.granted
        assert manager.history("dw.other") == []

    @where(audits=False)
    def test_the_history_tells_who_holds_what(self, manager: LockManager) -> None:
        ended = manager.acquire(owner="first", writes=[DAY1])
        manager.release(ended)
        lease = manager.acquire(owner="second", writes=[DAY1])
        (held,) = manager.history(DAY1)
        assert (held.owner, held.lease_id, held.locks, held.ended) == ("second", lease.id, lease.locks, None)
        assert manager.history("dw.other") == []
