"""SET, and variables of Spark's sessions: what changes how the statements after them are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import Token, TokenType

from airflow_hivelock.locks.hive.settings import CONCURRENCY, Setting
from airflow_hivelock.locks.model.object import CATALOG
from airflow_hivelock.locks.plan.create import pass_no_query
from airflow_hivelock.locks.plan.texts import variable
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
        start = cursor.at
        _assign(cursor, planner.session.texts)
        cursor.at = start
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


def _assign(cursor: Cursor, texts: dict[str, str | None]) -> None:
    """``name = expression, …``; all values are computed before the first is assigned."""
    after: dict[str, str | None] = {}
    while True:
        names = [] if cursor.sees("IDENTIFIER", "(") or not cursor.is_name() else [variable(cursor.name()[0])]
        if not (names and cursor.take("=")):
            after = dict.fromkeys(texts)  # a list of variables, or one whose name is not known
            break
        after[names[0]] = _value(cursor, texts)
        if not cursor.comma():
            break
    texts |= {name: text for name, text in after.items() if name in texts}


def _value(cursor: Cursor, texts: dict[str, str | None]) -> str | None:
    """Pass an expression up to the next comma, and give the text that it is."""
    text, depth = cursor.constant(texts), 0
    while not cursor.done() and (depth or not cursor.is_type(TokenType.COMMA)):
        kind, text = cursor.next().token_type, None
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
    return text


def declare(cursor: Cursor, planner: Planner) -> None:
    """``DECLARE [OR REPLACE] [VARIABLE] name, … [type] [DEFAULT expression]``, or a cursor over a query."""
    cursor.expect("DECLARE")
    texts = planner.session.texts
    replaces = cursor.take("OR", "REPLACE")
    if cursor.is_name(1) and cursor.word(1) != "DEFAULT":  # else that is its name
        cursor.take_any("VAR", "VARIABLE")
    names: list[str] = []
    while not cursor.sees("IDENTIFIER", "(") and (not names or cursor.comma()):
        names.append(variable(cursor.name()[0]))
    is_text = cursor.take("STRING") or cursor.sees("DEFAULT") or cursor.sees("=") or cursor.done()
    while not cursor.done() and not (cursor.take("DEFAULT") or cursor.take("=")):
        if cursor.take("CURSOR"):
            while not cursor.take("FOR"):
                cursor.next()
            planner.read(cursor.statement, cursor.rest())
            return
        pass_no_query(cursor)
    start = cursor.at
    text = _value(cursor, texts)
    for name in names:
        known = name in texts and not replaces  # then it keeps the value that it has, where errors are ignored
        texts[name] = None if known else text
        if not is_text:
            del texts[name]
    cursor.at = start
    if not cursor.done():
        expressions(cursor, planner)


def expressions(cursor: Cursor, planner: Planner) -> None:
    """Add what the rest, expressions of Spark's variables, reads in subqueries."""
    first = cursor.statement.tokens[0]
    select = Token(TokenType.SELECT, "SELECT", first.line, first.col, first.start, first.end)
    planner.read(cursor.statement, [select, *cursor.rest()])
