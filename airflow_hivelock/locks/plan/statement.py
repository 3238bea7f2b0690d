"""Plans one statement: its first word selects the function that adds its locks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType, exp

from airflow_hivelock.locks.hive.transactional import Write
from airflow_hivelock.locks.model.object import CATALOG
from airflow_hivelock.locks.plan.alter import alter
from airflow_hivelock.locks.plan.change import change
from airflow_hivelock.locks.plan.create import DATABASES, create, drop, no_query, view_query
from airflow_hivelock.locks.plan.cursor import Cursor
from airflow_hivelock.locks.plan.insert import insert, inserts
from airflow_hivelock.locks.plan.look import analyze, comment, describe, refresh, show
from airflow_hivelock.locks.plan.planner import QUERY
from airflow_hivelock.locks.plan.query import parse
from airflow_hivelock.locks.plan.rewrite import identifiers
from airflow_hivelock.locks.plan.script import begins, opened, parts
from airflow_hivelock.locks.plan.settings import (
    declare,
    execute_immediate,
    expressions,
    raw_text,
    rendered,
    setting,
)
from airflow_hivelock.locks.plan.sql import with_quoted_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.plan.planner import Planner
    from airflow_hivelock.locks.plan.sql import Statement


_SETTINGS = tuple("ABORT ADD CLEAR COMPILE CRYPTO ERASURE GRANT KILL LIST RELOAD RESET REVOKE SET UNCACHE".split())  # noqa: SIM905
"""Statements that lock nothing. Their values are not SQL, and can contain any text."""

_EXPLAIN = frozenset(
    """
    AST AUTHORIZATION CBO CODEGEN COST DDL DEBUG DEPENDENCY DETAIL EXPRESSION EXTENDED FORMATTED JOINCOST LOCKS LOGICAL ONLY
    OPERATOR REOPTIMIZATION REWRITE SUMMARY VECTORIZATION
    """.split()  # noqa: SIM905
)
"""The options of EXPLAIN. ANALYZE is also an option, except in ANALYZE TABLE."""

_NO_DATA_OF = ("ls", "lsr", "mkdir", "touchz", "test", "du", "dus", "count", "stat", "df", "help", "usage")
"""DFS commands that read no data: they list names, or create empty files and directories."""


_OF_TWO_TABLES = {"add_files": ("table", "source_table"), "snapshot": ("source_table", "table")}
"""Procedures of Iceberg about two tables, with the order of their arguments."""


def add(statement: Statement, planner: Planner) -> None:
    """Add the objects that *statement* reads and writes to *planner*.

    :raises InvalidRequest: the statement is not understood. The message shows the place.
    """
    statement = rendered(statement, planner.session)
    scripted = bool(planner.session.blocks) or begins(statement)
    if scripted:
        planner.session.texts.clear()  # a script can set a variable in any branch
    if planner.session.texts:
        statement = replace(
            statement, tokens=tuple(identifiers(statement.tokens, statement.text, planner.session.texts))
        )
    if planner.session.names_in_double_quotes:
        statement = with_quoted_names(statement)
    collected: tuple[list[Any], ...] = (planner.scans, planner.writes, planner.looks)
    had = [len(each) for each in collected]
    if scripted:
        planner.session.blocks += opened(statement)
        _scripted(statement, planner)
        planner.session.texts.clear()
    else:
        _explained(statement, planner)
    if not planner.session.concurrency and had != [len(each) for each in collected]:
        planner.unlocked.append(statement.written.strip())
        for each, length in zip(collected, had, strict=True):
            del each[length:]


def _scripted(statement: Statement, planner: Planner) -> None:
    for part, is_expression in parts(statement, planner.session):
        cursor = Cursor(part)
        if is_expression or (cursor.take("SET") and not cursor.take_any("VAR", "VARIABLE")):
            expressions(cursor, planner)
        else:
            _explained(part, planner)
    if planner.session.blocks <= 0:
        planner.session.branches = 0


def _explained(statement: Statement, planner: Planner) -> None:
    cursor = Cursor(statement)
    if not cursor.take("EXPLAIN"):
        _add(cursor, planner)
        return
    runs = False
    while True:
        if not cursor.sees("ANALYZE", "TABLE") and cursor.take("ANALYZE"):
            runs = True  # EXPLAIN ANALYZE runs the statement
        elif not cursor.take_any(*_EXPLAIN):
            break
    session, planner.session = planner.session, planner.session.frozen()  # EXPLAIN does not change the session
    written = len(planner.writes)
    try:
        _add(Cursor(replace(statement, tokens=tuple(cursor.rest()))), planner)
    finally:
        planner.session = session  # a session of Spark Connect continues after a refusal
    if not (runs or planner.as_hive):
        planner.looks += planner.writes[written:]
        del planner.writes[written:]


def _add(cursor: Cursor, planner: Planner) -> None:
    word = cursor.word()
    if places := inserts(cursor.statement) if word in ("INSERT", "FROM", "WITH") else []:
        insert(cursor.statement, places, planner)
    elif word in (*QUERY, "MAP", "REDUCE"):
        _query(cursor, planner)
    elif word in _SETTINGS or (word == "DELETE" and not cursor.sees("DELETE", "FROM")):
        setting(cursor, planner)
    elif (plan := _PLANS.get(word)) is not None:
        plan(cursor, planner)
    else:
        cursor.refuse(*_NOT_PLANNED.get(word, _UNKNOWN))


def _query(cursor: Cursor, planner: Planner) -> None:
    """A query, UPDATE, DELETE or MERGE."""
    statement = cursor.statement
    words = [token.text.upper() for token in statement.tokens]
    for at in range(len(words)):
        if words[at : at + 4] == ["MERGE", "WITH", "SCHEMA", "EVOLUTION"]:
            statement = replace(statement, tokens=(*statement.tokens[: at + 1], *statement.tokens[at + 4 :]))
            cursor = Cursor(statement)
    tree = parse(statement, cursor.rest())
    if isinstance(tree, exp.Merge | exp.Update | exp.Delete):
        change(tree, statement, planner)
    else:
        planner.reader(statement).read(tree)


def _execute(cursor: Cursor, planner: Planner) -> None:
    cursor.expect("EXECUTE")
    if cursor.word() != "IMMEDIATE":
        if cursor.identifier().lower() not in planner.session.prepared:
            cursor.refuse("this SQL has no PREPARE of that name")
        expressions(cursor, planner) if cursor.take("USING") else cursor.end()
        return
    cursor.expect("IMMEDIATE")
    execute_immediate(cursor, planner, add)


def _prepare(cursor: Cursor, planner: Planner) -> None:
    """``PREPARE name FROM query``. Plan the query now, because EXECUTE can run it later."""
    cursor.expect("PREPARE")
    planner.session.prepared.add(cursor.identifier().lower())
    cursor.expect("FROM")
    _add(Cursor(replace(cursor.statement, tokens=tuple(cursor.rest()))), planner)


def _optimize(cursor: Cursor, planner: Planner) -> None:
    """Delta's OPTIMIZE, VACUUM, RESTORE and REORG. They can rewrite or remove any file of the table."""
    word = cursor.next().text.upper()
    cursor.take("TABLE")
    if cursor.is_type(TokenType.STRING):
        cursor.refuse("cannot tell which table has these files")
    planner.write(planner.table(cursor), how=Write.CHANGE)
    cursor.take("REWRITE", "DATA")  # Hive's OPTIMIZE TABLE of Iceberg
    if word != "VACUUM" and cursor.take("WHERE"):
        cursor.rest()
    no_query(cursor)


