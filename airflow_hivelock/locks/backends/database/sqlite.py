"""SQLite: a file that the processes of one host share, its clock theirs.

One transaction writes at a time (BEGIN IMMEDIATE), so nothing else needs to be locked. Changes are not told: a thread
looks at the file's change counter (``PRAGMA data_version``), often at first and then less.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, bindparam, create_engine, delete, event, func, insert, literal_column, select, update

from airflow_hivelock.locks.backends.database.dialect import NOBODY, Change
from airflow_hivelock.locks.errors import InvalidRequest, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import URL, ColumnElement, Connection, Delete, Engine, Update

    from airflow_hivelock.locks.backends.database.tables import Tables

LOOK_S = (0.02, 0.25)
"""The shortest and the longest pause between two looks at the change counter."""


class SQLite:
    """See :class:`~airflow_hivelock.locks.backends.database.dialect.Dialect`."""

    # Julian days hold milliseconds, and no digit more.
    clock_us: ColumnElement[int] = literal_column(
        "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)", BigInteger
    )

    grants = False  # a statement is no round trip here

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._draw = update(tables.store).values(number=tables.store.c.number + 1)

    @property
    def number(self) -> ColumnElement[int]:
        return select(self._tables.store.c.number).scalar_subquery()

    def engine(self, url: URL, timeout_s: float) -> Engine:
        if not url.database or url.database == ":memory:":
            raise InvalidRequest(f"{url}: name a file, as in sqlite:///leases.db; memory:// keeps locks in memory")
        engine = create_engine(url, pool_timeout=timeout_s, connect_args={"timeout": timeout_s})
        event.listen(engine, "connect", _opened)
        event.listen(engine, "begin", _begun)
        return engine

    def transacting(self, engine: Engine) -> Engine:
        return engine

    writing = transacting

    def reading(self, engine: Engine) -> Engine:
        return engine.execution_options(begin="BEGIN")

    def lock(self, connection: Connection, keys: Mapping[int, bool]) -> None:
        """BEGIN IMMEDIATE has kept everybody out already."""

    def enter(self, connection: Connection, keys: Mapping[int, bool]) -> None:
        connection.execute(self._draw)

    def add_grant(self, connection: Connection) -> None:
        """There is none."""

    def grant(
        self,
        connection: Connection,
        asked: Mapping[str, Any],
        locks: Sequence[Mapping[str, Any]],
        keys: Mapping[int, bool],
    ) -> tuple[int, int] | None:
        return None

    def among(self, column: ColumnElement[int], name: str) -> ColumnElement[bool]:
        return column.in_(select(func.json_each(bindparam(name)).table_valued("value").c.value))

    def numbers(self, given: Iterable[int]) -> str:
        return json.dumps(list(given))

    def timestamp(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.strftime("%Y-%m-%d %H:%M:%f", column / literal_column("1000000.0"), "unixepoch")

    def add(
        self, connection: Connection, request: Mapping[str, Any] | None, locks: Sequence[Mapping[str, Any]]
    ) -> None:
        if request is not None:
            connection.execute(insert(self._tables.request), request)
        connection.execute(insert(self._tables.lock), locks)

    def end(self, connection: Connection, ended: Update, values: Mapping[str, Any]) -> tuple[int, int] | None:
        if not connection.execute(ended, values).rowcount:
            return None
        place = {"of_place": values["of_place"]}
        connection.execute(self._take_away, place)
        return values["of_place"], NOBODY

    @cached_property
    def _take_away(self) -> Delete:
        lock = self._tables.lock
        return delete(lock).where(lock.c.place == bindparam("of_place"))

    def call(self, connection: Connection, process: str) -> None:
        """The commit changes the counter that everybody looks at."""

    def tell(self, connection: Connection, place: int, audience: int) -> None:
        """The commit changes the counter that everybody looks at."""

    def ears(self, engine: Engine, client: str) -> SQLiteEars:
        return SQLiteEars(self.reading(engine))

    def passing(self, error: BaseException | None) -> bool:
        return False

    def denied(self, error: BaseException | None) -> bool:
        return False  # the file system does, at the first connection


class SQLiteEars:
    """A connection that looks at the change counter."""

    def __init__(self, engine: Engine) -> None:
        self._connection = engine.connect()
        self._connection.detach()
        self._interrupted = threading.Event()
        self._seen = -1

    def wait(self, most_s: float) -> Change:
        deadline, pause_s = time.monotonic() + most_s, LOOK_S[0]
        while True:  # a pause comes first, or all who wait would look at each commit of anybody's
            left = deadline - time.monotonic()
            if left <= 0 or self._interrupted.wait(min(pause_s, left)):
                self._interrupted.clear()
                return Change()
            version = self._version()
            if version != self._seen:
                self._seen = version
                return Change(unsure=True)
            pause_s = min(pause_s * 1.5, LOOK_S[1])

    def _version(self) -> int:
        try:
            cursor = self._connection.connection.cursor()  # outside a transaction, in which nothing would change
            return int(cursor.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the change counter cannot be read: {error}") from error

    def interrupt(self) -> None:
        self._interrupted.set()

    def close(self) -> None:
        self._connection.close()


def _opened(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # or the driver would begin transactions of its own
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _begun(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN IMMEDIATE"))
