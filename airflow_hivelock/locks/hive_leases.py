"""Hive leases: the documented calls of the Hive lease manager, over any backend that grants locks.

In calls that take, extend or drop a lease, ``objs`` are pairs: a name, and ``"s"`` (shared, to read) or ``"x"``
(exclusive, to write). In calls that list leases or force them away, they are names alone. Names have this package's
syntax, with ranges. The parents of an object are locked SHARED. The object itself need not exist.
"""

from __future__ import annotations

import getpass
import re
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import InvalidArguments, InvalidRequest, LeaseAlreadyExists, LockLost, LockTimeout
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.model import Lock, LockMode, LockObject

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backend import Backend
    from airflow_hivelock.locks.model import Lease

    Pairs = Sequence[tuple[str, str]]

_GRAB = re.compile("[0-9a-f]{32}")
"""The part of a lease's owner that distinguishes the grabs of one user."""


@dataclass(frozen=True)
class HiveLease:
    """The part of a lease on one object. Times are by the store's clock.

    :param table_name: "" for a lease on a database; *partition_name*: "" for one on a database or a table.
    :param start_utc: when it was granted; extending does not change it.
    :param end_utc: None if the store does not give it.
    """

    user: str
    lease_id: str
    db_name: str
    table_name: str
    partition_name: str
    start_utc: datetime
    end_utc: datetime | None
    lease_type: str


class HiveLeases:
    """The Hive lease manager; as thread-safe as *over*.

    :param over: the backend or lock manager that grants the leases.
    :param user: the user who grabs; each lease is owned by ``user:…``. Default: the user of this process.
    """

    def __init__(self, over: Backend | LockManager, user: str | None = None) -> None:
        self.manager = over if isinstance(over, LockManager) else LockManager(over)
        self.user = user or getpass.getuser()

    def grab_lease(self, objs: Pairs, lease_duration_sec: float, lease_wait_duration_sec: float | None = 0.0) -> str:
        """Lease all of *objs* or nothing.

        :return: the lease id, to extend and drop it with. In a database it is a number that grows with each lease.
        :raises LeaseAlreadyExists: not granted within *lease_wait_duration_sec*; the message names the holder.
        :raises ExceedsMaxLeaseTime: *lease_duration_sec* is longer than the store allows.
        :raises InvalidArguments: *objs* or a duration is invalid.
        """
        reads, writes = _read_and_written(objs)
        try:
            lease = self.manager.acquire(
                owner=f"{self.user}:{uuid.uuid4().hex}",
                reads=reads,
                writes=writes,
                lease_s=lease_duration_sec,
                timeout_s=lease_wait_duration_sec,
            )
        except LockTimeout as error:
            raise LeaseAlreadyExists(str(error), error.blocked_by) from error
        except InvalidRequest as error:
            raise _invalid(error) from error
        return lease.id

    def list_lease(self, objs: Sequence[str] = ()) -> list[HiveLease]:
        """The leases on *objs* and below them; all leases if *objs* is empty.

        :return: a row for each object that a lease was asked for; none for a parent that is SHARED only because of
            them.
        """
        targets: list[LockObject | None] = [*_targets(objs)] or [None]
        return [
            HiveLease(
                user_of(lease),
                lease.id,
                lock.object.database,
                lock.object.table,
                "/".join(lock.object.path[2:]),
                lease.since,
                lease.expires,
                "x" if lock.mode is LockMode.EXCLUSIVE else "s",
            )
            for lease in self.manager.leases()
            for lock in rules.named(lease.locks, lease.whole)
            if any(rules.concern([lock], target) for target in targets)
        ]

    def extend_lease(self, lease_id: str | int, objs: Pairs) -> None:
        """Extend the lease: from now on it lasts the duration that it was grabbed for.

        :param objs: the pairs that it was grabbed for, or some of them. A lease has one end, so all of it lasts equally
            long.
        :raises ExceedsMaxLeaseTime: later than the store allows; the lease keeps its current end.
        :raises LockLost: the lease is gone, or one of *objs* was released.
        """
        lease, wanted = self._lease(lease_id, objs)
        rules.check_all(replace(lease, locks=wanted), lease.locks)
        self.manager.renew(lease)

    def drop_lease(self, lease_id: str | int, objs: Pairs) -> bool:
        """Release *objs* in one step; the rest of the lease stays. A lease that is already gone is success.

        :param objs: the pairs that it was grabbed for, or some of them.
        :return: whether this call released anything.
        :raises InvalidArguments: the lease was not grabbed for one of them, or in another mode; or it holds an object
            inside one of them that *objs* does not name.
        :raises Unsupported: *objs* are only some of the pairs, and the store releases leases whole.
        """
        try:
            lease, wanted = self._lease(lease_id, objs)
        except LockLost:
            return False
        dropped = frozenset(lock.object for lock in wanted)
        asked = rules.named(lease.locks, lease.whole)
        if within := [lock for lock in asked if lock not in wanted and dropped.intersection(lock.object.parents)]:
            raise InvalidArguments(
                f"lease {lease_id} of {lease.owner} also holds {_some(within)} below the objects to drop. Name these objects too"
            )
        if all(lock in wanted for lock in asked):
            return self.manager.release(lease)
        if not any(lock in wanted for lock in asked):
            return False
        left = self.manager.release(lease, objects=dropped)
        return left is None or left.locks != lease.locks

    def force_drop_lease(self, objs: Sequence[str] = (), *, reason: str = "force_drop_lease") -> list[str]:
        """Force-release the leases that dead processes left on *objs* and below; all leases if *objs* is empty. It is
        audited.

        :return: the ids of the released leases; each is released with everything that it held.
        """
        freed: list[Lease] = []
        targets: list[LockObject | None] = [*_targets(objs)] or [None]
        for target in targets:
            freed += self.manager.force_release_all(target, held_s=0, reason=reason, user=self.user)
        return [lease.id for lease in freed]

    def _lease(self, lease_id: str | int, objs: Pairs) -> tuple[Lease, tuple[Lock, ...]]:
        """The lease, and *objs* as its locks; some of them may have been released."""
        shared, exclusive = map(_targets, _read_and_written(objs))
        lease = self.manager.find(str(lease_id))
        if lease is None:
            raise LockLost(f"lease {lease_id} is no longer held: it was dropped or has expired. Grab a new lease")
        modes = dict.fromkeys(shared, LockMode.SHARED) | dict.fromkeys(exclusive, LockMode.EXCLUSIVE)
        wanted = tuple(Lock(target, mode) for target, mode in modes.items())
        had = {*rules.named((*lease.locks, *lease.released), lease.whole)}
        if not wanted or not had.issuperset(wanted):
            raise InvalidArguments(
                f"lease {lease_id} of {lease.owner} is for {_some(lease.locks)}, not for {_some(wanted)}. "
                "Name pairs that it was grabbed for"
            )
        return lease, wanted


