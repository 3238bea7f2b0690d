"""Statements that change how later statements are read: SET, variables of Hive and Spark, and EXECUTE IMMEDIATE.

Hive and Spark replace ``${hivevar:day}`` in a text before they parse it. SET lines have the values. A variable of a
Spark session is a part of an expression instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import TokenType

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.properties import CONCURRENCY
from airflow_hivelock.locks.hive.settings import Setting
from airflow_hivelock.locks.model.object import CATALOG
from airflow_hivelock.locks.plan.create import pass_no_query
from airflow_hivelock.locks.plan.query import MOST_REFERENCES
from airflow_hivelock.locks.plan.rewrite import like
from airflow_hivelock.locks.plan.sql import MOST_CHARACTERS, Sql, placed
from airflow_hivelock.locks.plan.texts import variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.plan.cursor import Cursor
    from airflow_hivelock.locks.plan.planner import Planner
    from airflow_hivelock.locks.plan.query import Named
    from airflow_hivelock.locks.plan.session import SessionState
    from airflow_hivelock.locks.plan.sql import Statement

_NAMES_IN_DOUBLE_QUOTES = (
    ("hive.support.quoted.identifiers", "standard"),
    ("spark.sql.ansi.doublequotedidentifiers", "true"),
)

_READ_MORE = (
    ("hive.optimize.ppd", "false"),
    ("hive.ppd.recognizetransivity", "false"),
    ("spark.sql.constraintpropagation.enabled", "false"),
)
"""Settings without which an engine skips partitions: by WHERE, or by what a join makes equal."""

_TEMPLATE = re.compile(r"\$\{|\{\{|\{%")
_VARIABLE = re.compile(r"\$\{(?:(hivevar|hiveconf):)?([\w.\-]+)\}")
_SET = re.compile(r"set\s+(?:(hivevar|hiveconf):)?([\w.\-]+)\s*=(.*)", re.IGNORECASE | re.DOTALL)
_PATH = re.compile(
    r"set\s+(?:path|spark\.sql\.defaultpath)\s*=(?=.*(?:\.|_path|current_))(?:`[^`]*`|[\w.,()\s])+",
    re.IGNORECASE | re.DOTALL,
)
"""Spark's path of databases, as in ``spark_catalog.dw, CURRENT_SCHEMA``. Any other value is that of a variable in Hive."""

_NOT_KNOWN = (
    "the value of this variable is not known: set it before, as in SET hivevar:day=2024-01-01; or render the SQL "
    "before it is planned; or name reads and writes instead"
)
_MOST_ROUNDS = 10
"""The largest depth of variables in values of variables."""

_END = re.compile(r";\s+\S")

_STEP = "write the text itself, or DECLARE and SET the variable in the same SQL; or name reads and writes instead"
_PARAMETER = (":", "?")


def setting(cursor: Cursor, planner: Planner) -> None:
    if cursor.take("SET", "VAR") or cursor.take("SET", "VARIABLE"):
        start = cursor.at
        _assign(cursor, planner.session)
        cursor.at = start
        expressions(cursor, planner)
        return
    text = raw_text(cursor)
    if _PATH.fullmatch(text.strip()):
        step = "leave it out and write names as in dw.t, or name reads and writes instead"
        cursor.refuse("this changes the database of names without one", step)
    parsed = Setting.parse(text)
    _session_setting(text, planner)
    if parsed:
        planner.session.txn = planner.session.txn.after(parsed)
        planner.settings.append(parsed)
    if parsed and parsed.name == CONCURRENCY:
        planner.session.concurrency = parsed.truth or planner.always
    elif cursor.sees("RESET"):
        planner.session.concurrency = True
    if cursor.take("SET", "CATALOG") and not cursor.sees(CATALOG.upper()):
        cursor.refuse(f"only {CATALOG} has Hive's tables")


