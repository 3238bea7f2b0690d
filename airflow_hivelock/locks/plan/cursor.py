"""Reads a statement token by token: words, names, literals and partition specifications."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from sqlglot import Token, TokenType

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model.object import DEFAULT_PARTITION
from airflow_hivelock.locks.plan import texts
from airflow_hivelock.locks.plan.condition import ALWAYS, Compare, Condition, Literal, all_of
from airflow_hivelock.locks.plan.constants import constant
from airflow_hivelock.locks.plan.sql import NEXT_STEP, WHICH_NAME, expression
from airflow_hivelock.locks.spelling import STRING, canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_hivelock.locks.plan.sql import Statement


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
    """One column of a partition specification. *value* is None for a dynamic column, and ``''`` for NULL."""

    column: str
    sign: str = "="
    value: Literal | None = None

    def condition(self, kind: str) -> Condition:
        """The condition of this level on a column of type *kind*."""
        value = self.value
        if value is None:
            return ALWAYS
        if self.sign == "=" and not value.text and value.kind != "computed":
            value = Literal(DEFAULT_PARTITION)
        if self.sign != "=" and value.kind == "number" and STRING.fullmatch(kind) and (text := value.kept(kind)):
            value = Literal(text)  # Hive converts the number to a string first: DROP PARTITION (hr > 10) drops hr=9
        return Compare(self.column, self.sign, value)


@dataclass(frozen=True)
class Spec:
    """A partition specification: ``PARTITION (dt='2013-01-01', hr)``.

    :param place: the first token.
    """

    levels: tuple[Level, ...]
    place: Token

    @property
    def static(self) -> bool:
        """Whether each column has a value."""
        return all(level.value is not None and level.sign == "=" for level in self.levels)

    def condition(self, kinds: Mapping[str, str] = MappingProxyType({})) -> Condition:
        """The condition that is true for the selected partitions.

        :param kinds: by column, the types that are known.
        """
        return all_of(level.condition(kinds.get(level.column, "")) for level in self.levels)


class Tokens:
    """A position in the tokens of a statement."""

    def __init__(self, statement: Statement, at: int = 0) -> None:
        self.statement = statement
        self.at = at

    @property
    def token(self) -> Token | None:
        """The next token; None at the end."""
        return self._peek(0)

    def word(self, ahead: int = 0) -> str:
        """The word *ahead* tokens after the next token, in upper case. Empty if that token is no word."""
        token = self._peek(ahead)
        return "" if token is None or token.token_type in _PUNCTUATION else " ".join(token.text.upper().split())

    def sees(self, *words: str) -> bool:
        """Whether the next tokens are these words."""
        return all(self.word(ahead) == word for ahead, word in enumerate(words))

    def take(self, *words: str) -> bool:
        """Pass these words if they are next. Return whether they were."""
        if found := self.sees(*words):
            self.at += len(words)
        return found

    def take_any(self, *words: str) -> str:
        """Pass the next word if it is one of these. Return it, or an empty string."""
        found = self.word() if self.word() in words else ""
        self.at += bool(found)
        return found

    def is_type(self, *types: TokenType) -> bool:
        """Whether the next token has one of these types."""
        token = self.token
        return token is not None and token.token_type in types

    def take_type(self, *types: TokenType) -> bool:
        """Pass the next token if it has one of these types. Return whether it had."""
        found = self.is_type(*types)
        self.at += found
        return found

    def comma(self) -> bool:
        """Pass the next token if it is a comma. Return whether it was."""
        return self.take_type(TokenType.COMMA)

    def done(self) -> bool:
        """Whether all tokens are passed."""
        return self.token is None

    def rest(self) -> list[Token]:
        """Pass all remaining tokens, and return them."""
        found = list(self.statement.tokens[self.at :])
        self.at = len(self.statement.tokens)
        return found

    def written(self, first: int, last: int | None = None) -> str:
        """The text from the token *first* up to the token before *last*, or up to the end."""
        tokens = self.statement.tokens[first:last]
        return self.statement.text[tokens[0].start : tokens[-1].end + 1] if tokens else ""

    def _peek(self, ahead: int) -> Token | None:
        at = self.at + ahead
        return self.statement.tokens[at] if at < len(self.statement.tokens) else None


class Cursor(Tokens):
    """Reads a statement of Hive or Spark."""

    def is_name(self, ahead: int = 0) -> bool:
        """Whether the token *ahead* tokens after the next can be a name, quoted or not."""
        token = self._peek(ahead)
        return token is not None and (token.token_type is TokenType.IDENTIFIER or self.word(ahead)[:1].isalnum())

    def expect(self, *words: str) -> None:
        """Pass these words.

        :raises InvalidRequest: the next tokens are different.
        """
        for word in words:
            if not self.take(word):
                self.refuse(f"{word} is missing here")

    def next(self) -> Token:
        """Pass the next token, and return it."""
        token = self.token
        if token is None:
            self.refuse("the statement is not complete")
        self.at += 1
        return token

    def end(self) -> None:
        """:raises InvalidRequest: some tokens remain."""
        if not self.done():
            self.refuse("this is not understood, so its locks are not known")

    def refuse(self, why: str, step: str = NEXT_STEP) -> NoReturn:
        """:raises InvalidRequest: showing the place of the next token."""
        self.statement.refuse(self.token, why, step)

    def identifier(self) -> str:
        """Pass a name, quoted or not, and return it."""
        token = self.token
        quoted = token is not None and token.token_type is TokenType.IDENTIFIER
        if token is None or not (quoted or token.text.replace("_", "a").isalnum()) or self.is_type(TokenType.STRING):
            self.refuse("a name is missing here")
        self.at += 1
        return token.text

    def name(self) -> tuple[tuple[str, ...], Token]:
        """Pass a name of one or more parts. Return the parts and the first token."""
        if self.sees("IDENTIFIER", "("):
            self.refuse(WHICH_NAME, step="")
        place = self.token
        parts = [self.identifier()]
        while self.take_type(TokenType.DOT):
            parts.append(self.identifier())
        assert place is not None
        return tuple(parts), place

    def string(self) -> str:
        """Pass a string literal, and return the text between its quotes."""
        if not self.is_type(TokenType.STRING):
            self.refuse("a string is missing here")
        return self.next().text

    def constant(self, values: Mapping[str, str | None] = MappingProxyType({})) -> str | None:
        """Pass a constant string, and return it. None if it is not known: see :func:`.texts.read`."""
        statement = self.statement
        text, end = texts.read(statement.tokens, self.at, statement.text, values, statement.markers)
        self.at = self.at if text is None else end
        return text

    def group(self) -> list[Token]:
        """Pass the next token, and with an opening parenthesis all tokens up to its end. Return them."""
        found: list[Token] = []
        depth = 0
        while not found or depth > 0:
            found.append(self.next())
            depth += (found[-1].token_type is TokenType.L_PAREN) - (found[-1].token_type is TokenType.R_PAREN)
        return found

    def upto_comma(self) -> list[Token]:
        """Pass the tokens up to the next comma outside parentheses, or to the end. Return them."""
        found: list[Token] = []
        while not self.done() and not self.is_type(TokenType.COMMA):
            found += self.group()
        return found

    def skip_parentheses(self) -> None:
        """Pass a group in parentheses.

        :raises InvalidRequest: the group contains a query.
        """
        if not self.sees("("):
            self.refuse("( is missing here")
        for token in self.group():
            if token.token_type is TokenType.SELECT:
                self.statement.refuse(token, "a query here is not understood")

    def listed(self, read: Callable[[], None]) -> None:
        """Pass a list in parentheses. *read* passes one item of the list."""
        self.expect("(")
        read()
        while self.comma():
            read()
        self.expect(")")

    def spec(self, *, compared: bool = False) -> Spec:
        """Pass ``PARTITION (column [= literal], …)``. *compared* allows other signs, as in ALTER TABLE … DROP."""
        place = self.token
        self.expect("PARTITION")
        assert place is not None
        levels: list[Level] = []
        self.listed(lambda: levels.append(self._level(compared)))
        return Spec(tuple(levels), place)

    def optional_spec(self) -> Spec | None:
        """Pass a partition specification, if there is one. None if there is none."""
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
        """Pass a constant, and return it. An expression of unknown value has the kind ``computed``.

        :raises InvalidRequest: a query, or a string with escapes, because their meaning depends on the engine.
        """
        place = self.token
        if self.take("NULL"):
            return Literal("", "string")
        if word := self.take_any("TRUE", "FALSE"):
            return Literal(word.lower(), "boolean")
        start = self.at
        kind = (self.take_any("DATE", "TIMESTAMP") or "STRING").lower()
        negative = kind == "string" and self.take_type(TokenType.DASH)
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
        """Pass an expression up to the comma or parenthesis after it. Return its value."""
        tokens: list[Token] = []
        while not (self.done() or self.sees(")") or self.is_type(TokenType.COMMA)):
            tokens += self.group()
        for token in tokens:
            if token.token_type is TokenType.SELECT:
                self.statement.refuse(token, "a query is not allowed here; a constant is needed")
        tree = expression(tokens, self.statement.text)
        found = constant(tree, self.statement.uncertain) if tree is not None else None
        return found or Literal("", "computed")