def _call(cursor: Cursor, planner: Planner) -> None:
    """A procedure of Iceberg or Hudi with its table's name: ``CALL c.system.expire_snapshots(table => 'db.t')``."""
    cursor.expect("CALL")
    procedure = cursor.name()[0][-1]
    by_place = _OF_TWO_TABLES.get(procedure.lower(), ("table",))
    named: dict[str, str | None] = {}
    while not cursor.done():
        token = cursor.next()
        name = token.text.lower()
        if name in ("table", "source_table", "new_table") and (cursor.take("=>") or cursor.take("=")):
            named[name] = cursor.constant()
        elif len(named) < len(by_place) and cursor.is_type(TokenType.STRING) and name == ("," if named else "("):
            named[by_place[len(named)]] = cursor.constant()
    if "/" in (named.get("source_table") or ""):  # `parquet`.`/data`
        del named["source_table"]
    for text in named.values() or (None,):
        parts = tuple(each.strip("`") for each in (text or "").split("."))
        if not all(part.replace("_", "a").isalnum() for part in parts):
            cursor.statement.refuse(cursor.statement.tokens[0], f"cannot tell which table {procedure} changes")
        planner.write(planner.session.resolve(parts[-2:]), how=Write.CHANGE)


def _nothing(cursor: Cursor, _planner: Planner) -> None:
    """A statement that begins or ends a transaction. It locks nothing."""
    no_query(cursor)


