"""INSERT, with one target or several."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import TokenType

from airflow_hivelock.locks.hive.transactional import Write
from airflow_hivelock.locks.plan.cursor import Cursor
from airflow_hivelock.locks.plan.planner import QUERY
from airflow_hivelock.locks.plan.rewrite import like

if TYPE_CHECKING:
    from sqlglot import Token

    from airflow_hivelock.locks.model import LockObject
    from airflow_hivelock.locks.plan.planner import Planner
    from airflow_hivelock.locks.plan.sql import Statement


_AFTER_A_CONDITION = tuple(word for word in QUERY if word != "(")


def inserts(statement: Statement) -> list[int]:
    """The indexes of the INSERT tokens of *statement* that are not in parentheses, and not an action of MERGE."""
    found, depth = [], 0
    for at, token in enumerate(statement.tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if token.token_type is TokenType.MERGE and depth == 0 and _word(statement, at + 1) in ("INTO", "WITH"):
            break
        if token.token_type is TokenType.INSERT and depth == 0:
            found.append(at)
    return found


def _word(statement: Statement, at: int) -> str:
    return statement.tokens[at].text.upper() if at < len(statement.tokens) else ""


def insert(statement: Statement, places: list[int], planner: Planner) -> None:
    """``[WITH …] [FROM …] INSERT … SELECT … [INSERT … SELECT …]``. Each SELECT reads the sources after FROM."""
    before = statement.tokens[: places[0]]
    for start, end in zip(places, [*places[1:], len(statement.tokens)], strict=True):
        upto = statement.tokens[end].start if end < len(statement.tokens) else statement.end
        part = Cursor(replace(statement, tokens=statement.tokens[start:end], end=upto))
        _target(part, planner)
        if not part.done() and not part.word():
            part.refuse("a query is missing here")
        planner.read(statement, [*before, *part.rest()])


def _target(cursor: Cursor, planner: Planner) -> None:
    cursor.expect("INSERT")
    cursor.take("WITH", "SCHEMA", "EVOLUTION")
    if not (word := cursor.take_any("INTO", "OVERWRITE")):
        cursor.refuse("INTO or OVERWRITE is missing here")
    how = Write.INSERT if word == "INTO" else Write.OVERWRITE
    if cursor.sees("DIRECTORY") or cursor.sees("LOCAL", "DIRECTORY"):
        _directory(cursor, planner)
        return
    cursor.take("TABLE")
    table, parts = planner.named(cursor)
    below = planner.below(cursor.statement, parts)
    spec = cursor.optional_spec()
    cursor.take("IF", "NOT", "EXISTS")
    if cursor.sees("(") and cursor.word(1) not in QUERY:
        cursor.skip_parentheses()
        spec = spec or cursor.optional_spec()
    cursor.take("BY", "NAME")
    if cursor.take("REPLACE"):
        _replaced(cursor, planner)
        spec, how = None, Write.OVERWRITE
    if cursor.word() not in (*QUERY, "MAP", "REDUCE"):
        cursor.refuse("a query is missing here")
    if below is not None:
        planner.write(*below, how=how)
        return
    if spec is None:
        _whole(table, planner, how)
        return
    target, dynamic = planner.place(cursor.statement, table, spec)
    if dynamic and planner.as_hive:
        planner.append_dynamically(target, how)
    else:
        planner.write(target, how=how)


def _replaced(cursor: Cursor, planner: Planner) -> None:
    """``REPLACE WHERE condition``, ``USING (columns)`` or ``ON condition``, of Delta and Iceberg tables."""
    if not cursor.take_any("WHERE", "USING", "ON"):
        cursor.refuse("WHERE, USING or ON is missing here")
    condition: list[Token] = []
    while not cursor.done() and cursor.word() not in _AFTER_A_CONDITION:
        condition += cursor.group()
    if not condition:
        cursor.refuse("a condition is missing here")
    planner.read(cursor.statement, [like(condition[0], TokenType.SELECT, "SELECT"), *condition])


def _whole(table: LockObject, planner: Planner, how: Write) -> None:
    """Add a write of *table* without PARTITION. If the table has partition columns, all are dynamic."""
    known = planner.session.tables.table(table)
    if planner.as_hive and known and known.partition_columns:
        planner.append_dynamically(table, how)
    else:
        planner.write(table, how=how)


def _directory(cursor: Cursor, planner: Planner) -> None:
    """``[LOCAL] DIRECTORY 'path' [ROW FORMAT …] [STORED AS …] [USING …]``. It writes no table."""
    cursor.take("LOCAL")
    cursor.expect("DIRECTORY")
    planner.session.by_path.append("INSERT OVERWRITE DIRECTORY")
    if not cursor.sees("USING"):
        cursor.string()
    while not cursor.done():
        if cursor.take("WITH", "SERDEPROPERTIES") or cursor.take("OPTIONS"):
            cursor.skip_parentheses()
        elif cursor.word() in QUERY:
            return
        else:
            cursor.next()
