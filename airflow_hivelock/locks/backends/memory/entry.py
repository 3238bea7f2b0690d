"""An owner's request, kept in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_hivelock.locks import invitations
from airflow_hivelock.locks.model import Lease, LockRequest, Tenure, Waiter, WaitsFor, in_order
from airflow_hivelock.locks.queueing import Other, Position, TimedPosition

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.model import Blocker


@dataclass
class Entry:
    """An owner's request while it waits or holds.

    :param number: its own number, drawn when it was made.
    :param among_locks: its position in the queue for its locks, while it waits for them or holds them.
    :param in_group: its position in the group's queue, from the first time that it waits there.
    :param left: its process has handed it over, and no other process has continued it yet.
    :param until: it is invited until then, and keeps its position among the locks and its permit.
    :param old: its position among the locks when its invitation ended.
    :param weight: how many permits of its group it took; 0: it has none.
    """

    request: LockRequest
    number: int
    since: datetime
    epoch: int
    wake: Callable[[], None]
    waits_for: WaitsFor = WaitsFor.LOCK
    among_locks: TimedPosition | None = None
    in_group: TimedPosition | None = None
    lease: Lease | None = None
    renewed: datetime | None = None
    losses: list[Callable[[], None]] = field(default_factory=list)
    left: bool = False
    until: datetime | None = None
    old: TimedPosition | None = None
    weight: int = 0

    @property
    def asked(self) -> datetime:
        """When its owner first asked."""
        return min(self.request.asked or self.since, self.since)

    @property
    def arrival(self) -> TimedPosition:
        """Its position by its own number and time."""
        return self.timed_by(self.number, self.since)

    def timed_by(self, number: int, since: datetime) -> TimedPosition:
        """Its position if it joins a queue with that *number*."""
        return TimedPosition(Position.unclaimed(number, self.request.priority, self.number), microseconds(since))

    @property
    def timed(self) -> TimedPosition:
        """Its position in the queue that it is in."""
        return (self.in_group if self.waits_for is WaitsFor.LEASE else self.among_locks) or self.arrival

    @property
    def holds_permit(self) -> bool:
        """Whether it holds one of its group's permits, if it is in a group."""
        return self.lease is not None or self.until is not None

    def other(self, at: datetime, *, in_group: bool = False) -> Other:
        """Return this request as another request in its queue sees it at that time."""
        waits, until = self.lease is None, self.until
        return Other(
            self.request.owner,
            self.timed,
            holds=self.holds_permit if in_group else not waits,
            gone=waits and self.left,
            invited=until is not None,
            over=until is not None and invitations.is_over(microseconds(until), microseconds(at)),
        )

    def wait_for_slot(self, until: datetime | None = None, old: TimedPosition | None = None) -> None:
        """Become invited *until* then, or away if it is None."""
        self.waits_for, self.until, self.old, self.left = WaitsFor.SLOT, until, old, False
        if until is None:
            self.among_locks = None

    def waiting(self, what: WaitsFor) -> bool:
        """Whether it waits for exactly that."""
        return self.lease is None and self.waits_for is what

    def waiter(self, blockers: tuple[Blocker, ...]) -> Waiter:
        """Return the listing's entry, with its blockers."""
        request = self.request
        queued = self.waits_for is not WaitsFor.SLOT or self.until
        nth = 0 if not queued else 1 + sum(blocker.waiting for blocker in blockers)
        return Waiter(
            request.owner,
            request.locks,
            nth,
            self.asked,
            blockers,
            request.priority,
            self.waits_for,
            request.attempt,
            self.until,
        )

    def tenure(self, lease: Lease, ended: datetime | None) -> Tenure:
        """Return the history entry of its *lease*."""
        return Tenure(lease.id, lease.owner, in_order((*lease.locks, *lease.released)), self.asked, lease.since, ended)

    def expires(self, lease: Lease) -> datetime:
        """When its *lease* is no longer trusted."""
        return (self.renewed or lease.since) + timedelta(seconds=lease.lease_s)


def now() -> datetime:
    return datetime.now(UTC)  # the store is this process, so this is the store's clock


def microseconds(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
