"""A text of several statements, cut into their tokens by sqlglot's tokenizer, and a cursor to read one token by token.

Words, names, literals, partition specifications; and errors that show the place."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from sqlglot import Token, TokenType
from sqlglot.errors import TokenError

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.plan import texts
from airflow_hivelock.locks.plan.condition import ALWAYS, Compare, Condition, Literal, all_of
from airflow_hivelock.locks.plan.constants import constant
from airflow_hivelock.locks.plan.dialect import ScriptDialect, expression
from airflow_hivelock.locks.plan.rewrite import identifiers
from airflow_hivelock.locks.spelling import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


NEXT_STEP = "name reads and writes instead"
"""What to do where SQL cannot be planned."""

WHICH_NAME = "which name this gives is not known; write the name, or a constant text in IDENTIFIER"

MOST_CHARACTERS = 1_000_000
_SHOWN = 40
_OFFSET = re.compile(r"from \d+:(\d+)$")


@dataclass(frozen=True)
class Statement:
    """One statement of a text.

    :param text: the whole text, which the tokens' places refer to.
    :param end: where in it the statement ends.
    """

    tokens: tuple[Token, ...]
    text: str
    end: int

    def refuse(self, token: Token | None, why: str, step: str = NEXT_STEP) -> NoReturn:
        """:raises InvalidRequest: showing the place of *token*, or of the statement's end."""
        raise InvalidRequest(placed(self.text, token.start if token else self.end, why, step))


def uncertain(statement: Statement) -> frozenset[str]:
    """The texts whose meaning depends on the engine: see :func:`.texts.is_certain`."""
    return frozenset(token.text for token in statement.tokens if not texts.is_certain(token, statement.text))


def placed(text: str, offset: int, why: str, step: str = NEXT_STEP) -> str:
    """*why*, headed by line, column and what is there, and what to do about it; *step* is empty where *why* tells it."""
    why = f"{why}; {step}" if step and "reads and writes" not in why else why
    line, column = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
    there = text[offset : offset + _SHOWN].split("\n")[0].strip()
    return f"line {line}, column {column}, at {there!r}: {why}" if there else f"line {line}, column {column}: {why}"


def statements(text: str) -> Iterator[Statement]:
    """The statements of *text* that are not empty.

    :raises InvalidRequest: for what is no SQL.
    """
    if len(text) > MOST_CHARACTERS:
        raise InvalidRequest(f"the SQL is longer than {MOST_CHARACTERS:,} characters; plan it in parts")
    tokens = _tokens(text)
    part: list[Token] = []
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            part.append(token)
        elif part:
            yield Statement(tuple(identifiers(part, text)), text, token.start)
            part = []
    if part:
        yield Statement(tuple(identifiers(part, text)), text, len(text))


def _tokens(text: str) -> list[Token]:
    try:
        return list(texts.joined(ScriptDialect().tokenize(text), text))
    except TokenError as error:
        found = _OFFSET.search(str(error.__cause__))
        why = "this quote, comment or identifier does not end" if found else "this is not SQL"
        raise InvalidRequest(
            placed(text, int(found[1]) if found else 0, why, "end it, or name reads and writes instead")
        ) from error


def with_quoted_names(statement: Statement) -> Statement:
    """*statement* with names in place of texts in double quotes."""
    names = (
        Token(TokenType.IDENTIFIER, token.text, token.line, token.col, token.start, token.end)
        if token.token_type is TokenType.STRING and statement.text[token.start] == '"'
        else token
        for token in statement.tokens
    )
    return replace(statement, tokens=tuple(names))


_PUNCTUATION = frozenset(
    {TokenType.STRING, TokenType.RAW_STRING, TokenType.NUMBER, TokenType.IDENTIFIER, TokenType.DOT, TokenType.COMMA}
)
_SIGNS = {
    TokenType.EQ: "=",
    TokenType.LT: "<",
    TokenType.LTE: "<=",
    TokenType.GT: ">",
    TokenType.GTE: ">=",
    TokenType.NEQ: "!=",
}


@dataclass(frozen=True)
class Level:
    """One column of a partition specification; *value* is None where it is dynamic, ``''`` for NULL."""

    column: str
    sign: str = "="
    value: Literal | None = None


