"""A request, as the statements take it: made before the transaction, for whose end others wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backends.database.keys import number, object_key, units
from airflow_hivelock.locks.backends.database.record import encode
from airflow_hivelock.locks.model import LockMode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_hivelock.locks.backends.database.dialect import Dialect
    from airflow_hivelock.locks.model import Lock


@dataclass(frozen=True)
class Wanted:
    """The locks that an owner asks for.

    :param locks: as its record has them.
    :param keys: what keeps out whose request may conflict, and who acts for the owner.
    :param objects: its objects' keys, bound to the mode in which it wants them.
    :param rows: of the locks, without their place.
    """

    owner_key: str
    locks: str
    keys: Mapping[int, bool]
    objects: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, tables: str, dialect: Dialect, owner_key: str, locks: Sequence[Lock]) -> Wanted:
        keys = {number(tables, str(unit)): exclusive for unit, exclusive in units(locks).items()}
        rows = [_row(position, lock) for position, lock in enumerate(locks)]
        objects = {
            mode: dialect.numbers(row["object_key"] for row in rows if row["lease_type"] == sign)
            for mode, sign in (("shared", "s"), ("exclusive", "x"))
        }
        return cls(owner_key, encode(locks), keys | {number(tables, "owner", owner_key): True}, objects, rows)


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
