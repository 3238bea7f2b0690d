"""The planner: it collects the objects that the statements of a text read and write."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.transactional import Write, written
from airflow_hivelock.locks.model import LockObject, LockType
from airflow_hivelock.locks.plan.condition import narrow
from airflow_hivelock.locks.plan.query import Named, Reader, Scan, parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Token

    from airflow_hivelock.locks.hive.settings import Setting
    from airflow_hivelock.locks.plan.condition import Condition
    from airflow_hivelock.locks.plan.cursor import Cursor, Spec
    from airflow_hivelock.locks.plan.session import SessionState
    from airflow_hivelock.locks.plan.sql import Statement

log = logging.getLogger(__name__)

_DECLARE = (
    "set a metastore, or declare the table's columns with their types, outermost first, as in "
    "partition_columns={'dw.flights': ['dt date', 'hr int']}"
)

_COLUMNS = "name these columns, or correct partition_columns"

QUERY = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")
"""The first words of queries."""


@dataclass
class Planner:
    """Collects the objects that the statements of one text read or write.

    :param follows: the table of commands that decides the locks: see :data:`.data.Follows`.
    :param limit: the largest number of partitions to lock one by one.
    :param always: lock even if the text turns locking off.
    :ivar scans: the data to read.
    :ivar writes: the objects to change. They are locked EXCLUSIVE.
    :ivar looks: objects that must not be dropped, but can change. They are locked SHARED, without their partitions.
    :ivar caches: a statement creates a cache.
    :ivar types: by written object, the lock type of Hive's transactional manager. Filled only with ``follows="hive"``.
    :ivar settings: the settings that the text sets.
    :ivar unlocked: the statements that lock nothing, because the text turns locking off before them.
    """

    session: SessionState[Named]
    follows: Literal["stricter", "documented", "hive"]
    limit: int
    always: bool = False
    scans: list[Scan] = field(default_factory=list)
    writes: list[LockObject] = field(default_factory=list)
    looks: list[LockObject] = field(default_factory=list)
    unlocked: list[str] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    types: dict[LockObject, LockType] = field(default_factory=dict)
    caches: bool = False

    @property
    def as_hive(self) -> bool:
        """Whether to lock as real Hive 2.3 to 4.0 does, even if Hive's documents describe more locks."""
        return self.follows == "hive"

    @property
    def as_documented(self) -> bool:
        """Whether to lock as Hive's documents describe, even if real Hive 2.3 locks more."""
        return self.follows == "documented"

    def write(self, *targets: LockObject, how: Write | None = None) -> None:
        """Add objects to lock EXCLUSIVE. A temporary table needs no lock.

        :param how: the kind of write. None means a change of the table's definition or of its list of partitions.
        """
        kept = [each for each in targets if not self._temporary(each)]
        self.writes += kept
        for each in kept:
            self._type(each, how)

    def append_dynamically(self, target: LockObject, how: Write) -> None:
        """Add a write into dynamic partitions of *target*, a table or a prefix, as real Hive locks it.

        In ZooKeeper every Hive locks a prefix SHARED, and Hive 4 locks a table EXCLUSIVE. In a metastore Hive locks the
        table, with the lock type of the write.
        """
        if not target.partition:
            self.write(target, how=how)
            return
        self.look(target)
        if not self._temporary(target):
            self._type(LockObject(target.database, target.table), how)

    def _type(self, target: LockObject, how: Write | None) -> None:
        if self.as_hive:
            table = self.session.tables.table(target) if target.table else None
            kind = written(table, how, self.session.txn) if how else LockType.EXCLUSIVE
            self.types[target] = max(kind, self.types.get(target, kind))

    def look(self, *targets: LockObject) -> None:
        """Add objects that must not be dropped: they are locked SHARED, without their partitions."""
        self.looks += [each for each in targets if not self._temporary(each)]

    def scan(self, statement: Statement, table: LockObject, spec: Spec | None) -> None:
        """Add a read of *table*, or of the partitions that *spec* selects."""
        if spec is None:
            self.scans.append(Scan(table))
        else:
            found = self.partitions(statement, table, spec)
            self.looks.append(table)
            self.scans += [Scan(partition) for partition in found]

    def scan_tables(self, database: str) -> None:
        """Add a read of each table of *database*, but not of its views."""
        tables = self.session.tables
        for name in tables.catalog.names(database) if tables.catalog else ():
            target = LockObject(database, name)
            known = tables.table(target)
            if known is not None and known.table_type != "VIRTUAL_VIEW":
                self.scans.append(Scan(target))

    def read(self, statement: Statement, tokens: Sequence[Token]) -> exp.Expr:
        """Add the reads of the query *tokens*. Return its tree."""
        tree = parse(statement, tokens)
        self.reader(statement).read(tree)
        return tree

    def read_named(self, statement: Statement, parts: tuple[str, ...]) -> None:
        """Add a read of all rows of the table or view with that name."""
        levels = zip(("this", "db", "catalog"), reversed(parts), strict=False)
        self.reader(statement).read(exp.Table(**{level: exp.to_identifier(name, True) for level, name in levels}))

    def below(self, statement: Statement, parts: tuple[str, ...]) -> list[LockObject] | None:
        """The tables below a temporary view with that name. A write of the view can change them. None for no such view."""
        if not self.session.is_temporary_view(parts):
            return None
        had = len(self.scans)
        self.read_named(statement, parts)
        return [scan.table for scan in self.scans[had:]]

    def read_view(self, statement: Statement, view: LockObject, condition: Condition, materialized: bool) -> bool:
        """Add the reads of the query of *view*. Return whether that query is known."""
        reader = self.reader(statement)
        if materialized:
            named, kind = self.session.materialized.get(view), "MATERIALIZED_VIEW"
        else:
            named, kind = self.session.meanings((view.database, view.table))[-1], "VIRTUAL_VIEW"
        if named is None and (text := self.session.view_text(view, kind)):
            named = reader.stored(view, text)
        if named is not None:
            reader.read_named(named, condition)
        return named is not None

    def look_at(self, statement: Statement, tokens: Sequence[Token]) -> tuple[exp.Expr, Reader]:
        """Add the tables and views in the query *tokens* as looks. Return its tree and a reader for later reads."""
        tree = parse(statement, tokens)
        reader = self.reader(statement, self.session.frozen())
        seen = Reader(self.session, statement, [], [])
        seen.read(tree)
        self.look(*seen.looks, *(scan.table for scan in seen.scans))
        return tree, reader

    def reader(self, statement: Statement, session: SessionState[Named] | None = None) -> Reader:
        return Reader(session or self.session, statement, self.scans, self.looks)

    def table(self, cursor: Cursor) -> LockObject:
        """Pass a table's name, and return the table."""
        return self.named(cursor)[0]

    def named(self, cursor: Cursor) -> tuple[LockObject, tuple[str, ...]]:
        """Pass a table's name, and return the table and the parts of the name. Refuse a name that Hive cannot have."""
        parts, place = cursor.name()
        try:
            return self.session.resolve(parts), parts
        except InvalidRequest as error:
            cursor.statement.refuse(place, str(error))

    def database(self, cursor: Cursor) -> LockObject:
        """Pass a database's name, and return the database."""
        parts, place = cursor.name()
        try:
            return LockObject(self.session.resolve((*parts, "t")).database)
        except InvalidRequest as error:
            cursor.statement.refuse(place, str(error))

    def partitions(self, statement: Statement, table: LockObject, spec: Spec) -> list[LockObject]:
        """The partitions or prefixes of *table* that *spec* selects. The table itself if its columns are not known."""
        if self._columns(statement, table, spec) is None:
            return [self._whole(table, "its partition columns are not known")]
        known = self.session.tables.table(table)
        kinds = dict(zip(known.partition_columns, known.partition_types, strict=False)) if known else {}
        return narrow(table, spec.condition(kinds), self.session.tables, self.limit)

    def place(self, statement: Statement, table: LockObject, spec: Spec) -> tuple[LockObject, bool]:
        """The partition that *spec* writes to, or its longest known prefix; and whether dynamic levels follow."""
        columns = self._columns(statement, table, spec)
        named = {level.column: level for level in spec.levels}
        known = self.session.tables.table(table)
        if columns is None and (known or len(named) > 1):
            return self._whole(table, "the order of its partition columns is not known"), not spec.static
        kinds = dict(zip(columns or (), known.partition_types, strict=False)) if known else {}
        levels: list[tuple[str, str]] = []
        for column in columns or named:
            level = named.get(column)
            if level is None or level.value is None:
                break
            kind = kinds.get(column, "")
            text = level.value.kept(kind)
            if self.session.keeps_spelling and (
                level.value.kind not in ("string", "number") or text != level.value.text
            ):
                text = None
            if text is None:
                made = "computed values" if level.value.kind == "computed" else f"{column}={level.value.text!r}"
                why = f"Hive and Spark may store {made} differently"
                _whole(LockObject(table.database, table.table, tuple(levels)), why if kind else f"{why}; {_DECLARE}")
                break  # the prefix before this level is certain
            levels.append((column, text))
        dynamic = any(column not in named or named[column].value is None for column in columns or named)
        return LockObject(table.database, table.table, tuple(levels)), dynamic

    def _columns(self, statement: Statement, table: LockObject, spec: Spec) -> tuple[str, ...] | None:
        """The partition columns of *table*; None if not known, or not Hive's. Refuse a *spec* that contradicts them."""
        named = [level.column for level in spec.levels]
        if len(set(named)) < len(named) and all(level.sign == "=" for level in spec.levels):
            statement.refuse(spec.place, "it names a column twice", step="name it once")
        known = self.session.tables.table(table)
        if known is None or (known.format and not known.partition_columns):
            return None
        if wrong := sorted(set(named) - set(known.partition_columns)):
            by = "/".join(known.partition_columns)
            actual = f"is partitioned by {by}" if by else "has no partitions"
            statement.refuse(spec.place, f"{table} {actual}, not by {', '.join(wrong)}", step=_COLUMNS)
        return known.partition_columns

    def _whole(self, table: LockObject, unknown: str) -> LockObject:
        known = self.session.tables.table(table)
        return _whole(table, "its partitions are not Hive's" if known else f"{unknown}; {_DECLARE}")

    def _temporary(self, target: LockObject) -> bool:
        return self.session.is_temporary(LockObject(target.database, target.table))


def _whole(found: LockObject, why: str) -> LockObject:
    log.warning("%s is locked as a whole: %s", found, why)
    return found
