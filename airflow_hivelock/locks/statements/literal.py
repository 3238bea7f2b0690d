"""Hive's string literals."""

from __future__ import annotations

import re

from airflow_hivelock.locks.errors import InvalidRequest

_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|([01][0-7]{2})|(.))", re.DOTALL)
_CHARACTERS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": r"\%", "_": r"\_"}


def unquote(literal: str) -> str:
    """The value of *literal*, quotes included; ``'a''b'`` is two in a row, and means ``ab``.

    org.apache.hadoop.hive.ql.parse.BaseSemanticAnalyzer.unescapeSQLString, Hive 2.3.
    """
    return "".join(_ESCAPE.sub(_meaning, one or other) for one, other in _QUOTED.findall(literal))


def _meaning(escape: re.Match[str]) -> str:
    code, octal, character = escape.groups()
    if character == "u":
        raise InvalidRequest(f"{escape.string!r}: '\\u' is followed by four hexadecimal digits, as in '\\u00e9'")
    if code or octal:
        return chr(int(code, 16) if code else int(octal, 8))
    return _CHARACTERS.get(character, character)
