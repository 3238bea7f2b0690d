"""The values in listings: holders, waiters and their blockers, past leases, and force releases."""

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
    """One granted lock of this package or of Hive.

    :param owner: the request's owner; for a lock of Hive, the query id.
    :param lease_id: None for a lock of Hive.
    :param explicit: made by LOCK TABLE or a lease, not by a query of Hive's; None if unknown.
    :param query: what the lock is for, as SHOW LOCKS EXTENDED shows it.
    :param details: the unchanged fields of its lock node in Hive's own format: query id, time, mode and query. None if
        there is no node, or Hive could not read it.
    :param hive_id: the id of a lock of Hive for :meth:`.LockManager.force_unlock`; ``""`` if that cannot free it.
    :param heartbeat: when its client last renewed it, if the store keeps that.
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
    hive_id: str = ""
    heartbeat: datetime | None = None

    def __str__(self) -> str:
        whose = f"lease {self.lease_id}" if self.lease_id else "Hive"
        return printable(
            f"{self.owner} ({whose}) holds {self.object} {self.mode.value} since {self.since:%Y-%m-%d %H:%M:%S}Z"
        )


@dataclass(frozen=True)
class Blocker:
    """One blocker of a request, and the object on which it blocks.

    :param waiting: True if it waits ahead in the queue.
    :param until: it is invited until then, by the store's clock: it keeps its queue position while it gets a worker
        slot.
    :param group: it blocks by its permit and not by its lock: it holds one of this group, or waits ahead for one.
    """

    owner: str
    object: LockObject
    mode: LockMode
    waiting: bool = False
    group: str = ""
    until: datetime | None = None

    def __str__(self) -> str:
        verb = "waits ahead for" if self.waiting else "holds"
        what = f"a lease of {self.group!r}" if self.group else f"{self.object} {self.mode.value}"
        slot = f" and has until {self.until:%H:%M:%S}Z to get a worker slot" if self.until else ""
        return printable(f"{self.owner} {verb} {what}{slot}")


class WaitsFor(enum.Enum):
    """The three kinds of waiting."""

    LOCK = "lock"
    LEASE = "lease"
    """One of the leases of its group; see :class:`~airflow_hivelock.locks.model.LeaseLimit`."""
    SLOT = "slot"
    """A deferred request could have its locks, and gets a worker slot first.

    It is invited and keeps its queue position, or it is away and blocks no request.
    """


@dataclass(frozen=True)
class Waiter:
    """A request that waits.

    :param position: 1 for the first among the requests that it conflicts with; 0 for one that is in no queue.
    :param attempt: the owner's attempt, if the store remembers it.
    :param until: it is invited until then, by the store's clock.
    """

    owner: str
    locks: tuple[Lock, ...]
    position: int
    since: datetime
    blocked_by: tuple[Blocker, ...] = ()
    priority: int = 1
    waits_for: WaitsFor = WaitsFor.LOCK
    attempt: int = 0
    until: datetime | None = None


@dataclass(frozen=True)
class Tenure:
    """One lease from its request to its end, as a timeline shows it. Times are by the store's clock.

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
    """An entry of the audit trail: a force release, work declared over, or a request that was withdrawn or got another
    priority. The reason distinguishes them.

    :param at: when, by the store's clock.
    """

    lease_id: str
    owner: str
    locks: tuple[Lock, ...]
    user: str
    reason: str
    at: datetime
