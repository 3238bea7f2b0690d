"""The locks for reading and writing *data*.

A lock protects one object, and conflicts are decided on that object alone (:mod:`.rules`). So SHARED on a table
does not keep out the writer of one of its partitions. The reader of a table has to lock the partitions.

========================  ==========================================================================
to read                   the plan locks
========================  ==========================================================================
a partition               the partition, SHARED
a table, or a prefix      the table or prefix and each existing partition below it, SHARED, as Hive
(some levels of several)  does; or only the table or prefix, EXCLUSIVE, if the partitions cannot be
                          listed or are too many
an unpartitioned table    the table, SHARED
a view                    the view, SHARED, and the tables in its query, as above
a database                the database, SHARED: against DROP DATABASE, *not* against writers of tables
========================  ==========================================================================

To write an object, the plan locks it EXCLUSIVE. In tables of Spark's own formats, a write of a partition locks the
whole table: all writers share ``<table>/_temporary``, and lose each other's files.

EXCLUSIVE on a table or prefix keeps out every lock below it, because each of those includes SHARED on its parents. It
also keeps out other readers, so the log explains how to avoid it.
"""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.model.object import MAX_OBJECTS
from airflow_hivelock.locks.plan.condition import narrow
from airflow_hivelock.locks.plan.existence import check_exist
from airflow_hivelock.locks.plan.session import SessionState
from airflow_hivelock.locks.plan.tables import KnownTables
from airflow_hivelock.locks.spelling import canonical

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from airflow_hivelock.locks.hive.catalog import Catalog, Table
    from airflow_hivelock.locks.plan.query import Named, Scan

log = logging.getLogger(__name__)

Follows = Literal["stricter", "documented", "hive"]
"""Whose table of commands a plan follows: Hive's documents, real Hive (measured: 2.3.10), or the stricter of the two."""

FOLLOWS: tuple[Follows, ...] = get_args(Follows)


def plan(
    reads: Iterable[str | LockObject],
    writes: Iterable[str | LockObject],
    catalog: Catalog | None = None,
    unpartitioned: Collection[str] = (),
    *,
    partition_columns: Mapping[str, Sequence[str]] | None = None,
    limit: int = MAX_OBJECTS,
) -> tuple[list[LockObject], list[LockObject]]:
    """The objects to lock SHARED and those to lock EXCLUSIVE, each sorted, for a job that reads and writes data.

    :func:`.rules.request` takes the two as its reads and writes, and adds the parents.

    :param catalog: without one, each partition name counts as complete: write all its levels, in the table's order.
    :param unpartitioned: tables without partitions, so that reading them needs no EXCLUSIVE.
    :param partition_columns: by table, the partition columns of other tables, outermost first. Each can have a type:
        ``{"dw.flights": ["dt date", "hr string"]}``. A type here has precedence over the catalog's.
    :param limit: the largest number of partitions to lock one by one. A table with more is locked as a whole.
    :raises InvalidRequest: a name that contradicts the catalog or a declaration, or that does not exist.
    :raises StoreUnavailable: the catalog did not answer.
    """
    shared, exclusive = rules.objects("reads", reads), rules.objects("writes", writes)
    tables = KnownTables(catalog, unpartitioned, partition_columns)
    if catalog is not None:
        check_exist(shared, exclusive, catalog, tables)
    return plan_data(shared, exclusive, tables, limit)


def check_follows(locks: Any) -> None:
    """:raises InvalidRequest: *locks* is not one of :data:`FOLLOWS`."""
    if locks not in FOLLOWS:
        raise InvalidRequest(f"locks={locks!r}; use one of {', '.join(FOLLOWS)}")


