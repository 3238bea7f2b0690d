"""Plans the locks of SQL. Prints locks as Hive's EXPLAIN LOCKS does."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.properties import CONCURRENCY, NUMRETRIES, SLEEP
from airflow_hivelock.locks.hive.settings import DEFAULT_TXN, OFF, RISK, TxnSettings, patience_s
from airflow_hivelock.locks.model import LockObject, LockType
from airflow_hivelock.locks.model.object import MAX_OBJECTS
from airflow_hivelock.locks.plan.condition import ALWAYS
from airflow_hivelock.locks.plan.data import Follows, as_kept, check_follows, plan_reads, plan_writes, read
from airflow_hivelock.locks.plan.existence import warn_of_missing
from airflow_hivelock.locks.plan.session import SessionState
from airflow_hivelock.locks.plan.tables import KnownTables

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.model import Lock
    from airflow_hivelock.locks.plan.planner import Planner

log = logging.getLogger(__name__)

_SHOWN = 200


@dataclass(frozen=True)
class Plan:
    """The locks of SQL, without parents: :func:`.rules.request` adds those.

    :param reads: the objects to lock SHARED, sorted. :param writes: the objects to lock EXCLUSIVE, sorted.
    :param types: see :class:`~airflow_hivelock.locks.model.LockRequest`. Filled only with ``locks="hive"``.
    """

    reads: list[LockObject]
    writes: list[LockObject]
    types: Mapping[LockObject, LockType]


def plan_statements(
    sql: str,
    catalog: Catalog | None = None,
    *,
    database: str = "default",
    unpartitioned: Collection[str] = (),
    partition_columns: Mapping[str, Sequence[str]] | None = None,
    locks: Follows = "stricter",
    limit: int = MAX_OBJECTS,
    always: bool = False,
) -> tuple[list[LockObject], list[LockObject]]:
    """The objects to lock SHARED and those to lock EXCLUSIVE, each sorted, for HiveQL or Spark SQL.

    :func:`.rules.request` takes the two as its reads and writes, and adds the parents.

    :param sql: statements separated by ``;``. All of them run under one set of locks. Statements after
        ``SET hive.support.concurrency=false`` lock nothing, as in Hive, and a warning is logged.
    :param catalog: without one, WHERE narrows only the reads of tables in *partition_columns*.
    :param database: the database of names without one, until USE.
    :param unpartitioned: tables without partitions, so that reading them needs no EXCLUSIVE.
    :param partition_columns: by table, the partition columns of other tables, outermost first. Each can have a type:
        ``{"dw.flights": ["dt date", "hr string"]}``. A type here has precedence over the catalog's.
    :param locks: the table of commands to follow where Hive's documents and real Hive differ. ``documented`` takes
        SHARED to set a table's serializer or file format, although readers notice that. ``hive`` takes SHARED for
        dynamic partitions below a static one (HIVE-3509), for ADD and TOUCH PARTITION and for properties. That does
        *not* keep other jobs from the written partitions. ``stricter`` takes the larger of the two locks. For LOAD DATA
        into a new partition it takes the documented one, so that loads of one table run at the same time.
    :param limit: the largest number of partitions to lock one by one. A table with more is locked as a whole.
    :param always: lock even if the SQL contains ``SET hive.support.concurrency=false``.
    :raises InvalidRequest: the SQL is not understood, with the place; or the catalog contradicts a name in it.
    :raises StoreUnavailable: the catalog did not answer.
    """
    found = plan_sql(
        sql,
        catalog,
        database=database,
        unpartitioned=unpartitioned,
        partition_columns=partition_columns,
        locks=locks,
        limit=limit,
        always=always,
    )
    return found.reads, found.writes


def plan_sql(
    sql: str,
    catalog: Catalog | None = None,
    *,
    database: str = "default",
    unpartitioned: Collection[str] = (),
    partition_columns: Mapping[str, Sequence[str]] | None = None,
    locks: Follows = "stricter",
    limit: int = MAX_OBJECTS,
    always: bool = False,
    txn: TxnSettings = DEFAULT_TXN,
) -> Plan:
    """As :func:`plan_statements`, plus the lock types for a metastore if ``locks="hive"``.

    :param txn: Hive's settings that change these types. SET lines in the SQL have precedence.
    """
    if not isinstance(sql, str):
        raise InvalidRequest(f"sql={sql!r} must be one text of statements, separated by ';'")
    check_follows(locks)
    tables = KnownTables(catalog, unpartitioned, partition_columns)
    with _not_too_deep():
        planner = _planner_of(sql, tables, database, locks, limit, always, txn)
        for text in planner.unlocked:
            log.warning("NOT LOCKED: %s comes before %r; %s", OFF, text[:_SHOWN], RISK)
        for setting in planner.settings:
            if setting.name != CONCURRENCY:
                log.info("%s", setting)
        return plan_touched(planner)


def plan_touched(planner: Planner) -> Plan:
    """The locks for the objects that *planner* has collected, from SQL or from an engine's own plan."""
    tables, limit = planner.session.tables, planner.limit
    looks = set(planner.looks)
    scans = planner.scans if planner.session.prunes else [replace(scan, condition=ALWAYS) for scan in planner.scans]
    reads = read(scans, tables, looks, limit)
    made = {target for target in reads if target in planner.session.made and tables.table(target) is None}
    if tables.catalog is not None:
        warn_of_missing((each for each in reads if each not in made), tables.catalog, tables)
    shared, unlisted = plan_reads([each for each in reads if each not in made], tables, limit)
    exclusive = plan_writes([*planner.writes, *made], tables) | unlisted
    whole = {target for target in exclusive if not target.partition}
    above = {
        parent for target in (*shared, *exclusive) for parent in target.parents
    }  # the request adds these parents itself
    kept = {each for each in (looks - above).union(shared) if each not in exclusive and not _below(each, whole)}
    return Plan(sorted(kept), sorted(exclusive), _types(planner.types, shared, unlisted.union(made), tables))


