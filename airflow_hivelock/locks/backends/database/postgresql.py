"""PostgreSQL, by psycopg 3.

Requests that may conflict are kept apart by advisory locks, taken in the order of their numbers by one statement. Rows
to lock (SELECT … FOR UPDATE) would have to be there first, and SERIALIZABLE aborts the whole of a transaction wherever
another reads what it wrote: on a table that everybody wants, most of them. Advisory locks need no row, leave no dead
one, and let readers of one table pass each other. They are the transaction's: a session may be pooled.
"""

from __future__ import annotations

import selectors
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import ARRAY, BigInteger, Boolean, any_, bindparam, create_engine, func, literal_column, text

from airflow_hivelock.locks.backends.database.dialect import Change
from airflow_hivelock.locks.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import URL, ColumnElement, Connection, Engine

    from airflow_hivelock.locks.backends.database.tables import Tables

MAX_PAYLOAD = 7_900
"""Bytes of a notification; PostgreSQL takes less than 8,000."""

KEEPALIVES = {"keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"}
"""A session that only listens would else learn after two hours that nobody is there any more."""

_LOCK = text(
    "SELECT CASE WHEN exclusive THEN pg_advisory_xact_lock(key) ELSE pg_advisory_xact_lock_shared(key) END "
    "FROM unnest(:keys, :exclusive) AS wanted (key, exclusive)"
).bindparams(bindparam("keys", type_=ARRAY(BigInteger)), bindparam("exclusive", type_=ARRAY(Boolean)))

_TELL = text("SELECT pg_notify(:channel, :payload)")

_PASSING = ("40001", "40P01")  # serialization_failure, deadlock_detected


class PostgreSQL:
    """See :class:`~airflow_hivelock.locks.backends.database.dialect.Dialect`."""

    clock_us: ColumnElement[int] = literal_column(
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint", BigInteger
    )

    def engine(self, url: URL, timeout_s: float) -> Engine:
        most_ms = max(1, round(timeout_s * 1000))
        limits = f"-c statement_timeout={most_ms} -c idle_in_transaction_session_timeout={most_ms}"
        defaults = {"connect_timeout": str(max(2, round(timeout_s))), **KEEPALIVES}
        given = {name: value for name, value in url.query.items() if name != "options"}
        options = f"{limits} {url.query.get('options', '')}".strip()
        return create_engine(
            url.set(drivername="postgresql+psycopg", query={**defaults, **given, "options": options}),
            isolation_level="READ COMMITTED",  # each statement after a lock sees what its last holder has done
            pool_timeout=timeout_s,
        )

    def reading(self, engine: Engine) -> Engine:
        return engine.execution_options(isolation_level="AUTOCOMMIT")

    writing = reading

    def lock(self, connection: Connection, keys: Mapping[int, bool]) -> None:
        ordered = sorted(keys)
        connection.execute(_LOCK, {"keys": ordered, "exclusive": [keys[key] for key in ordered]})

    def number(self, connection: Connection, tables: Tables) -> ColumnElement[int]:
        return tables.sequence.next_value()

    def among(self, column: ColumnElement[int], name: str) -> ColumnElement[bool]:
        return column == any_(bindparam(name, type_=ARRAY(BigInteger)))

    def numbers(self, given: Iterable[int]) -> list[int]:
        return list(given)

    def timestamp(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.to_timestamp(column / literal_column("1000000.0"))

    def tell(self, connection: Connection, tables: Tables, place: int, units: Iterable[int]) -> None:
        payload = " ".join(map(str, (place, *units)))
        if len(payload) > MAX_PAYLOAD:
            payload = f"{place} *"
        connection.execute(_TELL, {"channel": channel(tables), "payload": payload})

    def ears(self, engine: Engine, tables: Tables) -> PostgreSQLEars:
        return PostgreSQLEars(self.reading(engine), tables)

    def passing(self, error: BaseException | None) -> bool:
        return getattr(error, "sqlstate", None) in _PASSING


class PostgreSQLEars:
    """A session that listens, outside the pool."""

    def __init__(self, engine: Engine, tables: Tables) -> None:
        self._connection = engine.connect()
        self._session: psycopg.Connection[Any] = self._connection.connection.driver_connection  # type: ignore[assignment]
        self._connection.detach()
        self._connection.exec_driver_sql(f'LISTEN "{channel(tables)}"')
        self._bell, self._button = socket.socketpair()
        self._button.setblocking(False)
        self._selector = selectors.DefaultSelector()
        for source in (self._session, self._bell):
            self._selector.register(source, selectors.EVENT_READ)

    def wait(self, most_s: float) -> Change:
        if any(key.fileobj is self._bell for key, _ in self._selector.select(most_s)):
            self._bell.recv(4096)
        try:
            return _change([notice.payload for notice in self._session.notifies(timeout=0)])
        except psycopg.Error as error:
            raise StoreUnavailable(f"the session that listens for changes has ended: {error}") from error

    def interrupt(self) -> None:
        with suppress(OSError):  # rung so often that it is full, or closed
            self._button.send(b".")

    def close(self) -> None:
        self._selector.close()
        self._bell.close()
        self._button.close()
        self._connection.close()


def _change(payloads: list[str]) -> Change:
    heard = [payload.split() for payload in payloads]
    units = {unit for _, *touched in heard for unit in touched}
    places = frozenset(int(place) for place, *_ in heard)
    return Change(places, None if "*" in units else frozenset(map(int, units)))


def channel(tables: Tables) -> str:
    """Where the changes of these tables are told."""
    return f"airflow_hivelock {tables.key:x}"
