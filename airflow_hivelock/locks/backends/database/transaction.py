"""Transactions on the driver's own connection, in few round trips.

A statement is sent when an answer is read, or with the commit, together with all waiting ones. So code reads step by
step, while a lease costs few round trips. The statements are SQLAlchemy's and are compiled once. SQLAlchemy's own
execution takes longer than the driver and the database.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Dialect, Executable
    from sqlalchemy.sql.compiler import SQLCompiler

    Sent = tuple[str, Mapping[str, Any]]
    """A statement in the driver's form, with its bound values."""

    Received = tuple[int, Sequence[Mapping[str, Any]]]
    """How many rows a statement has changed or found, and the rows that it has returned."""


class Answer:
    """The answer to one statement; to read it sends the waiting statements."""

    __slots__ = ("_transaction", "received")

    def __init__(self, transaction: StoreTransaction) -> None:
        self._transaction = transaction
        self.received: Received | None = None

    @property
    def count(self) -> int:
        """How many rows were changed."""
        return self._read()[0]

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        return self._read()[1]

    def _read(self) -> Received:
        if self.received is None:
            self._transaction.flush()
        assert self.received is not None
        return self.received


class StoreTransaction:
    """One transaction; begun with its first statement. Used by one thread.

    :param send: sends statements; :meth:`.DatabaseDialect.send` on the driver's connection.
    :param compiler: SQLAlchemy's own part for this database.
    """

    def __init__(self, send: Callable[..., Sequence[Received]], compiler: Dialect) -> None:
        self._send, self._compiler = send, compiler
        self._waiting: list[tuple[Sent, Answer]] = []
        self._begun = False

    def ask(self, statement: Executable, /, **values: Any) -> Answer:
        """Send *statement* together with the next answer that is read, or with the commit."""
        compiled = compiled_for(self._compiler, statement)
        answer = Answer(self)
        self._waiting.append(((compiled.string, compiled.construct_params(values)), answer))
        return answer

    def flush(self, *, commits: bool = False) -> None:
        """Send the waiting statements, in one round trip where the database can."""
        waiting, self._waiting = self._waiting, []
        begins, self._begun = not self._begun and bool(waiting), self._begun or bool(waiting)
        if not self._begun:
            return
        received = self._send([sent for sent, _ in waiting], begins=begins, commits=commits)
        for (_, answer), one in zip(waiting, received, strict=True):
            answer.received = one


@lru_cache(maxsize=256)
def compiled_for(compiler: Dialect, statement: Any) -> SQLCompiler:
    """The text of *statement*, and its parameters, some with values of their own."""
    compiled: SQLCompiler = statement.compile(dialect=compiler)
    return compiled


def received(cursor: Any) -> Received:
    """The result of a driver's cursor."""
    if cursor.description is None:
        return cursor.rowcount, ()
    names = [column[0] for column in cursor.description]
    rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return max(cursor.rowcount, len(rows)), rows  # SQLite does not count the rows that a statement returns
