"""From a condition on a table's partition columns to the partitions for which it can be true."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.plan.condition import Condition, Partition

if TYPE_CHECKING:
    from airflow_hivelock.locks.hive.catalog import Table
    from airflow_hivelock.locks.plan.tables import KnownTables


def narrow(target: LockObject, condition: Condition, tables: KnownTables, limit: int) -> list[LockObject]:
    """The partitions, or prefixes of them, of the table *target* that hold all rows for which *condition* can be true.

    Where it leaves one value or some to a column they are named, whether they exist or not; of other conditions,
    what exists is asked. The table itself where nothing is known of it, or it would be more than *limit* objects.
    """
    table = tables.table(target)
    if table is None or not condition.columns() & set(table.partition_columns):
        return [target]
    named = _named(target, condition, table, tables, limit)
    depth = len(named[0].partition) if named else len(table.partition_columns)
    found = named  # a prefix: all that it holds
    if condition.columns() & set(table.partition_columns[depth:]) and tables.catalog is not None:
        listed = [partition for prefix in named for partition in tables.listed(prefix) or ()]
        found = [partition for partition in listed if _may_hold(condition, partition, table)]
    respelt = [each for each, kept in tables.respelt(target).items() if _may_hold(condition, kept, table)]
    found = list(dict.fromkeys([*found, *respelt]))
    return found if len(found) <= limit else [target]


def _named(target: LockObject, condition: Condition, table: Table, tables: KnownTables, limit: int) -> list[LockObject]:
    """What can be named from the condition alone: the table, prefixes or partitions; nothing for a contradiction."""
    levels: list[list[tuple[str, str]]] = []
    count = 1
    types = table.partition_types or ("",) * len(table.partition_columns)
    for column, kind in zip(table.partition_columns, types, strict=True):
        values = condition.values(column, kind, ranges=tables.catalog is None)
        if values is None or (count := count * len(values)) > limit:
            break
        levels.append([(column, value) for value in sorted(values)])
    named = [LockObject(target.database, target.table, levels) for levels in product(*levels)]
    return [partition for partition in named if _may_hold(condition, partition, table)]


def _may_hold(condition: Condition, partition: LockObject, table: Table) -> bool:
    types = dict(zip(table.partition_columns, table.partition_types, strict=False))
    return condition.holds(Partition(dict(partition.partition), types)) is not False
