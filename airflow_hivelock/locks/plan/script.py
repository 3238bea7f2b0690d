"""A text of several statements, cut into their tokens by sqlglot's tokenizer; and errors that show the place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.parsers.spark import SparkParser

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.plan.rewrite import identifiers

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_CHARACTERS = 1_000_000
_SHOWN = 40
_OFFSET = re.compile(r"from \d+:(\d+)$")
_TEMPLATE = re.compile(r"\$\{|\{\{|\{%")


class ScriptDialect(Spark):
    """Spark's, which contains Hive's, except that no first word hides the rest of its statement from the tokenizer.

    Hints are comments: they name no table that the query does not.
    """

    class Tokenizer(Spark.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: kind
            for word, kind in Spark.Tokenizer.KEYWORDS.items()
            if kind not in (TokenType.COMMAND, TokenType.HINT)
        }

    class Parser(SparkParser):
        def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
            """How many arguments a function takes is for the engine to say; AND and OR, functions here, have two."""
            if isinstance(expression, exp.Func) and not isinstance(expression, exp.Binary):
                return expression
            return super().validate_expression(expression, args)


@dataclass(frozen=True)
class Statement:
    """One statement of a text.

    :param text: the whole text, which the tokens' places refer to.
    :param end: where in it the statement ends.
    """

    tokens: tuple[Token, ...]
    text: str
    end: int

    def refuse(self, token: Token | None, why: str) -> NoReturn:
        """:raises InvalidRequest: showing the place of *token*, or of the statement's end."""
        raise InvalidRequest(placed(self.text, token.start if token else self.end, why))


def placed(text: str, offset: int, why: str) -> str:
    """*why*, headed by line, column and what stands there."""
    line, column = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
    there = text[offset : offset + _SHOWN].split("\n")[0].strip()
    return f"line {line}, column {column}, at {there!r}: {why}" if there else f"line {line}, column {column}: {why}"


def statements(text: str) -> Iterator[Statement]:
    """The statements of *text* that are not empty.

    :raises InvalidRequest: for what is no SQL, or still holds a template's variables.
    """
    if len(text) > MOST_CHARACTERS:
        raise InvalidRequest(f"the SQL is longer than {MOST_CHARACTERS:,} characters; plan it in parts")
    tokens = _tokens(text)
    _check(tokens, text)
    part: list[Token] = []
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            part.append(token)
        elif part:
            yield Statement(tuple(identifiers(part)), text, token.start)
            part = []
    if part:
        yield Statement(tuple(identifiers(part)), text, len(text))


def _tokens(text: str) -> list[Token]:
    try:
        return ScriptDialect().tokenize(text)
    except TokenError as error:
        found = _OFFSET.search(str(error.__cause__))
        why = "this quote, comment or identifier does not end" if found else "this is not SQL"
        raise InvalidRequest(placed(text, int(found[1]) if found else 0, f"{why} ({error})")) from error


def _check(tokens: list[Token], text: str) -> None:
    for token in tokens:
        if (found := _TEMPLATE.search(text, token.start, token.end + 2)) is not None:
            raise InvalidRequest(
                placed(text, found.start(), "a variable is not known here; render the SQL before it is planned")
            )
