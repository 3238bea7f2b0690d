"""A person withdraws a request that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.errors import InvalidRequest, Superseded, Unsupported, Withdrawn
from airflow_hivelock.locks.model import DeferredGrant, LeaseLimit
from tests.conformance.suite import DAY1, DAY2, Polling, Suite, where

if TYPE_CHECKING:
    from airflow_hivelock.locks.manager import LockManager

BY = {"reason": "wrong week", "user": "ops"}


class Withdrawing(Suite):
    @where(withdraws=True)
    def test_a_withdrawn_request_ends_with_the_reason_and_blocks_no_request(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.acquire(owner="holder", reads=[DAY1])
        rerun = Polling(manager, "rerun", writes=[DAY1])
        reader = Polling(other, "reader", reads=[DAY1])
        assert rerun.blocked_by() == ["holder"]
        assert reader.blocked_by() == ["rerun"]
        assert other.force_withdraw("rerun", **BY)
        rerun.woken()
        with pytest.raises(Withdrawn, match=r"rerun.*ops: wrong week"):
            rerun.pending.poll()
        with pytest.raises(Withdrawn, match="rerun"):
            rerun.pending.poll()
        assert reader.granted()
        assert manager.waiters() == []
        (entry,) = other.audit(DAY1)
        assert (entry.owner, entry.user, entry.reason) == ("rerun", "ops", "wrong week")
        assert [tenure.owner for tenure in manager.history()] == ["holder", "reader"]
        manager.verify(lease)

    @where(withdraws=True)
    def test_a_later_call_of_a_withdrawn_owner_is_a_new_arrival(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        first = Polling.queued(manager, "rerun", writes=[DAY1])
        Polling.queued(other, "next", writes=[DAY1])
        assert other.force_withdraw("rerun", **BY)
        again = Polling(other, "rerun", writes=[DAY1], attempt=1)
        assert set(again.blocked_by()) == {"holder", "next"}
        with pytest.raises(Superseded):
            first.pending.poll()
        first.pending.withdraw()
        assert [waiter.owner for waiter in manager.waiters()] == ["next", "rerun"]
        manager.release(lease)

    @where(withdraws=True, limits=True)
    def test_a_request_that_waits_for_a_permit_can_be_withdrawn(self, manager: LockManager, other: LockManager) -> None:
        limit = LeaseLimit("nightly", 1)
        lease = manager.acquire(owner="holder", writes=[DAY1], limit=limit)
        parked = Polling.queued(manager, "rerun", writes=[DAY2], limit=limit)
        assert other.force_withdraw("rerun", **BY)
        with pytest.raises(Withdrawn, match="rerun"):
            parked.pending.poll()
        manager.release(lease)
        assert other.acquire(owner="next", writes=[DAY2], limit=limit)

    @where(withdraws=True)
    def test_only_a_request_that_waits_can_be_withdrawn(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        assert not other.force_withdraw("holder", **BY)
        assert not other.force_withdraw("nobody", **BY)
        deferred = Polling(manager, "late", writes=[DAY2], deferred=DeferredGrant())
        deferred.free()
        assert not other.force_withdraw("late", **BY)
        with pytest.raises(InvalidRequest, match="reason"):
            other.force_withdraw("holder", reason=" ", user="ops")
        manager.verify(lease)
        assert other.audit() == []

    @where(acquires=None, withdraws=False)
    def test_a_store_with_a_queue_elsewhere_withdraws_nothing(self, manager: LockManager) -> None:
        with pytest.raises(Unsupported, match="rerun"):
            manager.force_withdraw("rerun", **BY)
