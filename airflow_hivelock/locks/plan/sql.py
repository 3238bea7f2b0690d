"""A SQL text with its tokens, statements and parsed trees.

A task asks several questions about one text: whether it is understood, whether it turns locking off, what it locks. All
questions use one value, so the text is tokenized and parsed once. Errors show the place in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.hive import Hive
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, TokenError
from sqlglot.parsers.spark import SparkParser

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.plan import texts
from airflow_hivelock.locks.plan.rewrite import identifiers, like

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from sqlglot.dialects.dialect import Dialect

NEXT_STEP = "name reads and writes instead"
"""The usual next step in errors about SQL that cannot be planned."""

WHICH_NAME = "the name in IDENTIFIER is not known; write the name, or a constant text in IDENTIFIER"

MOST_CHARACTERS = 1_000_000
_SHOWN = 40
_OFFSET = re.compile(r"from \d+:(\d+)$")


_MOST_KEPT = 100_000
"""Trees are kept only up to this length of the text, because they take about a hundred times its memory."""


class ScriptDialect(Spark):
    """Spark's dialect, which includes Hive's. No first word makes sqlglot read the rest as one text.

    Hints are comments, because every table in a hint is also in the query.
    """

    class Tokenizer(Spark.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **{
                word: kind
                for word, kind in Spark.Tokenizer.KEYWORDS.items()
                if kind not in (TokenType.COMMAND, TokenType.HINT)
            },
            "CLUSTER BY": TokenType.DISTRIBUTE_BY,  # sqlglot knows only DISTRIBUTE BY in a window
            "TIMESTAMPLOCALTZ": TokenType.TIMESTAMPLTZ,
        }

    class Parser(SparkParser):
        COLON_IS_VARIANT_EXTRACT: ClassVar[bool] = True

        def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
            """Check AND and OR, which sqlglot treats as functions. The engine checks arguments of other functions."""
            if isinstance(expression, exp.Func) and not isinstance(expression, exp.Binary):
                return expression
            return super().validate_expression(expression, args)


class LockDialect(Hive):
    """Hive's dialect, except that the words after SHOW are tokens, and that a number ends before a letter."""

    IDENTIFIERS_CAN_START_WITH_DIGIT = False

    class Tokenizer(Hive.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()


def expression(tokens: list[Token], text: str) -> exp.Expr | None:
    """The tree of *tokens*, which are a part of *text*. None if they are not one expression."""
    try:
        (tree,) = ScriptDialect().parser(error_level=ErrorLevel.IMMEDIATE).parse(tokens, text)
    except Exception:  # noqa: BLE001 - some input breaks the parser itself
        return None
    return tree


class Sql:
    """A text of statements that are separated by ``;``.

    :param dialect: the dialect of sqlglot that splits the text into tokens; :class:`ScriptDialect` by default.
    :ivar planned: the planners without a catalog, by their options.
    """

    def __init__(self, text: str, dialect: type[Dialect] | None = None) -> None:
        self.text = text
        self.dialect = dialect
        self.planned: dict[Hashable, Any] = {}
        self._trees: dict[Hashable, exp.Expr] = {}

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """:raises InvalidRequest: the text is not SQL."""
        return tokenize(self)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The statements that are not empty.

        :raises InvalidRequest: the text is not SQL.
        """
        return tuple(_split(self))

    def tree(self, tokens: tuple[Token, ...]) -> exp.Expr | None:
        """The tree that was kept for *tokens*. None if there is none."""
        return self._trees.get(_key(tokens))

    def keep(self, tokens: tuple[Token, ...], tree: exp.Expr) -> None:
        """Keep the *tree* of *tokens*. Callers must not change it afterwards."""
        if len(self.text) <= _MOST_KEPT:
            self._trees[_key(tokens)] = tree


@dataclass(frozen=True)
class Statement:
    """One statement of *sql*, or a part of one.

    :param end: the offset in the text after the statement.
    """

    tokens: tuple[Token, ...]
    sql: Sql
    end: int

    @property
    def text(self) -> str:
        """The text of all statements. The offsets of tokens refer to it."""
        return self.sql.text

    @property
    def written(self) -> str:
        """The text of this statement alone."""
        return self.text[self.tokens[0].start : self.end]

    @cached_property
    def uncertain(self) -> frozenset[str]:
        """The strings that engines can read differently: see :func:`.texts.is_certain`.

        Computed once, because each query of a statement with many asks for them.
        """
        return frozenset(token.text for token in self.tokens if not texts.is_certain(token, self.text))

    @cached_property
    def markers(self) -> list[int]:
        """The index of each ``?`` in the tokens."""
        return texts.markers(self.tokens)

    def refuse(self, token: Token | None, why: str, step: str = NEXT_STEP) -> NoReturn:
        """:raises InvalidRequest: showing the place of *token*, or of the statement's end."""
        raise InvalidRequest(placed(self.text, token.start if token else self.end, why, step))


@lru_cache(maxsize=1)
def latest(text: str) -> Sql:
    """The value of *text*. Only the latest text is cached, for the next question of the same task."""
    return Sql(text)


def _key(tokens: tuple[Token, ...]) -> Hashable:
    return tuple((token.token_type, token.text, token.start) for token in tokens)


def placed(text: str, offset: int, why: str, step: str = NEXT_STEP) -> str:
    """An error text with line, column, the SQL at *offset*, *why* and the next *step*. *step* can be empty."""
    why = f"{why}; {step}" if step and "reads and writes" not in why else why
    line, column = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
    there = text[offset : offset + _SHOWN].split("\n")[0].strip()
    return f"line {line}, column {column}, at {there!r}: {why}" if there else f"line {line}, column {column}: {why}"


def tokenize(sql: Sql) -> tuple[Token, ...]:
    """The tokens of *sql*.

    :raises InvalidRequest: the text is not SQL, or too long.
    """
    text = sql.text
    if len(text) > MOST_CHARACTERS:
        raise InvalidRequest(f"the SQL is longer than {MOST_CHARACTERS:,} characters; plan it in parts")
    try:
        tokens = (sql.dialect or ScriptDialect)().tokenize(text)
    except TokenError as error:
        found = _OFFSET.search(str(error.__cause__))
        why = "this quote, comment or identifier does not end" if found else "this is not SQL"
        raise InvalidRequest(
            placed(text, int(found[1]) if found else 0, why, "end it, or name reads and writes instead")
        ) from error
    return tuple(tokens if sql.dialect else identifiers(list(texts.joined(tokens, text)), text))


def _split(sql: Sql) -> Iterator[Statement]:
    """The statements of *sql* that are not empty."""
    part: list[Token] = []
    for token in (*sql.tokens, None):
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            part.append(token)
        elif part:
            yield Statement(tuple(part), sql, token.start if token else len(sql.text))
            part = []


def with_quoted_names(statement: Statement) -> Statement:
    """*statement* with names in place of strings in double quotes."""
    names = (
        like(token, TokenType.IDENTIFIER, token.text)
        if token.token_type is TokenType.STRING and statement.text[token.start] == '"'
        else token
        for token in statement.tokens
    )
    return replace(statement, tokens=tuple(names))
