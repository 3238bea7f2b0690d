"""Parses statements. sqlglot's Hive tokenizer makes the tokens. For Hive's statements the grammar is Hive 2.3's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from sqlglot import TokenType

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.settings import Setting
from airflow_hivelock.locks.model import Group, Lock, LockMode, LockObject
from airflow_hivelock.locks.model.object import DEFAULT_PARTITION
from airflow_hivelock.locks.plan.cursor import Tokens
from airflow_hivelock.locks.plan.sql import LockDialect, Sql
from airflow_hivelock.locks.statements import hints
from airflow_hivelock.locks.statements import statement as parsed

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.plan.sql import Statement as Part

T = TypeVar("T")

MAX_TEXT_LENGTH = 1_000_000
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # Python's surrogates for bytes that are not UTF-8
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
_LEASE_ID = re.compile(r"[A-Za-z0-9_.:]*-[A-Za-z0-9_.:-]*|[0-9]+", re.ASCII)
_QUERY_ID = _OWNER = re.compile(r"\S+")
_A_LEASE, _A_REQUEST = "a lease's id, as SHOW LEASE * lists it,", "the owner of a request, as SHOW WAITERS lists it,"
_RESERVED = frozenset({"DATABASE", "EXTENDED", "PARTITION", "SCHEMA", "TABLE"})
"""Words that are names only in back quotes."""


def parse(text: str, database: str = "default") -> list[parsed.Statement]:
    """The statements of *text*, which are separated by ``;``.

    :param database: the database of names without one, until a ``USE``.
    :raises InvalidRequest: one statement is malformed. The message has the place and the expected token.
    """
    statements: list[parsed.Statement] = []
    for part in _split(text):
        statement = _Parser(part, database).parse()
        if isinstance(statement, parsed.Use):
            database = statement.database
        statements.append(statement)
    return statements


def _split(text: str) -> tuple[Part, ...]:
    """The statements of *text* that are not empty, as tokens.

    :raises InvalidRequest: a quote or a comment does not end, or the text is too long or not UTF-8.
    """
    if len(text) > MAX_TEXT_LENGTH:
        raise InvalidRequest(f"the statements have {len(text):,} characters; run at most {MAX_TEXT_LENGTH:,} at a time")
    if half := _HALF_CHARACTER.search(text):
        raise InvalidRequest(f"{_shown(text[half.start() :])}: the statements are not in UTF-8")
    try:
        return Sql(text, LockDialect).statements
    except InvalidRequest as error:
        raise InvalidRequest(f"{_shown(text)}: a quote or a comment does not end") from error


class _Parser(Tokens):
    def __init__(self, statement: Part, database: str) -> None:
        super().__init__(statement)
        self._database = database

    def parse(self) -> parsed.Statement:
        statement = self._statement()
        if not self.done():
            self._refuse("the end of the statement")
        return statement

    def _statement(self) -> parsed.Statement:
        if self.take("SHOW", "LOCKS"):
            target = None if self.done() or self.sees("EXTENDED") else self._database_or_table()
            return parsed.ShowLocks(target, self.take("EXTENDED"))
        if self.take("LOCK"):
            return parsed.AcquireLock(self._kind_and_object(), self._mode(), self.written(0))
        if self.take("UNLOCK"):
            return parsed.Unlock(self._kind_and_object())
        if self.take("SHOW", "LEASE"):
            target = None if self.take_type(TokenType.STAR) else self._table()
            return parsed.ShowLease(target, self.take("EXTENDED"))
        if self.take("GRAB", "LEASE"):
            return parsed.GrabLease(tuple(self._listed(self._lock)))
        if self.take("RESERVE"):
            target = self._database_or_table()
            if not self.take("UNTIL"):
                self._refuse("UNTIL")
            until = self._string("a time in quotes, as in '06:00',")
            return parsed.Reserve(target, until, self._string("the reason in quotes") if self.take("REASON") else "")
        if self.take("EXTEND", "LEASE"):
            return parsed.ExtendLease(self._lease_id())
        if self.take("DROP", "LEASE"):
            lease_id = self._lease_id()
            return parsed.DropLease(lease_id, tuple(self._listed(self._table)) if self.take("ON") else ())
        if self.take("SHOW", "WAITERS"):
            return parsed.ShowWaiters(None if self.done() else self._database_or_table())
        if self.take("SHOW", "HISTORY"):
            return parsed.ShowHistory(*self._past())
        if self.take("SHOW", "AUDIT"):
            return parsed.ShowAudit(*self._past())
        if self.take("SHOW", "GROUPS"):
            return parsed.ShowGroups()
        if self.take("SET", "GROUP"):
            return self._set_group()
        if self.take("DROP", "GROUP"):
            return parsed.DropGroup(self._group())
        if self.take("SHOW", "TRANSACTIONS"):
            return parsed.ShowTransactions()
        if self.take("ABORT", "TRANSACTIONS"):
            return parsed.AbortTransactions(self._numbers())
        if self.take("DROP", "FORCE", "LEASE"):
            return parsed.DropForceLease(self._leases())
        if self.take("DROP", "FORCE", "REQUEST"):
            return parsed.DropForceRequest(self._owner())
        if self.take("ALTER", "FORCE", "REQUEST"):
            owner = self._owner()
            if not self.take("PRIORITY"):
                self._refuse("PRIORITY")
            return parsed.AlterForceRequest(
                owner, -self._number() if self.take_type(TokenType.DASH) else self._number()
            )
        if self.take("DROP", "FORCE", "LOCK"):
            return parsed.DropForceLock(self._query_id(), self._kind_and_object() if self.take("ON") else None)
        if self.take("EXPLAIN", "LOCKS"):
            if self.done():
                self._refuse("the statement to explain")
            sql = self.written(self.at)
            self.rest()
            return parsed.ExplainLocks(sql, self._database)
        if self.take("USE"):
            return parsed.Use(LockObject(self._name()).database)
        if self.take("SET"):
            self.rest()
            return parsed.SetLine(Setting.parse(self.written(0)), self.written(0))
        text = self.written(0)
        raise InvalidRequest(
            f"{_shown(text)} cannot run here.{hints.beginning(text)} EXPLAIN LOCKS shows another statement's locks. "
            "The statements are:",
            *parsed.SYNTAX.splitlines(),
        )

    def _set_group(self) -> parsed.SetGroup:
        name = self._group()
        if not self.take("LEASES"):
            self._refuse("LEASES, with the limit of the group,")
        leases, named = self._number(), dict[str, Any]()
        if self.take("WEIGHT"):
            named["weight"] = self._number()
        if self.take("COMMENT"):
            named["comment"] = self._string("the comment in quotes")
        return parsed.SetGroup(Group(name, leases, **named), tuple({"weight", "comment"} - named.keys()))

    def _group(self) -> str:
        what = "the name of a group (in quotes if it has a space), as SHOW GROUPS lists it,"
        return self._id(_OWNER, what, until="LEASES")

    def _number(self) -> int:
        if not _WHOLE_NUMBER.fullmatch(self._raw()):
            self._refuse("a whole number")
        self.at += 1
        return int(self._raw(-1))

    def _past(self) -> tuple[LockObject | None, str, int | None]:
        """The filters of past leases: an object or None, a part of an owner or "", and a limit or None."""
        named = not (self.done() or self.sees("OWNER") or self.sees("LIMIT"))
        target = self._database_or_table() if named else None
        owner = self._string("a part of the owner, in quotes,") if self.take("OWNER") else ""
        if not self.take("LIMIT"):
            return target, owner, None
        return target, owner, self._number()

    def _kind_and_object(self) -> LockObject:
        if self.take("TABLE"):
            return self._table()
        if not self.sees("DATABASE") and not self.sees("SCHEMA"):
            self._refuse("TABLE or DATABASE")
        return self._database_or_table()

    def _database_or_table(self) -> LockObject:
        if self.take_any("DATABASE", "SCHEMA"):
            return LockObject(self._name())
        return self._table()

    def _table(self) -> LockObject:
        database, table = self._database, self._name()
        if self.take_type(TokenType.DOT):
            database, table = table, self._name()
        return LockObject(database, table, self._partition() if self.take("PARTITION") else ())

    def _partition(self) -> tuple[tuple[str, str], ...]:
        self._expect(TokenType.L_PAREN, "(")
        levels = [self._level()]
        while self.comma():
            levels.append(self._level())
        self._expect(TokenType.R_PAREN, "')' or ','")
        columns = [column for column, _ in levels]
        if len(set(columns)) != len(columns):
            raise InvalidRequest(f"{_shown(self.written(0))} names a partition column twice")
        return tuple(levels)

    def _level(self) -> tuple[str, str]:
        column = self._name().lower()
        self._expect(TokenType.EQ, "=")
        if _WHOLE_NUMBER.fullmatch(self._raw()):
            self.at += 1
            return column, str(int(self._raw(-1)))  # Hive too reads hr=05 as hr=5
        self.take("DATE")
        if not (value := self._string(f"the value of {column}, a whole number or in quotes,")):
            self._refuse(f"a value of {column} that is not empty (NULL is '{DEFAULT_PARTITION}')")
        return column, value

    def _string(self, what: str) -> str:
        """Pass a string, and return its value. Hive concatenates adjacent strings."""
        if not self.is_type(TokenType.STRING):
            self._refuse(what)
        parts = []
        while self.take_type(TokenType.STRING):
            parts.append(unquote(self.written(self.at - 1, self.at)))
        return "".join(parts)

    def _quoted(self, what: str) -> str:
        """Pass a string that is not empty, and return its value."""
        first = self.at
        if not (found := self._string(what)).strip():
            self.at = first
            self._refuse(what)
        return found

    def _mode(self) -> LockMode:
        if not (mode := self.take_any(*LockMode.__members__)):
            self._refuse("SHARED or EXCLUSIVE")
        return LockMode[mode]

    def _leases(self) -> LockObject | str | None:
        if self.take_type(TokenType.STAR):
            return None
        if self.is_type(TokenType.STRING):
            return self._quoted(_A_LEASE)
        rest = self.written(self.at)
        if _LEASE_ID.fullmatch(rest):
            self.rest()
            return rest
        return self._table()

    def _numbers(self) -> tuple[int, ...]:
        found: list[int] = []
        while not found or not self.done():
            if not _WHOLE_NUMBER.fullmatch(self._raw()):
                self._refuse("a transaction's id")
            self.at += 1
            found.append(int(self._raw(-1)))
        return tuple(dict.fromkeys(found))

    def _lease_id(self) -> str:
        return self._id(_LEASE_ID, _A_LEASE)

    def _owner(self) -> str:
        """In quotes, or up to the next space: a part of its name may be any word."""
        if self.is_type(TokenType.STRING):
            return self._quoted(_A_REQUEST)
        first = self.at
        # Check only the new token with the one before it. A check of the whole owner each time would take quadratic time.
        while not self.done() and _OWNER.fullmatch(self.written(max(first, self.at - 1), self.at + 1)):
            self.at += 1
        if self.at == first:
            self._refuse(_A_REQUEST)
        return self.written(first, self.at)

    def _query_id(self) -> str:
        """An id like ``hive_20261121215541_1d7b6662-c83a-…``. It can contain a user's name, so any characters."""
        return self._id(
            _QUERY_ID, "the id of Hive's query, or of a lock in a metastore, as SHOW LOCKS … EXTENDED has it,"
        )

    def _id(self, form: re.Pattern[str], what: str, *, until: str = "ON") -> str:
        """Pass an id up to the word *until* or the end, and return it. It can be in quotes."""
        if self.is_type(TokenType.STRING):
            return self._quoted(what)
        first = self.at
        while not self.done() and not self.sees(until):
            self.at += 1
        if not form.fullmatch(found := self.written(first, self.at)):
            self.at = first
            self._refuse(what)
        return found

    def _lock(self) -> Lock:
        return Lock(self._table(), self._mode())

    def _listed(self, one: Callable[[], T]) -> list[T]:
        """Pass items that are separated by commas. *one* passes an item and returns it."""
        found = [one()]
        while self.comma():
            found.append(one())
        return found

    def _name(self) -> str:
        """Pass the name of a database, table or column, and return it. It can be in back quotes."""
        token, plain = self.token, _WORD.fullmatch(self._raw()) and self.word() not in _RESERVED
        if token is None or not (plain or self.is_type(TokenType.IDENTIFIER)):
            self._refuse("a name (in back quotes if it is a keyword or starts with a digit)")
        name = token.text
        if not name or not name.isascii():  # lower() turns the Kelvin sign into a plain k
            self._refuse("a name of letters, digits and '_'")
        self.at += 1
        return name

    def word(self, ahead: int = 0) -> str:
        raw = self._raw(ahead)
        return super().word(ahead) if raw.isascii() else ""  # upper() turns the long s into a plain S

    def _raw(self, ahead: int = 0) -> str:
        """The text of the token *ahead* tokens after the next, with its quotes."""
        return self.written(self.at + ahead, self.at + ahead + 1)

    def _expect(self, kind: TokenType, what: str) -> None:
        if not self.take_type(kind):
            self._refuse(what)

    def _refuse(self, expected: str) -> NoReturn:
        at = "at its end" if self.done() else f"at {_shown(self.written(self.at))}"
        text = self.written(0)
        raise InvalidRequest(f"{_shown(text)}: {expected} is expected {at}.{hints.of(text)}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}…")


_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|([01][0-7]{2})|(.))", re.DOTALL)
_CHARACTERS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": r"\%", "_": r"\_"}


def unquote(literal: str) -> str:
    """The value of *literal*, which includes its quotes. ``'a''b'`` is two adjacent strings with the value ``ab``.

    As org.apache.hadoop.hive.ql.parse.BaseSemanticAnalyzer.unescapeSQLString in Hive 2.3.
    """
    return "".join(_ESCAPE.sub(_meaning, one or other) for one, other in _QUOTED.findall(literal))


def _meaning(escape: re.Match[str]) -> str:
    code, octal, character = escape.groups()
    if character == "u":
        raise InvalidRequest(f"{escape.string!r}: '\\u' is followed by four hexadecimal digits, as in '\\u00e9'")
    if code or octal:
        return chr(int(code, 16) if code else int(octal, 8))
    return _CHARACTERS.get(character, character)
