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
    tokens, at = statement.tokens, 0
    words = _words(tokens)
    while at < len(tokens):
        word = words[at]
        session.branches += word in _BRANCHES
        if at + 2 < len(tokens) and tokens[at + 1].text == ":":  # a label
            at += 2
        elif word in _ALONE or (word == "NOT" and at + 1 < len(tokens) and tokens[at + 1].text.upper() == "ATOMIC"):
            at += 1 if word in _ALONE else 2
        elif word == "END" or word in ("LEAVE", "ITERATE"):
            ended = at + 1 < len(tokens) and tokens[at + 1].text.upper() in _ENDED
            session.branches -= word == "END" and ended
            return
        elif word == "CASE":
            end = _upto(words, at + 1, "WHEN")
            if end > at + 1:
                yield _part(statement, tokens[at + 1 : end]), True
            at = end
        elif word == "FOR" and (do := _upto(words, at + 1, "DO")) < len(tokens):
            query = next((index for index in range(at + 1, do) if words[index] == "AS"), at)
            yield _part(statement, tokens[query + 1 : do]), False
            session.branches += 1
            at = do + 1
        elif word == "DECLARE" and "HANDLER" in words[at + 1 : at + 4]:
            session.branches += 1  # until the end of the script: it can run after any later statement
            at = _after_conditions(words, at)
        elif word in _BEFORE:
            end = _upto(words, at + 1, _BEFORE[word])
            yield _part(statement, tokens[at + 1 : end]), True
            at = end if word == "UNTIL" else end + 1
        else:
            yield _part(statement, tokens[at:]), False
            return


def _part(statement: Statement, tokens: tuple[Token, ...]) -> Statement:
    last, whole = tokens[-1].end + 1 if tokens else statement.end, len(tokens) == len(statement.tokens)
    return replace(statement, tokens=tokens, end=max(last, statement.end) if whole else last)


def _words(tokens: tuple[Token, ...]) -> list[str]:
    """The words of *tokens*, in upper case. Empty for a string and for a quoted name."""
    return ["" if token.token_type in _QUOTED else token.text.upper() for token in tokens]


def _after_conditions(words: list[str], at: int) -> int:
    """The index of the handler's statement in ``DECLARE … HANDLER FOR condition, … statement``, which begins at *at*.

    A condition is ``NOT FOUND``, ``SQLSTATE [VALUE] '22012'`` or a name.
    """
    at = next((index for index in range(at, len(words)) if words[index] == "FOR"), len(words))
    before = at < len(words)
    while before:
        at += 2
        if words[at - 1 : at + 1] in (["NOT", "FOUND"], ["SQLSTATE", ""]):
            at += 1
        elif words[at - 1 : at + 1] == ["SQLSTATE", "VALUE"]:
            at += 2
        before = at < len(words) and words[at] in (",", ".")
    return at


def _upto(words: list[str], at: int, word: str) -> int:
    """The index of *word* from *at*, outside of CASE … END and parentheses. The number of words if it is missing."""
    depth = 0
    while at < len(words):
        text = words[at]
        if depth == 0 and text == word:
            return at
        depth += (text in ("CASE", "(")) - (text in ("END", ")"))
        at += 1
    return len(words)