def _session_setting(text: str, planner: Planner) -> None:
    """Apply a SET line to the later statements. RESET undoes none of these, because the plan then locks no less."""
    session = planner.session
    if (found := _is_set_by(text.replace("`", ""))) is None:
        return
    name, value = found
    if "${" in value:
        session.variables.pop(name, None)
    else:
        session.variables[name] = value
    turned = (name.lower().removeprefix("hiveconf:"), value.lower())
    session.names_in_double_quotes |= turned in _NAMES_IN_DOUBLE_QUOTES
    session.keeps_spelling |= turned == ("hive.typecheck.on.insert", "false")
    session.prunes &= turned not in _READ_MORE


def raw_text(cursor: Cursor) -> str:
    """The text of a statement that is not SQL, such as SET."""
    text = cursor.statement.written.rstrip()
    for comment in ("--", "/*", "{#"):
        if comment in text:
            # Hive reads it as a part of the value, sqlglot as a comment. A comment can hide later statements.
            cursor.refuse(
                f"{comment!r} in such a statement is not understood; put the comment on its own line before", step=""
            )
    for token in cursor.statement.tokens:
        # the quote can be an apostrophe: beeline ends a statement at the end of such a line
        if _END.search(token.text):
            cursor.statement.refuse(token, "a quote that contains the end of a statement is not understood here")
    return text


def _assign(cursor: Cursor, session: SessionState[Named]) -> None:
    """``name = expression, …``. Compute all values before the first assignment."""
    texts = session.texts
    after: dict[str, str | None] = {}
    while True:
        names = [] if cursor.sees("IDENTIFIER", "(") or not cursor.is_name() else [variable(cursor.name()[0])]
        if not (names and cursor.take("=")):
            after = dict.fromkeys(texts)  # forget all: the names are not known
            break
        after[names[0]] = _value(cursor, session)
        if not cursor.comma():
            break
    texts |= {name: text for name, text in after.items() if name in texts}


def _value(cursor: Cursor, session: SessionState[Named]) -> str | None:
    """Pass an expression up to the next comma. Return its string, None if not known."""
    text = cursor.constant(session.texts)
    _insert(cursor.statement, text, session)
    return None if cursor.upto_comma() else text


def declare(cursor: Cursor, planner: Planner) -> None:
    """``DECLARE [OR REPLACE] [VARIABLE] name, … [type] [DEFAULT expression]``, or ``DECLARE name CURSOR FOR query``."""
    cursor.expect("DECLARE")
    texts = planner.session.texts
    replaces = cursor.take("OR", "REPLACE")
    if cursor.is_name(1) and cursor.word(1) != "DEFAULT":  # else VAR is the variable's name
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
    text = _value(cursor, planner.session)
    for name in names:
        known = name in texts and not replaces  # it keeps its old value if errors are ignored
        texts[name] = None if known else text
        if not is_text:
            del texts[name]
    cursor.at = start
    if not cursor.done():
        expressions(cursor, planner)


def expressions(cursor: Cursor, planner: Planner) -> None:
    """Add the reads of subqueries in the rest of the statement, which consists of expressions."""
    if not cursor.statement.tokens:
        cursor.refuse("an expression is missing here")
    select = like(cursor.statement.tokens[0], TokenType.SELECT, "SELECT")
    planner.read(cursor.statement, [select, *cursor.rest()])


def _is_set_by(text: str) -> tuple[str, str] | None:
    """The variable in a SET statement, as ``hivevar:day``, and its value. None for any other statement."""
    found = _SET.fullmatch(text.strip())
    return (f"{(found[1] or 'hiveconf').lower()}:{found[2]}", found[3].strip()) if found else None


