"""The numbered steps from the tables of an earlier version to this version's. Every change of the tables is one.

The first process of a later version that connects takes the steps, and no other process takes them at the same time.
Processes of the earlier version stay connected meanwhile, so each step keeps these rules:

- It can be taken again. MySQL commits each statement, and a process may end in between.
- An added column is nullable, because an earlier version does not write it.
- If an earlier version would fail afterwards, or would decide wrongly, the release raises ``formats.MIN_READER``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Integer, String, func, inspect, text, update

from airflow_hivelock.locks import formats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Connection

    from airflow_hivelock.locks.backends.database.store import Store
    from airflow_hivelock.locks.backends.database.tables import StoreTables

    Step = Callable[[Connection, StoreTables], None]


def _stamps(connection: Connection, tables: StoreTables) -> None:
    """Requests and audit entries have a stamp."""
    for table in (tables.request, tables.audit):
        _add(connection, tables, table.name, table.c.more)


def _groups(connection: Connection, tables: StoreTables) -> None:
    """Groups have settings, and requests have weights. An earlier version would not count by them."""
    tables.group.create(connection, checkfirst=True)
    _add(connection, tables, tables.request.name, tables.request.c.weight)


STEPS: Mapping[int, Step] = {4: _stamps, 5: _groups}
"""The steps, by the version of the tables that each leads to."""


def make(connection: Connection, store: Store) -> None:
    """Make the tables, or migrate those of an earlier version. A second process finds that done."""
    tables, dialect = store.tables, store.dialect
    if tables.prepared(connection):
        return
    if (found := tables.version(connection)) is None:
        tables.create(connection, dialect.sequence, dialect.timestamp)
        return
    dialect.alone(connection)
    migrate(connection, tables, found)


def migrate(connection: Connection, tables: StoreTables, found: int) -> None:
    """Take the steps from version *found* to this version's.

    The lowest reader is raised first: no earlier version is granted anything while the tables change.
    """
    for column in (Column("min_reader", Integer), Column("raised_by", String(40))):
        _add(connection, tables, tables.store.name, column)
    lowest = func.coalesce(tables.store.c.min_reader, 0)
    raised = update(tables.store).values(min_reader=formats.MIN_READER, raised_by=formats.release())
    connection.execute(raised.where(lowest < formats.MIN_READER))
    for number in range(found + 1, formats.FORMAT + 1):
        if number in STEPS:
            STEPS[number](connection, tables)
    connection.execute(update(tables.store).values(version=formats.FORMAT, raised_by=formats.release()))


def _add(connection: Connection, tables: StoreTables, table: str, column: Column[Any]) -> None:
    """Add a nullable column, unless the table has it."""
    there = {each["name"] for each in inspect(connection).get_columns(table, schema=tables.schema or None)}
    if column.name not in there:
        kind = column.type.compile(connection.dialect)
        qualified = f"{tables.schema}.{table}" if tables.schema else table
        connection.execute(text(f"ALTER TABLE {qualified} ADD COLUMN {column.name} {kind}"))
