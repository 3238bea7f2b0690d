"""Audits the transactions of a database by triggers on the tables of the locks. Only tests make them.

The number of a change must follow the order of the commits:

- SQLite has one writer at a time, from its first statement to its commit. So the order of the changes is that of the commits.
- In PostgreSQL requests are only kept apart if they may conflict, and a release waits for no other. So the trigger is deferred: it
  runs at the commit, for each change of the transaction. It first takes a lock that is held until the transaction has ended. So one
  transaction at a time draws numbers and commits.
- In MariaDB, too, a release waits for no other. The trigger adds one to a row, for each change. That row is locked until the
  transaction has ended. This makes deadlocks. Their victims try again.

SQLite does not name transactions. So each process whose changes are audited calls :func:`name_transactions`. MariaDB does not
either, but with a binary log it names the last transaction of a session. A server that restarts numbers its sessions from 1 again,
so the name also has the time of its start, which is a part of ``UUID_SHORT()``.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sqlalchemy import event, text
from sqlalchemy.pool import Pool

from tests.system.histories.trace.rows import Change, RowTransaction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Row, Table

    from airflow_hivelock.locks.backends.database.store import Store

AUDITED = ("request", "lock", "audit", "group")

_TABLE = """
CREATE TABLE {changes} (
    number {number}, transaction_name TEXT, at_us BIGINT, drawn BIGINT, table_name TEXT, old {json}, new {json}
)
"""

_TYPES = {
    "postgresql": {"number": "BIGSERIAL PRIMARY KEY", "json": "JSONB"},
    "sqlite": {"number": "INTEGER PRIMARY KEY AUTOINCREMENT", "json": "TEXT"},
    "mysql": {"number": "BIGINT PRIMARY KEY", "json": "LONGTEXT"},
}

_POSTGRESQL = """
CREATE FUNCTION {changes}_note() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    drawn BIGINT := -1;
BEGIN
    PERFORM pg_advisory_xact_lock(3636, 3636);
    BEGIN
        drawn := currval('{sequence}');
    EXCEPTION WHEN object_not_in_prerequisite_state THEN
        NULL;
    END;
    INSERT INTO {changes} (transaction_name, at_us, drawn, table_name, old, new)
    VALUES (txid_current(), {clock_us}, drawn, TG_ARGV[0], to_jsonb(OLD), to_jsonb(NEW));
    RETURN NULL;
END
$$
"""

_DEFERRED = """
CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON {table} DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION {changes}_note('{name}')
"""

_MARIADB = """
CREATE TRIGGER {table}_{event} AFTER {event} ON {table} FOR EACH ROW BEGIN
    UPDATE {changes}_order SET number = number + 1;
    INSERT INTO {changes} (number, transaction_name, at_us, drawn, table_name, old, new)
    SELECT number, CONCAT(UUID_SHORT() >> 24, ' ', CONNECTION_ID(), ' ', @@last_gtid), {clock_us}, (SELECT number FROM {store}), '{name}', {old}, {new}
    FROM {changes}_order;
END
"""

_SQLITE = """
CREATE TRIGGER {table}_{event} AFTER {event} ON {table} BEGIN
    INSERT INTO {changes} (transaction_name, at_us, drawn, table_name, old, new)
    VALUES (transaction_name(), {clock_us}, (SELECT number FROM {store}), '{name}', {old}, {new});
END
"""


class Audit:
    """The audit of one set of tables, from its making."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changes = f"{store.tables.qualified}changes"
        store.make(self._make, store.tables.key)

    def transactions(self) -> list[RowTransaction]:
        """All that were committed, in their order."""
        query = text(f"SELECT * FROM {self._changes} ORDER BY number")
        rows = self._store.read(lambda connection: connection.execute(query).all())
        return [_transaction(list(changes)) for _, changes in groupby(rows, lambda row: row.transaction_name)]

    def _make(self, connection: Connection) -> None:
        for statement in self._statements():
            connection.exec_driver_sql(statement)

    def _statements(self) -> Iterator[str]:
        store, tables = self._store, self._store.tables
        known = {"changes": self._changes, "clock_us": store.clock_us, "store": f"{tables.qualified}store"}
        kind = store.url.get_backend_name()
        yield _TABLE.format(**known, **_TYPES[kind])
        if kind == "postgresql":
            yield _POSTGRESQL.format(sequence=f"{tables.qualified}number", **known)
        if kind == "mysql":
            yield "CREATE TABLE {changes}_order (number BIGINT)".format(**known)
            yield "INSERT INTO {changes}_order VALUES (0)".format(**known)
        for name in AUDITED:
            suffix = getattr(tables, name).name.removeprefix(tables.prefix)
            of_table = {"table": f"{tables.qualified}{suffix}", "name": name, **known}
            if kind == "postgresql":
                yield _DEFERRED.format(**of_table)
                continue
            for event_of in ("INSERT", "UPDATE", "DELETE"):
                old = _row(getattr(tables, name), "OLD", there=event_of != "INSERT")
                new = _row(getattr(tables, name), "NEW", there=event_of != "DELETE")
                template = _SQLITE if kind == "sqlite" else _MARIADB
                yield template.format(event=event_of, old=old, new=new, **of_table)


def _row(table: Table, which: str, *, there: bool) -> str:
    if not there:
        return "NULL"
    fields = (f"'{column.name}', {which}.{column.name}" for column in table.columns)
    return f"json_object({', '.join(fields)})"


def _transaction(changes: list[Row[Any]]) -> RowTransaction:
    first = changes[0]
    drawn = first.drawn if first.drawn and first.drawn > 0 else -first.number
    rows = tuple(Change(each.table_name, _read(each.old), _read(each.new)) for each in changes)
    return RowTransaction(drawn, first.at_us // 1000, rows)


def _read(row: Any) -> Any:
    return json.loads(row) if isinstance(row, str) else row


def name_transactions() -> None:
    """From now on, each of this process's connections with SQLite names its transactions."""
    if not event.contains(Pool, "connect", _names):
        event.listen(Pool, "connect", _names)


def _names(connection: Any, _record: object) -> None:
    if not isinstance(connection, sqlite3.Connection):
        return
    name = ""

    def sent(statement: str) -> None:
        nonlocal name
        if statement.startswith("BEGIN"):
            name = uuid.uuid4().hex

    connection.set_trace_callback(sent)
    connection.create_function("transaction_name", 0, lambda: name)
