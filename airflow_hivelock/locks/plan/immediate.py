"""EXECUTE IMMEDIATE: SQL in a text, which is planned like any other where it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import TokenType

from airflow_hivelock.locks.plan.cursor import statements
from airflow_hivelock.locks.plan.query import MOST_REFERENCES
from airflow_hivelock.locks.plan.settings import expressions
from airflow_hivelock.locks.plan.texts import variable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_hivelock.locks.plan.cursor import Cursor, Statement
    from airflow_hivelock.locks.plan.planner import Planner

_STEP = "give it as a text, or DECLARE and SET the variable in the same SQL; or name reads and writes instead"
_PARAMETER = (":", "?")


def execute_immediate(cursor: Cursor, planner: Planner, add: Callable[[Statement, Planner], None]) -> None:
    """``text [INTO variable, …] [USING value [AS name], …]``, after EXECUTE IMMEDIATE.

    :param add: plans each statement of the text.
    """
    texts = planner.session.texts
    text = cursor.constant(texts)
    if text is None or not (cursor.done() or cursor.sees("INTO") or cursor.sees("USING")):
        cursor.refuse("what this runs is not known", step=_STEP)
    if planner.session.refers_again() > MOST_REFERENCES:  # a text may run itself
        cursor.refuse(f"the SQL runs and reads more than {MOST_REFERENCES:,} things", step="plan it in parts")
    changed = _changed(cursor)
    found: dict[str, str | None] = {}
    if cursor.take("USING"):
        start = cursor.at
        found = _parameters(cursor, texts)
        if None in found.values():
            cursor.at = start
            expressions(cursor, planner)
    outer = {name: texts.pop(name) for name in list(texts) if name.startswith(_PARAMETER)}
    texts |= found
    for statement in statements(text):
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


def _parameters(cursor: Cursor, texts: Mapping[str, str | None]) -> dict[str, str | None]:
    """The values of ``?1``, ``?2``, …, and of those that have a name."""
    found: dict[str, str | None] = {}
    while not cursor.done():
        text, depth, name = cursor.constant(texts), 0, ""
        cursor.take("AS")
        if text is not None and cursor.is_name():
            name = cursor.identifier().lower()
        while not cursor.done() and (depth or not cursor.is_type(TokenType.COMMA)):
            kind, text = cursor.next().token_type, None
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        cursor.comma()
        found[f":{name}" if name else f"?{len(found) + 1}"] = text
    return found
