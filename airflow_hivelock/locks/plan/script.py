"""Spark's scripts: statements between BEGIN and END. The plan has the locks of every statement, in every branch.

So no statement of a branch, loop or handler may change what the names in later statements mean.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot import Token

    from airflow_hivelock.locks.plan.session import SessionState
    from airflow_hivelock.locks.plan.sql import Statement

_ALONE = frozenset({"BEGIN", "ELSE", "LOOP", "REPEAT"})
_ENDED = frozenset({"CASE", "FOR", "IF", "LOOP", "REPEAT", "WHILE"})
_BRANCHES = frozenset({"CASE", "IF", "LOOP", "REPEAT", "WHILE"})
_QUOTED = (TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER)
_BEFORE = {"IF": "THEN", "ELSEIF": "THEN", "WHILE": "DO", "UNTIL": "END", "WHEN": "THEN"}
"""By the word before an expression, the word after it."""


def begins(statement: Statement) -> bool:
    """Whether *statement* is the first of a script."""
    words = _words(statement.tokens[:3])
    return words[:1] == ["BEGIN"] or (len(words) == 3 and statement.tokens[1].text == ":" and words[2] == "BEGIN")


def opened(statement: Statement) -> int:
    """The change in the number of open blocks after *statement*."""
    words = _words(statement.tokens)
    ends = words[0] == "END" and (len(words) == 1 or words[1] not in _ENDED)
    return words.count("BEGIN") - ends


def parts(statement: Statement, session: SessionState[Any]) -> Iterator[tuple[Statement, bool]]:
    """The parts of *statement* to plan, each with whether it is an expression. *statement* is in a script.

    Each part has to be planned before the next one, because this counts the open branches of *session*.
    """
    tokens = statement.tokens
    while tokens:
        word = _words(tokens[:1])[0]
        session.branches += word in _BRANCHES
        if len(tokens) > 2 and tokens[1].text == ":":  # a label
            tokens = tokens[2:]
        elif word in _ALONE or (word == "NOT" and len(tokens) > 1 and tokens[1].text.upper() == "ATOMIC"):
            tokens = tokens[1 if word in _ALONE else 2 :]
        elif word == "END" or word in ("LEAVE", "ITERATE"):
            session.branches -= word == "END" and len(tokens) > 1 and tokens[1].text.upper() in _ENDED
            return
        elif word == "CASE":
            end = _upto(tokens, 1, "WHEN")
            if end > 1:
                yield _part(statement, tokens[1:end]), True
            tokens = tokens[end:]
        elif word == "FOR" and (do := _upto(tokens, 1, "DO")) < len(tokens):
            query = next((at for at in range(1, do) if _words(tokens[at : at + 1]) == ["AS"]), 0)
            yield _part(statement, tokens[query + 1 : do]), False
            session.branches += 1
            tokens = tokens[do + 1 :]
        elif word == "DECLARE" and "HANDLER" in _words(tokens[1:4]):
            session.branches += 1  # until the end of the script: it can run after any later statement
            tokens = tokens[_after_conditions(_words(tokens)) :]
        elif word in _BEFORE:
            end = _upto(tokens, 1, _BEFORE[word])
            yield _part(statement, tokens[1:end]), True
            tokens = tokens[end if word == "UNTIL" else end + 1 :]
        else:
            yield _part(statement, tokens), False
            return


def _part(statement: Statement, tokens: tuple[Token, ...]) -> Statement:
    last = tokens[-1].end + 1 if tokens else statement.end
    return replace(statement, tokens=tokens, end=max(last, statement.end) if tokens is statement.tokens else last)


def _words(tokens: tuple[Token, ...]) -> list[str]:
    """The words of *tokens*, in upper case. Empty for a string and for a quoted name."""
    return ["" if token.token_type in _QUOTED else token.text.upper() for token in tokens]


def _after_conditions(words: list[str]) -> int:
    """The index of the handler's statement in ``DECLARE … HANDLER FOR condition, … statement``.

    A condition is ``NOT FOUND``, ``SQLSTATE [VALUE] '22012'`` or a name.
    """
    at, before = (words.index("FOR"), "FOR") if "FOR" in words else (len(words), "")
    while before:
        at += 2
        if words[at - 1 : at + 1] in (["NOT", "FOUND"], ["SQLSTATE", ""]):
            at += 1
        elif words[at - 1 : at + 1] == ["SQLSTATE", "VALUE"]:
            at += 2
        before = words[at] if at < len(words) and words[at] in (",", ".") else ""
    return at


def _upto(tokens: tuple[Token, ...], at: int, word: str) -> int:
    """The index of *word*, outside of CASE … END and parentheses. The number of tokens if it is missing."""
    depth = 0
    words = _words(tokens)
    while at < len(words):
        text = words[at]
        if depth == 0 and text == word:
            return at
        depth += (text in ("CASE", "(")) - (text in ("END", ")"))
        at += 1
    return len(words)
