"""Replaces tokens that sqlglot does not understand by tokens that read the same tables."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from sqlglot import Token, TokenType

from airflow_hivelock.locks.plan import texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MOST_NESTED = 100
"""The largest depth of parentheses. sqlglot's time grows with the depth, and Python's stack is limited."""

TOO_DEEP = "unknown of this depth"

_COLLAPSED = 25
"""The depth from which parts of an expression count as unknown. Queries in such parts are still read."""

_NAMES = re.compile(r"(?:`[^`\\]+`|\w+)(?:\.(?:`[^`\\]+`|\w+))*")
_OPENS, _CLOSES = (TokenType.L_PAREN, TokenType.L_BRACKET), (TokenType.R_PAREN, TokenType.R_BRACKET)
_TYPES = (TokenType.ARRAY, TokenType.MAP, TokenType.STRUCT)
_NAMED = (TokenType.VAR, TokenType.IDENTIFIER)
_ENDS = (*_NAMED, TokenType.ALIAS, TokenType.END, TokenType.NUMBER, TokenType.R_PAREN)
"""The last tokens that an expression can have before its alias."""
_QUERIES = (TokenType.SELECT, TokenType.FROM, TokenType.TABLE, TokenType.VALUES, TokenType.WITH)
_BEFORE_A_QUERY = frozenset(
    {
        TokenType.L_PAREN,
        TokenType.R_PAREN,
        TokenType.UNION,
        TokenType.EXCEPT,
        TokenType.INTERSECT,
        TokenType.ALL,
        TokenType.DISTINCT,
    }
)


def identifiers(
    tokens: Sequence[Token], source: str, values: Mapping[str, str | None] = MappingProxyType({})
) -> list[Token]:
    """*tokens* with the name in place of Spark's ``IDENTIFIER('dw.t')``, if the string is known.

    :param values: the values of variables and parameters: see :func:`.texts.read`.
    """
    found: list[Token] = []
    places = texts.markers(tokens)
    at = 0
    while at < len(tokens):
        token, at = tokens[at], at + 1
        if (
            token.token_type is TokenType.VAR
            and token.text.upper() == "IDENTIFIER"
            and _is(tokens, at, TokenType.L_PAREN)
        ):
            text, end = texts.read(tokens, at + 1, source, values, places)
            if text is not None and _is(tokens, end, TokenType.R_PAREN) and _NAMES.fullmatch(text):
                for name in re.findall(r"`[^`]+`|\w+", text):
                    if found and found[-1].start == token.start:
                        found.append(like(token, TokenType.DOT, "."))
                    found.append(like(token, TokenType.IDENTIFIER, name.strip("`")))
                at = end + 1
                continue
        found.append(token)
    return found


def query(tokens: Sequence[Token]) -> list[Token]:
    """The *tokens* of a query after all replacements below."""
    for change in (_tables, _without_options, _transforms, _pivots, _pipes, _ptfs, _shallow):
        tokens = change(tokens)
    return list(tokens)


def nested(tokens: Sequence[Token]) -> Token | None:
    """The first of *tokens* that is nested too deep. None if there is none."""
    depth, before = 0, None
    for token in tokens:
        depth += (token.token_type in _OPENS) - (token.token_type in _CLOSES)
        depth += token.token_type is TokenType.LT and before in _TYPES
        before = token.token_type
        if depth > MOST_NESTED:
            return token
    return None


def _tables(tokens: Sequence[Token]) -> list[Token]:
    """``SELECT * FROM t`` for Spark's ``TABLE t``, which sqlglot reads as a column. ``(…)`` for ``TABLE(VALUES …)``."""
    found: list[Token] = []
    for at, token in enumerate(tokens):
        before = tokens[at - 1].token_type if at else TokenType.L_PAREN
        if token.token_type is TokenType.TABLE and _is(tokens, at + 1, TokenType.L_PAREN):
            continue
        if before is TokenType.L_PAREN and at > 1 and tokens[at - 2].token_type is TokenType.TABLE:
            found += [] if token.token_type in _QUERIES else _all_of(token)
            found.append(token)
        elif token.token_type is TokenType.TABLE and (before in _BEFORE_A_QUERY or before is TokenType.PIPE_GT):
            found += _all_of(token)
        else:
            found.append(token)
    return found


_OPTIONS = (("MAX", "RECURSION", "LEVEL"), ("WITH", "SINGLE", "PARTITION"))


_VERSION = ("FOR", "SYSTEM_VERSION", "AS", "OF")


_OF_TWO = ("CORR", "COVAR_POP", "COVAR_SAMP")


