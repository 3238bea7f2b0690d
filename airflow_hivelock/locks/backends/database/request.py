"""A request's locks as the statements need them: made once, before the transaction, because others wait for its end.

Indexes, advisory locks and notifications use a number in place of a name: 64 bits of a hash. Two names with the same
number only make requests wait for each other without need.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backends.database.values import compact, encode
from airflow_hivelock.locks.model import Lock, LockMode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_hivelock.locks.model import LeaseLimit


@lru_cache(maxsize=4_096)
def number(*parts: str) -> int:
    """A signed 64-bit number for the name made of *parts*."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def lock_key(lock: Lock) -> int:
    """The number of a lock's object and mode. The rows of such locks are found by it."""
    return number(lock.mode.value, *lock.object.path)


def excluded_keys(lock: Lock) -> dict[int, Lock]:
    """The keys of the locks that *lock* excludes, each with such a lock: the keys that SQL looks for."""
    excluded = [Lock(lock.object, mode) for mode in queueing.excluded_by(lock.mode)]
    return {lock_key(other): other for other in excluded}


def group_key(limit: LeaseLimit | None) -> int | None:
    """The key of the group's requests: above 0."""
    return None if limit is None else 1 + number("group", limit.group) % (1 << 62)


def group_lock(tables: str, limit: LeaseLimit) -> tuple[int, dict[int, bool]]:
    """The key of a group, and the key that keeps out all its requests.

    :param tables: the name of the set of tables.
    """
    key = group_key(limit)
    assert key is not None
    return key, {number(tables, "group", str(key)): True}


def units(locks: Iterable[Lock]) -> dict[int, bool]:
    """The databases and tables of *locks*, each with whether something in it is locked EXCLUSIVE.

    Requests that conflict share a unit, and one of them has it EXCLUSIVE.
    """
    found: dict[tuple[str, ...], bool] = {}
    for lock in locks:
        unit = (lock.object.database, lock.object.table)
        found[unit] = found.get(unit, False) or lock.mode is LockMode.EXCLUSIVE
    return {number(*unit): exclusive for unit, exclusive in found.items()}


class RequestedLocks:
    """The locks that an owner asks for.

    :param tables: the name of the set of tables.
    :ivar locks: as in the owner's record.
    :ivar rows: the rows of the locks, as JSON.
    :ivar keys: these keep out every request that may conflict, all others of its group, and every process that acts for
        the owner. The record alone needs only the owner's key.
    :ivar excluded: by their keys, the locks that these exclude.
    """

    def __init__(self, tables: str, owner_key: str, locked: tuple[Lock, ...], group_key: int | None = None) -> None:
        self.owner_key, self.locked, self.group_key = owner_key, locked, group_key
        self.locks = encode(locked)
        keys = {number(tables, str(unit)): exclusive for unit, exclusive in units(locked).items()}
        if group_key is not None:
            keys[number(tables, "group", str(group_key))] = True
        self.keys: Mapping[int, bool] = keys | {number(tables, "owner", owner_key): True}
        self.rows = compact([_row(position, lock) for position, lock in enumerate(locked)])
        self.excluded: Mapping[int, Lock] = {
            key: other for lock in locked for key, other in excluded_keys(lock).items()
        }


def _row(position: int, lock: Lock) -> dict[str, Any]:
    return {
        "position": position,
        "object_key": lock_key(lock),
        "db_name": lock.object.database,
        "table_name": lock.object.table,
        "partition_name": "/".join(lock.object.path[2:]),
        "lease_type": "x" if lock.mode is LockMode.EXCLUSIVE else "s",
    }
