"""Hive leases: the documented calls of the Hive lease manager, over any backend that grants locks.

The calls that grab, extend or drop a lease take ``objs`` as pairs: a name, and ``"s"`` (shared, to read) or ``"x"``
(exclusive, to write). The calls that list or force-release leases take names only. A name has this package's syntax and
can be a range. Each lease also locks the parents of its objects SHARED. The objects need not exist.
"""

from __future__ import annotations

import getpass
import os
import re
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import InvalidArguments, InvalidRequest, LeaseAlreadyExists, LockLost, LockTimeout
from airflow_hivelock.locks.interrupted import no_unseen_lease
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.model import Lock, LockMode, LockObject

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backend import Backend
    from airflow_hivelock.locks.model import Lease

    Pairs = Sequence[tuple[str, str]]

_GRAB = re.compile("[0-9a-f]{32}")
"""The last part of a lease's owner. It differs for each grab of one user."""


@dataclass(frozen=True)
class HiveLease:
    """A lease on one object. Times are by the store's clock.

    :param table_name: "" for a database.
    :param partition_name: "" for a database or a table.
    :param start_utc: the time of the grant. Extending the lease does not change it.
    :param end_utc: the expiry time; None if the store does not report it.
    """

    user: str
    lease_id: str
    db_name: str
    table_name: str
    partition_name: str
    start_utc: datetime
    end_utc: datetime | None
    lease_type: str


def entry(lease: Lease, lock: Lock) -> HiveLease:
    """The entry of *lease* for one of its locks."""
    target, kind = lock.object, "x" if lock.mode is LockMode.EXCLUSIVE else "s"
    partition = "/".join(target.path[2:])
    start, end = lease.since, lease.expires
    return HiveLease(user_of(lease), lease.id, target.database, target.table, partition, start, end, kind)


class HiveLeases:
    """The Hive lease manager. Several threads may use it at once.

    :param over: the backend or lock manager that grants the leases.
    :param user: the owner of each lease is ``user:…``. The default is the user of this process.
    """

    def __init__(self, over: Backend | LockManager, user: str | None = None) -> None:
        self.manager = over if isinstance(over, LockManager) else LockManager(over)
        self.user = user or process_user()

    def grab_lease(self, objs: Pairs, lease_duration_sec: float, lease_wait_duration_sec: float | None = 0.0) -> str:
        """Acquire a lease on all of *objs*, or on none.

        :return: the id of the lease. In a database it is a number that grows with each lease.
        :raises LeaseAlreadyExists: the lease was not granted within *lease_wait_duration_sec*. The message names the
            holder.
        :raises ExceedsMaxLeaseTime: *lease_duration_sec* is longer than the store allows.
        :raises InvalidArguments: *objs* or a duration is invalid.
        """
        reads, writes = _read_and_written(objs)
        owner = f"{self.user}:{uuid.uuid4().hex}"
        try:
            with no_unseen_lease(self.manager, owner):
                lease = self.manager.acquire(
                    owner=owner,
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

        :return: one entry for each named object of a lease. Parents have no entry unless the lease names them.
        """
        targets: list[LockObject | None] = [*_targets(objs)] or [None]
        return [
            entry(lease, lock)
            for lease in self.manager.leases()
            for lock in rules.named(lease.locks, lease.whole)
            if any(rules.concern([lock], target) for target in targets)
        ]

    def extend_lease(self, lease_id: str | int, objs: Pairs) -> None:
        """Extend the lease by the duration that its grab asked for, from now on.

        :param objs: all pairs of the grab, or some. A lease has one end, so this always extends all of it.
        :raises ExceedsMaxLeaseTime: the new end is later than the store allows. The lease keeps its current end.
        :raises LockLost: the lease is gone, or one of *objs* was released.
        """
        lease, wanted = self._lease(lease_id, objs, covered=True)
        rules.check_all(replace(lease, locks=wanted), lease.locks)
        self.manager.renew(lease)

    def drop_lease(self, lease_id: str | int, objs: Pairs) -> bool:
        """Release *objs* in one step. The rest of the lease stays held. A lease that is already gone is no error.

        :param objs: all pairs of the grab, or some.
        :return: whether this call released anything.
        :raises InvalidArguments: the grab did not name one of these pairs. Or the lease also holds an object below one
            of them that *objs* does not name.
        :raises Unsupported: *objs* are only some of the pairs, and the store can only release a whole lease.
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
        """Force-release the leases on *objs* and below them; all leases if *objs* is empty. Each gets an audit entry.

        Use it for leases of dead processes. It does not check that.

        :return: the ids of the released leases. Each lease is released as a whole.
        """
        freed: list[Lease] = []
        targets: list[LockObject | None] = [*_targets(objs)] or [None]
        for target in targets:
            freed += self.manager.force_release_all(target, held_s=0, reason=reason, user=self.user)
        return [lease.id for lease in freed]

    def _lease(self, lease_id: str | int, objs: Pairs, *, covered: bool = False) -> tuple[Lease, tuple[Lock, ...]]:
        """The lease, and its locks on *objs*. Some of them may already have been released.

        :param covered: EXCLUSIVE on a parent is the lock on an object: a store can grant it in place of many partitions.
        """
        shared, exclusive = map(_targets, _read_and_written(objs))
        lease = self.manager.find(str(lease_id))
        if lease is None:
            raise LockLost(
                f"lease {lease_id} is no longer held, because it was dropped or has expired. Grab a new lease"
            )
        modes = dict.fromkeys(shared, LockMode.SHARED) | dict.fromkeys(exclusive, LockMode.EXCLUSIVE)
        wanted = tuple(Lock(target, mode) for target, mode in modes.items())
        had = {*rules.named((*lease.locks, *lease.released), lease.whole)}
        if covered:
            wanted = tuple(lock if lock in had else _above(lock, had) for lock in wanted)
        if not wanted or not had.issuperset(wanted):
            in_place = next((above for lock in wanted if (above := _above(lock, had)) in had - {lock}), None)
            step = f"{in_place} is held in place of partitions, so name that" if in_place else "Name pairs of its grab"
            raise InvalidArguments(
                f"lease {lease_id} of {lease.owner} is for {_some(lease.locks)}, not for {_some(wanted)}. {step}"
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
    """The error that the documented calls raise for *error*. A more specific error stays the same."""
    return InvalidArguments(str(error)) if type(error) is InvalidRequest else error


def process_user() -> str:
    """The name of the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container, a user can have no name
        return f"uid {os.getuid()}"


def user_of(lease: Lease) -> str:
    """The user whose ``grab_lease`` acquired *lease*. For any other lease, its owner."""
    user, _, grab = lease.owner.rpartition(":")
    return user if user and _GRAB.fullmatch(grab) else lease.owner


def _above(lock: Lock, had: set[Lock]) -> Lock:
    """The EXCLUSIVE lock among *had* above *lock*; *lock* itself if there is none."""
    above = (Lock(parent, LockMode.EXCLUSIVE) for parent in lock.object.parents)
    return next((each for each in above if each in had), lock)


def _some(locks: Sequence[Lock]) -> str:
    return rules.few(rules.named(locks), 3) or "nothing"
