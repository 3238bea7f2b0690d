"""Work under a lease, and its fencing tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.errors import LockLost
from airflow_hivelock.locks.testing.conformance.suite import DAY1, Suite, where

if TYPE_CHECKING:
    from airflow_hivelock.locks.manager import LockManager


class Working(Suite):
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
        manager.check_token(granted.id, "delays", first.token)  # taken over: it is the same work that goes on
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
