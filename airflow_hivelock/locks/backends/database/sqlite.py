"""SQLite: a file that the processes of one host share, with the host's clock.

One transaction writes at a time (BEGIN IMMEDIATE), so nothing else is locked. SQLite notifies no process. Waiters poll
the file's change counter (``PRAGMA data_version``), which takes microseconds.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import BigInteger, bindparam, create_engine, event, exc, func, literal_column, select, type_coerce

from airflow_hivelock.locks.backends.database.dialect import IS_FULL, DatabaseDialect, Listener
from airflow_hivelock.locks.backends.database.transaction import received
from airflow_hivelock.locks.errors import InvalidRequest, StoreUnavailable
from airflow_hivelock.locks.pauses import jitter, pauses

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlalchemy import URL, ColumnElement, Connection, Engine, TextClause

    from airflow_hivelock.locks.backends.database.transaction import Received, Sent

BUSY_S = (0.001, 0.01)
"""The first and the longest pause while another process writes, in seconds. A writer needs about as long."""

LOOK_S = 0.05
"""The longest pause between two looks at the change counter, in seconds."""


_CHANGED = re.compile(r"no such (table|column)|has no column")
"""SQLite has one code for every error in a statement."""


class SQLite(DatabaseDialect):
    """See :class:`DatabaseDialect`."""

    # Julian days are exact to a millisecond. As a plain column, SQLAlchemy would use its text in the names of
    # parameters.
    clock_us: ColumnElement[int] = type_coerce(
        literal_column("(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"), BigInteger
    )

    STEPS: ClassVar = {
        sqlite3.SQLITE_BUSY: "Another process keeps the file locked. Try again, and look for a process that was stopped",
        sqlite3.SQLITE_CANTOPEN: "Check that its folder exists, and that this user may write there",
        sqlite3.SQLITE_FULL: IS_FULL,
        sqlite3.SQLITE_READONLY: "Let this user write the file and its folder",
    }

    def engine(self, url: URL) -> Engine:
        if not url.database or url.database == ":memory:":
            raise InvalidRequest(
                f"{url} names no file. Name one, as in sqlite:///leases.db. To keep locks in memory, use memory://"
            )
        settings: dict[str, Any] = {"connect_args": {"timeout": self.timeout_s}, "pool_timeout": self.timeout_s}
        engine = create_engine(url, paramstyle="named", isolation_level="AUTOCOMMIT", **settings)
        event.listen(engine, "connect", partial(_opened, self.timeout_s))
        return engine

    @contextmanager
    def making(self, engine: Engine, key: int) -> Iterator[Connection]:
        with engine.connect() as connection:
            session: Any = connection.connection.driver_connection
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

    def _begin(self, session: Any) -> None:
        session.execute("PRAGMA busy_timeout=0")
        try:
            _in_turn(session, "BEGIN IMMEDIATE", self.timeout_s)
        finally:
            session.execute(f"PRAGMA busy_timeout={round(1000 * self.timeout_s)}")

    def among(self, column: ColumnElement[int], name: str) -> ColumnElement[bool]:
        return column.in_(select(func.json_each(bindparam(name)).table_valued("value").c.value))

    def numbers(self, given: Iterable[int]) -> str:
        return json.dumps(list(given))

    def timestamp(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.strftime("%Y-%m-%d %H:%M:%f", column / literal_column("1000000.0"), "unixepoch")

    @cached_property
    def insert_locks(self) -> TextClause:
        return self.tables.insert_locks("json_each(:rows)", "json_extract(value, '$.{}')")

    def code(self, error: BaseException | None) -> object:
        return getattr(error, "sqlite_errorcode", 0) & 0xFF

    def changed(self, error: BaseException | None) -> bool:
        return bool(_CHANGED.search(str(error)))

    def listener(self, engine: Engine, client: str) -> SQLiteListener:
        return SQLiteListener(engine)


class SQLiteListener(Listener):
    """A connection that polls the change counter."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(LOOK_S)
        self._connection = engine.connect()
        self._connection.detach()
        self._seen = -1

    def changed(self) -> bool:
        seen = self._seen
        try:
            self._seen = int(self._connection.exec_driver_sql("PRAGMA data_version").scalar_one())
        except exc.DBAPIError as error:
            raise StoreUnavailable(f"the change counter cannot be read: {error}") from error
        return seen != self._seen

    def close(self) -> None:
        self._connection.close()


def _opened(timeout_s: float, connection: Any, _record: object) -> None:
    _in_turn(connection, "PRAGMA journal_mode=WAL", timeout_s)  # SQLite does not wait for that if the file is new
    connection.execute("PRAGMA synchronous=FULL").close()


def _in_turn(session: Any, statement: str, timeout_s: float) -> None:
    """Run a statement that one connection at a time can run.

    SQLite's own wait soon sleeps longer than many transactions take.
    """
    deadline = time.monotonic() + timeout_s
    for pause_s in pauses(*BUSY_S, 1.5):
        try:
            session.execute(statement).close()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(jitter() * pause_s)
