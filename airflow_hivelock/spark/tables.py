"""What a Spark session knows of its tables: the planner's catalog."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from airflow_hivelock.locks.hive.catalog import HUDI, ICEBERG, LOCK_ENABLED, Table, format_of, named_partitions
from airflow_hivelock.spark.jvm import items, optional, pairs, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks.model import LockObject
    from airflow_hivelock.spark.jvm import Jvm


class SessionTables:
    """A :class:`~airflow_hivelock.locks.hive.catalog.Catalog` over the catalog that the session itself uses.

    It needs no address and no credentials beyond the session's own.
    """

    def __init__(self, jvm: Jvm) -> None:
        self._none = jvm.none
        self._catalog = jvm.session.sharedState().externalCatalog()

    def table(self, table: LockObject) -> Table | None:
        return _table(self.description(table))

    def description(self, table: LockObject) -> Any:
        """Spark's CatalogTable of that name; None if there is none."""
        try:
            return self._catalog.getTable(table.database, table.table)
        except PySparkException:
            if self._catalog.tableExists(table.database, table.table):
                raise
            return None

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        return named_partitions(below, self.partition_names(below))

    def partition_names(self, below: LockObject) -> list[str]:
        """The names of all partitions of the table of *below*."""
        return texts(self._catalog.listPartitionNames(below.database, below.table, self._none))

    def names(self, database: str = "") -> list[str]:
        if not database:
            return texts(self._catalog.listDatabases())
        return texts(self._catalog.listTables(database)) if self._catalog.databaseExists(database) else []

    def locations(self, database: str) -> Iterator[tuple[str, str]]:
        """The tables of *database* that have a location, each with it."""
        for found in items(self._catalog.getTablesByName(database, self._catalog.listTables(database))):
            location = optional(found.storage().locationUri())
            if location is not None and found.tableType().name() != "VIEW":
                yield found.identifier().table(), location.toString()


class Answers:
    """The catalog of one plan. It knows what was asked and answered."""

    def __init__(self, tables: SessionTables) -> None:
        self._tables = tables
        self._given: list[tuple[Callable[[], Any], Any]] = []

    def table(self, table: LockObject) -> Table | None:
        return _table(self._ask(partial(self._tables.description, table)))

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        return named_partitions(below, self._ask(partial(self._tables.partition_names, below)))

    def names(self, database: str = "") -> list[str]:
        found: list[str] = self._ask(partial(self._tables.names, database))
        return found

    def still_hold(self) -> bool:
        """Whether the catalog gives the same answers again."""
        return all(ask() == answer for ask, answer in self._given)

    def _ask(self, ask: Callable[[], Any]) -> Any:
        answer = ask()
        self._given.append((ask, answer))
        return answer


def _table(found: Any) -> Table | None:
    """The planner's description of a table, from Spark's CatalogTable."""
    if found is None:
        return None
    fields = StructType.fromJson(json.loads(found.partitionSchema().json())).fields
    properties = {key: value.lower() for key, value in pairs(found.properties())}
    provider = str(optional(found.provider()) or "hive").lower()
    if provider != "hive":
        properties["spark.sql.sources.provider"] = provider
    changed_by = format_of(properties, optional(found.storage().inputFormat()))
    return Table(
        tuple(field.name.lower() for field in fields),
        None if provider == "hive" else provider,
        {"EXTERNAL": "EXTERNAL_TABLE", "VIEW": "VIRTUAL_VIEW"}.get(found.tableType().name(), "MANAGED_TABLE"),
        tuple(field.dataType.simpleString().lower() for field in fields),
        str(optional(found.viewText()) or ""),
        transactional=properties.get("transactional") == "true",
        format=changed_by,
        commits_lock=changed_by in (ICEBERG, HUDI) and properties.get(LOCK_ENABLED) != "false",
    )
