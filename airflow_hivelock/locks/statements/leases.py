"""GRAB, EXTEND and DROP LEASE: the calls on Hive leases, for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest, LockLost
from airflow_hivelock.locks.hive_leases import HiveLeases
from airflow_hivelock.locks.model import LockMode
from airflow_hivelock.locks.statements import rows

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease, Lock, LockObject
    from airflow_hivelock.locks.statements.statement import Result


def grab(manager: LockManager, user: str, locks: Collection[Lock], lease_s: float, timeout_s: float | None) -> Result:
    """All of *locks*, or none; the lease's id is what the other two statements name it by."""
    if len({lock.object for lock in locks}) < len(locks):
        raise InvalidRequest("GRAB LEASE names an object twice; name it once, in one mode")
    types = {LockMode.SHARED: "s", LockMode.EXCLUSIVE: "x"}
    pairs = [(str(lock.object), types[lock.mode]) for lock in locks]
    leases = HiveLeases(manager, user)
    return _row(manager, leases.grab_lease(pairs, lease_s, timeout_s))


def extend(manager: LockManager, user: str, lease_id: str) -> Result:
    """The whole of the lease, or what is left of it."""
    if (lease := _own(manager, user, lease_id)) is None:
        raise LockLost(f"lease {lease_id} no longer stands: it was dropped or has expired; grab another")
    manager.renew(lease)
    return _row(manager, lease_id)


def drop(manager: LockManager, user: str, lease_id: str, objects: Collection[LockObject]) -> Result:
    """*objects* of the lease, or all of it. An object that was given back before is success.

    :raises LockLost: the whole lease is gone: what ran under it was not protected to its end, or the id is another's.
    """
    if (lease := _own(manager, user, lease_id)) is None:
        raise LockLost(
            f"no lease {lease_id} is held: it was dropped, has expired or was freed by force; SHOW LEASE * lists those that are"
        )
    left = manager.release(lease, objects=objects) if objects else None
    if not objects:
        manager.release(lease)
    standing = set(left.locks) if left else set()
    gone = [lock for lock in rules.named(lease.locks, lease.whole) if lock not in standing]
    return rows.gave_back(lease, gone)


def _own(manager: LockManager, user: str, lease_id: str) -> Lease | None:
    lease = manager.find(lease_id)
    if lease is not None and lease.owner.rpartition(":")[0] not in (user, f"cli:{user}"):
        raise HiveLockError(
            f"lease {lease_id} is not {user}'s, but {lease.owner}'s. If that work is known to be over, DROP FORCE LEASE "
            f"{lease_id} frees it, with a reason"
        )
    return lease


def _row(manager: LockManager, lease_id: str) -> Result:
    lease = manager.find(lease_id)
    return rows.leases([lease] if lease else [], None, extended=False)
