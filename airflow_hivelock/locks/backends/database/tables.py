"""What lies in the database, and how it comes there.

::

    store      one row: the version of all this, and a number that only grows where there are no sequences
    request    a row an owner: what became of its last request, as the record in ZooKeeper
    lock       a row an object that a request waits for or holds, until it is over
    audit      a row a force release, or a work that was declared over
    lease      a view: the Hive lease as it is documented, a row an object that is held

In PostgreSQL also functions: see :mod:`.functions`.

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
    Sequence,
    SmallInteger,
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
    update,
)
from sqlalchemy.schema import CreateSchema, CreateSequence

from airflow_hivelock.locks.backends.database.request import number
from airflow_hivelock.locks.errors import InvalidRequest, StoreCorrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnElement, Connection, Select

    from airflow_hivelock.locks.backends.database.dialect import DatabaseDialect

_TEXT = Text().with_variant(Text(0xFFFF_FFFF), "mysql")
"""There it is made a LONGTEXT, where a TEXT ends after 64 KiB."""

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}", re.ASCII)


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
        self.sequence = Sequence(f"{prefix}number", schema=schema or None)
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
            Column("owner_key", String(16), primary_key=True),
            Column("owner", _TEXT, nullable=False),
            Column("state", String(8), nullable=False),
            Column("process", String(32), nullable=False),
            Column("epoch", BigInteger, nullable=False),
            Column("attempt", BigInteger, nullable=False),
            Column("began", BigInteger, nullable=False),
            Column("place", BigInteger, nullable=False),
            Column("ahead", BigInteger),
            Column("priority", Integer, nullable=False),
            Column("turn", BigInteger, nullable=False),
            Column("turn_us", BigInteger, nullable=False),
            Column("lease_group", _TEXT, nullable=False),
            Column("most_leases", Integer, nullable=False),
            Column("group_key", BigInteger),
            Column("group_turn", BigInteger, nullable=False),
            Column("group_turn_us", BigInteger, nullable=False),
            Column("audience", SmallInteger, nullable=False),
            Column("token", BigInteger, nullable=False),
            Column("lease_s", Float(53), nullable=False),
            Column("locks", _TEXT, nullable=False),
            Column("works", _TEXT, nullable=False),
            Column("query", _TEXT, nullable=False),
            Column("named", _TEXT, nullable=False),
            Column("asked_us", BigInteger, nullable=False),
            Column("seen_us", BigInteger, nullable=False),
            Column("granted_us", BigInteger),
            Column("end_us", BigInteger),
            Column("ended_us", BigInteger),
            Column("given", _TEXT, nullable=False),
            Column("whole", _TEXT, nullable=False),
            Index(f"{prefix}request_place", "place", unique=True),
            Index(f"{prefix}request_ahead", "ahead"),
            Index(f"{prefix}request_group", "group_key", postgresql_where=in_group, sqlite_where=in_group),
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
            Index(f"{prefix}lock_object", "object_key", "lease_type", "place"),
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

    @cached_property
    def behind(self) -> ColumnElement[bool]:
        """Whether a request waits for the one at ``of_place``, or for any lease of that one's group."""
        request, ended = self.request, self.request.alias("ended")
        group = select(-ended.c.group_key).where(ended.c.place == bindparam("of_place")).scalar_subquery()
        waits_for = or_(request.c.ahead == bindparam("of_place"), request.c.ahead == group)
        return and_(waits_for, request.c.state.in_(("waiting", "parked")))

    def prepared(self, connection: Connection) -> bool:
        """Whether the tables are of this version.

        :raises StoreCorrupted: a newer version made them.
        """
        return self._version(connection) == VERSION

    def prepare(self, connection: Connection, dialect: DatabaseDialect) -> None:
        """Make the tables, or bring them up to this version; a second process waits, and finds them made.

        :raises StoreCorrupted: a newer version made them.
        """
        dialect.lock(connection, {self.key: True})
        found = self._version(connection)
        for version, step in enumerate(STEPS[found:], start=found + 1):
            step(self, connection, dialect)
            connection.execute(update(self.store).values(version=version))

    def _version(self, connection: Connection) -> int:
        if not inspect(connection).has_table(self.store.name, schema=self.schema or None):
            return 0
        found = connection.scalar(select(self.store.c.version))
        if found is None:
            return 0
        if not isinstance(found, int) or found > VERSION:
            raise StoreCorrupted(
                f"the tables {self.name}* are of version {found}, and this airflow-hivelock knows them up to {VERSION}: "
                "upgrade it here too"
            )
        return found

    def create(self, connection: Connection, dialect: DatabaseDialect) -> None:
        """Version 1. MySQL commits each of its statements: what a process has made that died here is left as it is."""
        if self.schema and not inspect(connection).has_schema(self.schema):
            connection.execute(CreateSchema(self.schema))
        self.metadata.create_all(connection)
        for table in self.metadata.sorted_tables:
            for index in table.indexes:
                index.create(connection, checkfirst=True)
        if not inspect(connection).has_table(f"{self.prefix}lease", schema=self.schema or None):
            shown = self.leases(dialect).compile(connection, compile_kwargs={"literal_binds": True})
            connection.execute(text(f"CREATE VIEW {self.qualified}lease AS {shown}".replace(":", "\\:")))
        if dialect.functions:
            connection.execute(CreateSequence(self.sequence))
            dialect.functions.make(connection)
        if connection.scalar(select(self.store.c.version)) is None:
            if connection.scalar(select(self.request.c.place).limit(1)) is not None:
                raise StoreCorrupted(
                    f"the number of the tables {self.name}* is gone, and tokens would not grow; restore {self.store}"
                )
            connection.execute(insert(self.store).values(version=0, number=0))

    def leases(self, dialect: DatabaseDialect) -> Select[tuple[object, ...]]:
        """The Hive lease as it is documented."""
        request, lock = self.request.c, self.lock.c
        return (
            select(
                request.owner,
                lock.place.label("lease_id"),
                lock.db_name,
                lock.table_name,
                lock.partition_name,
                dialect.timestamp(request.granted_us).label("start_utc"),
                dialect.timestamp(request.end_us).label("end_utc"),
                lock.lease_type,
            )
            .join_from(self.lock, self.request, lock.place == request.place)
            .where(request.state == "granted")
        )


STEPS: list[Callable[[StoreTables, Connection, DatabaseDialect], None]] = [StoreTables.create]
"""From each version to the next; a change of the tables is appended here, and what is here stays as it is."""

VERSION = len(STEPS)
