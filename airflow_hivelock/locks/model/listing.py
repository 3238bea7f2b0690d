"""What listings tell: who holds what, who waits for it, who held it, and whose locks were taken away."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hivelock.locks.invalid import printable

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_hivelock.locks.model.object import Lock, LockMode, LockObject


@dataclass(frozen=True)
class Holder:
    """One granted lock, ours or Hive's own.

    :param owner: ours: the request's owner; Hive's: its query id.
    :param lease_id: None for what Hive's own sessions hold.
    :param explicit: made by LOCK TABLE or a lease, not by a query of Hive's; None if it does not say.
    :param query: what the lock is for, as SHOW LOCKS EXTENDED shows it.
    :param details: what its node says in Hive's own format: query id, time, mode and query, as they stand there;
        None where there is no node, or Hive could not read it.
    """

    object: LockObject
    mode: LockMode
    owner: str
    since: datetime
    lease_id: str | None = None
    token: int | None = None
    expires: datetime | None = None
    explicit: bool | None = None
    query: str = ""
    details: tuple[str, ...] | None = None

    def __str__(self) -> str:
        whose = f"lease {self.lease_id}" if self.lease_id else "Hive"
        return printable(
            f"{self.owner} ({whose}) holds {self.object} {self.mode.value} since {self.since:%Y-%m-%d %H:%M:%S}Z"
        )


@dataclass(frozen=True)
class Blocker:
    """Who is in the way of a request, and where.

    :param waiting: True when it is itself still waiting, ahead in the queue.
    :param group: in the way is not its lock but that it holds, or waits ahead for, one of the leases of this group.
    """

    owner: str
    object: LockObject
    mode: LockMode
    waiting: bool = False
    group: str = ""

    def __str__(self) -> str:
        verb = "waits ahead for" if self.waiting else "holds"
        what = f"a lease of {self.group!r}" if self.group else f"{self.object} {self.mode.value}"
        return printable(f"{self.owner} {verb} {what}")


class WaitsFor(enum.Enum):
    """What a request waits for."""

    LOCK = "lock"
    LEASE = "lease"
    """One of the leases of its group; see :class:`~airflow_hivelock.locks.model.LeaseLimit`."""
    SLOT = "slot"
    """It could have had its locks, has stepped aside, and its owner asks again once it can begin to work."""


@dataclass(frozen=True)
class Waiter:
    """A request that waits.

    :param place: 1 for the first in line among those that it conflicts with; 0 for one that has stepped aside.
    :param attempt: its owner's, where the store remembers it.
    """

    owner: str
    locks: tuple[Lock, ...]
    place: int
    since: datetime
    blocked_by: tuple[Blocker, ...] = ()
    priority: int = 1
    waits_for: WaitsFor = WaitsFor.LOCK
    attempt: int = 0


@dataclass(frozen=True)
class Tenure:
    """One lease from its request to its end: the history that a timeline shows. Times are the store's.

    :param ended: None while it is held.
    """

    lease_id: str
    owner: str
    locks: tuple[Lock, ...]
    asked: datetime
    granted: datetime
    ended: datetime | None = None


@dataclass(frozen=True)
class ForcedRelease:
    """An entry of the audit trail: a lease that was freed by force, or work under it that was declared over; the reason tells.

    :param at: when, by the store's clock.
    """

    lease_id: str
    owner: str
    locks: tuple[Lock, ...]
    user: str
    reason: str
    at: datetime
