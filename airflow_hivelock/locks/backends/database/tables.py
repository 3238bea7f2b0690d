"""What lies in the database, and how it comes there.

::

    store      one row: the version of all this, and a number that only grows where there are no sequences
    request    a row an owner: what became of its last request, as the record in ZooKeeper
    lock       a row an object that a request waits for or holds, until it is over
    audit      a row a force release, or a work that was declared over
    lease      a view: the Hive lease as it is documented, a row an object that is held

PostgreSQL draws its numbers from a sequence.

Times are microseconds since 1970 by the database's clock (``…_us``); the view shows timestamps.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    and_,
    bindparam,
    insert,
    inspect,
    or_,
    select,
    text,
)
from sqlalchemy.schema import CreateSchema, CreateSequence

from airflow_hivelock.locks.backends.database.record import CLIENT_LENGTH, COLUMNS
from airflow_hivelock.locks.backends.database.request import number
from airflow_hivelock.locks.errors import InvalidRequest, StoreCorrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnElement, Connection, Insert, Select, Sequence, TextClause

    Timestamp = Callable[[ColumnElement[Any]], ColumnElement[Any]]
    """How a database shows microseconds as a time."""

_TEXT = Text().with_variant(Text(0xFFFF_FFFF), "mysql")
"""There it is made a LONGTEXT, where a TEXT ends after 64 KiB."""

_SHORT = {"owner_key": 16, "state": 8, "process": 2 * CLIENT_LENGTH}
"""The lengths of texts that are in an index, or that have a bound."""

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}", re.ASCII)


def _column(name: str, kind: Any) -> Column[Any]:
    """A column for a field of :class:`.Record`."""
    types: dict[Any, Any] = {str: _TEXT, float: Float(53)}
    own = String(_SHORT[name]) if name in _SHORT else types.get(kind, BigInteger())
    return Column(name, own, primary_key=name == "owner_key", nullable=kind == int | None)


class StoreTables:
    """The tables under one prefix in one schema; several sets of them lie in a database side by side.

    :param schema: "" for the connection's own.
    :raises InvalidRequest: a name that would have to be quoted.
    """

    def __init__(self, prefix: str = "hivelock_", schema: str = "") -> None:
        for option, name in (("prefix", prefix), ("schema", schema)):
            if name and not _NAME.fullmatch(name):
                raise InvalidRequest(f"{option}={name!r}: use up to 40 lower-case letters, digits and '_'")
        self.prefix, self.schema = prefix, schema
        self.metadata = MetaData(schema=schema or None)
        in_mysql: Any = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}
        in_group = text("group_key IS NOT NULL")
        self.store = Table(
            f"{prefix}store",
            self.metadata,
            Column("version", Integer, primary_key=True, autoincrement=False),
            Column("number", BigInteger, nullable=False),
            **in_mysql,
        )
        self.request = Table(
            f"{prefix}request",
            self.metadata,
            *(_column(name, kind) for name, kind in COLUMNS.items()),
            Index(f"{prefix}request_place", "place", unique=True),
            Index(f"{prefix}request_ahead", "ahead"),
            Index(f"{prefix}request_group", "group_key", "state", postgresql_where=in_group, sqlite_where=in_group),
            **in_mysql,
        )
        self.lock = Table(
            f"{prefix}lock",
            self.metadata,
            Column("place", BigInteger, primary_key=True, autoincrement=False),
            Column("position", Integer, primary_key=True, autoincrement=False),
            Column("object_key", BigInteger, nullable=False),
            Column("db_name", _TEXT, nullable=False),
            Column("table_name", _TEXT, nullable=False),
            Column("partition_name", _TEXT, nullable=False),
            Column("lease_type", String(1), nullable=False),
            Index(f"{prefix}lock_object", "object_key", "place"),
            **in_mysql,
        )
        self.audit = Table(
            f"{prefix}audit",
            self.metadata,
            Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
            Column("lease_id", String(40), nullable=False),
            Column("owner", _TEXT, nullable=False),
            Column("locks", _TEXT, nullable=False),
            Column("user_name", _TEXT, nullable=False),
            Column("reason", _TEXT, nullable=False),
            Column("at_us", BigInteger, nullable=False),
            **in_mysql,
        )

    @property
    def name(self) -> str:
        """Tells this set of tables from others of the same database."""
        return f"{self.schema}.{self.prefix}"

    @property
    def qualified(self) -> str:
        """What the name of each begins with, in a statement."""
        return f"{self.schema}.{self.prefix}" if self.schema else self.prefix

    @cached_property
    def key(self) -> int:
        """The same as a number."""
        return number("tables", self.name)

    def in_state(self, *states: str) -> ColumnElement[bool]:
        """Whether a request is in one of these *states*."""
        return or_(*(self.request.c.state == str(state) for state in states))

    @cached_property
    def waits_for_it(self) -> ColumnElement[bool]:
        """Whether a request waits for the one at ``of_place``, or for any lease of that one's group."""
        request, ended = self.request, self.request.alias("ended")
        group = select(-ended.c.group_key).where(ended.c.place == bindparam("of_place")).scalar_subquery()
        waits_for = or_(request.c.ahead == bindparam("of_place"), request.c.ahead == group)
        return and_(waits_for, self.in_state("waiting", "parked"))

    def prepared(self, connection: Connection) -> bool:
        """Whether the tables are there.

        :raises StoreCorrupted: another version made them.
        """
        if not inspect(connection).has_table(self.store.name, schema=self.schema or None):
            return False
        found = connection.scalar(select(self.store.c.version))
        if found is None:
            return False
        if not isinstance(found, int) or found > VERSION:
            raise StoreCorrupted(
                f"the tables {self.name}* are of version {found}, and this airflow-hivelock knows version {VERSION}: upgrade "
                "it here too"
            )
        if found < VERSION:
            raise StoreCorrupted(
                f"the tables {self.name}* are of version {found}, and this airflow-hivelock needs version {VERSION}. Once no "
                "lease is held, drop them and connect again, or name another prefix in the URL (prefix=…)"
            )
        return True

    def create(self, connection: Connection, sequence: Sequence | None, timestamp: Timestamp) -> None:
        """Make what is missing; a second process finds it made. MySQL commits each of its statements, so that what a process
        has made that died here stays."""
        if self.prepared(connection):
            return
        if self.schema and not inspect(connection).has_schema(self.schema):
            connection.execute(CreateSchema(self.schema))
        self.metadata.create_all(connection)
        for table in self.metadata.sorted_tables:
            for index in table.indexes:
                index.create(connection, checkfirst=True)
        if not inspect(connection).has_table(f"{self.prefix}lease", schema=self.schema or None):
            shown = self.leases(timestamp).compile(connection, compile_kwargs={"literal_binds": True})
            connection.execute(text(f"CREATE VIEW {self.qualified}lease AS {shown}".replace(":", "\\:")))
        if sequence is not None:
            connection.execute(CreateSequence(sequence, if_not_exists=True))
        if connection.scalar(select(self.store.c.version)) is None:
            if connection.scalar(select(self.request.c.place).limit(1)) is not None:
                raise StoreCorrupted(
                    f"the number of the tables {self.name}* is gone, and tokens would not grow; restore {self.store}"
                )
            connection.execute(insert(self.store).values(version=VERSION, number=0))

    @cached_property
    def insert_request(self) -> Insert:
        """Writes a row; each column is bound to its name."""
        return insert(self.request).values({each.name: bindparam(each.name) for each in self.request.columns})

    def insert_locks(self, source: str, column: str) -> TextClause:
        """The statement that writes rows of locks for the request at ``of_place``, if that waits for locks or holds.

        :param source: what the database reads JSON rows from, bound to ``rows``.
        :param column: how it reads a column of them, by name.
        """
        names = [each.name for each in self.lock.columns if each.name != "place"]
        return text(
            f"INSERT INTO {self.qualified}lock (place, {', '.join(names)}) "
            f"SELECT :of_place, {', '.join(map(column.format, names))} FROM {source} WHERE EXISTS (SELECT 1 FROM "
            f"{self.qualified}request WHERE place = :of_place AND state IN ('waiting', 'granted'))"
        )

    def leases(self, timestamp: Timestamp) -> Select[tuple[object, ...]]:
        """The Hive lease as it is documented."""
        request, lock = self.request.c, self.lock.c
        return (
            select(
                request.owner,
                lock.place.label("lease_id"),
                lock.db_name,
                lock.table_name,
                lock.partition_name,
                timestamp(request.granted_us).label("start_utc"),
                timestamp(request.end_us).label("end_utc"),
                lock.lease_type,
            )
            .join_from(self.lock, self.request, lock.place == request.place)
            .where(request.state == "granted")
        )


VERSION = 2
"""Raised with every change of the tables. Tables of another version are refused."""
