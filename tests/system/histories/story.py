"""A few requests, one step after the other: the traces of this story are validated."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import Lease, LeaseLimit, rules
from airflow_hivelock.locks.model import DeferredGrant
from tests.system.histories.trace.validate import Returned

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.backend import Blocked, NeedsSlot
    from airflow_hivelock.locks.pending import PendingLease, Silent

FEW = LeaseLimit("few", 1)
POLLS = 20
HEAVY = LeaseLimit("few", 9, weight=2)
TAKEN = {
    *("set_limit", "enter", "grant", "queue", "park", "invite", "take_over", "work", "release", "keeper_frees"),
    "change_priority",
    "return_lease",
}
"""The actions that the story needs at least."""


@dataclass
class Story:
    """Requests that wait for one another, one step after the other; each lease that a caller gets is noted."""

    manager: LockManager
    returned: list[Returned] = field(default_factory=list)

    def begin(self, owner: str, **asked: Any) -> PendingLease:
        deferred = asked.pop("deferred", None)
        attempt = asked.pop("attempt", 0)
        request = rules.request(owner, **asked, attempt=attempt, wait=True, deferred=deferred)
        return self.manager.begin(request, lambda: None, 60, outage_s=None)

    def get(self, pending: PendingLease) -> Lease | NeedsSlot | Blocked | Silent:
        """Poll until something comes of it, or enough."""
        for _ in range(POLLS):
            found = pending.poll()
            if isinstance(found, Lease):
                self.returned.append(Returned(time.time_ns() // 1_000_000, found.id))
                time.sleep(0.002)  # the next transaction has a later time
                return found
        return found

    def release(self, lease: object) -> None:
        if isinstance(lease, Lease):
            self.manager.release(lease)

    def follow(self, first: object, *waiting: PendingLease) -> None:
        """Release the *first* lease. The *waiting* requests get their leases in their order, although the last one looks first."""
        early = [self.get(one) for one in waiting]
        self.release(first)
        early[-1] = self.get(waiting[-1])
        for one, found in zip(waiting, early, strict=True):
            self.release(found if isinstance(found, Lease) else self.get(one))

    def play(self) -> None:
        writes = {"writes": ["dw.t/dt=1"]}
        holder = self.get(self.begin("holder", **writes))
        waiter = self.begin("waiter", **writes)
        self.get(waiter)
        urgent = self.begin("urgent", **writes, priority=5)
        self.follow(holder, urgent, waiter, self.begin("last", **writes))
        one = self.get(self.begin("one of few", writes=["dw.u"], limit=FEW))
        self.follow(one, self.begin("another of few", writes=["dw.v"], limit=FEW))
        self.manager.set_group("few", 2, user="story")
        heavy = self.get(self.begin("two of few", writes=["dw.u"], limit=HEAVY))
        self.follow(heavy, self.begin("light", writes=["dw.v"], limit=LeaseLimit("few", 9)))
        self.manager.drop_group("few", user="story")
        self.get(self.begin("late", **writes, deferred=DeferredGrant(30.0)))
        behind = self.begin("behind", **writes)
        self.get(behind)
        self.follow(self.get(self.begin("late", **writes, deferred=DeferredGrant(30.0, has_slot=True))), behind)
        self.get(self.begin("twice", **writes))
        self.get(self.begin("unwanted", **writes))
        self.manager.force_priority("unwanted", 5, reason="its task is urgent", user="story")
        self.manager.force_withdraw("unwanted", reason="its task is not needed", user="story")
        taken = self.get(self.begin("twice", **writes, attempt=1))
        if isinstance(taken, Lease):
            self.manager.start_work(taken, "job", "application")
            self.manager.force_release(taken.id, reason="its process is gone", user="story")