@dataclass(frozen=True)
class Spec:
    """``PARTITION (dt='2013-01-01', hr)``.

    :param place: where it stands.
    """

    levels: tuple[Level, ...]
    place: Token

    @property
    def static(self) -> bool:
        """Whether it says what each of its columns is equal to."""
        return all(level.value is not None and level.sign == "=" for level in self.levels)

    def condition(self) -> Condition:
        """What it says of the partitions that it selects."""
        return all_of(
            Compare(level.column, level.sign, level.value) if level.value else ALWAYS for level in self.levels
        )


class Cursor:
    """A place in a statement."""

    def __init__(self, statement: Statement, at: int = 0) -> None:
        self.statement = statement
        self.at = at

    @property
    def token(self) -> Token | None:
        """What comes next; None at the end."""
        return self._peek(0)

    def word(self, ahead: int = 0) -> str:
        """The word that comes next, or after that, in upper case; empty for anything else."""
        token = self._peek(ahead)
        return "" if token is None or token.token_type in _PUNCTUATION else " ".join(token.text.upper().split())

    def is_name(self, ahead: int = 0) -> bool:
        """Whether a name, quoted or not, may come next, or after that."""
        token = self._peek(ahead)
        return token is not None and (token.token_type is TokenType.IDENTIFIER or self.word(ahead)[:1].isalnum())

    def sees(self, *words: str) -> bool:
        """Whether these words come next."""
        return all(self.word(ahead) == word for ahead, word in enumerate(words))

    def take(self, *words: str) -> bool:
        """Pass these words if they come next."""
        if found := self.sees(*words):
            self.at += len(words)
        return found

    def take_any(self, *words: str) -> str:
        """Pass whichever of these words comes next, and give it."""
        found = self.word() if self.word() in words else ""
        self.at += bool(found)
        return found

    def expect(self, *words: str) -> None:
        """Pass these words.

        :raises InvalidRequest: something else comes next.
        """
        for word in words:
            if not self.take(word):
                self.refuse(f"{word} is wanted here")

    def is_type(self, *types: TokenType) -> bool:
        """Whether a token of one of these types comes next."""
        token = self.token
        return token is not None and token.token_type in types

    def comma(self) -> bool:
        """Pass a comma if it comes next."""
        found = self.is_type(TokenType.COMMA)
        self.at += found
        return found

    def next(self) -> Token:
        """Pass any token."""
        token = self.token
        if token is None:
            self.refuse("the statement is not complete")
        self.at += 1
        return token

    def done(self) -> bool:
        """Whether nothing comes next."""
        return self.token is None

    def end(self) -> None:
        """:raises InvalidRequest: something comes next."""
        if not self.done():
            self.refuse("this is not understood, so what it locks is not known")

    def refuse(self, why: str, step: str = NEXT_STEP) -> NoReturn:
        """:raises InvalidRequest: showing this place."""
        self.statement.refuse(self.token, why, step)

    def identifier(self) -> str:
        """A name, quoted or not."""
        token = self.token
        quoted = token is not None and token.token_type is TokenType.IDENTIFIER
        if token is None or not (quoted or token.text.replace("_", "a").isalnum()) or self.is_type(TokenType.STRING):
            self.refuse("a name is wanted here")
        self.at += 1
        return token.text

    def name(self) -> tuple[tuple[str, ...], Token]:
        """A name of one or more parts, and where it stands."""
        if self.sees("IDENTIFIER", "("):
            self.refuse(WHICH_NAME, step="")
        place = self.token
        parts = [self.identifier()]
        while self.is_type(TokenType.DOT):
            self.at += 1
            parts.append(self.identifier())
        assert place is not None
        return tuple(parts), place

    def string(self) -> str:
        """A string literal, as it is written between its quotes."""
        if not self.is_type(TokenType.STRING):
            self.refuse("a string is wanted here")
        return self.next().text

    def constant(self, values: Mapping[str, str | None] = MappingProxyType({})) -> str | None:
        """Pass the text that comes next, and give it; None where it is not known. See :func:`.texts.read`."""
        text, end = texts.read(self.statement.tokens, self.at, self.statement.text, values)
        self.at = self.at if text is None else end
        return text

    def skip_parentheses(self) -> None:
        """Pass a group in parentheses.

        :raises InvalidRequest: it holds a query.
        """
        self.expect("(")
        depth = 1
        while depth:
            word = self.word()
            if self.is_type(TokenType.SELECT):
                self.refuse("a query here is not understood")
            self.next()
            depth += (word == "(") - (word == ")")

    def listed(self, read: Callable[[], None]) -> None:
        """``(`` what *read* passes, several times, with commas in between ``)``."""
        self.expect("(")
        read()
        while self.comma():
            read()
        self.expect(")")

    def spec(self, *, compared: bool = False) -> Spec:
        """``PARTITION (column [= literal], …)``; with other signs if *compared*, as after ALTER TABLE … DROP."""
        place = self.token
        self.expect("PARTITION")
        assert place is not None
        levels: list[Level] = []
        self.listed(lambda: levels.append(self._level(compared)))
        return Spec(tuple(levels), place)

    def rest(self) -> list[Token]:
        """All that comes next; nothing comes after it."""
        found = list(self.statement.tokens[self.at :])
        self.at = len(self.statement.tokens)
        return found

    def optional_spec(self) -> Spec | None:
        """The same, if it comes next."""
        return self.spec() if self.sees("PARTITION") else None

    def _level(self, compared: bool) -> Level:
        column = self.identifier().lower()
        sign = next((sign for kind, sign in _SIGNS.items() if self.is_type(kind)), None)
        if sign is None and (self.done() or self.sees(")") or self.is_type(TokenType.COMMA)):
            return Level(column)
        if sign is None or (sign != "=" and not compared):
            takes = ", ".join(_SIGNS.values()) if compared else "only '='"
            self.refuse(
                f"PARTITION takes {takes} here", step=f"write {column}='value', or name reads and writes instead"
            )
        self.at += 1
        return Level(column, sign, self.literal())

    def literal(self) -> Literal:
        """A constant: string, number, date or NULL; of kind ``computed`` where it is an expression that is not worked out.

        :raises InvalidRequest: for a query, and for escapes, whose meaning depends on the engine.
        """
        place = self.token
        if self.take("NULL"):
            return Literal("", "string")
        if word := self.take_any("TRUE", "FALSE"):
            return Literal(word.lower(), "boolean")
        start = self.at
        kind = (self.take_any("DATE", "TIMESTAMP") or "STRING").lower()
        negative = kind == "string" and self.is_type(TokenType.DASH) and self._pass() == 0
        token = self.next()
        if token.token_type is TokenType.NUMBER and kind == "string":
            kind, text = "number", f"-{token.text}" if negative else token.text
            if self.is_type(TokenType.DCOLON):  # 100L is tokenized as 100::BIGINT
                self.at += 2
        elif token.token_type is TokenType.STRING and not negative:
            text = token.text
        else:
            kind, text = "computed", ""
        if not (self.is_type(TokenType.COMMA) or self.sees(")") or self.done()):
            kind, text = "computed", ""
        if kind == "computed":
            self.at = start
            return self._computed()
        if kind == "date":
            try:
                text = canonical(text, kind)
            except InvalidRequest as error:
                self.statement.refuse(place, str(error))
        if not texts.is_certain(token, self.statement.text):
            why = "a value with '\\' or a doubled quote means different things to Hive and Spark"
            self.statement.refuse(place, f"{why}, so it is not planned")
        return Literal(text, kind)

    def _computed(self) -> Literal:
        """Pass an expression up to the comma or parenthesis that ends it."""
        tokens, depth = [], 0
        while depth or not (self.done() or self.sees(")") or self.is_type(TokenType.COMMA)):
            token = self.next()
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            tokens.append(token)
            if token.token_type is TokenType.SELECT:
                self.statement.refuse(token, "a constant is wanted here, not a query")
        tree = expression(tokens, self.statement.text)
        found = constant(tree, uncertain(self.statement)) if tree is not None else None
        return found or Literal("", "computed")

    def _pass(self) -> int:
        self.at += 1
        return 0

    def _peek(self, ahead: int) -> Token | None:
        at = self.at + ahead
        return self.statement.tokens[at] if at < len(self.statement.tokens) else None