def _read_and_written(objs: Any) -> tuple[list[str], list[str]]:
    named: dict[str, list[str]] = {"s": [], "x": []}
    if isinstance(objs, str):
        raise InvalidArguments(f"{objs!r} must be a list of pairs, as in [({objs!r}, 'x')]")
    for pair in objs:
        match pair:
            case (str(name), "s" | "x" as lease_type):
                named[lease_type].append(name)
            case _:
                raise InvalidArguments(f"{pair!r} is not a pair of a name and 's' or 'x', as in ('dw.flights', 'x')")
    return named["s"], named["x"]


def _targets(objs: Sequence[str]) -> list[LockObject]:
    try:
        return rules.objects("objs", objs)
    except InvalidRequest as error:
        raise _invalid(error) from error


def _invalid(error: InvalidRequest) -> InvalidRequest:
    """*error* as the documented calls name it; a more specific error stays as it is."""
    return InvalidArguments(str(error)) if type(error) is InvalidRequest else error


def user_of(lease: Lease) -> str:
    """The user who grabbed *lease* by these calls; for another lease, its owner."""
    user, _, grab = lease.owner.rpartition(":")
    return user if user and _GRAB.fullmatch(grab) else lease.owner


def _some(locks: Sequence[Lock]) -> str:
    leaves = [str(lock) for lock in rules.named(locks)]
    return ", ".join(leaves[:3]) + (f" and {len(leaves) - 3} more" if len(leaves) > 3 else "") or "nothing"
