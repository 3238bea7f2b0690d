"""How a lease lasts, how it ends, and how its holder learns of that."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.errors import LockLost
from airflow_hivelock.locks.testing.conformance.suite import DAY1, DAY2, PATIENCE_S, Polling, Suite, where

if TYPE_CHECKING:
    from airflow_hivelock.locks.manager import LockManager


class Renewal(Suite):
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
        ends = time.monotonic() + PATIENCE_S
        while isinstance(waiting.pending.poll(), Blocked):
            assert time.monotonic() < ends, "still blocked by a lease that nobody renews"
            manager.renew(kept)
            time.sleep(waiting.pending.wait_s() or 0.1)
        with pytest.raises(LockLost):
            manager.renew(dead)
        manager.verify(kept)

    @where(watched=True)
    def test_a_holder_is_told_when_its_lease_is_gone(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="me", reads=["dw.airports"], writes=[DAY1])
        manager.verify(lease, threading.Event().set)
        manager.renew(lease)
        changed = threading.Event()  # the renewal itself may have been told of
        manager.verify(lease, changed.set)
        assert not changed.is_set()
        other.force_release(lease.id, reason="testing", user="ops")
        assert changed.wait(PATIENCE_S), "a job would go on without its locks"
        with pytest.raises(LockLost, match="me"):
            manager.verify(lease)

    @where(watched=False)
    def test_a_holder_that_looks_sees_that_its_lease_is_gone(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="me", reads=["dw.airports"], writes=[DAY1])
        manager.verify(lease)
        manager.renew(lease)
        other.force_release(lease.id, reason="testing", user="ops")
        for call in (manager.verify, manager.renew):
            with pytest.raises(LockLost, match="me"):
                call(lease)
