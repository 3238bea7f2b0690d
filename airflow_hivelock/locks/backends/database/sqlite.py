"""SQLite: a file that the processes of one host share, its clock theirs.

One transaction writes at a time (BEGIN IMMEDIATE), so nothing else needs to be locked. A waiter is told by a datagram,
on Linux; and a thread looks at the file's change counter (``PRAGMA data_version``), for what nobody could tell. A
datagram before the commit does no harm, for to look is to write, and has to wait for it.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import socket
import sqlite3
import time
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    bindparam,
    create_engine,
    event,
    func,
    literal_column,
    select,
    type_coerce,
    update,
)

from airflow_hivelock.locks.backends.database.dialect import Heard
from airflow_hivelock.locks.backends.database.record import CLIENT_LENGTH
from airflow_hivelock.locks.backends.database.transaction import received
from airflow_hivelock.locks.errors import InvalidRequest, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlalchemy import URL, ColumnElement, Connection, Delete, Engine, Executable, Update

    from airflow_hivelock.locks.backends.database.tables import StoreTables
    from airflow_hivelock.locks.backends.database.transaction import Answer, Received, Sent, StoreTransaction

BUSY_S = (0.001, 0.01)
"""The first and the longest pause before the file is tried again while another writes; about as much is waited."""

LOOK_S = 0.25
"""How often to look at the change counter."""


class SQLite:
    """See :class:`~airflow_hivelock.locks.backends.database.dialect.Dialect`."""

    # Julian days hold milliseconds, and no digit more. As a column, it would lend its text to the names of parameters.
    clock_us: ColumnElement[int] = type_coerce(
        literal_column("(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"), BigInteger
    )

    sequence = None
    insert_both = None
    notifies = True

    def __init__(self, tables: StoreTables) -> None:
        self._tables = tables
        self._timeout_s = 0.0
        self._ends: dict[Update, Update] = {}
        self._draw = update(tables.store).values(number=tables.store.c.number + 1)
        self._waiters = select(tables.request.c.process).where(tables.waits_for_it)

    @property
    def number(self) -> ColumnElement[int]:
        return select(self._tables.store.c.number).scalar_subquery()

    def warnings(self, connection: Connection) -> list[str]:
        return []

    def engine(self, url: URL, timeout_s: float) -> Engine:
        if not url.database or url.database == ":memory:":
            raise InvalidRequest(f"{url}: name a file, as in sqlite:///leases.db; memory:// keeps locks in memory")
        engine = create_engine(url, paramstyle="named", pool_timeout=timeout_s, connect_args={"timeout": timeout_s})
        event.listen(engine, "connect", partial(_opened, timeout_s))
        event.listen(engine, "begin", _begun)
        self._timeout_s = timeout_s
        return engine

    def reading(self, engine: Engine) -> Engine:
        return engine.execution_options(reads=True)

    @contextmanager
    def making(self, engine: Engine, key: int) -> Iterator[Connection]:
        with engine.connect() as connection:
            session = _driver(connection)
            self._begin(session)
            yield connection
            session.commit()

    def send(self, session: Any, statements: Iterable[Sent], *, begins: bool, commits: bool) -> list[Received]:
        if begins:
            self._begin(session)
        answers = [received(session.execute(statement, values)) for statement, values in statements]
        if commits:
            session.commit()
        return answers

    def enter(self, transaction: StoreTransaction, keys: Mapping[int, bool]) -> None:
        """BEGIN IMMEDIATE has kept out all others already."""
        transaction.ask(self._draw)

    def _begin(self, session: Any) -> None:
        session.execute("PRAGMA busy_timeout=0")
        try:
            _in_turn(session, "BEGIN IMMEDIATE", self._timeout_s)
        finally:
            session.execute(f"PRAGMA busy_timeout={round(1000 * self._timeout_s)}")

    def among(self, column: ColumnElement[int], name: str) -> ColumnElement[bool]:
        return column.in_(select(func.json_each(bindparam(name)).table_valued("value").c.value))

    def numbers(self, given: Iterable[int]) -> str:
        return json.dumps(list(given))

    def timestamp(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.strftime("%Y-%m-%d %H:%M:%f", column / literal_column("1000000.0"), "unixepoch")

    def end(self, transaction: StoreTransaction, ended: Update, without_locks: Delete, **values: Any) -> Answer:
        answer = transaction.ask(self._returning(ended), **values)
        transaction.ask(without_locks, of_place=values["of_place"])
        return answer

    def _returning(self, ended: Update) -> Update:
        if ended not in self._ends:
            self._ends[ended] = ended.returning(self._tables.request.c.watched)
        return self._ends[ended]

    @cached_property
    def insert_locks(self) -> Executable:
        return self._tables.insert_locks("json_each(:rows)", "json_extract(value, '$.{}')")

    def call(self, transaction: StoreTransaction, process: str) -> None:
        _call(process)

    def tell(self, transaction: StoreTransaction, place: int) -> None:
        for row in transaction.ask(self._waiters, of_place=place).rows:
            _call(row["process"])

    def listener(self, engine: Engine, client: str) -> SQLiteListener:
        return SQLiteListener(self.reading(engine), client)

    def passing(self, error: BaseException | None) -> bool:
        return False

    def denied(self, error: BaseException | None) -> bool:
        return False  # the file system does, at the first connection


class SQLiteListener:
    """A socket that hears, and a connection that looks at the change counter."""

    def __init__(self, engine: Engine, client: str) -> None:
        self._connection = engine.connect()
        self._connection.detach()
        self._hears, self._rings = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._rings.setblocking(False)
        self._called = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with suppress(OSError):  # a system that has no such names: it looks
            self._called.bind(_address(client))
        self._selector = selectors.DefaultSelector()
        for source in (self._hears, self._called):
            self._selector.register(source, selectors.EVENT_READ)
        self._seen = -1

    def wait(self, most_s: float) -> Heard:
        deadline = time.monotonic() + most_s
        while (left := deadline - time.monotonic()) > 0:
            if heard := self._selector.select(min(LOOK_S, left)):
                said = [os.read(key.fd, 2 * CLIENT_LENGTH) for key, _ in heard]
                return Heard(frozenset(process.decode("ascii", "replace") for process in said))
            version = self._version()
            if version != self._seen:
                self._seen = version
                return Heard(unsure=True)
        return Heard()

    def _version(self) -> int:
        try:
            cursor = self._connection.connection.cursor()  # outside a transaction, in which nothing would change
            return int(cursor.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the change counter cannot be read: {error}") from error

    def sooner(self) -> None:
        """It is told."""

    def interrupt(self) -> None:
        with suppress(OSError):  # rung so often that it is full, or closed
            self._rings.send(b"")

    def close(self) -> None:
        for opened in (self._selector, self._connection, self._hears, self._rings, self._called):
            opened.close()


def _call(process: str) -> None:
    # Where it is gone, or on no Linux, it finds that the commit has changed the counter that everybody looks at.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as voice:
        voice.sendto(process.encode(), socket.MSG_DONTWAIT, _address(process[:CLIENT_LENGTH]))


def _address(client: str) -> str:
    """A name of Linux's abstract namespace, which leaves no file behind."""
    return f"\0airflow_hivelock {client}"


def _opened(timeout_s: float, connection: Any, _record: object) -> None:
    connection.isolation_level = None  # or the driver would begin transactions of its own
    _in_turn(connection, "PRAGMA journal_mode=WAL", timeout_s)  # for which SQLite does not wait where the file is new
    connection.execute("PRAGMA synchronous=FULL").close()


def _begun(connection: Connection) -> None:
    if connection.get_execution_options().get("reads"):
        _driver(connection).execute("BEGIN")


def _driver(connection: Connection) -> Any:
    """The driver's own connection."""
    return connection.connection.driver_connection


def _in_turn(session: Any, statement: str, timeout_s: float) -> None:
    """Run what one connection at a time can; SQLite's own waiting soon sleeps for many transactions."""
    deadline, pause_s = time.monotonic() + timeout_s, BUSY_S[0]
    while True:
        try:
            session.execute(statement).close()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(0.5, 1.5) * pause_s)
        pause_s = min(1.5 * pause_s, BUSY_S[1])
