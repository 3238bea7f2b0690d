"""What the databases do in different ways. The rest is SQLAlchemy's Core, the same for all of them."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import select, update

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import URL, ColumnElement, Connection, Delete, Engine, TextClause, Update
    from sqlalchemy import Sequence as NumberSequence

    from airflow_hivelock.locks.backends.database.tables import StoreTables
    from airflow_hivelock.locks.backends.database.transaction import Answer, Received, Sent, StoreTransaction


@dataclass(frozen=True)
class Heard:
    """What other processes have done.

    :param processes: acquisitions of this client that have to look again.
    :param places: requests that are gone or taken over.
    :param unsure: there may be more changes than these.
    """

    processes: frozenset[str] = frozenset()
    places: frozenset[int] = frozenset()
    unsure: bool = False


_random = random.SystemRandom()
"""It has no state. To draw from the module's generator disturbs a program that has seeded it, and forked workers that share a
state would pause for the same times."""


def jitter() -> float:
    """A factor for a pause, so that clients which wait for each other do not all ask at once."""
    return _random.uniform(0.5, 1.5)


class Listener:
    """Looks for changes, soon after a waiter has come and then less and less often. One thread uses it.

    :param longest_s: the longest pause between two looks, in seconds.
    """

    FIRST_S = 0.01

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._pause_s = self.FIRST_S
        self._rung = threading.Event()

    def wait(self, most_s: float) -> Heard:
        """What has changed since the last call, or what changes first within *most_s* seconds."""
        deadline = time.monotonic() + most_s
        while (left_s := deadline - time.monotonic()) > 0:
            if self._rung.wait(min(left_s, jitter() * self._pause_s)):
                self._rung.clear()
                self._pause_s = self.FIRST_S
                break
            self._pause_s = min(1.5 * self._pause_s, self._longest_s)
            if self.changed():
                return Heard(unsure=True)
        return Heard()

    def changed(self) -> bool:
        """Whether there may be a change."""
        return True

    def sooner(self) -> None:
        """There is a new waiter: look often again. Any thread may call this."""
        self._rung.set()

    def interrupt(self) -> None:
        """Have :meth:`wait` return. Any thread may call this."""
        self._rung.set()

    def close(self) -> None:
        """End the connection."""


class DatabaseDialect(ABC):
    """One kind of database, for one set of tables in it. By default one row, the store's, keeps requests apart and draws
    numbers, and waiters look for changes.

    :cvar clock_us: the database's clock when a statement is run.
    :ivar sequence: draws numbers; None: the row of the store does.
    :ivar timeout_s: how long to wait for a connection, a lock or a statement.
    """

    clock_us: ColumnElement[int]
    sequence: NumberSequence | None = None

    def __init__(self, tables: StoreTables, timeout_s: float) -> None:
        self.tables, self.timeout_s = tables, timeout_s
        self._draw = update(tables.store).values(number=tables.store.c.number + 1)

    @property
    def number(self) -> ColumnElement[int]:
        """A number larger than any that was drawn before; after :meth:`enter`."""
        return select(self.tables.store.c.number).scalar_subquery()

    def warnings(self, connection: Connection) -> list[str]:
        """Who else may change what the tables are in; see :class:`~airflow_hivelock.locks.backend.Warns`."""
        return []

    @abstractmethod
    def engine(self, url: URL) -> Engine:
        """The connections. Each statement is a transaction unless one is begun."""

    @abstractmethod
    def making(self, engine: Engine, key: int) -> AbstractContextManager[Connection]:
        """A connection that makes tables. It keeps out other processes that name the same *key*."""

    @abstractmethod
    def send(self, session: Any, statements: Sequence[Sent], *, begins: bool, commits: bool) -> list[Received]:
        """Send *statements* on the driver's connection, and read their answers.

        :param begins: and *commits*: begin the transaction before them, and commit it after them. Each statement reads what
            is committed when it begins.
        """

    def enter(self, transaction: StoreTransaction, keys: Mapping[int, bool]) -> None:
        """Keep out, until the transaction ends, the others that name one of *keys*. Two may share a key if both have False."""
        transaction.ask(self._draw)

    @abstractmethod
    def among(self, column: ColumnElement[int], name: str) -> ColumnElement[bool]:
        """Whether *column* is one of the :meth:`numbers` bound to *name*."""

    @abstractmethod
    def numbers(self, given: Iterable[int]) -> Any:
        """Any count of numbers as one bound value."""

    @abstractmethod
    def timestamp(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """Microseconds, as this database shows a time."""

    @property
    @abstractmethod
    def insert_locks(self) -> TextClause:
        """Writes rows of locks, bound to ``rows`` as JSON, for the request at ``of_place``; see :meth:`.StoreTables.insert_locks`."""

    def end(self, transaction: StoreTransaction, ended: Update, without_locks: Delete, **values: Any) -> Answer:
        """Run *ended*, which ends a request, and *without_locks*.

        The answer counts the request. Where waiters are notified, its row tells by whom the request is ``watched``.
        """
        answer = transaction.ask(ended, **values)
        transaction.ask(without_locks, of_place=values["of_place"])
        return answer

    def call(self, transaction: StoreTransaction, process: str) -> None:  # noqa: B027
        """Have that acquisition look again when this is committed. By default it looks by itself."""

    def tell(self, transaction: StoreTransaction, place: int) -> None:  # noqa: B027
        """Notify the waiters of the request at *place*, and the processes that watch it, when this is committed."""

    @abstractmethod
    def listener(self, engine: Engine, client: str) -> Listener:
        """Hears or looks, from now on, for what concerns the acquisitions of *client*."""

    def passing(self, error: BaseException | None) -> bool:
        """Whether the transaction was the victim of another, and may be tried again."""
        return False

    def denied(self, error: BaseException | None) -> bool:
        """Whether the database refuses this login, and would the next time."""
        return False
