"""EXPLAIN LOCKS: what a statement locks, and what the lock store takes for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks import plan, rules
from airflow_hivelock.locks.backend import Explains
from airflow_hivelock.locks.hive import settings
from airflow_hivelock.locks.statements.statement import Result

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lock
    from airflow_hivelock.locks.plan import Follows
    from airflow_hivelock.locks.plan.text import Plan
    from airflow_hivelock.locks.statements.statement import ExplainLocks


def explain(
    statement: ExplainLocks,
    manager: LockManager,
    *,
    user: str,
    catalog: Catalog | None,
    unpartitioned: Collection[str],
    partition_columns: Mapping[str, Sequence[str]] | None,
    follows: Follows,
    concurrency: bool,
    txn: settings.TxnSettings,
) -> Result:
    """What the session that has these settings would lock for the statement.

    :param concurrency: whether the session locks at all.
    """
    found = plan.plan_sql(
        statement.sql if concurrency else f"{settings.OFF};\n{statement.sql}",
        catalog,
        database=statement.database,
        unpartitioned=unpartitioned,
        partition_columns=partition_columns,
        locks=follows,
        txn=txn,
    )
    planned = rules.with_parents(found.reads, found.writes)
    taken = _taken(manager, user, found, planned)
    stored = {lock.object: said for lock, said in taken.items()}
    rows = [(str(each.object), each.mode.value, follows, stored.get(each.object)) for each in planned]
    if not concurrency:
        text = f"{plan.explain_locks(())}\n-- NOT LOCKED: {settings.OFF}"
        return Result(("object", "mode", "follows", "store"), (), text)
    text = f"{plan.explain_locks(taken)}\n-- {plan.FOLLOWED[follows]}{_instead(manager, planned, taken)}"
    return Result(("object", "mode", "follows", "store"), tuple(rows), text)


def _taken(manager: LockManager, user: str, found: Plan, planned: Sequence[Lock]) -> Mapping[Lock, str | None]:
    """What the lock store takes for that, and how it keeps it."""
    if not manager.capabilities.acquires or not planned:
        return dict.fromkeys(planned)
    if isinstance(manager.backend, Explains):
        wanted = rules.request(f"cli:{user}", found.reads, found.writes, query="EXPLAIN LOCKS", types=found.types)
        return manager.backend.takes(wanted)
    return {lock: lock.mode.value for lock in planned}


def _instead(manager: LockManager, planned: Sequence[Lock], taken: Mapping[Lock, str | None]) -> str:
    """Why what is taken is not what is planned."""
    if not manager.capabilities.acquires:
        return "; this lock store takes none"
    if not manager.capabilities.parents:
        return "; this lock store has a hierarchy of its own, and takes nothing on what lies above"
    return "" if len(taken) == len(planned) else "; too many for one transaction of this lock store, which takes tables"
