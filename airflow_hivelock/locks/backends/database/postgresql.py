"""PostgreSQL, by psycopg 3.

Advisory locks keep apart the requests that may conflict. One statement takes them in the order of their numbers. Rows
to lock (SELECT … FOR UPDATE) would have to exist first. SERIALIZABLE aborts a whole transaction if another reads what
it wrote: on a popular table, most transactions. Advisory locks need no row, leave no dead row, and let readers of a
table pass each other. They belong to the transaction, not to the session.

A waiter locks the row that it waits for until its own row is committed. So the transaction that ends that row sees
every waiter, and notifies it. Statements wait until an answer is read, and then go to the server in one pipeline.
"""

from __future__ import annotations

import re
import selectors
import socket
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Sequence,
    Text,
    any_,
    bindparam,
    cast,
    create_engine,
    event,
    func,
    literal_column,
    select,
    text,
    union_all,
)

from airflow_hivelock.locks.backends.database.dialect import IS_FULL, READS_ONLY, DatabaseDialect, Listener, Notified
from airflow_hivelock.locks.backends.database.postgresql_session import (
    ENCODING,
    PARAMETERS,
    DeadlineConnection,
    SessionFactory,
)
from airflow_hivelock.locks.backends.database.record import CLIENT_LENGTH
from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.locks.url import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlalchemy import (
        URL,
        ColumnElement,
        CompoundSelect,
        Connection,
        Delete,
        Engine,
        Select,
        TextClause,
        Update,
    )

    from airflow_hivelock.locks.backends.database.tables import StoreTables
    from airflow_hivelock.locks.backends.database.transaction import Answer, Received, Sent, StoreTransaction

_LOCK = text(
    "SELECT CASE WHEN exclusive THEN pg_advisory_xact_lock(key) ELSE pg_advisory_xact_lock_shared(key) END "
    "FROM unnest(:keys, :exclusive) AS wanted (key, exclusive)"
).bindparams(bindparam("keys", type_=ARRAY(BigInteger)), bindparam("exclusive", type_=ARRAY(Boolean)))

