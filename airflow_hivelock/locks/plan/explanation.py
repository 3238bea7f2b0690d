"""EXPLAIN LOCKS: what would be locked, as Hive prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import rules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.model import LockObject

HEAD = "LOCK INFORMATION:"


def explain(reads: Iterable[LockObject], writes: Iterable[LockObject]) -> str:
    """Hive's lines, parents included: ``dw.delays.dt=2013-01-01/hr=04 -> EXCLUSIVE``."""
    locks = rules.with_parents(reads, writes)
    return "\n".join([HEAD, *(f"{_name(lock.object)} -> {lock.mode.value}" for lock in locks)])


def explain_json(reads: Iterable[LockObject], writes: Iterable[LockObject]) -> dict[str, Any]:
    """The same for programs: ``{"locks": [{"object": "dw.delays/dt=2013-01-01", "mode": "EXCLUSIVE"}, …]}``."""
    locks = rules.with_parents(reads, writes)
    return {"locks": [{"object": str(lock.object), "mode": lock.mode.value} for lock in locks]}


def _name(target: LockObject) -> str:
    database, *below = target.path
    return ".".join([database, *below[:1], *filter(None, ["/".join(below[1:])])])
