"""Evaluates strings of constants and variables: names in IDENTIFIER, and the SQL of EXECUTE IMMEDIATE."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from sqlglot import Token, TokenType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MOST_NESTED = 5
"""The largest depth of nested CONCATs."""

_LONGEST = 1_000_000
"""The largest length of a string. A loop of SET can double a string each time."""

_SESSION = ("system", "session")
_ESCAPE = re.compile(r"\\[^'\"]")


def joined(tokens: Sequence[Token], source: str) -> Iterator[Token]:
    """*tokens* with one string for ``'it''s'``, as Spark 4 reads it. Hive and Spark 3 read two strings, ``its``."""
    last: Token | None = None
    for token in tokens:
        if last is not None:
            adjacent = _is((last, token), 0, TokenType.STRING) and _is((last, token), 1, TokenType.STRING)
            if adjacent and token.start == last.end + 1 and source[token.start] == source[last.start]:
                text = f"{last.text}{source[token.start]}{token.text}"
                last = Token(TokenType.STRING, text, last.line, last.col, last.start, token.end)
                continue
            yield last
        last = token
    if last is not None:
        yield last


def is_certain(token: Token, source: str) -> bool:
    """Whether Hive and every Spark read *token* alike. A string with a backslash or a doubled quote is not certain."""
    inside = source[token.start + 1 : token.end]
    return token.token_type is not TokenType.STRING or not {"\\", source[token.start]} & set(inside)


def markers(tokens: Sequence[Token]) -> list[int]:
    """The index of each ``?`` in *tokens*, in order."""
    return [at for at, token in enumerate(tokens) if token.token_type is TokenType.PLACEHOLDER]


def read(
    tokens: Sequence[Token],
    at: int,
    source: str,
    values: Mapping[str, str | None],
    places: Sequence[int],
    depth: int = 0,
) -> tuple[str | None, int]:
    """The string that begins at *at*, and the index after it. The string is None if it is not constant.

    Spark concatenates strings with ``||`` and CONCAT, and also adjacent strings.

    :param values: the values of variables by name, and of parameters by ``:name`` or ``?1``. None means not known.
    :param places: the :func:`markers` of *tokens*. The caller finds them once for all strings.
    """
    text = ""
    while True:
        part, at = _part(tokens, at, source, values, places, depth)
        if part is None:
            return None, at
        text += part
        if len(text) > _LONGEST:
            return None, at
        if _is(tokens, at, TokenType.DPIPE):
            at += 1
        elif not (_is(tokens, at, TokenType.STRING) or _marker(tokens, at, places)):
            return text, at


def variable(parts: Sequence[str]) -> str:
    """The last part of the name of a session's variable. Empty if *parts* do not name one."""
    *where, name = (part.lower() for part in parts)
    return name if tuple(where) in ((), _SESSION[1:], _SESSION) else ""


def _part(
    tokens: Sequence[Token], at: int, source: str, values: Mapping[str, str | None], places: Sequence[int], depth: int
) -> tuple[str | None, int]:
    if _is(tokens, at, TokenType.STRING):
        token = tokens[at]
        return (None if _ESCAPE.search(source[token.start : token.end + 1]) else token.text), at + 1
    if marker := _marker(tokens, at, places):
        return values.get(marker), at + (2 if marker[0] == ":" else 1)
    if at >= len(tokens) or not (tokens[at].text.replace("_", "a").isalnum()):
        return None, at
    if _is(tokens, at + 1, TokenType.L_PAREN):
        return _concat(tokens, at, source, values, places, depth)
    parts = [tokens[at].text]
    while _is(tokens, at + 1, TokenType.DOT) and at + 2 < len(tokens):
        at += 2
        parts.append(tokens[at].text)
    return values.get(variable(parts)), at + 1


def _concat(
    tokens: Sequence[Token], at: int, source: str, values: Mapping[str, str | None], places: Sequence[int], depth: int
) -> tuple[str | None, int]:
    found: list[str] = []
    if tokens[at].text.upper() != "CONCAT" or depth >= _MOST_NESTED:
        return None, at
    at += 1
    while not _is(tokens, at, TokenType.R_PAREN) or not found:
        text, at = read(tokens, at + 1, source, values, places, depth + 1)
        if text is None or not (_is(tokens, at, TokenType.COMMA) or _is(tokens, at, TokenType.R_PAREN)):
            return None, at
        found.append(text)
    return "".join(found), at + 1


def _marker(tokens: Sequence[Token], at: int, places: Sequence[int]) -> str:
    """The parameter at *at*: ``:name``, or ``?3`` for the third one without a name. Empty if there is none."""
    if _is(tokens, at, TokenType.COLON) and at + 1 < len(tokens):
        return f":{tokens[at + 1].text.lower()}"
    if _is(tokens, at, TokenType.PLACEHOLDER):
        return f"?{bisect_right(places, at)}"
    return ""


def _is(tokens: Sequence[Token], at: int, kind: TokenType) -> bool:
    return at < len(tokens) and tokens[at].token_type is kind
