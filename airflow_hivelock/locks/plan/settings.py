"""SET, and variables of Spark's sessions: what changes how the statements after them are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import Token, TokenType

from airflow_hivelock.locks.hive.settings import CONCURRENCY, Setting
from airflow_hivelock.locks.model.object import CATALOG
from airflow_hivelock.locks.plan.variables import is_set_by

if TYPE_CHECKING:
    from airflow_hivelock.locks.plan.cursor import Cursor
    from airflow_hivelock.locks.plan.planner import Planner

_NAMES_IN_DOUBLE_QUOTES = (
    ("hive.support.quoted.identifiers", "standard"),
    ("spark.sql.ansi.doublequotedidentifiers", "true"),
)


def setting(cursor: Cursor, planner: Planner) -> None:
    if cursor.take("SET", "VAR") or cursor.take("SET", "VARIABLE"):
        expressions(cursor, planner)
        return
    text = raw_text(cursor)
    parsed = Setting.parse(text)
    _session_setting(text, planner)
    if parsed:
        planner.session.txn = planner.session.txn.after(parsed)
        planner.settings.append(parsed)
    if parsed and parsed.name == CONCURRENCY:
        planner.session.concurrency = parsed.truth or planner.always
    if cursor.take("SET", "CATALOG") and not cursor.sees(CATALOG.upper()):
        cursor.refuse(f"only {CATALOG} has Hive's tables")


def _session_setting(text: str, planner: Planner) -> None:
    """What a SET line changes for the statements after it. What RESET undoes is taken for set: that locks no less."""
    session = planner.session
    if (found := is_set_by(text.replace("`", ""))) is None:
        return
    name, value = found
    if "${" in value:
        session.variables.pop(name, None)
    else:
        session.variables[name] = value
    turned = (name.lower().removeprefix("hiveconf:"), value.lower())
    session.names_in_double_quotes |= turned in _NAMES_IN_DOUBLE_QUOTES
    session.keeps_spelling |= turned == ("hive.typecheck.on.insert", "false")


def raw_text(cursor: Cursor) -> str:
    """The text of a statement that is no SQL."""
    statement = cursor.statement
    text = statement.text[statement.tokens[0].start : statement.end].rstrip()
    for comment in ("--", "/*"):
        if comment in text:
            # Here Hive takes it for a part of the value, and sqlglot for a comment, which may hide what follows.
            cursor.refuse(
                f"{comment!r} in such a statement is not understood; put it in a line of its own, before it", step=""
            )
    return text


def declare(cursor: Cursor, planner: Planner) -> None:
    while not cursor.done() and not (cursor.take("DEFAULT") or cursor.take("=")):
        cursor.next()
    if not cursor.done():
        expressions(cursor, planner)


def expressions(cursor: Cursor, planner: Planner) -> None:
    """Add what the rest, expressions of Spark's variables, reads in subqueries."""
    first = cursor.statement.tokens[0]
    select = Token(TokenType.SELECT, "SELECT", first.line, first.col, first.start, first.end)
    planner.read(cursor.statement, [select, *cursor.rest()])
