"""CREATE and DROP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.plan.planner import QUERY
from airflow_hivelock.locks.plan.query import Named
from airflow_hivelock.locks.plan.rewrite import like
from airflow_hivelock.locks.plan.session import GLOBAL
from airflow_hivelock.locks.plan.texts import variable

if TYPE_CHECKING:
    from airflow_hivelock.locks.plan.cursor import Cursor
    from airflow_hivelock.locks.plan.planner import Planner

DATABASES = ("DATABASE", "SCHEMA", "NAMESPACE")
NOT_DATA = ("FUNCTION", "MACRO", "ROLE", "TEMP", "TEMPORARY", "VARIABLE")
ELSEWHERE = ("RESOURCE", "POOL", "TRIGGER", "USER", "GROUP", "APPLICATION", "SCHEDULED", "REMOTE", "DATACONNECTOR")
"""Objects other than tables: resource plans with their pools, triggers and mappings, scheduled queries, connectors."""

_CLAUSES = frozenset(
    """
    AS BUCKETS BY CLUSTER CLUSTERED COLLECTION COMMENT DEFINED DELIMITED DIRECTORIES DISABLE DISTRIBUTED ENABLE ESCAPED FIELDS FORMAT INPUTDRIVER INPUTFORMAT
    INTO ITEMS KEYS LINES LOCATION MAP NULL ON OPTIONS OUTPUTDRIVER OUTPUTFORMAT PARTITIONED REWRITE ROW SERDE SERDEPROPERTIES
    SKEWED SORTED STORED TBLPROPERTIES TERMINATED USING WITH COMPACTION SCHEMA BINDING COMPENSATION TYPE EVOLUTION DEFAULT
    COLLATION SPEC
    """.split()  # noqa: SIM905
)
"""The words of clauses between a table's name and its query. These clauses name nothing that is locked."""


def create(cursor: Cursor, planner: Planner) -> None:
    """Plan the rest of a statement after CREATE."""
    replace = cursor.take("OR", "REPLACE") or cursor.take("REPLACE")
    globally = cursor.take_any("GLOBAL", "LOCAL") == "GLOBAL"
    temporary = cursor.take_any("TEMPORARY", "TEMP") != ""
    if cursor.take_any(*DATABASES):
        _if_not_exists(cursor)
        planner.look(planner.database(cursor))
    elif cursor.take("FUNCTION"):
        _function(cursor, planner)
    elif cursor.take_any("MACRO", "ROLE"):
        no_query(cursor)
    elif cursor.take("VIEW"):
        _view(cursor, planner, temporary, globally)
    elif cursor.take("INDEX"):
        name = cursor.identifier()
        cursor.expect("ON", "TABLE")
        table = planner.table(cursor)
        planner.look(table)
        while not cursor.done() and not cursor.sees("IN", "TABLE"):
            cursor.next()
        if cursor.done():
            planner.session.add_made(index_table(name, table))
        cursor.rest()
    elif cursor.word() in ELSEWHERE:
        cursor.rest()
    else:
        materialized = cursor.take("MATERIALIZED")
        while cursor.take_any("EXTERNAL", "MANAGED", "TRANSACTIONAL"):
            pass
        if not cursor.take_any("TABLE", "VIEW"):
            cursor.refuse("this CREATE is not understood")
        _table(cursor, planner, temporary, replace, materialized)


def drop(cursor: Cursor, planner: Planner) -> None:
    """Plan the rest of a statement after DROP."""
    if cursor.take_any(*DATABASES):
        _if_exists(cursor)
        planner.write(planner.database(cursor))
        cursor.take_any("CASCADE", "RESTRICT")
        cursor.end()
    elif cursor.take_any(*NOT_DATA) or cursor.word() in ELSEWHERE:
        if cursor.take("VARIABLE"):
            _if_exists(cursor)
            planner.session.texts.pop(variable(cursor.name()[0]), None)
        no_query(cursor)
    elif cursor.take("INDEX"):
        _if_exists(cursor)
        cursor.identifier()
        cursor.expect("ON")
        planner.look(planner.table(cursor))
        cursor.end()
    else:
        cursor.take("MATERIALIZED")
        if not cursor.take_any("TABLE", "VIEW"):
            cursor.refuse("this DROP is not understood")
        _if_exists(cursor)
        target, parts = planner.named(cursor)
        cursor.take("PURGE")
        cursor.end()
        if not planner.session.forget(parts):
            planner.write(target)


def view_query(cursor: Cursor, planner: Planner, parts: tuple[str, ...], renamed: bool, temporary: bool) -> None:
    """Add the tables in a view's query as looks. Keep the query: a later read of the view reads their data."""
    tree, reader = planner.look_at(cursor.statement, cursor.rest())
    named = Named(tree, reader, renamed=renamed)
    if temporary:
        planner.session.add_temporary_view(parts, named)
    else:
        planner.session.add_view(planner.session.resolve(parts), named)


def index_table(name: str, table: LockObject) -> LockObject:
    """The table that holds the index *name* of *table*, if the index was created without IN TABLE."""
    return LockObject(table.database, f"{table.database}__{table.table}_{name}__")


def no_query(cursor: Cursor) -> None:
    """Pass the rest of the statement, which must not contain a query.

    :raises InvalidRequest: it contains a query.
    """
    while not cursor.done():
        pass_no_query(cursor)