def _without_options(tokens: Sequence[Token]) -> list[Token]:
    """*tokens* without MAX RECURSION LEVEL, WITH SINGLE PARTITION, FOR SYSTEM_VERSION AS OF, the ANY in
    ``geometry(any)`` and the DISTINCT in ``corr(DISTINCT x, y)``."""
    found: list[Token] = []
    at = 0
    while at < len(tokens):
        words = tuple(token.text.upper() for token in tokens[at : at + 4])
        if words[:3] in _OPTIONS:
            at += 4 if words[0] == "MAX" else 3
        elif words == _VERSION:
            at += 5
        elif words[:1] in (("GEOMETRY",), ("GEOGRAPHY",)) and words[1:] == ("(", "ANY", ")"):
            found.append(tokens[at])
            at += 4
        elif words[1:3] == ("(", "DISTINCT") and words[0] in _OF_TWO and _is(tokens, at + 2, TokenType.DISTINCT):
            found += tokens[at : at + 2]
            at += 3
        else:
            found.append(tokens[at])
            at += 1
    return found


def _pivots(tokens: Sequence[Token]) -> Sequence[Token]:
    """``PIVOT (coalesce(max(x) + 1, sum(y)) FOR …)`` for ``PIVOT (max(x) + 1 AS a, sum(y) FOR …)``.

    sqlglot accepts only functions there. The column names of PIVOT do not change the locks.
    """
    found: list[Token] = []
    fors = _fors(tokens)
    at = 0
    while at < len(tokens):
        found.append(tokens[at])
        at += 1
        if found[-1].token_type is TokenType.PIVOT and (upto := fors.get(at)):
            first = tokens[at]
            found += [first, like(first, TokenType.VAR, "coalesce"), first]
            found += [*_unnamed(tokens[at + 1 : upto]), like(first, TokenType.R_PAREN, ")")]
            at = upto
    return found


def _fors(tokens: Sequence[Token]) -> dict[int, int]:
    """For the index of each opening parenthesis, the index of the first FOR that is directly in it.

    One pass finds all, because a text can have many parentheses that do not close.
    """
    found: dict[int, int] = {}
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            opened.append(at)
        elif token.token_type is TokenType.R_PAREN and opened:
            opened.pop()
        elif token.token_type is TokenType.FOR and opened:
            found.setdefault(opened[-1], at)
    return found


def _unnamed(tokens: Sequence[Token]) -> Iterator[Token]:
    """A list of expressions without their aliases. An alias can follow AS or the expression itself."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += _is(tokens, at, TokenType.L_PAREN) - _is(tokens, at, TokenType.R_PAREN)
        ends = at + 1 == len(tokens) or _is(tokens, at + 1, TokenType.COMMA)
        named = at and ends and token.token_type in _NAMED and tokens[at - 1].token_type in _ENDS
        if depth or not (named or _is(tokens, at, TokenType.ALIAS)):
            yield token


def _transforms(tokens: Sequence[Token]) -> list[Token]:
    """``SELECT TRANSFORM (…) USING`` for ``MAP … USING`` and ``REDUCE … USING``."""
    found: list[Token] = []
    opened = False
    for at, token in enumerate(tokens):
        word = token.text.upper()
        if opened and token.token_type is TokenType.USING:
            found.append(like(token, TokenType.R_PAREN, ")"))
            opened = False
        starts = word in ("MAP", "REDUCE") and token.token_type is not TokenType.IDENTIFIER and at + 1 < len(tokens)
        if starts and (_begins_transform(tokens, at) if at else not _is(tokens, 1, TokenType.L_PAREN)):
            found += [like(token, TokenType.SELECT, "SELECT"), like(token, TokenType.VAR, "TRANSFORM")]
            found.append(like(token, TokenType.L_PAREN, "("))
            opened = True
        else:
            found.append(token)
    return found


def _begins_transform(tokens: Sequence[Token], at: int) -> bool:
    """Whether MAP or REDUCE is a clause between a source and a list of columns, not a function, type or alias."""
    before, after = tokens[at - 1].token_type, tokens[at + 1].token_type
    name_before = before in (TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_PAREN)
    return name_before and after in (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STAR)


def _pipes(tokens: Sequence[Token]) -> Sequence[Token]:
    """``SELECT … FROM (query) …`` for Spark's ``query |> …``."""
    if not any(token.token_type is TokenType.PIPE_GT for token in tokens):
        return tokens
    groups: list[list[Token]] = [[]]  # for each open parenthesis, its tokens
    operators: list[list[Token] | None] = [None]  # and its tokens after the last |>
    for token in tokens:
        if token.token_type is TokenType.PIPE_GT:
            groups[-1], operators[-1] = _piped(groups[-1], operators[-1]), []
        elif token.token_type is TokenType.L_PAREN:
            groups.append([])
            operators.append(None)
        elif token.token_type is TokenType.R_PAREN and len(groups) > 1:
            inner = _piped(groups.pop(), operators.pop())
            operator = operators[-1]
            (groups[-1] if operator is None else operator).extend([like(token, TokenType.L_PAREN, "("), *inner, token])
        else:
            operator = operators[-1]
            (groups[-1] if operator is None else operator).append(token)
    while len(groups) > 1:  # a missing parenthesis: the parser refuses it
        inner = _piped(groups.pop(), operators.pop())
        groups[-1] += [like(tokens[-1], TokenType.L_PAREN, "("), *inner]
    return _piped(groups[0], operators[0])