def _cursor(cursor: Cursor, planner: Planner) -> None:
    """``OPEN name [USING value, …]``, ``FETCH … INTO variable`` or ``CLOSE name``. DECLARE has the query of the cursor."""
    while not cursor.done() and not cursor.take("USING"):
        cursor.next()
    if not cursor.done():
        expressions(cursor, planner)


def _use(cursor: Cursor, planner: Planner) -> None:
    cursor.expect("USE")
    is_database = cursor.is_name(1) and cursor.take_any(*DATABASES)
    start = cursor.at
    if is_database or [each.lower() for each in cursor.name()[0]] != [CATALOG]:
        cursor.at = start
        planner.session.use(planner.database(cursor).database)
    elif planner.session.used:  # else Spark keeps the database
        cursor.refuse(
            f"if {planner.session.database} is a catalog, the current database is not known; write USE {CATALOG}.database"
        )
    cursor.end()


def _create(cursor: Cursor, planner: Planner) -> None:
    cursor.take("CREATE")
    create(cursor, planner)


def _drop(cursor: Cursor, planner: Planner) -> None:
    cursor.expect("DROP")
    drop(cursor, planner)


def _alter(cursor: Cursor, planner: Planner) -> None:
    cursor.expect("ALTER")
    alter(cursor, planner)


def _truncate(cursor: Cursor, planner: Planner) -> None:
    cursor.expect("TRUNCATE")
    cursor.take("TABLE")  # optional in Hive 4
    table = planner.table(cursor)
    spec = cursor.optional_spec()
    planner.write(*(planner.partitions(cursor.statement, table, spec) if spec else [table]))
    planner.look(table)
    if cursor.take("COLUMNS"):
        cursor.skip_parentheses()
    cursor.take("FORCE")
    cursor.end()


def _load(cursor: Cursor, planner: Planner) -> None:
    cursor.expect("LOAD", "DATA")
    if not cursor.take("LOCAL"):
        planner.session.by_path.append("LOAD DATA")  # it moves the files, maybe out of another table
    cursor.expect("INPATH")
    cursor.string()
    cursor.take("OVERWRITE")
    cursor.expect("INTO", "TABLE")
    table = planner.table(cursor)
    spec = cursor.optional_spec()
    target = planner.place(cursor.statement, table, spec)[0] if spec else table
    existing = planner.session.tables.listed(table)
    is_new = existing is not None and not any(found == target or found.is_below(target) for found in existing)
    # If LOAD DATA creates the partition, Hive locks the table.
    planner.write(table if is_new and planner.as_hive else target)
    if cursor.take("INPUTFORMAT"):
        cursor.string()
        cursor.expect("SERDE")
        cursor.string()
    cursor.end()


def _placed(cursor: Cursor, planner: Planner) -> None:
    """Add a write of the table that comes next, or of the partition after its name."""
    table = planner.table(cursor)
    spec = cursor.optional_spec()
    planner.write(planner.place(cursor.statement, table, spec)[0] if spec else table)


