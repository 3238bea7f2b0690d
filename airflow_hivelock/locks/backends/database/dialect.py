"""The differences between the databases. Everything else is SQLAlchemy's Core, the same for all of them."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import select, update

from airflow_hivelock.locks.pauses import jitter, pauses

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import URL, ColumnElement, Connection, Delete, Engine, TextClause, Update
    from sqlalchemy import Sequence as NumberSequence

    from airflow_hivelock.locks.backends.database.tables import StoreTables
    from airflow_hivelock.locks.backends.database.transaction import Answer, Received, Sent, StoreTransaction


@dataclass(frozen=True)
class Notified:
    """The changes that other processes have made.

    :param processes: acquisitions of this client that have to try again.
    :param places: requests that are gone or taken over.
    :param unsure: there may be more changes than these.
    """

    processes: frozenset[str] = frozenset()
    places: frozenset[int] = frozenset()
    unsure: bool = False


class Listener:
    """Polls for changes: at once after a new waiter, and then less and less often. One thread uses it.

    :param longest_s: the longest pause between two looks, in seconds; :func:`.jitter` makes it up to half longer.
    """

    FIRST_S = 0.01
    GROWTH = 1.1
    """A change is found late by about a tenth of the wait. If it were more, clients that wait for one another would add up
    their delays."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._begin()
        self._rung = threading.Event()

    def wait(self, most_s: float) -> Notified:
        """The changes since the last call, or the first change within *most_s* seconds."""
        deadline = time.monotonic() + most_s
        while (left_s := deadline - time.monotonic()) > 0:
            if self._rung.wait(min(left_s, jitter() * next(self._pauses))):
                self._rung.clear()
                self._begin()
                break
            if self.changed():
                return Notified(unsure=True)
        return Notified()

    def _begin(self) -> None:
        self._pauses = pauses(self.FIRST_S, self._longest_s, self.GROWTH)

    def changed(self) -> bool:
        """Whether there may be a change."""
        return True

    def sooner(self) -> None:
        """Poll often again because there is a new waiter. Any thread may call this."""
        self._rung.set()

    def interrupt(self) -> None:
        """Make :meth:`wait` return. Any thread may call this."""
        self._rung.set()

    def close(self) -> None:
        """Close the connection."""


READS_ONLY = "It only reads, as a standby does after a failover. Give the address of the primary, or make it writable"
IS_FULL = "Its disk is full. Free space there"


class DatabaseDialect(ABC):
    """One kind of database, for one set of tables in it.

    The default methods use one row, the store's, to keep requests apart and draw numbers. Waiters poll for changes.

    :cvar clock_us: the database's clock when a statement is run.
    :cvar OPTIONS: the driver's options that a URL can have, in addition to this package's.
    :cvar PASSING: the codes for :meth:`passing`; *CHANGED*, those for :meth:`changed`; *STEPS*, those for
        :meth:`next_step`, each with its text.
    :ivar sequence: draws numbers; None: the row of the store does.
    :ivar timeout_s: how long to wait for a connection, a lock or a statement, in seconds.
    """

    clock_us: ColumnElement[int]
    OPTIONS: ClassVar[Collection[str]] = ()
    PASSING: Collection[object] = ()
    CHANGED: Collection[object] = ()
    STEPS: ClassVar[Mapping[object, str]] = {}
    sequence: NumberSequence | None = None

    def __init__(self, tables: StoreTables, timeout_s: float) -> None:
        self.tables, self.timeout_s = tables, timeout_s
        self._draw = update(tables.store).values(number=tables.store.c.number + 1)

    @property
    def number(self) -> ColumnElement[int]:
        """A number larger than any that was drawn before; valid after :meth:`enter`."""
        return select(self.tables.store.c.number).scalar_subquery()

    def warnings(self, connection: Connection) -> list[str]:
        """Warnings about other roles that may change the schema; see :class:`~airflow_hivelock.locks.backend.Warns`."""
        return []

    @abstractmethod
    def engine(self, url: URL) -> Engine:
        """Make the pool of connections. Each statement is a transaction unless one is begun."""

    @abstractmethod
    def making(self, engine: Engine, key: int) -> AbstractContextManager[Connection]:
        """A connection for making tables. It keeps out other processes that use the same *key*."""

    def alone(self, connection: Connection) -> None:  # noqa: B027
        """Keep out all transactions that use the tables until this one ends. By default nothing: :meth:`making`, or a
        write of the store's row, does."""

    @abstractmethod
    def send(self, session: Any, statements: Sequence[Sent], *, begins: bool, commits: bool) -> list[Received]:
        """Send *statements* on the driver's connection, and read their answers.

        :param begins: and *commits*: begin the transaction before them, and commit it after them. Each statement reads
            what is committed when it begins.
        """

    def enter(self, transaction: StoreTransaction, keys: Mapping[int, bool]) -> None:
        """Keep out other transactions that use one of *keys*, until this one ends. Two may share a key that is False for
        both."""
        transaction.ask(self._draw)

    @abstractmethod
    def among(self, column: ColumnElement[int], name: str) -> ColumnElement[bool]:
        """Whether *column* is one of the :meth:`numbers` bound to *name*."""

    @abstractmethod
    def numbers(self, given: Iterable[int]) -> Any:
        """Any count of numbers as one bound value."""

    @abstractmethod
    def timestamp(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """A column of microseconds as a time, in this database's form."""

    @property
    @abstractmethod
    def insert_locks(self) -> TextClause:
        """The statement that writes rows of locks, bound to ``rows`` as JSON, for the request at ``of_place``.

        See :meth:`.StoreTables.insert_locks`.
        """

    def lost(self, session: Any) -> bool:
        """Whether the server is known to have ended this session. By default False."""
        return False

    def end(self, transaction: StoreTransaction, ended: Update, without_locks: Delete, **values: Any) -> Answer:
        """Run *ended*, which ends a request, and *without_locks*.

        The answer counts the request. In a database with notifications, its row has the value of ``watched``.
        """
        answer = transaction.ask(ended, **values)
        transaction.ask(without_locks, of_place=values["of_place"])
        return answer

    def notify_process(self, transaction: StoreTransaction, process: str) -> None:  # noqa: B027
        """Notify that acquisition when this is committed, so that it tries again. By default nothing: it polls."""

    def notify(self, transaction: StoreTransaction, place: int) -> None:  # noqa: B027
        """Notify the waiters of the request at *place*, and the processes that watch it, when this is committed."""

    def notify_group(self, transaction: StoreTransaction, group_key: int) -> None:  # noqa: B027
        """Notify the requests that wait for a lease of the group, when this is committed. By default nothing: they poll."""

    @abstractmethod
    def listener(self, engine: Engine, client: str) -> Listener:
        """Start to listen or poll for changes that concern the acquisitions of *client*."""

    def code(self, error: BaseException | None) -> object:
        """The database's own code for an error; None if it has none."""
        return None

    def passing(self, error: BaseException | None) -> bool:
        """Whether the transaction was the victim of another, and may be tried again."""
        return self.code(error) in self.PASSING

    def changed(self, error: BaseException | None) -> bool:
        """Whether a table or a column is missing."""
        return self.code(error) in self.CHANGED

    def next_step(self, error: BaseException | None) -> str:
        """What a person does if the database answers and cannot serve. Empty for other errors."""
        return self.STEPS.get(self.code(error), "")

    def denied(self, error: BaseException | None) -> bool:
        """Whether the database refuses this login, so that trying again does not help."""
        return False
