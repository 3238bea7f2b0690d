"""What a release frees, by the holder or by force."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import InvalidRequest, LockLost
from airflow_hivelock.locks.model import Lease
from airflow_hivelock.locks.pending import Silent
from airflow_hivelock.locks.testing.conformance.suite import DAY1, DAY2, PATIENCE_S, Suite, where

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.manager import LockManager


class Releasing(Suite):
    def test_release_is_idempotent(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="me", reads=["dw.airports"], writes=[DAY1])
        assert other.release(Lease.from_json(lease.to_json())), "a lease must be releasable from another process"
        assert not manager.release(lease)
        assert manager.show() == []

    def test_a_watch_fires_when_a_lock_goes(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="me", writes=[DAY1])
        changed = threading.Event()
        wanted = rules.request("sensor", writes=[DAY1])
        look = other.look(wanted, changed.set)
        holders = look.poll()
        assert not isinstance(holders, Silent)
        assert [holder.owner for holder in holders] == ["me"]
        manager.release(lease)
        assert look.wait_s() or changed.wait(PATIENCE_S)
        assert look.poll() == []

    def test_force_release_frees_any_lease_once_and_wants_a_reason(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.acquire(owner="dead", writes=[DAY1])
        with pytest.raises(InvalidRequest, match="why"):
            other.force_release(lease.id, reason=" ", user="ops")
        assert other.force_release(lease.id, reason="its worker burnt down", user="ops")
        assert not other.force_release(lease.id, reason="its worker burnt down", user="ops")
        with pytest.raises(LockLost):
            manager.renew(lease)
        assert other.acquire(owner="next", writes=[DAY1])

    @where(remembers=True)
    def test_force_release_leaves_alone_what_was_taken_over_since_it_was_seen(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.acquire(owner="cleared", writes=[DAY1], attempt=1)
        release = _as_seen(other, lease)
        taken = manager.acquire(owner="cleared", writes=[DAY1], attempt=2)
        assert not release()
        manager.verify(taken)
        assert _as_seen(other, lease)()

    @where(remembers=True)
    def test_force_release_leaves_alone_under_what_work_has_begun_since_it_was_seen(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.start_work(manager.acquire(owner="chain", writes=[DAY1]), "first", "app-1")
        release = _as_seen(other, lease)
        manager.start_work(lease, "second", "app-2")
        assert not release()
        release = _as_seen(other, lease)
        manager.record_work(lease, "second", None)
        assert not release()
        manager.verify(lease)
        assert _as_seen(other, lease)()

    def test_leases_are_force_released_by_object_and_by_age(self, manager: LockManager, other: LockManager) -> None:
        old = manager.acquire(owner="old", writes=[DAY1])
        young = manager.acquire(owner="young", writes=[DAY2])
        elsewhere = manager.acquire(owner="elsewhere", writes=["dw.other"])
        with pytest.raises(InvalidRequest, match="of what"):
            other.force_release_all(reason="all of it?", user="ops")
        assert other.force_release_all("dw.flights", held_s=3600, reason="too old", user="ops") == []
        assert other.force_release_all(DAY1, reason="stuck", user="ops") == [old]
        assert {holder.owner for holder in manager.show()} == {"young", "elsewhere"}
        assert set(other.force_release_all(held_s=0, reason="new cluster", user="ann")) == {young, elsewhere}
        assert manager.show() == []
        assert len(manager.audit()) == (3 if self.declares.audits else 0)

    @where(audits=True)
    def test_the_audit_trail_says_who_force_released_what_and_why(
        self, manager: LockManager, other: LockManager
    ) -> None:
        first = manager.acquire(owner="first", writes=[DAY1])
        manager.acquire(owner="second", writes=["dw.other"])
        other.force_release(first.id, reason="stuck", user="ops")
        other.force_release_all(held_s=0, reason="new cluster", user="ann")
        entry, later = manager.audit()
        assert (entry.lease_id, entry.owner, entry.locks) == (first.id, "first", first.locks)
        assert (entry.user, entry.reason) == ("ops", "stuck")
        assert first.since <= entry.at <= manager.now()
        assert (later.owner, later.user, later.reason) == ("second", "ann", "new cluster")
        assert manager.audit("dw.other") == [later]


def _as_seen(manager: LockManager, lease: Lease) -> Callable[[], bool]:
    """A force release of *lease* as it is seen now."""
    (seen,) = manager.leases()
    return lambda: manager.force_release(lease.id, reason="its task has failed", user="ops", seen=seen)
