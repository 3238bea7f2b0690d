"""From text to statements. Words come from sqlglot's Hive tokenizer; the grammar is Hive 2.3's, where Hive has one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, NoReturn, TypeVar

from sqlglot import Token, TokenType
from sqlglot.dialects.hive import Hive
from sqlglot.errors import TokenError

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.settings import Setting
from airflow_hivelock.locks.model import Lock, LockMode, LockObject
from airflow_hivelock.locks.model.object import DEFAULT_PARTITION
from airflow_hivelock.locks.statements import hints
from airflow_hivelock.locks.statements.statement import (
    SYNTAX,
    AbortTransactions,
    AcquireLock,
    DropForceLease,
    DropForceLock,
    DropLease,
    ExplainLocks,
    ExtendLease,
    GrabLease,
    SetLine,
    ShowLease,
    ShowLocks,
    ShowTransactions,
    ShowWaiters,
    Statement,
    Unlock,
    Use,
)

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

MAX_TEXT_LENGTH = 1_000_000
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # what Python makes of bytes that are not UTF-8
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
_LEASE_ID = re.compile(r"[A-Za-z0-9_.:]*-[A-Za-z0-9_.:-]*|[0-9]+", re.ASCII)
_QUERY_ID = re.compile(r"\S+")
_RESERVED = frozenset({"DATABASE", "EXTENDED", "PARTITION", "SCHEMA", "TABLE"})
"""Words that are no names here; in back quotes they are."""


class _Tokenizer(Hive.Tokenizer):
    COMMANDS: ClassVar[set[TokenType]] = set()  # or all that follows SHOW would be one string


def parse(text: str, database: str = "default") -> list[Statement]:
    """The statements of *text*, between ``;``.

    :param database: where names without one lie, until a ``USE``.
    :raises InvalidRequest: saying what was expected where. The statements are then none, not those before it.
    """
    statements: list[Statement] = []
    for tokens in _split(text):
        statement = _Parser(text, tokens, database).parse()
        if isinstance(statement, Use):
            database = statement.database
        statements.append(statement)
    return statements


def _split(text: str) -> list[list[Token]]:
    """The tokens of each statement that is not empty.

    :raises InvalidRequest: a quote or a comment does not end.
    """
    if len(text) > MAX_TEXT_LENGTH:
        raise InvalidRequest(f"{len(text):,} characters of statements; give at most {MAX_TEXT_LENGTH:,} at a time")
    if half := _HALF_CHARACTER.search(text):
        raise InvalidRequest(f"{_shown(text[half.start() :])}: the statements are not in UTF-8")
    try:
        tokens = _Tokenizer().tokenize(text)
    except TokenError as error:
        raise InvalidRequest(f"{_shown(text)}: a quote or a comment in it does not end") from error
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


class _Parser:
    """One statement, read from left to right."""

    def __init__(self, text: str, tokens: list[Token], database: str) -> None:
        self._text = text
        self._tokens = tokens
        self._database = database
        self._at = 0

    def parse(self) -> Statement:
        statement = self._statement()
        if self._at < len(self._tokens):
            self._refuse("the end of the statement")
        return statement

    def _statement(self) -> Statement:
        if self._take("SHOW", "LOCKS"):
            target = None if self._ended or self._sees("EXTENDED") else self._database_or_table()
            return ShowLocks(target, self._take("EXTENDED"))
        if self._take("LOCK"):
            return AcquireLock(self._kind_and_object(), self._mode(), self._slice(0))
        if self._take("UNLOCK"):
            return Unlock(self._kind_and_object())
        if self._take("SHOW", "LEASE"):
            target = None if self._take_type(TokenType.STAR) else self._table()
            return ShowLease(target, self._take("EXTENDED"))
        if self._take("GRAB", "LEASE"):
            return GrabLease(tuple(self._listed(self._lock)))
        if self._take("EXTEND", "LEASE"):
            return ExtendLease(self._lease_id())
        if self._take("DROP", "LEASE"):
            lease_id = self._lease_id()
            return DropLease(lease_id, tuple(self._listed(self._table)) if self._take("ON") else ())
        if self._take("SHOW", "WAITERS"):
            return ShowWaiters(None if self._ended else self._database_or_table())
        if self._take("SHOW", "TRANSACTIONS"):
            return ShowTransactions()
        if self._take("ABORT", "TRANSACTIONS"):
            return AbortTransactions(self._numbers())
        if self._take("DROP", "FORCE", "LEASE"):
            return DropForceLease(self._leases())
        if self._take("DROP", "FORCE", "LOCK"):
            return DropForceLock(self._query_id(), self._kind_and_object() if self._take("ON") else None)
        if self._take("EXPLAIN", "LOCKS"):
            if self._ended:
                self._refuse("the statement to explain")
            sql, self._at = self._slice(self._at), len(self._tokens)
            return ExplainLocks(sql, self._database)
        if self._take("USE"):
            return Use(LockObject(self._name()).database)
        if self._take("SET"):
            self._at = len(self._tokens)
            return SetLine(Setting.parse(self._slice(0)))
        text = self._slice(0)
        raise InvalidRequest(
            f"{_shown(text)} is not run here.{hints.beginning(text)} EXPLAIN LOCKS shows what another statement would lock. "
            "The statements are:",
            *SYNTAX.splitlines(),
        )

    def _kind_and_object(self) -> LockObject:
        if self._take("TABLE"):
            return self._table()
        if not self._sees("DATABASE") and not self._sees("SCHEMA"):
            self._refuse("TABLE or DATABASE")
        return self._database_or_table()

    def _database_or_table(self) -> LockObject:
        if self._take("DATABASE") or self._take("SCHEMA"):
            return LockObject(self._name())
        return self._table()

    def _table(self) -> LockObject:
        database, table = self._database, self._name()
        if self._take_type(TokenType.DOT):
            database, table = table, self._name()
        return LockObject(database, table, self._partition() if self._take("PARTITION") else ())

    def _partition(self) -> tuple[tuple[str, str], ...]:
        self._expect(TokenType.L_PAREN, "(")
        levels = [self._level()]
        while self._take_type(TokenType.COMMA):
            levels.append(self._level())
        self._expect(TokenType.R_PAREN, "')' or ','")
        columns = [column for column, _ in levels]
        if len(set(columns)) != len(columns):
            raise InvalidRequest(f"{_shown(self._slice(0))} names a partition column twice")
        return tuple(levels)

    def _level(self) -> tuple[str, str]:
        column = self._name().lower()
        self._expect(TokenType.EQ, "=")
        if _WHOLE_NUMBER.fullmatch(self._word()):
            self._at += 1
            return column, str(int(self._word(-1)))  # Hive, too, makes hr=5 of hr=05
        self._take("DATE")
        if not (value := self._string(f"the value of {column}, a whole number or in quotes,")):
            self._refuse(f"a value of {column} that is not empty (NULL is '{DEFAULT_PARTITION}')")
        return column, value

    def _string(self, what: str) -> str:
        """A string; Hive puts those together that stand in a row."""
        if self._type() is not TokenType.STRING:
            self._refuse(what)
        parts = []
        while self._take_type(TokenType.STRING):
            parts.append(unquote(self._slice(self._at - 1, self._at)))
        return "".join(parts)

    def _mode(self) -> LockMode:
        if self._word() not in LockMode.__members__:
            self._refuse("SHARED or EXCLUSIVE")
        self._at += 1
        return LockMode[self._word(-1)]

    def _leases(self) -> LockObject | str | None:
        if self._take_type(TokenType.STAR):
            return None
        if self._type() is TokenType.STRING:
            return self._string("a lease's id")
        rest = self._slice(self._at)
        if _LEASE_ID.fullmatch(rest):
            self._at = len(self._tokens)
            return rest
        return self._table()

    def _numbers(self) -> tuple[int, ...]:
        found: list[int] = []
        while not found or not self._ended:
            if not _WHOLE_NUMBER.fullmatch(self._word()):
                self._refuse("a transaction's id")
            self._at += 1
            found.append(int(self._word(-1)))
        return tuple(dict.fromkeys(found))

    def _lease_id(self) -> str:
        return self._id(_LEASE_ID, "a lease's id", "SHOW LEASE * lists it")

    def _query_id(self) -> str:
        """Hive's: ``hive_20261121215541_1d7b6662-c83a-…``; a user's name in it may be anything."""
        return self._id(_QUERY_ID, "the id of Hive's query", "LOCK_QUERYID of SHOW LOCKS … EXTENDED has it")

    def _id(self, form: re.Pattern[str], what: str, where: str) -> str:
        """In quotes or not; what follows it is ON, or nothing."""
        if self._type() is TokenType.STRING:
            return self._string(what)
        first = self._at
        while not self._ended and not self._sees("ON"):
            self._at += 1
        if not form.fullmatch(found := self._slice(first, self._at)):
            self._at = first
            self._refuse(f"{what}, as {where},")
        return found

    def _lock(self) -> Lock:
        return Lock(self._table(), self._mode())

    def _listed(self, one: Callable[[], T]) -> list[T]:
        """One, and more of them behind commas."""
        found = [one()]
        while self._take_type(TokenType.COMMA):
            found.append(one())
        return found

    def _name(self) -> str:
        """A database, table or column, as it is written; in back quotes or not."""
        quoted = self._type() is TokenType.IDENTIFIER
        if not quoted and (not _WORD.fullmatch(self._word()) or self._word() in _RESERVED):
            self._refuse("a name (in back quotes if it is a keyword or starts with a digit)")
        name = self._tokens[self._at].text
        if not name or not name.isascii():  # lower case would make a plain k of the Kelvin sign
            self._refuse("a name of letters, digits and '_'")
        self._at += 1
        return name

    def _sees(self, *words: str) -> bool:
        return all(self._word(ahead) == word for ahead, word in enumerate(words))

    def _take(self, *words: str) -> bool:
        if found := self._sees(*words):
            self._at += len(words)
        return found

    def _take_type(self, kind: TokenType) -> bool:
        found = self._type() is kind
        self._at += found
        return found

    def _expect(self, kind: TokenType, what: str) -> None:
        if not self._take_type(kind):
            self._refuse(what)

    def _type(self) -> TokenType | None:
        return None if self._ended else self._tokens[self._at].token_type

    def _word(self, ahead: int = 0) -> str:
        """What stands there, in upper case; quotes are part of it."""
        raw = self._slice(self._at + ahead, self._at + ahead + 1)
        return raw.upper() if raw.isascii() else ""  # upper case would make a plain S of the long s

    @property
    def _ended(self) -> bool:
        return self._at >= len(self._tokens)

    def _slice(self, first: int, last: int | None = None) -> str:
        """The text from one token to before another, or to the end."""
        tokens = self._tokens[first:last]
        return self._text[tokens[0].start : tokens[-1].end + 1] if tokens else ""

    def _refuse(self, expected: str) -> NoReturn:
        at = "at its end" if self._ended else f"at {_shown(self._slice(self._at))}"
        text = self._slice(0)
        raise InvalidRequest(f"{_shown(text)}: {expected} is expected {at}.{hints.of(text)}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}…")


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
