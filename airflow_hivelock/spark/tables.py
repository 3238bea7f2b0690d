"""The planner's catalog, from the catalog of a Spark session."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from airflow_hivelock.locks.hive.catalog import PROVIDER, Table, described, named_partitions, with_view_columns
from airflow_hivelock.spark.jvm import items, optional, pairs, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks.model import LockObject
    from airflow_hivelock.spark.jvm import Jvm


class SessionTables:
    """A :class:`~airflow_hivelock.locks.hive.catalog.Catalog` that asks the session's own catalog.

    So it needs no address and no credentials.
    """

    def __init__(self, jvm: Jvm) -> None:
        self._none = jvm.none
        self._catalog = jvm.session.sharedState().externalCatalog()

    def table(self, table: LockObject) -> Table | None:
        return _table(self.description(table))

    def description(self, table: LockObject) -> Any:
        """Spark's CatalogTable of *table*. None if it does not exist."""
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

    def locations(self, database: str) -> Iterator[tuple[str, Any]]:
        """The name and the location, a URI of Java, of each table of *database* that has a location."""
        for found in items(self._catalog.getTablesByName(database, self._catalog.listTables(database))):
            location = optional(found.storage().locationUri())
            if location is not None and found.tableType().name() != "VIEW":
                yield found.identifier().table(), location


class Answers:
    """The catalog of one plan. It remembers its answers, so that the plan can be checked under the locks."""

    def __init__(self, tables: SessionTables) -> None:
        self._tables = tables
        self._answers: list[tuple[Callable[[], Any], Any]] = []

    def table(self, table: LockObject) -> Table | None:
        return _table(self._ask(partial(self._tables.description, table)))

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        return named_partitions(below, self._ask(partial(self._tables.partition_names, below)))

    def names(self, database: str = "") -> list[str]:
        found: list[str] = self._ask(partial(self._tables.names, database))
        return found

    def unchanged(self) -> bool:
        """Ask the catalog again. Return whether it gives the same answers."""
        return all(ask() == answer for ask, answer in self._answers)

    def _ask(self, ask: Callable[[], Any]) -> Any:
        answer = ask()
        self._answers.append((ask, answer))
        return answer


def _table(found: Any) -> Table | None:
    """The planner's description of a table, from Spark's CatalogTable."""
    if found is None:
        return None
    fields = StructType.fromJson(json.loads(found.partitionSchema().json())).fields
    properties = {key: value.lower() for key, value in pairs(found.properties())}
    table_type = found.tableType().name()
    if (provider := str(optional(found.provider()) or "hive").lower()) != "hive":
        properties[PROVIDER] = provider
    return described(
        [(field.name, field.dataType.simpleString()) for field in fields],
        {"EXTERNAL": "EXTERNAL_TABLE", "VIEW": "VIRTUAL_VIEW"}.get(table_type, "MANAGED_TABLE"),
        properties,
        optional(found.storage().inputFormat()),
        _view(found) if table_type == "VIEW" else ("", ""),
    )


def _view(found: Any) -> tuple[str, str]:
    """The query of a view, and the database of table names without one in it."""
    text = str(optional(found.viewText()) or "")
    if gives := texts(found.viewQueryColumnNames()):  # a view of Hive has none
        text = with_view_columns(text, gives, [each["name"] for each in json.loads(found.schema().json())["fields"]])
    return text, (texts(found.viewCatalogAndNamespace()) or [""])[-1]
