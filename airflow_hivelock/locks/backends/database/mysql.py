"""MySQL and MariaDB, by PyMySQL.

One row, the store's, keeps apart the requests that may conflict. The first statement of a transaction draws its number
there, by UPDATE … SET number = number + 1. That locks the row until the transaction ends, so one request at a time is
decided. A client that stops in between keeps the others waiting until the server ends its transaction, after
``timeout_s``. Finer locks do not work:

- *GET_LOCK* belongs to the session, outlives the transaction, and exists on each server of a cluster separately.
- *A row for each table and owner* must exist before it is locked. No transaction knows when it may be deleted.
- *AUTO_INCREMENT* numbers are committed in any order.

The row is written and not only locked. Servers that compare what transactions have written (Galera) then refuse the
second of two. Releases, renewals and signs of life do not touch that row: each is one row's UPDATE.

Statements wait until an answer is read, and then go to the server in one text. The driver escapes the values as
literals, as it does for one statement. A victim of a deadlock (1213) is tried again. A transaction that waited too long
for a row (1205) is not: its caller knows how long to wait.
"""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import pymysql
from sqlalchemy import BigInteger, bindparam, create_engine, event, exc, func, literal_column, text

from airflow_hivelock.locks.backends.database.dialect import IS_FULL, READS_ONLY, DatabaseDialect, Listener
from airflow_hivelock.locks.backends.database.mysql_session import FILES, READ_ONLY_MODE, Login, check_writable
from airflow_hivelock.locks.backends.database.transaction import received
from airflow_hivelock.locks.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlalchemy import URL, ColumnElement, Connection, Engine, TextClause

    from airflow_hivelock.locks.backends.database.transaction import Received, Sent

LOOK_S = 1.0
"""The longest pause between two looks for changes, in seconds."""

FRESH_S = 1.0
"""A session that was used within this time, in seconds, is used again without a check, which would cost a round trip."""

_DENIED = (1044, 1045, 1130, 1142, 1143, 1227, 1370, 1698, 1820, 1862, 2026, 2061, 3118, 3159, 4151)
"""Codes about logins, accounts, hosts and grants; TLS that the server (2026) or this login (3159) lacks; a plugin
(2061)."""

_DENIED_TEXT = re.compile(r"certificate|SSL(?!: UNEXPECTED_EOF)|TLS")
"""The driver has only one code for every failure to connect, so the text has to distinguish them. A server that dies in
the handshake is no refusal."""


class MySQL(DatabaseDialect):
    """See :class:`DatabaseDialect`."""

    # UTC_TIMESTAMP does not depend on a time zone.
    clock_us: ColumnElement[int] = literal_column(
        "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))", BigInteger
    )

    OPTIONS = (*FILES, "ssl_mode", "unix_socket")

    PASSING = (1213, 3101)
    """ER_LOCK_DEADLOCK, also Galera's code for a conflict; ER_TRANSACTION_ROLLBACK_DURING_COMMIT, of group replication."""

    CHANGED = (1054, 1146)
    """ER_BAD_FIELD_ERROR, ER_NO_SUCH_TABLE."""

    STEPS: ClassVar = {
        **dict.fromkeys((1290, 1792, READ_ONLY_MODE), READS_ONLY),
        **dict.fromkeys((1021, 1114), IS_FULL),
        1049: "Correct the name of the database in the URL",
    }
    """ER_OPTION_PREVENTS_STATEMENT, ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION, ER_READ_ONLY_MODE; ER_DISK_FULL,
    ER_RECORD_FILE_FULL; ER_BAD_DB_ERROR."""

    def engine(self, url: URL) -> Engine:
        login = Login.of(url, self.timeout_s)
        engine = create_engine(
            url.set(drivername="mysql+pymysql", query={}),
            isolation_level="AUTOCOMMIT",
            pool_timeout=self.timeout_s,
            pool_reset_on_return=None,  # this package ends each transaction
            skip_autocommit_rollback=True,
        )

        @event.listens_for(engine, "do_connect")
        def connect(dialect: Any, record: Any, args: Any, settings: Any) -> Any:
            return login.open(settings)

        event.listen(engine, "checkin", _given_back)
        event.listen(engine, "checkout", _check)
        return engine

    @contextmanager
    def making(self, engine: Engine, key: int) -> Iterator[Connection]:
        with engine.connect() as connection:
            named = {"name": f"airflow_hivelock {key:x}", "most_s": self.timeout_s}
            if connection.execute(text("SELECT GET_LOCK(:name, :most_s)"), named).scalar() != 1:
                raise StoreUnavailable("another process takes too long to create the tables. Try again")
            connection.detach()  # the lock ends with the session, and the detached session ends with this block
            yield connection

    def send(self, session: Any, statements: Iterable[Sent], *, begins: bool, commits: bool) -> list[Received]:
        with session.cursor() as cursor:
            asked = [cursor.mogrify(statement, values) for statement, values in statements]
            cursor.execute(";\n".join([*(["BEGIN"] if begins else ()), *asked, *(["COMMIT"] if commits else ())]))
            answers = [received(cursor)]
            while cursor.nextset():
                answers.append(received(cursor))
        return answers[begins : len(answers) - commits]

    def among(self, column: ColumnElement[int], name: str) -> ColumnElement[bool]:
        return column.op("IN")(bindparam(name))  # the driver writes a tuple as a list of literals

    def numbers(self, given: Iterable[int]) -> tuple[int | None, ...]:
        return tuple(given) or (None,)  # no number equals NULL, and MySQL does not accept an empty list

    def timestamp(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.timestampadd(
            literal_column("MICROSECOND"), column, literal_column("TIMESTAMP'1970-01-01 00:00:00'")
        )

    @cached_property
    def insert_locks(self) -> TextClause:
        return self.tables.insert_locks(
            "JSON_TABLE(:rows, '$[*]' COLUMNS (position INT PATH '$.position', object_key BIGINT PATH '$.object_key', "
            "db_name LONGTEXT PATH '$.db_name', table_name LONGTEXT PATH '$.table_name', "
            "partition_name LONGTEXT PATH '$.partition_name', lease_type VARCHAR(1) PATH '$.lease_type')) AS it",
            "it.{}",
        )

    def listener(self, engine: Engine, client: str) -> Listener:
        return Listener(LOOK_S)

    def code(self, error: BaseException | None) -> object:
        return error.args[0] if isinstance(error, pymysql.Error) and error.args else None

    def denied(self, error: BaseException | None) -> bool:
        code = self.code(error)
        return code in _DENIED or (code == 2003 and bool(_DENIED_TEXT.search(str(error))))


def _given_back(session: Any, record: Any) -> None:
    record.info["used"] = time.monotonic()


def _check(session: Any, record: Any, proxy: object) -> None:
    """Find out whether the server has ended an idle session, or only reads by now; if so, the pool opens another."""
    if time.monotonic() - record.info.get("used", time.monotonic()) > FRESH_S:
        try:
            check_writable(session)
        except pymysql.Error as error:
            raise exc.DisconnectionError from error