def _types(
    written: Mapping[LockObject, LockType], shared: set[LockObject], whole: set[LockObject], tables: KnownTables
) -> dict[LockObject, LockType]:
    """By locked object, its lock type. *written* has the types of writes. Objects with reads get no SHARED_READ."""
    types: dict[LockObject, LockType] = {}
    for target, kind in written.items():
        (name,) = plan_writes([target], tables)
        kind = kind if name == as_kept(target, tables) else LockType.EXCLUSIVE
        types[name] = max(kind, types.get(name, kind))
    for name, kind in types.items():
        if name in whole:
            types[name] = LockType.EXCLUSIVE
        elif kind is LockType.SHARED_READ and any(each == name or each.is_below(name) for each in shared):
            types[name] = LockType.SHARED_WRITE
    return types


@dataclass(frozen=True)
class TaskSql:
    """The SQL of a task, with the tables that the task declares. No catalog is asked about it.

    Each method raises InvalidRequest for SQL that :func:`plan_statements` refuses with any catalog.

    :param database: the database of names without one, until USE.
    :param unpartitioned: as for :func:`plan_statements`, like *partition_columns*.
    """

    sql: str
    database: str = "default"
    unpartitioned: Collection[str] = ()
    partition_columns: Mapping[str, Sequence[str]] | None = None

    def check(self) -> None:
        """Refuse the SQL, its settings and the declarations if they are invalid with any catalog."""
        self._tables()
        LockObject(self.database)
        if self.sql:
            patience_s(self._planner().settings)

    def turned_off(self) -> bool:
        """Whether the SQL sets ``hive.support.concurrency=false`` before each statement that it would lock for."""
        if CONCURRENCY not in self.sql.lower():
            return False
        planner = self._planner()
        return bool(planner.unlocked) and not (planner.scans or planner.writes or planner.looks)

    def same_in(self, database: str) -> bool:
        """Whether the SQL reads and writes the same objects with *database* as the default."""
        found = [each._planner(always=True) for each in (self, replace(self, database=database))]
        first, second = ((each.scans, each.writes, each.looks) for each in found)
        return first == second

    def tries_s(self) -> float | None:
        """How long Hive would try to lock, in seconds, by the SET lines of the SQL. None if no line sets it."""
        if not any(name in self.sql.lower() for name in (NUMRETRIES, SLEEP)):
            return None
        return patience_s(self._planner().settings)

    def _tables(self) -> KnownTables:
        return KnownTables(None, self.unpartitioned, self.partition_columns, checked=True)

    def _planner(self, always: bool = False) -> Planner:
        """The planner with the statements of the SQL. Cached for each text."""
        from airflow_hivelock.locks.plan.sql import latest

        planned, tables = latest(self.sql).planned, self._tables()
        key = (self.database, tables.declared, always)
        if (found := planned.get(key)) is None:
            with _not_too_deep():
                found = _planner_of(self.sql, tables, self.database, "stricter", MAX_OBJECTS, always)
            planned[key] = found
        return found


def _planner_of(
    sql: str,
    tables: KnownTables,
    database: str,
    locks: Follows,
    limit: int,
    always: bool = False,
    txn: TxnSettings = DEFAULT_TXN,
) -> Planner:
    # Importing sqlglot takes a while, and a DAG that names its data does not need it.
    from airflow_hivelock.locks.plan.planner import Planner
    from airflow_hivelock.locks.plan.sql import latest
    from airflow_hivelock.locks.plan.statement import add

    planner = Planner(SessionState(tables, database, txn), locks, limit, always)
    for statement in latest(sql).statements:
        add(statement, planner)
    return planner


@contextmanager
def _not_too_deep() -> Iterator[None]:
    try:
        yield
    except RecursionError as error:
        raise InvalidRequest(
            "the SQL is nested too deep to be planned; plan it in parts, or name reads and writes"
        ) from error


def _below(target: LockObject, whole: set[LockObject]) -> bool:
    """Whether EXCLUSIVE on a parent covers *target*."""
    return not whole.isdisjoint(target.parents)


HEAD = "LOCK INFORMATION:"


FOLLOWED: dict[Follows, str] = {
    "stricter": "by the stricter of Hive's documents and real Hive",
    "documented": "as in Hive's documents",
    "hive": "as in real Hive",
}
"""By the value of ``locks``, the phrase for messages."""


def explain(reads: Iterable[LockObject], writes: Iterable[LockObject]) -> str:
    """The locks in Hive's format, with parents: ``dw.delays.dt=2013-01-01/hr=04 -> EXCLUSIVE``."""
    return explain_locks(rules.with_parents(reads, writes))


def explain_locks(locks: Iterable[Lock]) -> str:
    """These *locks* in Hive's format, one a line, without added parents."""
    return "\n".join([HEAD, *(f"{_name(lock.object)} -> {lock.mode.value}" for lock in locks)])


def _name(target: LockObject) -> str:
    database, *below = target.path
    return ".".join([database, *below[:1], *filter(None, ["/".join(below[1:])])])