def check_names(
    reads: Iterable[str | LockObject],
    writes: Iterable[str | LockObject],
    unpartitioned: Collection[str] = (),
    partition_columns: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Refuse names that :func:`plan` refuses with any catalog. No catalog is asked.

    :raises InvalidRequest: a malformed name or declaration, or a name that contradicts a declaration.
    """
    tables = KnownTables(None, unpartitioned, partition_columns)
    for target in chain(rules.objects("reads", reads), rules.objects("writes", writes)):
        if target.partition and (table := tables.table(target)) is not None:
            _check_columns(target, table)


def plan_data(
    reads: Iterable[LockObject], writes: Iterable[LockObject], tables: KnownTables, limit: int
) -> tuple[list[LockObject], list[LockObject]]:
    """As :func:`plan`, with the catalog and the declarations in *tables*."""
    shared, unlisted = plan_reads(reads, tables, limit)
    return sorted(shared), sorted(plan_writes(writes, tables) | unlisted)


def plan_writes(writes: Iterable[LockObject], tables: KnownTables) -> set[LockObject]:
    """The objects to lock EXCLUSIVE for these writes."""
    exclusive: set[LockObject] = set()
    escalated: dict[LockObject, str] = {}
    for written in writes:
        target = as_kept(written, tables)
        table = tables.table(target) if target.table else None
        if table and table.provider and target.partition:
            target = LockObject(target.database, target.table)
            escalated[target] = f"writers of a {table.provider} table disturb each other, even in different partitions"
        exclusive.add(target)
    _warn(escalated)
    return exclusive


def plan_reads(reads: Iterable[LockObject], tables: KnownTables, limit: int) -> tuple[set[LockObject], set[LockObject]]:
    """The objects to lock SHARED for these reads, and those to lock EXCLUSIVE instead of unlisted partitions."""
    shared: set[LockObject] = set()
    escalated: dict[LockObject, str] = {}
    named = [as_kept(target, tables) for target in reads]
    for target in chain(named, *(through_view(target, tables, shared, limit) for target in named)):
        found = _to_read(target, tables.table(target) if target.table else None, tables, limit)
        if isinstance(found, str):
            escalated[target] = found
        else:
            shared.update(found)
    _warn(escalated)
    return shared, set(escalated)


def _warn(escalated: Mapping[LockObject, str]) -> None:
    for target, reason in escalated.items():
        log.warning("%s is locked EXCLUSIVE as a whole: %s", target, reason)


def through_view(view: LockObject, tables: KnownTables, looks: set[LockObject], limit: int) -> list[LockObject]:
    """The data in the query of *view*. Empty if it is no view. Views in the query are added to *looks*."""
    session: SessionState[Named] = SessionState(tables)
    if view.partition or not view.table or (text := session.view_text(view)) is None:
        return []
    from airflow_hivelock.locks.plan.query import Reader
    from airflow_hivelock.locks.plan.sql import Sql, Statement

    scans: list[Scan] = []
    seen: list[LockObject] = []
    Reader(session, Statement((), Sql(text), 0), scans, seen).read_view(view, text)
    looks.update(seen)
    return read(scans, tables, looks, limit)


def read(scans: Iterable[Scan], tables: KnownTables, looks: set[LockObject], limit: int) -> list[LockObject]:
    """The objects that *scans* read. A table that is narrowed to partitions is added to *looks*."""
    found: list[LockObject] = []
    for scan in dict.fromkeys(scans):
        narrowed = narrow(scan.table, scan.condition, tables, limit)
        found += narrowed
        if scan.table not in narrowed:
            looks.add(scan.table)
    return found


def _to_read(target: LockObject, table: Table | None, tables: KnownTables, limit: int) -> list[LockObject] | str:
    """The objects to lock SHARED. A string if they are unknown: the reason and the next step."""
    if table is None:
        if tables.catalog or target.partition or not target.table:
            return [target]
        return (
            f"its partitions cannot be listed; set a metastore; or declare partition_columns={{'{target}': ['dt']}} "
            f"and name the partitions that are read; or unpartitioned=['{target}'] if it has none"
        )
    if table.table_type == "VIRTUAL_VIEW" and not table.view_text:
        log.warning("%s is a view: a lock on it does not protect the tables in its query; name those too", target)
    if len(target.partition) == len(table.partition_columns):
        return [target, *tables.meant_by(target)]
    found = tables.listed(target)
    if found is None:
        return "its partitions cannot be listed; set a metastore, or name the partitions with all their columns"
    if len(found) > limit:
        return f"it has more than {limit:,} partitions; name those that are read"
    return [target, *found, *tables.meant_by(target)]


def as_kept(target: LockObject, tables: KnownTables) -> LockObject:
    """*target* under its standard name, the name that Hive and Spark store. Locks use this name.

    If a partition exists under exactly the given name, the given name is returned.

    :raises InvalidRequest: its columns are not those of its table, or a value has no single standard name.
    """
    if not target.partition:
        return target
    table = tables.table(target)
    if table is not None:
        _check_columns(target, table)
    kinds = dict(zip(table.partition_columns, table.partition_types, strict=False)) if table else {}
    levels: list[tuple[str, str]] = []
    for column, value in target.partition:
        kind = kinds.get(column, "")
        try:
            levels.append((column, canonical(value, kind)))
        except InvalidRequest as error:
            if tables.exists(target):
                return target
            raise InvalidRequest(f"{target}: {_spelling(target, column, kind, table, error)}") from error
    kept = target if tuple(levels) == target.partition else LockObject(target.database, target.table, tuple(levels))
    return target if kept != target and tables.exists(target) else kept


def _check_columns(target: LockObject, table: Table) -> None:
    columns = tuple(column for column, _ in target.partition)
    if columns == table.partition_columns[: len(columns)]:
        return
    if not table.partition_columns:
        raise InvalidRequest(f"{target}: {target.database}.{target.table} has no partitions; name the table itself")
    wanted = "/".join(f"{column}=…" for column in table.partition_columns)
    raise InvalidRequest(f"{target}: {target.database}.{target.table} is partitioned by {wanted}, in this order")


def _spelling(target: LockObject, column: str, kind: str, table: Table | None, error: InvalidRequest) -> str:
    """The error text for a value of *target*, with the declaration that allows the value."""
    columns = table.partition_columns if table else tuple(each for each, _ in target.partition)
    declared = [f"{each} string" if each == column else each for each in columns]
    what = f"{column} is of type {kind}, and {error}" if kind else f"{error}, and the type of {column} is not known"
    return (
        f"{what}. A lock on one spelling does not conflict with a lock on another. Write the value that Hive and Spark "
        f"store; or declare the type of {column}: partition_columns={{'{target.database}.{target.table}': {declared}}} "
        "uses the value as it is written"
    )
