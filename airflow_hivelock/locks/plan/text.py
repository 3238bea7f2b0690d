"""From SQL to the objects that it locks; and EXPLAIN LOCKS, which prints them as Hive does."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.settings import (
    CONCURRENCY,
    DEFAULT_TXN,
    NUMRETRIES,
    OFF,
    RISK,
    SLEEP,
    TxnSettings,
    patience_s,
)
from airflow_hivelock.locks.model import LockObject, LockType
from airflow_hivelock.locks.model.object import MAX_OBJECTS
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
    """What SQL locks; parents are left to :func:`.rules.request`.

    :param reads: SHARED. :param writes: EXCLUSIVE. Each sorted.
    :param types: as :class:`~airflow_hivelock.locks.model.LockRequest` takes them; empty unless Hive's table is followed.
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
    """The objects to lock SHARED and those to lock EXCLUSIVE, each sorted, for HiveQL or Spark SQL that is about to run.

    Parents are left to :func:`.rules.request`, which takes the two as its reads and writes.

    :param sql: statements separated by ``;``, all of which run under the one set of locks. What follows
        ``SET hive.support.concurrency=false`` locks nothing, as in Hive, and the log says so.
    :param catalog: without one, WHERE narrows only the reads of tables in *partition_columns*.
    :param database: what names without a database are in, until USE.
    :param unpartitioned: tables known to have no partitions, so that reading them needs no EXCLUSIVE.
    :param partition_columns: by table, the partition columns of others, outermost first, each with its type or without:
        ``{"dw.flights": ["dt date", "hr string"]}``. A type that is given here counts, whatever the catalog says.
    :param locks: whose table of commands to follow where the documents and real Hive differ. ``documented`` takes SHARED
        where a table's serializer or file format is set, which readers notice; ``hive`` takes SHARED for
        dynamic partitions below a given one (HIVE-3509), for ADD and TOUCH PARTITION and for properties, which does *not*
        keep others from the partitions that are written. ``stricter``: the larger of the two locks; of LOAD DATA
        into a partition that is not there yet the documented one, so that loads of a table run at once.
    :param limit: lock a table that is read as a whole, rather than its partitions, when it has more.
    :param always: lock although the SQL says ``SET hive.support.concurrency=false``, so that Hive does not.
    :raises InvalidRequest: showing the place that is not understood, or what the catalog contradicts.
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
    """As :func:`plan_statements`, and with what a metastore is to be asked for with ``locks="hive"``.

    :param txn: Hive's settings that change what it asks for, until the SQL sets them.
    """
    if not isinstance(sql, str):
        raise InvalidRequest(f"sql={sql!r} must be one text of statements, separated by ';'")
    check_follows(locks)
    tables = KnownTables(catalog, unpartitioned, partition_columns)
    with _not_too_deep():
        planner = _planner(sql, tables, database, locks, limit, always, txn)
        for text in planner.unlocked:
            log.warning("NOT LOCKED: %s comes before %r; %s", OFF, text[:_SHOWN], RISK)
        for setting in planner.settings:
            if setting.name != CONCURRENCY:
                log.info("%s", setting)
        looks = set(planner.looks)
        reads = read(planner.scans, tables, looks, limit)
    made = {target for target in reads if target in planner.session.made and tables.table(target) is None}
    if catalog is not None:
        warn_of_missing((each for each in reads if each not in made), catalog, tables)
    shared, unlisted = plan_reads([each for each in reads if each not in made], tables, limit)
    exclusive = plan_writes([*planner.writes, *made], tables) | unlisted
    whole = {target for target in exclusive if not target.partition}
    above = {parent for target in (*shared, *exclusive) for parent in target.parents}  # stay with what lies in them
    kept = {each for each in (looks - above).union(shared) if each not in exclusive and not _below(each, whole)}
    return Plan(sorted(kept), sorted(exclusive), _types(planner.types, shared, unlisted.union(made), tables))


def _types(
    given: Mapping[LockObject, LockType], shared: set[LockObject], whole: set[LockObject], tables: KnownTables
) -> dict[LockObject, LockType]:
    """*given*, by the names that are locked; what is read as well, or below, is kept for its readers, too."""
    types: dict[LockObject, LockType] = {}
    for target, kind in given.items():
        (name,) = plan_writes([target], tables)
        kind = kind if name == as_kept(target, tables) else LockType.EXCLUSIVE
        types[name] = max(kind, types.get(name, kind))
    for name, kind in types.items():
        if name in whole:
            types[name] = LockType.EXCLUSIVE
        elif kind is LockType.SHARED_READ and any(each == name or each.is_below(name) for each in shared):
            types[name] = LockType.SHARED_WRITE
    return types


def check_statements(
    sql: str,
    database: str = "default",
    unpartitioned: Collection[str] = (),
    partition_columns: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Refuse what :func:`plan_statements` refuses whatever a catalog says; and names of tables that cannot be meant.

    :raises InvalidRequest: showing the place that is not understood.
    """
    tables = KnownTables(None, unpartitioned, partition_columns)
    LockObject(database)
    if sql:
        with _not_too_deep():
            patience_s(_planner(sql, tables, database, "stricter", MAX_OBJECTS).settings)


