"""What reading and writing *data* means in locks.

A lock names one object, and conflicts are decided on that object alone (:mod:`.rules`). So SHARED on a table
does not keep out the writer of one of its partitions: the reader of a table has to lock the partitions.

========================  ==========================================================================
to read                   is locked
========================  ==========================================================================
a partition               it, SHARED
a table, or a prefix      it and every partition that exists below it, SHARED, as Hive does;
(some levels of several)  EXCLUSIVE where those cannot be listed or are too many
an unpartitioned table    it, SHARED
a database                it, SHARED: against DROP DATABASE, *not* against the writers of its tables
========================  ==========================================================================

To write something is EXCLUSIVE on it, and on the whole table for a partition of a table of Spark's own
formats: its writers share ``<table>/_temporary`` and lose each other's files, whichever partition they write.

EXCLUSIVE on a table or prefix keeps out all who lock below it, since they hold SHARED on it as a parent; of all
locks that a reader could take instead of the partitions' own, it is the smallest that does. It keeps out the
other readers too, so the log says how to get rid of it.
"""

from __future__ import annotations

import logging
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.catalog import Table
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.names import MAX_OBJECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from airflow_hivelock.locks.catalog import Catalog

log = logging.getLogger(__name__)

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})


def plan(
    reads: Iterable[str],
    writes: Iterable[str],
    catalog: Catalog | None = None,
    unpartitioned: Collection[str] = (),
    *,
    limit: int = MAX_OBJECTS,
) -> tuple[list[LockObject], list[LockObject]]:
    """The objects to lock SHARED and those to lock EXCLUSIVE, each sorted, for a job that reads and writes data.

    Parents are left to :func:`.rules.request`, which takes the two as its reads and writes.

    :param catalog: without one, a named partition is taken for a full one: name all its levels.
    :param unpartitioned: tables known to have no partitions, so that reading them needs no EXCLUSIVE.
    :param limit: lock a table that is read as a whole, rather than its partitions, when it has more.
    :raises InvalidRequest: a name that the catalog, or *unpartitioned*, contradicts.
    :raises StoreUnavailable: the catalog did not answer.
    """
    table_of = _tables(catalog, unpartitioned)
    shared: set[LockObject] = set()
    exclusive: set[LockObject] = set()
    escalated: dict[LockObject, str] = {}
    for target in rules.objects("writes", writes):
        table = _checked(target, table_of)
        if table and table.provider and target.partition:
            target = LockObject(target.database, target.table)
            escalated[target] = f"writers of a {table.provider} table disturb one another in all its partitions"
        exclusive.add(target)
    for target in rules.objects("reads", reads):
        table = _checked(target, table_of)
        found = _to_read(target, table, catalog, limit)
        if isinstance(found, str):
            exclusive.add(target)
            escalated[target] = found
        else:
            shared.update(found)
    for target, reason in escalated.items():
        log.warning("%s is locked EXCLUSIVE as a whole: %s", target, reason)
    return sorted(shared), sorted(exclusive)


def _to_read(target: LockObject, table: Table | None, catalog: Catalog | None, limit: int) -> list[LockObject] | str:
    """What to lock SHARED; or, as text, why that cannot be told and what to do about it."""
    if table is None:
        if catalog or target.partition or not target.table:
            return [target]
        return "its partitions cannot be listed; give a metastore, name the partitions, or declare it unpartitioned"
    if table.table_type == "VIRTUAL_VIEW":
        log.warning("%s is a view: a lock on it does not protect the tables below it; name those as well", target)
    if catalog is None or len(target.partition) == len(table.partition_columns):
        return [target]
    found = list(islice(catalog.partitions(target), limit + 1))
    if len(found) > limit:
        return f"it has more than {limit:,} partitions; name those that are read"
    return [target, *found]


def _tables(catalog: Catalog | None, unpartitioned: Collection[str]) -> Callable[[LockObject], Table | None]:
    declared = set(rules.objects("unpartitioned", unpartitioned))
    for target in declared:
        if not target.table or target.partition:
            raise InvalidRequest(f"unpartitioned={str(target)!r} is not a table; name one, as in 'dw.planes'")

    @cache
    def table_of(target: LockObject) -> Table | None:
        found = catalog.table(target) if catalog else None
        if target not in declared:
            return found
        if found and found.partition_columns:
            columns = "/".join(found.partition_columns)
            raise InvalidRequest(f"{target} is partitioned by {columns}; take it out of unpartitioned")
        return found or Table()

    return table_of


def _checked(target: LockObject, table_of: Callable[[LockObject], Table | None]) -> Table | None:
    """What is known of the table of *target*, whose partition columns must be that table's."""
    if not target.table:
        return None
    table = table_of(LockObject(target.database, target.table))
    columns = tuple(column for column, _ in target.partition)
    if table is None:
        return None
    if columns == table.partition_columns[: len(columns)]:
        for (column, value), kind in zip(target.partition, table.partition_types, strict=False):
            if kind in _INTEGERS and value.isdecimal() and value != (kept := value.lstrip("0") or "0"):
                raise InvalidRequest(
                    f"{target}: {column} is of type {kind}, so Hive and Spark keep {value!r} as {kept!r} and would "
                    f"not meet this lock; write '{column}={kept}'"
                )
        return table
    if not table.partition_columns:
        raise InvalidRequest(f"{target}: {target.database}.{target.table} has no partitions; name the table itself")
    wanted = "/".join(f"{column}=…" for column in table.partition_columns)
    raise InvalidRequest(f"{target}: {target.database}.{target.table} is partitioned by {wanted}, in this order")
