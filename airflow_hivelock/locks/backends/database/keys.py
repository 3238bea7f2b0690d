"""Numbers that stand for names: 64 bits of a hash, for an index, an advisory lock or a notification.

Two names that share a number would wait for each other without need; nothing else would come of it.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

from airflow_hivelock.locks.model import LockMode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.model import Lock, LockObject


@lru_cache(maxsize=4_096)
def number(*parts: str) -> int:
    """A signed 64-bit number for the name made of *parts*."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def object_key(target: LockObject) -> int:
    """What a lock's row is found by."""
    return number(*target.path)


def units(locks: Iterable[Lock]) -> dict[int, bool]:
    """The databases and tables in which *locks* lie, each with whether something there is locked EXCLUSIVE.

    Requests that conflict share a unit, and one of them has it EXCLUSIVE.
    """
    found: dict[tuple[str, ...], bool] = {}
    for lock in locks:
        unit = (lock.object.database, lock.object.table)
        found[unit] = found.get(unit, False) or lock.mode is LockMode.EXCLUSIVE
    return {number(*unit): exclusive for unit, exclusive in found.items()}