_PUBLIC_CREATES = text("SELECT has_schema_privilege('public', :schema, 'CREATE')")

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""Each statement after a lock sees what the last holder of the lock has committed."""

_NOTIFY = text("SELECT pg_notify(:channel, :payload)")

_PLACE = re.compile("[0-9]{1,19}")
"""The number of a request in a notification. Every role of the database may notify every channel, with any text."""

_DENIED = ("28000", "28P01", "42501")  # invalid_authorization_specification, invalid_password, insufficient_privilege
_DENIED_TEXT = re.compile(
    r"password|authentication|pg_hba|certificate|private key|does not match host name|role .* does not exist|not support SSL|"
    r"SSL error(?!: unexpected eof)|permission denied for database|not permitted to log in"
)
"""libpq gives no code when it cannot connect. A server that dies in the handshake is no refusal."""


class PostgreSQL(DatabaseDialect):
    """See :class:`DatabaseDialect`."""

    clock_us: ColumnElement[int] = literal_column(
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint", BigInteger
    )

    OPTIONS = frozenset(each.keyword.decode() for each in psycopg.pq.Conninfo.get_defaults())

    PASSING = ("40001", "40P01", "26000")
    """serialization_failure, deadlock_detected, and invalid_sql_statement_name: a prepared statement is gone with a
    pooler's session."""

    CHANGED = ("42703", "42P01")
    STEPS: ClassVar = {"25006": READS_ONLY, "53100": IS_FULL}  # read_only_sql_transaction, disk_full
    """undefined_column, undefined_table."""

    sequence: Sequence

    def __init__(self, tables: StoreTables, timeout_s: float) -> None:
        super().__init__(tables, timeout_s)
        self._channel = f"airflow_hivelock {tables.key:x}"
        self._ends: dict[Update, Update] = {}
        self.sequence = Sequence(f"{tables.prefix}number", schema=tables.schema or None)

    @property
    def number(self) -> ColumnElement[int]:
        return self.sequence.next_value()

    def engine(self, url: URL) -> Engine:
        sessions = SessionFactory(shown(url.render_as_string(hide_password=False)), self.timeout_s)
        defaults = {"connect_timeout": str(max(2, round(self.timeout_s))), **PARAMETERS}
        engine = create_engine(
            url.set(drivername="postgresql+psycopg", query={**defaults, **url.query, **ENCODING}),
            isolation_level="AUTOCOMMIT",
            pool_timeout=self.timeout_s,
            # SQLAlchemy's transactions end by themselves, and each of the driver's is one statement
            pool_reset_on_return=None,
        )

        @event.listens_for(engine, "do_connect")
        def connect(dialect: Any, record: Any, args: Any, settings: Any) -> DeadlineConnection:
            return sessions.open(args, settings)

        return engine

    def warnings(self, connection: Connection) -> list[str]:
        schema = self.tables.schema
        if not connection.scalar(_PUBLIC_CREATES, {"schema": schema}):
            return []
        return [
            f"every role of this database may create tables and functions in {schema}, where the locks are kept. "
            f"Run REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC"
        ]

    @contextmanager
    def making(self, engine: Engine, key: int) -> Iterator[Connection]:
        with engine.execution_options(isolation_level="READ COMMITTED").begin() as connection:
            connection.execute(_LOCK, {"keys": [key], "exclusive": [True]})
            yield connection

    def alone(self, connection: Connection) -> None:
        # A grant's first statement locks the tables in this order. In another order, the two could wait for each other.
        tables = self.tables
        names = (table.name for table in (tables.request, tables.store, tables.lock, tables.audit))
        qualified = ", ".join(f"{tables.schema}.{name}" if tables.schema else name for name in names)
        connection.execute(text(f"LOCK TABLE {qualified} IN ACCESS EXCLUSIVE MODE"))

    def send(self, session: Any, statements: Iterable[Sent], *, begins: bool, commits: bool) -> list[Received]:
        if begins and commits and len(asked := list(statements)) == 1:
            return [_received(session.cursor(row_factory=dict_row).execute(*asked[0]))]
        whole = begins and commits  # the server runs a pipeline as one transaction
        with session.batch(ends=commits):
            if begins and not whole:
                session.execute(_BEGIN)
            cursors = [
                session.cursor(row_factory=dict_row).execute(statement, values) for statement, values in statements
            ]
            if commits and not whole:
                session.execute("COMMIT")
        return [_received(cursor) for cursor in cursors]

    def enter(self, transaction: StoreTransaction, keys: Mapping[int, bool]) -> None:
        ordered = sorted(keys)
        transaction.ask(_LOCK, keys=ordered, exclusive=[keys[key] for key in ordered])

    def among(self, column: ColumnElement[int], name: str) -> ColumnElement[bool]:
        return column == any_(bindparam(name, type_=ARRAY(BigInteger)))

    def numbers(self, given: Iterable[int]) -> list[int]:
        return list(given)

    def timestamp(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.to_timestamp(column / literal_column("1000000.0"))

    @cached_property
    def insert_locks(self) -> TextClause:
        return self.tables.insert_locks(
            "jsonb_to_recordset(CAST(:rows AS jsonb)) AS it (position integer, object_key bigint, db_name text, "
            "table_name text, partition_name text, lease_type text)",
            "it.{}",
        )

    def lost(self, session: Any) -> bool:
        return bool(session.closed)

    def end(self, transaction: StoreTransaction, ended: Update, without_locks: Delete, **values: Any) -> Answer:
        # Not as one statement: its DELETE would miss rows that were inserted while its UPDATE waited for the request's row.
        if ended not in self._ends:
            self._ends[ended] = ended.returning(self.tables.request.c.watched)
        return super().end(transaction, self._ends[ended], without_locks, **values)

    def notify_process(self, transaction: StoreTransaction, process: str) -> None:
        transaction.ask(_NOTIFY, channel=f"{self._channel} {process[:CLIENT_LENGTH]}", payload=process)

    def notify(self, transaction: StoreTransaction, place: int) -> None:
        transaction.ask(self._notify_waiters, of_place=place)

    def notify_group(self, transaction: StoreTransaction, group_key: int) -> None:
        request = self.tables.request.c
        parked = request.group_key == group_key, self.tables.in_state("parked")
        transaction.ask(self._notify_each.where(*parked))

    @cached_property
    def _notify_each(self) -> Select[Any]:
        """Notifies the processes of requests."""
        request = self.tables.request.c
        channel = f"{self._channel} " + func.substr(request.process, 1, CLIENT_LENGTH)
        return select(func.pg_notify(channel, request.process))

    @cached_property
    def _notify_waiters(self) -> CompoundSelect[Any]:
        request = self.tables.request.c
        waiters = self._notify_each.where(self.tables.waits_for_it)
        notify = func.pg_notify(self._channel, cast(request.place, Text))
        watchers = select(notify).where(request.place == bindparam("of_place"), request.watched > 0)
        return union_all(waiters, watchers)

    def listener(self, engine: Engine, client: str) -> PostgreSQLListener:
        return PostgreSQLListener(engine, self._channel, f"{self._channel} {client}")

    def code(self, error: BaseException | None) -> object:
        return getattr(error, "sqlstate", None)

    def denied(self, error: BaseException | None) -> bool:
        code = self.code(error)
        connects = getattr(error, "pgconn", None) is not None  # only then is a text without a code a refusal
        return code in _DENIED or (code is None and connects and bool(_DENIED_TEXT.search(str(error))))


def _received(cursor: Any) -> Received:
    # The cursor's description would make an object for each column.
    return cursor.rowcount, cursor.fetchall() if cursor.pgresult.nfields else ()


class PostgreSQLListener(Listener):
    """A session that listens, outside the pool.

    :param channel: carries the places of requests.
    :param own: carries the names of acquisitions of this client.
    """

    def __init__(self, engine: Engine, channel: str, own: str) -> None:
        self._own = own
        self._connection = engine.connect()
        self._session: psycopg.Connection[Any] = self._connection.connection.driver_connection  # type: ignore[assignment]
        self._connection.detach()
        for name in (channel, own):
            self._connection.exec_driver_sql(f'LISTEN "{name}"')
        self._bell, self._button = socket.socketpair()
        self._button.setblocking(False)
        self._selector = selectors.DefaultSelector()
        for source in (self._session, self._bell):
            self._selector.register(source, selectors.EVENT_READ)

    def wait(self, most_s: float) -> Notified:
        if any(key.fileobj is self._bell for key, _ in self._selector.select(most_s)):
            self._bell.recv(4096)
        try:
            notices = list(self._session.notifies(timeout=0))
        except psycopg.Error as error:
            raise StoreUnavailable(f"the session that listens for changes has ended: {error}") from error
        places = (notice.payload for notice in notices if notice.channel != self._own)
        return Notified(
            frozenset(notice.payload for notice in notices if notice.channel == self._own),
            frozenset(int(place) for place in places if _PLACE.fullmatch(place)),
        )

    def sooner(self) -> None:
        """Do nothing: the server notifies it."""

    def interrupt(self) -> None:
        with suppress(OSError):  # the buffer is full of earlier calls, or the socket is closed
            self._button.send(b".")

    def close(self) -> None:
        self._selector.close()
        self._bell.close()
        self._button.close()
        self._connection.invalidate()  # the server may be gone, so do not end the session politely
        self._session.close()
