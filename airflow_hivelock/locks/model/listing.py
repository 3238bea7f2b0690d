"""The values in listings: holders, waiters with their blockers, past leases, and audit entries."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks.invalid import printable

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_hivelock.locks.model.object import Lock, LockMode, LockObject


@dataclass(frozen=True)
class Holder:
    """One granted lock, of a lease or of Hive.

    :param owner: the owner of the lease; for a lock of Hive, the id of its query.
    :param lease_id: None for a lock of Hive.
    :param explicit: a lease or LOCK TABLE took the lock. False: a query of Hive took it. None: unknown.
    :param query: the SQL or the job that needs the lock, as SHOW LOCKS … EXTENDED shows it.
    :param details: the fields of its lock node as Hive wrote them: query id, time, mode and query. None: there is no
        node, or Hive could not read it.
    :param hive_id: the id for :meth:`.LockManager.force_unlock`; ``""``: that call cannot free the lock.
    :param heartbeat: when its client last renewed it, if the store keeps that time.
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
    """A blocker of a request, and the object on which it blocks.

    :param waiting: it waits ahead in the queue. Otherwise it holds the lock.
    :param until: the end of its invitation, by the store's clock, if it is invited.
    :param group: it blocks because of this group: it holds a permit, or waits ahead for one. ``""``: it blocks because
        of a lock.
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
    """What a waiter waits for: its locks, a permit of its group, or a worker slot."""

    LOCK = "lock"
    LEASE = "lease"
    """A permit of its group; see :class:`~airflow_hivelock.locks.model.LeaseLimit`."""
    SLOT = "slot"
    """A worker slot. The deferred request has had its turn. It is invited and keeps its queue position, or it is
    away."""


@dataclass(frozen=True)
class Waiter:
    """A request that waits.

    :param position: its place among the requests with which it conflicts; 1: the first; 0: it is in no queue.
    :param attempt: the owner's attempt, if the store keeps it.
    :param until: the end of its invitation, by the store's clock, if it is invited.
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

    def as_of(self, now: datetime) -> Waiter:
        """This waiter without the invitations that are over by *now*, the store's time: its own and its blockers'.

        The lock store keeps such an invitation until another request looks at it.
        """
        blocked_by = tuple(replace(one, until=None) if _is_over(one, now) else one for one in self.blocked_by)
        return replace(self, until=None if _is_over(self, now) else self.until, blocked_by=blocked_by)


def _is_over(invited: Waiter | Blocker, now: datetime) -> bool:
    return invited.until is not None and invited.until <= now


@dataclass(frozen=True)
class Tenure:
    """A lease in the history, with the times of its request, grant and end by the store's clock.

    :param ended: None while the lease is held.
    """

    lease_id: str
    owner: str
    locks: tuple[Lock, ...]
    asked: datetime
    granted: datetime
    ended: datetime | None = None


@dataclass(frozen=True)
class ForcedRelease:
    """An entry of the audit trail. The reason shows what was done:

    - a force release;
    - work that a user declared as ended;
    - a withdrawn request, or a change of its priority;
    - a change of a group limit.

    :param at: the time, by the store's clock.
    """

    lease_id: str
    owner: str
    locks: tuple[Lock, ...]
    user: str
    reason: str
    at: datetime
