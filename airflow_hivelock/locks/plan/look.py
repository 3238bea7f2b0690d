"""Statements about metadata: SHOW, DESCRIBE, REFRESH, COMMENT, and ANALYZE, which reads data for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import TokenType

from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.plan.create import DATABASES, no_query
from airflow_hivelock.locks.plan.planner import QUERY

if TYPE_CHECKING:
    from airflow_hivelock.locks.plan.cursor import Cursor
    from airflow_hivelock.locks.plan.planner import Planner

_SHOWS_TABLE = ("COLUMNS", "CREATE", "PARTITIONS", "TBLPROPERTIES", "INDEX", "INDEXES")
_SHOWS_DATABASE = ("TABLES", "VIEWS", "TABLE", "MATERIALIZED")
_SHOWS_NEITHER = frozenset(
    """
    ALL CATALOGS COMPACTIONS CONF CURRENT DATABASES DATACONNECTORS FUNCTIONS GRANT LOCKS NAMESPACES PRINCIPALS PROCESSLIST
    RESOURCE ROLE ROLES SCHEMAS SYSTEM TRANSACTIONS USER
    """.split()  # noqa: SIM905
)


def show(cursor: Cursor, planner: Planner) -> None:
    cursor.expect("SHOW")
    cursor.take_any("FORMATTED", "EXTENDED", "SORTED")
    if word := cursor.take_any(*_SHOWS_TABLE):
        if word == "CREATE" and cursor.is_name(1):
            if cursor.take_any(*DATABASES):
                planner.look(planner.database(cursor))
                cursor.end()
                return
            cursor.take("MATERIALIZED")
            cursor.take_any("TABLE", "VIEW")
        cursor.take_any("ON", "FROM", "IN")
        table, parts = planner.named(cursor)
        if cursor.take_any("FROM", "IN"):
            table = LockObject(planner.database(cursor).database, parts[-1])
        planner.look(table)
        cursor.rest()
    elif cursor.take_any(*_SHOWS_DATABASE):
        cursor.take_any("EXTENDED", "VIEWS")
        planner.look(
            planner.database(cursor) if cursor.take_any("FROM", "IN") else LockObject(planner.session.database)
        )
        cursor.rest()
    elif cursor.word() not in _SHOWS_NEITHER:
        cursor.refuse("this SHOW is not understood")


def describe(cursor: Cursor, planner: Planner) -> None:
    cursor.next()
    if cursor.take_any("FUNCTION", "QUERY"):
        if cursor.word() in QUERY:
            planner.look_at(cursor.statement, cursor.rest())
        return
    if cursor.take_any(*DATABASES):
        cursor.take("EXTENDED")
        planner.look(planner.database(cursor))
        return
    while cursor.is_name(1) and cursor.take_any("TABLE", "FORMATTED", "EXTENDED", "PRETTY", "HISTORY", "DETAIL"):
        pass
    if cursor.word() in QUERY and cursor.word(1):
        planner.look_at(cursor.statement, cursor.rest())
        return
    parts, place = cursor.name()
    try:
        planner.look(planner.session.resolve(parts[:2]))  # the third part is a column
    except ValueError as error:
        cursor.statement.refuse(place, str(error))


def refresh(cursor: Cursor, planner: Planner) -> None:
    cursor.expect("REFRESH")
    if cursor.take("FUNCTION") or cursor.is_type(TokenType.STRING):
        cursor.rest()
        return
    cursor.take("TABLE")
    planner.look(planner.table(cursor))
    cursor.end()


def comment(cursor: Cursor, planner: Planner) -> None:
    cursor.expect("COMMENT", "ON")
    if cursor.take_any(*DATABASES):
        planner.write(planner.database(cursor))
    elif cursor.take("COLUMN"):
        parts, place = cursor.name()
        try:
            planner.write(planner.session.resolve(parts[:-1] or ("",)))
        except ValueError as error:
            cursor.statement.refuse(place, str(error))
    else:
        cursor.expect("TABLE")
        planner.write(planner.table(cursor))
    cursor.expect("IS")
    no_query(cursor)


def analyze(cursor: Cursor, planner: Planner) -> None:
    cursor.expect("ANALYZE")
    if cursor.take("TABLES"):  # all tables of a database, in Spark
        if planner.session.tables.catalog is None and not planner.session.tables.checked:
            cursor.refuse("without a metastore, the tables of the database are not known")
        is_named = cursor.take_any("FROM", "IN")
        planner.scan_tables(planner.database(cursor).database if is_named else planner.session.database)
    else:
        cursor.expect("TABLE")
        table, parts = planner.named(cursor)
        if (spec := cursor.optional_spec()) is None:
            planner.read_named(cursor.statement, parts)
        else:
            planner.scan(cursor.statement, table, spec)
    if not cursor.take("CACHE", "METADATA"):
        cursor.expect("COMPUTE", "STATISTICS")
    no_query(cursor)
