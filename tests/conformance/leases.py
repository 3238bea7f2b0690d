"""A lease: its renewal and its end, how its holder is notified, the work under it, and its force release."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.errors import InvalidRequest, LockLost, Unsupported
from airflow_hivelock.locks.model import Lease
from airflow_hivelock.locks.pending import Silent
from tests.conformance.suite import DAY1, DAY2, PATIENCE_S, Polling, Suite, where

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.manager import LockManager


class Leases(Suite):
    def test_renewal_moves_the_end_and_fails_once_the_lease_is_gone(self, manager: LockManager) -> None:
        lease = manager.acquire(owner="me", writes=[DAY1], lease_s=100)
        before = manager.show(DAY1)[0].expires
        assert lease.since <= manager.now() <= lease.since + timedelta(minutes=5), "not the clock that the leases go by"
        manager.renew(lease)
        after = manager.show(DAY1)[0].expires
        assert before
        assert after
        assert after >= before
        manager.release(lease)
        with pytest.raises(LockLost, match="me"):
            manager.renew(lease)

    @where(expires=True)
    def test_a_lease_that_is_not_renewed_blocks_nobody_for_long(self, manager: LockManager, other: LockManager) -> None:
        dead = manager.acquire(owner="dead", writes=[DAY1], lease_s=1)
        kept = manager.acquire(owner="kept", writes=[DAY2], lease_s=60)
        waiting = Polling(other, "next", writes=[DAY1])
        until, ends = manager.show(DAY1)[0].expires, time.monotonic() + PATIENCE_S
        while isinstance(taken := waiting.pending.poll(), Blocked):
            assert time.monotonic() < ends, "still blocked by a lease that nobody renews"
            manager.renew(kept)
            time.sleep(waiting.pending.wait_s() or 0.1)
        assert isinstance(taken, Lease)
        assert until
        assert until <= taken.since
        with pytest.raises(LockLost):
            manager.renew(dead)
        manager.verify(kept)

    def test_a_holder_is_told_when_its_lease_is_gone(self, manager: LockManager, other: LockManager) -> None:
        """Where the store watches nothing, as soon as it looks."""
        lease = manager.acquire(owner="me", reads=["dw.airports"], writes=[DAY1])
        manager.verify(lease, threading.Event().set if self.declares.watched else None)
        manager.renew(lease)
        changed = threading.Event()  # the first watch may already have fired for the renewal
        manager.verify(lease, changed.set if self.declares.watched else None)
        assert not changed.is_set()
        other.force_release(lease.id, reason="testing", user="ops")
        assert not self.declares.watched or changed.wait(PATIENCE_S), "a job would go on without its locks"
        for call in (manager.verify, manager.renew):
            with pytest.raises(LockLost, match="me"):
                call(lease)

    @where(remembers=True)
    def test_a_later_start_of_work_shuts_out_the_earlier_one(self, manager: LockManager, other: LockManager) -> None:
        granted = manager.acquire(owner="task", writes=[DAY1], attempt=1)
        first = manager.start_work(granted, "delays", "app-1")
        beside = manager.start_work(first, "stage", "app-2")
        assert granted.token < first.token < beside.token
        manager.renew(first)
        manager.check_token(granted.id, "delays", first.token)
        again = other.acquire(owner="task", writes=[DAY1], attempt=2)
        assert [(work.name, work.application) for work in again.works] == [("delays", "app-1"), ("stage", "app-2")]
        manager.check_token(granted.id, "delays", first.token)  # a take-over: the same work goes on
        with pytest.raises(LockLost):
            manager.start_work(first, "delays", "of the earlier attempt")
        second = other.start_work(again, "delays", "app-3")
        with pytest.raises(LockLost, match="delays"):
            manager.check_token(granted.id, "delays", first.token)
        other.check_token(granted.id, "delays", second.token)
        manager.check_token(granted.id, "stage", beside.token)
        known = other.record_work(second, "delays", "app-3 as driver-7")
        assert known.token == second.token
        assert (work := manager.find(granted.id).work("delays"))  # type: ignore[union-attr]
        assert (work.application, work.token) == ("app-3 as driver-7", second.token)
        ended = other.record_work(known, "delays", None)
        assert [work.name for work in ended.works] == ["stage"]
        other.release(ended)
        with pytest.raises(LockLost):
            other.check_token(granted.id, "stage", beside.token)
        assert manager.acquire(owner="next", writes=[DAY1]).token > second.token

    @where(remembers=False)
    def test_work_has_the_token_of_its_lease(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="task", writes=[DAY1])
        started = manager.start_work(lease, "delays", "app-1")
        (work,) = started.works
        assert (work.name, work.application, work.token) == ("delays", "app-1", lease.token)
        other.check_token(lease.id, "delays", work.token)
        with pytest.raises(LockLost, match="delays"):
            other.check_token(lease.id, "delays", work.token - 1)
        assert manager.record_work(started, "delays", None).works == ()
        manager.release(lease)
        assert other.acquire(owner="next", writes=[DAY1]).token > work.token
        with pytest.raises(LockLost, match="delays"):
            manager.check_token(lease.id, "delays", work.token)
        with pytest.raises(LockLost):
            manager.start_work(lease, "delays", "app-2")

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
        for reason, user in ((" ", "ops"), ("its worker burnt down", " ")):
            with pytest.raises(InvalidRequest, match="needs a reason"):
                other.force_release(lease.id, reason=reason, user=user)
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

    @where(remembers=True)
    def test_work_is_declared_over_only_as_it_was_seen_and_with_an_entry_in_the_audit_trail(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.start_work(manager.acquire(owner="chain", writes=[DAY1]), "first", "app-1")
        lease = manager.start_work(lease, "second", "app-2")
        first, second = lease.works
        with pytest.raises(InvalidRequest, match="needs a reason"):
            other.force_record(lease.id, first, "gone", reason=" ", user="ops")
        assert other.force_record(lease.id, first, "gone", reason="its host burnt down", user="ops")
        (standing,) = manager.leases()
        assert standing == lease, "a live holder would take it for lost"
        assert set(standing.works) == {replace(first, application="gone"), second}
        assert not other.force_record(lease.id, first, "gone again", reason="its host burnt down", user="ops")
        again = manager.start_work(lease, "second", "app-3")
        assert not other.force_record(lease.id, second, "gone", reason="its host burnt down", user="ops")
        assert manager.find(lease.id).work("second").application == "app-3"  # type: ignore[union-attr]
        manager.check_token(lease.id, "first", first.token)
        manager.release(again)
        assert not other.force_record(lease.id, again.works[0], "gone", reason="its host burnt down", user="ops")
        (entry,) = manager.audit() if self.declares.audits else [None]
        if entry:
            assert (entry.lease_id, entry.owner, entry.locks) == (lease.id, "chain", lease.locks)
            assert (entry.user, entry.reason) == ("ops", "its host burnt down")

    @where(remembers=False)
    def test_what_is_not_recorded_is_not_declared_over(self, manager: LockManager) -> None:
        lease = manager.start_work(manager.acquire(owner="task", writes=[DAY1]), "delays", "app-1")
        with pytest.raises(Unsupported, match="record"):
            manager.force_record(lease.id, lease.works[0], "gone", reason="its host burnt down", user="ops")
        manager.verify(lease)

    def test_leases_are_force_released_by_object_and_by_age(self, manager: LockManager, other: LockManager) -> None:
        old = manager.acquire(owner="old", writes=[DAY1])
        young = manager.acquire(owner="young", writes=[DAY2])
        elsewhere = manager.acquire(owner="elsewhere", writes=["dw.other"])
        with pytest.raises(InvalidRequest, match="has no target"):
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
    """Return a call that force-releases *lease* if it is still as it is now."""
    (seen,) = manager.leases()
    return lambda: manager.force_release(lease.id, reason="its task has failed", user="ops", seen=seen)