def pass_no_query(cursor: Cursor) -> None:
    """Pass one token. Refuse one that begins a query."""
    if cursor.is_type(TokenType.SELECT, TokenType.INSERT, TokenType.FROM):
        cursor.refuse("a query here is not understood")
    cursor.next()


def _function(cursor: Cursor, planner: Planner) -> None:
    """A function in SQL. Each call reads the tables of the function's query."""
    _if_not_exists(cursor)
    name = cursor.name()[0][-1].lower()
    while not cursor.done() and not cursor.take("RETURN"):
        pass_no_query(cursor)
    if cursor.done():
        return
    first = cursor.token
    computed = cursor.rest()
    if first and first.token_type not in (TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.TABLE):
        computed.insert(0, like(first, TokenType.SELECT, "SELECT"))
    tree, reader = planner.look_at(cursor.statement, computed)
    planner.session.functions[name] = Named(tree, reader, renamed=True)


def _view(cursor: Cursor, planner: Planner, temporary: bool, globally: bool) -> None:
    existing = _if_not_exists(cursor)
    target, parts = planner.named(cursor)
    parts = (GLOBAL, parts[-1]) if globally else parts
    renamed = cursor.sees("(")
    data_source = _options(cursor, planner)
    if temporary and existing:
        step = "leave IF NOT EXISTS out, or name reads and writes instead"
        cursor.refuse("Spark creates no temporary view with IF NOT EXISTS", step)
    if temporary and data_source and cursor.done():
        _view_of_files(cursor, planner, parts)
        return
    if not cursor.take("AS"):
        cursor.refuse("AS and a query are missing here")
    if not temporary:
        (planner.look if existing else planner.write)(target)
    if existing and planner.session.is_stored(target):
        planner.look_at(cursor.statement, cursor.rest())  # the name keeps its meaning, a table or another query
    else:
        view_query(cursor, planner, parts, renamed, temporary)


def _table(cursor: Cursor, planner: Planner, temporary: bool, replace: bool, materialized: bool) -> None:
    existing = _if_not_exists(cursor)
    target, parts = planner.named(cursor)
    using = _options(cursor, planner)
    planner.look(LockObject(target.database))
    query = None
    if has_query := cursor.take("AS") or cursor.sees("SELECT"):
        tree = planner.read(cursor.statement, cursor.rest())
        if materialized:
            query = Named(tree, planner.reader(cursor.statement, planner.session.frozen()))
    cursor.end()
    if temporary and using and not existing and not has_query:
        _view_of_files(cursor, planner, parts)  # Spark's old form of CREATE TEMPORARY VIEW … USING
        return
    if temporary and using:
        return  # Spark refuses it, so the name keeps its meaning
    if temporary:
        _temporary_table(planner, target, existing)
        return
    planner.session.add_made(target, query)
    # An existing table is not changed, and a table that does not exist has no data.
    (planner.look if existing and not has_query and not replace else planner.write)(target)


def _view_of_files(cursor: Cursor, planner: Planner, parts: tuple[str, ...]) -> None:
    """Make *parts* a temporary view of Spark on a data source outside Hive."""
    planner.session.by_path.append("USING")
    empty = Named(exp.Values(expressions=[]), planner.reader(cursor.statement))
    planner.session.add_temporary_view(parts, empty)


def _temporary_table(planner: Planner, target: LockObject, existing: bool) -> None:
    """Make *target* a temporary table, which hides a stored table of that name.

    :param existing: the statement has IF NOT EXISTS. Engines then keep a stored table, and later statements write it.
    """
    if existing:
        planner.look(target)
    if not existing or planner.session.is_stored(target) is False:
        planner.session.add_temporary(target)


def _options(cursor: Cursor, planner: Planner) -> bool:
    """Pass the clauses before AS and a query, or before the end. Return whether USING is one of them."""
    using = False
    while not cursor.done():
        if (cursor.sees("AS") and cursor.word(1) in QUERY) or cursor.sees("SELECT"):  # Spark needs no AS after a table
            return using
        if cursor.take("DEFAULT", "COLLATION"):
            cursor.identifier()
        elif cursor.take("LIKE"):
            if cursor.is_type(TokenType.STRING) or not cursor.word(1):
                cursor.take_any("FILE", "PARQUET", "ORC", "AVRO")
            if not cursor.is_type(TokenType.STRING):
                planner.look(planner.table(cursor))
        elif cursor.sees("("):
            cursor.skip_parentheses()
        elif cursor.sees("USING") or cursor.take("STORED", "AS") or cursor.take("STORED", "BY"):
            using = cursor.take("USING") or using
            cursor.next()
            while cursor.is_type(TokenType.DOT):
                cursor.next()
                cursor.next()
        elif _CLAUSES.issuperset(cursor.word().split() or [""]) or cursor.is_type(TokenType.STRING, TokenType.NUMBER):
            cursor.next()
        else:
            cursor.refuse("this is not understood, so its locks are not known")
    return using


def _if_not_exists(cursor: Cursor) -> bool:
    return cursor.take("IF", "NOT", "EXISTS")


def _if_exists(cursor: Cursor) -> bool:
    return cursor.take("IF", "EXISTS")
