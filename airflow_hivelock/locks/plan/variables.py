"""Variables of Hive and Spark in SQL, such as ``${hivevar:day}``. SET lines give their values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.plan.cursor import Statement, placed, statements

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEMPLATE = re.compile(r"\$\{|\{\{|\{%")
_VARIABLE = re.compile(r"\$\{(?:(hivevar|hiveconf):)?([\w.\-]+)\}")
_SET = re.compile(r"set\s+(?:(hivevar|hiveconf):)?([\w.\-]+)\s*=(.*)", re.IGNORECASE | re.DOTALL)
_NOT_KNOWN = (
    "the value of this variable is not known here: set it before, as in SET hivevar:day=2024-01-01; or render the SQL "
    "before it is planned; or name reads and writes instead"
)
_MOST_ROUNDS = 10
"""How often a value may hold another variable."""


def is_set_by(text: str) -> tuple[str, str] | None:
    """The variable that the statement *text* sets, as ``hivevar:day``, and its value; None for any other statement."""
    found = _SET.fullmatch(text.strip())
    return (f"{(found[1] or 'hiveconf').lower()}:{found[2]}", found[3].strip()) if found else None


def rendered(statement: Statement, variables: Mapping[str, str]) -> Statement:
    """*statement* with the values of its variables.

    :raises InvalidRequest: showing a variable without a known value, or a template's expression.
    """
    if _unknown(statement) is None:
        return statement
    text = statement.text[statement.tokens[0].start : statement.end]
    for _ in range(_MOST_ROUNDS):
        text, last = _VARIABLE.sub(lambda found: _value(found, variables), text), text
        if text == last:
            break
    parts = list(statements(text))
    if len(parts) == 1 and (_unknown(parts[0]) is None or is_set_by(text)):
        return parts[0]
    place = _unknown(statement)
    assert place is not None
    raise InvalidRequest(placed(statement.text, place, _NOT_KNOWN, step=""))


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    """Hive looks a name without a kind up among one kind, and Spark among the other: they must agree."""
    kinds = [found[1]] if found[1] else ["hivevar", "hiveconf"]
    values = {variables[name] for kind in kinds if (name := f"{kind}:{found[2]}") in variables}
    return values.pop() if len(values) == 1 else found[0]


def _unknown(statement: Statement) -> int | None:
    """Where a variable is, outside of comments."""
    for token in statement.tokens:
        if (found := _TEMPLATE.search(statement.text, token.start, token.end + 2)) is not None:
            return found.start()
    return None