def _piped(before: list[Token], operator: list[Token] | None) -> list[Token]:
    if operator is None or not operator or not before:
        return before
    first, rest = operator[0], operator[1:]
    word = first.text.upper()
    whole = [*_all_of(first), like(first, TokenType.L_PAREN, "("), *before, like(first, TokenType.R_PAREN, ")")]
    if word in ("SELECT", "EXTEND", "SET"):
        ends = next((at for at, token in enumerate(rest) if token.token_type is TokenType.WINDOW), len(rest))
        return [whole[0], *rest[:ends], *whole[2:], *rest[ends:]]
    if word == "AGGREGATE":
        # Make the expressions of GROUP BY columns, because they can have aliases.
        by = [like(each, TokenType.COMMA, ",") if each.token_type is TokenType.GROUP_BY else each for each in rest]
        return [whole[0], *(by[1:] if _is(by, 0, TokenType.COMMA) else by), *whole[2:]]
    if word == "DROP":
        return whole
    return [*whole, *(rest if word == "AS" else operator)]


def _ptfs(tokens: Sequence[Token]) -> Sequence[Token]:
    """``(SELECT * FROM t LIMIT 1)`` for Hive's ``f(ON t PARTITION BY …)``. LIMIT stops outer conditions, as f can."""
    if not any(_is(tokens, at, TokenType.ON) for at in range(len(tokens))):
        return tokens
    found: list[Token] = []
    opened: list[int | None] = []  # the index in found of each open parenthesis, if ON follows
    for at, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            is_ptf = _is(tokens, at + 1, TokenType.ON) and at > 0 and tokens[at - 1].token_type is TokenType.VAR
            opened.append(len(found) if is_ptf else None)
        found.append(token)
        if token.token_type is TokenType.R_PAREN and opened and (start := opened.pop()) is not None:
            inside = found[start + 2 : -1]
            source = _source(inside)
            if source and not any(each.token_type in _QUERIES for each in inside[source:]):
                limit = [like(token, TokenType.LIMIT, "LIMIT"), like(token, TokenType.NUMBER, "1"), token]
                found[start - 1 :] = [found[start], *_all_of(found[start]), *inside[:source], *limit]
    return found


def _source(tokens: Sequence[Token]) -> int:
    """The number of *tokens* in the table or query at the beginning, with its alias."""
    end, depth = 1, int(_is(tokens, 0, TokenType.L_PAREN))
    while depth and end < len(tokens):
        depth += _is(tokens, end, TokenType.L_PAREN) - _is(tokens, end, TokenType.R_PAREN)
        end += 1
    while _is(tokens, end, TokenType.DOT):
        end += 2
    return end + (_is(tokens, end, TokenType.VAR) or _is(tokens, end, TokenType.IDENTIFIER))


def _shallow(tokens: Sequence[Token]) -> Sequence[Token]:
    """One name in place of the contents of parentheses that are too deep, unless they contain queries.

    A condition with such a part is unknown, so it narrows nothing.
    """
    closes: dict[int, int] = {}
    queries: list[int] = []  # for each token, the number of queries up to it
    opened: list[int] = []
    for at, token in enumerate(tokens):
        queries.append((queries[-1] if queries else 0) + (token.token_type in _QUERIES))
        if token.token_type is TokenType.L_PAREN:
            opened.append(at)
        elif token.token_type is TokenType.R_PAREN and opened:
            start = opened.pop()
            if len(opened) >= _COLLAPSED and at > start + 1:
                closes[start] = at
    if not closes:
        return tokens
    found: list[Token] = []
    at = 0
    while at < len(tokens):
        found.append(tokens[at])
        end = closes.get(at)
        at += 1
        if end is not None and queries[end] == queries[at - 1]:
            found.append(like(tokens[at], TokenType.IDENTIFIER, TOO_DEEP))
            at = end
    return found


def _all_of(token: Token) -> Iterator[Token]:
    for kind, text in ((TokenType.SELECT, "SELECT"), (TokenType.STAR, "*"), (TokenType.FROM, "FROM")):
        yield like(token, kind, text)


def _is(tokens: Sequence[Token], at: int, kind: TokenType) -> bool:
    return at < len(tokens) and tokens[at].token_type is kind


def like(token: Token, kind: TokenType, text: str) -> Token:
    """A new token at the position of *token*."""
    return Token(kind, text, token.line, token.col, token.start, token.end)
