"""The tables in the database, and how they are made.

::

    store      one row: the version of the tables, the lowest format that a reader needs, and, without sequences, a
               number that only grows
    request    a row per owner: the state of its last request, like the record in ZooKeeper
    lock       a row per object that a request waits for or holds, until it ends
    audit      a row per force release, per work that was declared over, or per change of a group
    lease_group  a row per group whose limit is in the store
    lease      a view: the documented Hive lease, a row per object that is held

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

from airflow_hivelock.locks import formats
from airflow_hivelock.locks.backends.database.record import CLIENT_LENGTH, COLUMNS, HAS_LOCKS
from airflow_hivelock.locks.backends.database.request import number
from airflow_hivelock.locks.errors import InvalidRequest, StoreCorrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import ColumnElement, Connection, Insert, Select, Sequence, TextClause

    Timestamp = Callable[[ColumnElement[Any]], ColumnElement[Any]]
    """How a database shows microseconds as a time."""

_TEXT = Text().with_variant(Text(0xFFFF_FFFF), "mysql")
"""MySQL makes it a LONGTEXT, because its TEXT ends after 64 KiB."""

_SHORT = {"owner_key": 16, "state": 8, "process": 2 * CLIENT_LENGTH}
"""The lengths of texts that are in an index, or that have a bound."""

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}", re.ASCII)


def _column(name: str, kind: Any) -> Column[Any]:
    """A column for a field of :class:`.Record`."""
    types: dict[Any, Any] = {str: _TEXT, str | None: _TEXT, float: Float(53)}
    own = String(_SHORT[name]) if name in _SHORT else types.get(kind, BigInteger())
    return Column(name, own, primary_key=name == "owner_key", nullable=kind in (int | None, str | None))


def _texts(*names: str) -> list[Column[Any]]:
    return [Column(name, _TEXT, nullable=False) for name in names]


class StoreTables:
    """The tables with one prefix in one schema. A database may have several such sets.

    :param schema: "": the connection's own.
    :raises InvalidRequest: a name that would have to be quoted.
    """

    def __init__(self, prefix: str = "hivelock_", schema: str = "") -> None:
        for option, name in (("prefix", prefix), ("schema", schema)):
            if name and not _NAME.fullmatch(name):
                raise InvalidRequest(f"{option}={name!r} is invalid. Use up to 40 lower-case letters, digits and '_'")
        self.prefix, self.schema = prefix, schema
        self.metadata = MetaData(schema=schema or None)
        in_group = text("group_key IS NOT NULL")
        self.store = self._table(
            "store",
            Column("version", Integer, primary_key=True, autoincrement=False),
            Column("number", BigInteger, nullable=False),
            Column("min_reader", Integer),
            Column("raised_by", String(40)),
        )
        self.request = self._table(
            "request",
            *(_column(name, kind) for name, kind in COLUMNS.items()),
            Index(f"{prefix}request_place", "place", unique=True),
            Index(f"{prefix}request_ahead", "ahead"),
            Index(f"{prefix}request_group", "group_key", "state", postgresql_where=in_group, sqlite_where=in_group),
        )
        self.lock = self._table(
            "lock",
            Column("place", BigInteger, primary_key=True, autoincrement=False),
            Column("position", Integer, primary_key=True, autoincrement=False),
            Column("object_key", BigInteger, nullable=False),
            *_texts("db_name", "table_name", "partition_name"),
            Column("lease_type", String(1), nullable=False),
            Index(f"{prefix}lock_object", "object_key", "place"),
        )
        self.audit = self._table(
            "audit",
            Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
            Column("lease_id", String(40), nullable=False),
            *_texts("owner", "locks", "user_name", "reason"),
            Column("at_us", BigInteger, nullable=False),
            Column("more", _TEXT),
        )
        self.group = self._table(
            "lease_group",
            Column("group_key", BigInteger, primary_key=True, autoincrement=False),
            *_texts("name"),
            Column("leases", Integer, nullable=False),
            Column("weight", Integer, nullable=False),
            *_texts("comment"),
            Column("more", _TEXT),
        )

    def _table(self, name: str, *parts: Any) -> Table:
        in_mysql: Any = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}
        return Table(f"{self.prefix}{name}", self.metadata, *parts, **in_mysql)

    @property
    def name(self) -> str:
        """The name of this set of tables, unique in the database."""
        return f"{self.schema}.{self.prefix}"

    @property
    def qualified(self) -> str:
        """The beginning of each table's name in a statement."""
        return f"{self.schema}.{self.prefix}" if self.schema else self.prefix

    @cached_property
    def key(self) -> int:
        """The name of this set as a number."""
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

    @cached_property
    def settings(self) -> Select[Any]:
        """Reads the settings of the group ``of_group``."""
        return select(self.group).where(self.group.c.group_key == bindparam("of_group"))

    def prepared(self, connection: Connection) -> bool:
        """Whether the tables are there, and are this version's or a later one's.

        :raises StoreCorrupted: they are too old to be migrated.
        :raises UpgradeNeeded: they are for readers of a later format.
        """
        found = self.version(connection)
        if found is None:
            return False
        if not isinstance(found, int) or found < formats.OLDEST:
            raise StoreCorrupted(
                f"the tables {self.name}* are of version {found}, but this airflow-hivelock needs version {formats.OLDEST}. "
                "When no lease is held, drop them and connect again. Or name another prefix in the URL (prefix=…)"
            )
        if found >= formats.FORMAT:
            self.admit(connection.execute(self.stamp).mappings().one())
        return found >= formats.FORMAT

    def version(self, connection: Connection) -> int | None:
        """The version of the tables; None: they are not there, or a process has ended while it made them."""
        if not inspect(connection).has_table(self.store.name, schema=self.schema or None):
            return None
        return connection.scalar(select(self.store.c.version))

    @cached_property
    def stamp(self) -> Select[tuple[int, int | None, str | None]]:
        """Reads the stamp of the tables."""
        return select(self.store.c.version, self.store.c.min_reader, self.store.c.raised_by)

    def admit(self, stamp: Mapping[Any, Any]) -> None:
        """Check the row that :attr:`stamp` reads.

        :raises UpgradeNeeded: the tables are for readers of a later format.
        """
        lowest = stamp["min_reader"] or stamp["version"]
        if lowest > formats.FORMAT:
            raise formats.refusal(
                f"the set of tables {self.qualified}*", stamp["version"], lowest, stamp["raised_by"] or ""
            )

    def create(self, connection: Connection, sequence: Sequence | None, timestamp: Timestamp) -> None:
        """Make the missing tables.

        MySQL commits each statement, so the tables of a process that died here stay.
        """
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
                    f"the counter in the tables {self.name}* is missing, so tokens would not grow. Restore {self.store}"
                )
            stamp = {"version": formats.FORMAT, "min_reader": formats.MIN_READER, "raised_by": formats.release()}
            connection.execute(insert(self.store).values(number=0, **stamp))

    @cached_property
    def insert_request(self) -> Insert:
        """Writes a row; each column is bound to its name."""
        return insert(self.request).values({each.name: bindparam(each.name) for each in self.request.columns})

    def insert_locks(self, source: str, column: str) -> TextClause:
        """The statement that writes rows of locks for the request at ``of_place``, if that is in a state with locks.

        :param source: the expression that makes rows of the JSON that is bound to ``rows``.
        :param column: the expression for a column of them, by name.
        """
        names = [each.name for each in self.lock.columns if each.name != "place"]
        states = ", ".join(f"'{state}'" for state in HAS_LOCKS)
        return text(
            f"INSERT INTO {self.qualified}lock (place, {', '.join(names)}) "
            f"SELECT :of_place, {', '.join(map(column.format, names))} FROM {source} WHERE EXISTS (SELECT 1 FROM "
            f"{self.qualified}request WHERE place = :of_place AND state IN ({states}))"
        )

    def leases(self, timestamp: Timestamp) -> Select[tuple[object, ...]]:
        """The query of the documented Hive lease."""
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
