"""MySQL and MariaDB, by PyMySQL.

Requests that may conflict are kept apart by one row, the store's. Whoever enters draws its number there with the first
statement of the transaction: UPDATE … SET number = number + 1. That locks the row until the transaction ends, so that one
request at a time is decided, as in SQLite. Why not something finer:

- *GET_LOCK* belongs to the session. It outlives the transaction, has to be given back for certain, and of several servers on
  which one may write each has its own. It keeps apart whoever makes the tables, for DDL commits, and the session is
  closed after it.
- *A row for each table and owner*, locked in their order, would have to be there first. To insert it is to commit it, or to wait
  in a gap; nobody knows when it may go; and the number would still be one for all.
- *AUTO_INCREMENT* does not order: what it has drawn is committed in any order, and with several servers each counts in steps
  of its own.

The row ends with the transaction, and with the connection. It is not only locked but written, so that servers which compare what
transactions have written (Galera) refuse the second of two. What it costs is that a client which stands still in
between keeps all others waiting, until the server ends its transaction after ``timeout_s``.

Releases, renewals and signs of life do not enter: each is one row's UPDATE, which reads what is committed by then.

What a transaction asks without waiting for an answer goes to the server as one text of several statements. The driver puts
the values in, each escaped as a literal, as it does for one statement.

A transaction that was the victim of a deadlock (1213) is gone as a whole, and is tried again. One that has waited for a row for too
long (1205) is rolled back too, but not tried again: that is its caller's to do, who knows for how long.

Nobody can be told of anything. Whoever waits looks, all waiters of a process in one statement; soon after it has begun to wait, and
then less and less often.

Times are UTC_TIMESTAMP(6), of when a statement began: no time zone has a say in it. Texts are utf8mb4_bin, so that no two names are
one, whatever the server's collation.
"""

from __future__ import annotations

import random
import re
import threading
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pymysql
from sqlalchemy import (
    BigInteger,
    bindparam,
    create_engine,
    event,
    func,
    literal_column,
    select,
    text,
    update,
)

from airflow_hivelock.locks.backends.database.dialect import Heard
from airflow_hivelock.locks.backends.database.mysql_session import Login
from airflow_hivelock.locks.backends.database.transaction import received
from airflow_hivelock.locks.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlalchemy import URL, ColumnElement, Connection, Delete, Engine, Executable, Update

    from airflow_hivelock.locks.backends.database.tables import StoreTables
    from airflow_hivelock.locks.backends.database.transaction import Answer, Received, Sent, StoreTransaction

LOOK_S = (0.01, 1.0)
"""The first and the longest pause before it is looked again; about as much is waited."""

_PASSING = (1213, 3101)
"""ER_LOCK_DEADLOCK, which Galera says of a conflict too; ER_TRANSACTION_ROLLBACK_DURING_COMMIT, of group replication."""

_DENIED = (1044, 1045, 1130, 1142, 1143, 1227, 1370, 1698, 1820, 1862, 2026, 2061, 3118, 3159, 4151)
"""Of logins, accounts, hosts and grants; of TLS, which the server (2026) or this login (3159) lacks; of a plugin (2061)."""

_DENIED_SAID = re.compile(r"certificate|SSL|TLS")
"""The driver has one code for all that keeps it from connecting."""