def rendered(statement: Statement, session: SessionState[Named]) -> Statement:
    """*statement* with values in place of its variables.

    :raises InvalidRequest: showing a variable without a known value, or a template's expression; or too long values.
    """
    if _unknown(statement) is None:
        return statement
    text = statement.written
    for _ in range(_MOST_ROUNDS):
        text, last = _VARIABLE.sub(lambda found: _substitute(found, statement, session), text), text
        if text == last:
            break
    parts = Sql(text).statements
    if len(parts) == 1 and (_unknown(parts[0]) is None or _is_set_by(text)):
        return parts[0]
    place = _unknown(statement)
    assert place is not None
    raise InvalidRequest(placed(statement.text, place, _NOT_KNOWN, step=""))


def _substitute(found: re.Match[str], statement: Statement, session: SessionState[Named]) -> str:
    """The value of a variable. A name without a kind needs equal values, because Hive and Spark use different kinds."""
    kinds = [found[1]] if found[1] else ["hivevar", "hiveconf"]
    known = session.variables
    values = {known[name] for kind in kinds if (name := f"{kind}:{found[2]}") in known}
    if len(values) != 1:
        return found[0]
    (value,) = values
    _insert(statement, value, session)
    return value


def _insert(statement: Statement, text: str | None, session: SessionState[Named]) -> None:
    """Count the characters that *statement* gets from *text*, before they take memory.

    :raises InvalidRequest: the variables of all statements have added more than a whole text can have.
    """
    if text and session.inserts(text) > MOST_CHARACTERS:
        why = f"variables make the SQL longer than {MOST_CHARACTERS:,} characters"
        statement.refuse(statement.tokens[0], why, "plan it in parts, or name reads and writes instead")


def _unknown(statement: Statement) -> int | None:
    """The offset of the first variable outside comments. None if there is none."""
    for token in statement.tokens:
        if (found := _TEMPLATE.search(statement.text, token.start, token.end + 2)) is not None:
            return found.start()
    return None


def execute_immediate(cursor: Cursor, planner: Planner, add: Callable[[Statement, Planner], None]) -> None:
    """``text [INTO variable, …] [USING value [AS name], …]``, after EXECUTE IMMEDIATE.

    :param add: the function that plans one statement of the text.
    """
    texts = planner.session.texts
    text = cursor.constant(texts)
    if text is None or not (cursor.done() or cursor.sees("INTO") or cursor.sees("USING")):
        cursor.refuse("the SQL of this EXECUTE is not known", step=_STEP)
    if planner.session.refers_again() > MOST_REFERENCES:  # a text can run itself
        cursor.refuse(f"the SQL has more than {MOST_REFERENCES:,} references", step="plan it in parts")
    _insert(cursor.statement, text, planner.session)
    changed = _changed(cursor)
    found: dict[str, str | None] = {}
    if cursor.take("USING"):
        start = cursor.at
        found = _parameters(cursor, planner.session)
        if None in found.values():
            cursor.at = start
            expressions(cursor, planner)
    outer = {name: texts.pop(name) for name in list(texts) if name.startswith(_PARAMETER)}
    texts |= found
    for statement in Sql(text).statements:
        add(statement, planner)
    for name in found:
        texts.pop(name, None)
    texts |= outer
    texts |= dict.fromkeys(changed & texts.keys())


def _changed(cursor: Cursor) -> set[str]:
    """The variables after INTO."""
    found = set()
    while not cursor.done() and not cursor.sees("USING"):
        cursor.next()
        if cursor.is_name():
            found.add(variable(cursor.name()[0]))
    return found


def _parameters(cursor: Cursor, session: SessionState[Named]) -> dict[str, str | None]:
    """By parameter, ``?1`` or ``:name``, its string. None if not known."""
    found: dict[str, str | None] = {}
    while not cursor.done():
        text, name = cursor.constant(session.texts), ""
        _insert(cursor.statement, text, session)
        cursor.take("AS")
        if text is not None and cursor.is_name():
            name = cursor.identifier().lower()
        if cursor.upto_comma():
            text = None
        cursor.comma()
        found[f":{name}" if name else f"?{len(found) + 1}"] = text
    return found
