"""A request's locks, as the statements take them: made once, and before the transaction, for whose end others wait.

In an index, an advisory lock or a notification a number stands for a name: 64 bits of a hash. Two names that share a
number would wait for each other without need; nothing else would come of it.
"""

from __future__ import annotations

import hashlib
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backends.database.record import compact, encode
from airflow_hivelock.locks.model import LockMode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_hivelock.locks.model import LeaseLimit, Lock, LockObject


@lru_cache(maxsize=4_096)
def number(*parts: str) -> int:
    """A signed 64-bit number for the name made of *parts*."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def object_key(target: LockObject) -> int:
    """What a lock's row is found by."""
    return number(*target.path)


def group_key(limit: LeaseLimit | None) -> int | None:
    """What the requests of its group are found by: above 0."""
    return None if limit is None else 1 + number("group", limit.group) % (1 << 62)


def units(locks: Iterable[Lock]) -> dict[int, bool]:
    """The databases and tables in which *locks* lie, each with whether something there is locked EXCLUSIVE.

    Requests that conflict share a unit, and one of them has it EXCLUSIVE.
    """
    found: dict[tuple[str, ...], bool] = {}
    for lock in locks:
        unit = (lock.object.database, lock.object.table)
        found[unit] = found.get(unit, False) or lock.mode is LockMode.EXCLUSIVE
    return {number(*unit): exclusive for unit, exclusive in found.items()}


class RequestedLocks:
    """The locks that an owner asks for.

    :param tables: their name.
    :ivar locks: as its record has them.
    :ivar rows: of the locks, without their place.
    :ivar keys: what keeps out every request that may conflict, all others of its group, and every process that acts for
        the owner; those of the owner alone are all that its record needs.
    """

    def __init__(self, tables: str, owner_key: str, locked: tuple[Lock, ...], group_key: int | None = None) -> None:
        self.owner_key, self.locked, self.group_key = owner_key, locked, group_key
        self.locks = encode(locked)
        self.rows: Sequence[Mapping[str, Any]] = [_row(position, lock) for position, lock in enumerate(locked)]
        keys = {number(tables, str(unit)): exclusive for unit, exclusive in units(locked).items()}
        if group_key is not None:
            keys[number(tables, "group", str(group_key))] = True
        self.keys: Mapping[int, bool] = keys | {number(tables, "owner", owner_key): True}

    @cached_property
    def json(self) -> tuple[str, str]:
        """The rows, and the keys in their order."""
        return compact(self.rows), compact(sorted(self.keys.items()))

    @cached_property
    def objects(self) -> Mapping[str, Sequence[int]]:
        """Its objects' keys, by the mode in which it wants them."""
        return {
            mode: [row["object_key"] for row in self.rows if row["lease_type"] == sign]
            for mode, sign in (("shared", "s"), ("exclusive", "x"))
        }


def _row(position: int, lock: Lock) -> dict[str, Any]:
    return {
        "place": 0,
        "position": position,
        "object_key": object_key(lock.object),
        "db_name": lock.object.database,
        "table_name": lock.object.table,
        "partition_name": "/".join(lock.object.path[2:]),
        "lease_type": "x" if lock.mode is LockMode.EXCLUSIVE else "s",
    }
