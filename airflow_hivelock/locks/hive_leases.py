"""Hive leases: the calls of the Hive lease manager as it is documented, over any backend that grants locks.

``objs`` are pairs of a name and ``"s"`` (shared, to read) or ``"x"`` (exclusive, to write) where something is locked or
named by what was locked, and names alone where leases are listed or forced away. Names are those of all of this package,
ranges included; what lies above an object is locked SHARED, and the object itself need not exist.
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
"""What tells the grabs of a user apart, in the owners of leases."""


@dataclass(frozen=True)
class HiveLease:
    """What a lease holds on one object. Times are the store's.

    :param table_name: "" for a lease on a database; *partition_name*: "" for one on a database or a table.
    :param start_utc: when it was granted; extending does not move it.
    :param end_utc: None where the store does not say.
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
    """The Hive lease manager; as safe for threads as what it is made from.

    :param over: whose locks the leases are.
    :param user: who grabs; each lease is owned by ``user:…``.
    """

    def __init__(self, over: Backend | LockManager, user: str | None = None) -> None:
        self.manager = over if isinstance(over, LockManager) else LockManager(over)
        self.user = user or getpass.getuser()

    def grab_lease(self, objs: Pairs, lease_duration_sec: float, lease_wait_duration_sec: float | None = 0.0) -> str:
        """Lease all of *objs* or nothing.

        :return: the lease id, to extend and drop it with; in a database a number, larger than those before.
        :raises LeaseAlreadyExists: not within *lease_wait_duration_sec*; it names the holder.
        :raises ExceedsMaxLeaseTime: longer than the store allows.
        :raises InvalidArguments: *objs*, or a duration.
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
        """The leases on *objs* and below them; on everything if there are none.

        :return: a row for each object that a lease was asked for; not for what is only SHARED since these lie in it.
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
        """Have the lease last as long from now on as it was grabbed for.

        :param objs: what it was grabbed for, or some of that: a lease has one end, and all that it holds lasts as long.
        :raises ExceedsMaxLeaseTime: past the longest that the store allows; it keeps the end that it has.
        :raises LockLost: it is gone, or one of *objs* was given back.
        """
        lease, wanted = self._lease(lease_id, objs)
        rules.check_all(replace(lease, locks=wanted), lease.locks)
        self.manager.renew(lease)

    def drop_lease(self, lease_id: str | int, objs: Pairs) -> bool:
        """Give *objs* back, in one step; the rest stands. What is gone already is success.

        :param objs: what it was grabbed for, or some of that.
        :return: whether this call freed anything.
        :raises InvalidArguments: it was not grabbed for one of them, or in another mode; or another lies in one of them,
            and is not among them.
        :raises Unsupported: only some are given, and the store frees leases whole.
        """
        try:
            lease, wanted = self._lease(lease_id, objs)
        except LockLost:
            return False
        dropped = frozenset(lock.object for lock in wanted)
        asked = rules.named(lease.locks, lease.whole)
        if within := [lock for lock in asked if lock not in wanted and dropped.intersection(lock.object.parents)]:
            raise InvalidArguments(
                f"lease {lease_id} of {lease.owner} holds {_some(within)} in what is to be dropped; name that, too"
            )
        if all(lock in wanted for lock in asked):
            return self.manager.release(lease)
        if not any(lock in wanted for lock in asked):
            return False
        left = self.manager.release(lease, objects=dropped)
        return left is None or left.locks != lease.locks

    def force_drop_lease(self, objs: Sequence[str] = (), *, reason: str = "force_drop_lease") -> list[str]:
        """Free what dead processes have left on *objs* and below; everything if there are none. It is audited.

        :return: the ids of the leases that were freed; each with all that it held.
        """
        freed: list[Lease] = []
        targets: list[LockObject | None] = [*_targets(objs)] or [None]
        for target in targets:
            freed += self.manager.force_release_all(target, held_s=0, reason=reason, user=self.user)
        return [lease.id for lease in freed]

    def _lease(self, lease_id: str | int, objs: Pairs) -> tuple[Lease, tuple[Lock, ...]]:
        """The lease, and what of it *objs* are; they may have been given back."""
        shared, exclusive = map(_targets, _read_and_written(objs))
        lease = self.manager.find(str(lease_id))
        if lease is None:
            raise LockLost(f"lease {lease_id} no longer stands: it was dropped or has expired; grab another")
        modes = dict.fromkeys(shared, LockMode.SHARED) | dict.fromkeys(exclusive, LockMode.EXCLUSIVE)
        wanted = tuple(Lock(target, mode) for target, mode in modes.items())
        had = {*rules.named((*lease.locks, *lease.given), lease.whole)}
        if not wanted or not had.issuperset(wanted):
            raise InvalidArguments(
                f"lease {lease_id} of {lease.owner} is for {_some(lease.locks)}, not for {_some(wanted)}; "
                "name what it was grabbed for, or some of that"
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
    """As the documented calls name it; a more special error stays."""
    return InvalidArguments(str(error)) if type(error) is InvalidRequest else error


def user_of(lease: Lease) -> str:
    """Who grabbed *lease*, where it was by these calls; else its owner as it is."""
    user, _, grab = lease.owner.rpartition(":")
    return user if user and _GRAB.fullmatch(grab) else lease.owner


def _some(locks: Sequence[Lock]) -> str:
    leaves = [str(lock) for lock in rules.named(locks)]
    return ", ".join(leaves[:3]) + (f" and {len(leaves) - 3} more" if len(leaves) > 3 else "") or "nothing"