def turned_off(
    sql: str,
    database: str = "default",
    unpartitioned: Collection[str] = (),
    partition_columns: Mapping[str, Sequence[str]] | None = None,
) -> bool:
    """Whether the SQL turns locking off, by ``SET hive.support.concurrency=false``, before all that it would lock.

    :raises InvalidRequest: showing the place that is not understood.
    """
    if CONCURRENCY not in sql.lower():
        return False
    with _not_too_deep():
        tables = KnownTables(None, unpartitioned, partition_columns)
        planner = _planner(sql, tables, database, "stricter", MAX_OBJECTS)
    return bool(planner.unlocked) and not (planner.scans or planner.writes or planner.looks)


def same_in(
    one: str,
    other: str,
    sql: str,
    unpartitioned: Collection[str] = (),
    partition_columns: Mapping[str, Sequence[str]] | None = None,
) -> bool:
    """Whether the SQL touches the same, whichever of two databases its names without a database are in.

    :raises InvalidRequest: showing the place that is not understood.
    """
    tables = KnownTables(None, unpartitioned, partition_columns)
    with _not_too_deep():
        found = [_planner(sql, tables, database, "stricter", MAX_OBJECTS, always=True) for database in (one, other)]
    first, second = ((each.scans, each.writes, each.looks) for each in found)
    return first == second


def tries_s(
    sql: str,
    database: str = "default",
    unpartitioned: Collection[str] = (),
    partition_columns: Mapping[str, Sequence[str]] | None = None,
) -> float | None:
    """For how long Hive would try to lock, by the SQL's own SET lines; None where it has none of those.

    :raises InvalidRequest: showing the place that is not understood, or a value that cannot be meant.
    """
    if not any(name in sql.lower() for name in (NUMRETRIES, SLEEP)):
        return None
    with _not_too_deep():
        tables = KnownTables(None, unpartitioned, partition_columns)
        return patience_s(_planner(sql, tables, database, "stricter", MAX_OBJECTS).settings)


def _planner(
    sql: str,
    tables: KnownTables,
    database: str,
    locks: Follows,
    limit: int,
    always: bool = False,
    txn: TxnSettings = DEFAULT_TXN,
) -> Planner:
    """What the statements touch."""
    # It takes a while to import sqlglot, and a DAG that names its data has no need of it.
    from airflow_hivelock.locks.plan.cursor import statements
    from airflow_hivelock.locks.plan.planner import Planner
    from airflow_hivelock.locks.plan.statement import add

    planner = Planner(SessionState(tables, database, txn), locks, limit, always)
    for statement in statements(sql):
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
    """Whether EXCLUSIVE on what lies above it covers *target*."""
    return not whole.isdisjoint(target.parents)


HEAD = "LOCK INFORMATION:"


FOLLOWED: dict[Follows, str] = {
    "stricter": "by the stricter of Hive's documents and real Hive",
    "documented": "as Hive's documents have it",
    "hive": "as real Hive has it",
}
"""Whose table of commands it is, in words."""


def explain(reads: Iterable[LockObject], writes: Iterable[LockObject]) -> str:
    """Hive's lines, parents included: ``dw.delays.dt=2013-01-01/hr=04 -> EXCLUSIVE``."""
    return explain_locks(rules.with_parents(reads, writes))


def explain_locks(locks: Iterable[Lock]) -> str:
    """Hive's lines for just these *locks*."""
    return "\n".join([HEAD, *(f"{_name(lock.object)} -> {lock.mode.value}" for lock in locks)])


def explain_json(reads: Iterable[LockObject], writes: Iterable[LockObject]) -> dict[str, Any]:
    """The same for programs: ``{"locks": [{"object": "dw.delays/dt=2013-01-01", "mode": "EXCLUSIVE"}, …]}``."""
    locks = rules.with_parents(reads, writes)
    return {"locks": [{"object": str(lock.object), "mode": lock.mode.value} for lock in locks]}


def _name(target: LockObject) -> str:
    database, *below = target.path
    return ".".join([database, *below[:1], *filter(None, ["/".join(below[1:])])])