class MySQL:
    """See :class:`~airflow_hivelock.locks.backends.database.dialect.Dialect`."""

    clock_us: ColumnElement[int] = literal_column(
        "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))", BigInteger
    )

    sequence = None
    insert_both = None
    notifies = False

    def __init__(self, tables: StoreTables) -> None:
        self._tables = tables
        self._timeout_s = 0.0
        self._draw = update(tables.store).values(number=tables.store.c.number + 1)

    @property
    def number(self) -> ColumnElement[int]:
        return select(self._tables.store.c.number).scalar_subquery()

    def warnings(self, connection: Connection) -> list[str]:
        return []

    def engine(self, url: URL, timeout_s: float) -> Engine:
        login = Login.of(url, timeout_s)
        self._timeout_s = timeout_s
        engine = create_engine(
            url.set(drivername="mysql+pymysql", query={}),
            isolation_level="AUTOCOMMIT",
            pool_timeout=timeout_s,
            pool_pre_ping=True,  # servers end sessions that are idle
            pool_reset_on_return=None,  # each transaction is ended here
            skip_autocommit_rollback=True,
        )

        @event.listens_for(engine, "do_connect")
        def connect(dialect: Any, record: Any, args: Any, settings: Any) -> Any:
            return login.open(settings)

        return engine

    def reading(self, engine: Engine) -> Engine:
        return engine

    @contextmanager
    def making(self, engine: Engine, key: int) -> Iterator[Connection]:
        with engine.connect() as connection:
            named = {"name": f"airflow_hivelock {key:x}", "most_s": self._timeout_s}
            if connection.execute(text("SELECT GET_LOCK(:name, :most_s)"), named).scalar() != 1:
                raise StoreUnavailable("another process has been making the tables for too long; try again")
            connection.detach()  # the lock ends with the session, which now ends with this block
            yield connection

    def send(self, session: Any, statements: Iterable[Sent], *, begins: bool, commits: bool) -> list[Received]:
        with session.cursor() as cursor:
            asked = [cursor.mogrify(statement, values) for statement, values in statements]
            cursor.execute(";\n".join([*(["BEGIN"] if begins else ()), *asked, *(["COMMIT"] if commits else ())]))
            answers = [received(cursor)]
            while cursor.nextset():
                answers.append(received(cursor))
        return answers[begins : len(answers) - commits]

    def enter(self, transaction: StoreTransaction, keys: Mapping[int, bool]) -> None:
        transaction.ask(self._draw)

    def among(self, column: ColumnElement[int], name: str) -> ColumnElement[bool]:
        return column.op("IN")(bindparam(name))  # the driver writes a tuple as a list of literals

    def numbers(self, given: Iterable[int]) -> tuple[int | None, ...]:
        return tuple(given) or (None,)  # which no number equals

    def timestamp(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.timestampadd(
            literal_column("MICROSECOND"), column, literal_column("TIMESTAMP'1970-01-01 00:00:00'")
        )

    def end(self, transaction: StoreTransaction, ended: Update, without_locks: Delete, **values: Any) -> Answer:
        answer = transaction.ask(ended, **values)
        transaction.ask(without_locks, of_place=values["of_place"])
        return answer

    @cached_property
    def insert_locks(self) -> Executable:
        return self._tables.insert_locks(
            "JSON_TABLE(:rows, '$[*]' COLUMNS (position INT PATH '$.position', object_key BIGINT PATH '$.object_key', "
            "db_name LONGTEXT PATH '$.db_name', table_name LONGTEXT PATH '$.table_name', "
            "partition_name LONGTEXT PATH '$.partition_name', lease_type VARCHAR(1) PATH '$.lease_type')) AS it",
            "it.{}",
        )

    def call(self, transaction: StoreTransaction, process: str) -> None:
        """It looks."""

    def tell(self, transaction: StoreTransaction, place: int) -> None:
        """They look."""

    def listener(self, engine: Engine, client: str) -> MySQLListener:
        return MySQLListener()

    def passing(self, error: BaseException | None) -> bool:
        return _code(error) in _PASSING

    def denied(self, error: BaseException | None) -> bool:
        code = _code(error)
        return code in _DENIED or (code == 2003 and bool(_DENIED_SAID.search(str(error))))


class MySQLListener:
    """Hears nothing, and has it be looked at everything."""

    def __init__(self) -> None:
        self._rung = threading.Event()
        self._pause_s = LOOK_S[0]

    def wait(self, most_s: float) -> Heard:
        if self._rung.wait(min(most_s, random.uniform(0.5, 1.5) * self._pause_s)):
            self._rung.clear()
            self._pause_s = LOOK_S[0]
            return Heard()
        self._pause_s = min(1.5 * self._pause_s, LOOK_S[1])
        return Heard(unsure=True)

    def sooner(self) -> None:
        self._rung.set()

    interrupt = sooner

    def close(self) -> None:
        """There is nothing to close."""


def _code(error: BaseException | None) -> object:
    return error.args[0] if isinstance(error, pymysql.Error) and error.args else None