def _repair(cursor: Cursor, planner: Planner) -> None:
    """MSCK REPAIR adds or drops unknown partitions, so it locks the table EXCLUSIVE. MSCK alone only reads names."""
    only_looks = cursor.take("MSCK") and not cursor.sees("REPAIR")
    cursor.take("REPAIR")
    cursor.expect("TABLE")
    (planner.look if only_looks else planner.write)(planner.table(cursor))
    cursor.optional_spec()
    if cursor.take_any("ADD", "DROP", "SYNC"):
        cursor.expect("PARTITIONS")
        if cursor.sees("("):
            cursor.skip_parentheses()
    cursor.end()


def _files(cursor: Cursor, _planner: Planner) -> None:
    words = raw_text(cursor).split()
    if len(words) < 2 or words[1].removeprefix("-").lower() not in _NO_DATA_OF:
        cursor.refuse("cannot tell which tables' files this touches")


def _export(cursor: Cursor, planner: Planner) -> None:
    cursor.expect("EXPORT", "TABLE")
    table = planner.table(cursor)
    planner.scan(cursor.statement, table, cursor.optional_spec())
    cursor.expect("TO")
    cursor.string()
    no_query(cursor)


def _import(cursor: Cursor, planner: Planner) -> None:
    cursor.expect("IMPORT")
    cursor.take("EXTERNAL")
    if not cursor.take("TABLE"):
        cursor.refuse("the table's name is in the exported files; write IMPORT TABLE name FROM …", step="")
    _placed(cursor, planner)
    cursor.expect("FROM")
    cursor.string()
    if cursor.take("LOCATION"):
        cursor.string()
    no_query(cursor)


def _cache(cursor: Cursor, planner: Planner) -> None:
    cursor.expect("CACHE")
    planner.caches = True
    cursor.take("LAZY")
    cursor.expect("TABLE")
    _, parts = planner.named(cursor)
    if cursor.take("OPTIONS"):
        cursor.skip_parentheses()
    cursor.take("AS")
    if cursor.done():
        planner.read_named(cursor.statement, parts)
        return
    tokens = cursor.rest()
    planner.read(cursor.statement, tokens)
    view_query(Cursor(cursor.statement, cursor.at - len(tokens)), planner, parts, renamed=False, temporary=True)


_PLANS: dict[str, Callable[[Cursor, Planner], None]] = {
    "ALTER": _alter,
    "ANALYZE": analyze,
    "CACHE": _cache,
    "CALL": _call,
    "CLOSE": _cursor,
    "COMMENT": comment,
    "COMMIT": _nothing,
    "CREATE": _create,
    "DECLARE": declare,
    "DELETE": _query,
    "DESC": describe,
    "DESCRIBE": describe,
    "DFS": _files,
    "DROP": _drop,
    "EXECUTE": _execute,
    "EXPORT": _export,
    "FETCH": _cursor,
    "IMPORT": _import,
    "LOAD": _load,
    "MERGE": _query,
    "MSCK": _repair,
    "OPEN": _cursor,
    "OPTIMIZE": _optimize,
    "PREPARE": _prepare,
    "REFRESH": refresh,
    "REPAIR": _repair,
    "REORG": _optimize,
    "REPLACE": _create,
    "RESTORE": _optimize,
    "ROLLBACK": _nothing,
    "SHOW": show,
    "START": _nothing,
    "TRUNCATE": _truncate,
    "UPDATE": _query,
    "USE": _use,
    "VACUUM": _optimize,
}

_NOT_PLANNED = {
    "LOCK": ("LOCK in the SQL would wait for the lease that the SQL runs under", "leave LOCK out"),
    "UNLOCK": ("UNLOCK would free the locks that the SQL runs under", "leave UNLOCK out"),
    "": ("a statement is missing here",),
}
_UNKNOWN = ("no known statement begins like this", "correct it, or name reads and writes instead")
