"""What a Spark session knows of its tables: the planner's catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.hive.catalog import HUDI, ICEBERG, LOCK_ENABLED, Table, format_of, named_partitions
from airflow_hivelock.spark.jvm import items, kind, optional, values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks.model import LockObject
    from airflow_hivelock.spark.jvm import Jvm

_SEPARATOR = "\n"
"""Between the names of partitions. The metastore escapes it in a name."""


class SessionTables:
    """A :class:`~airflow_hivelock.locks.hive.catalog.Catalog` over the catalog that the session itself uses.

    It needs no address and no credentials beyond the session's own.
    """

    def __init__(self, jvm: Jvm) -> None:
        self._none = jvm.none
        self._catalog = jvm.session.sharedState().externalCatalog()

    def table(self, table: LockObject) -> Table | None:
        found = self.description(table)
        if found is None:
            return None
        columns = list(items(found.partitionSchema()))
        properties = {key: (value or "").lower() for key, value in values(found.properties())}
        provider = str(optional(found.provider()) or "hive").lower()
        if provider != "hive":
            properties["spark.sql.sources.provider"] = provider
        changed_by = format_of(properties, optional(found.storage().inputFormat()))
        return Table(
            tuple(column.name().lower() for column in columns),
            None if provider == "hive" else provider,
            {"EXTERNAL": "EXTERNAL_TABLE", "VIEW": "VIRTUAL_VIEW"}.get(found.tableType().name(), "MANAGED_TABLE"),
            tuple(column.dataType().catalogString().lower() for column in columns),
            str(optional(found.viewText()) or ""),
            transactional=properties.get("transactional") == "true",
            format=changed_by,
            commits_lock=changed_by in (ICEBERG, HUDI) and properties.get(LOCK_ENABLED) != "false",
        )

    def description(self, table: LockObject) -> Any:
        """Spark's CatalogTable of that name; None if there is none."""
        if not self._catalog.tableExists(table.database, table.table):
            return None
        return self._catalog.getTable(table.database, table.table)

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        names = self._catalog.listPartitionNames(below.database, below.table, self._none).mkString(_SEPARATOR)
        return named_partitions(below, filter(None, names.split(_SEPARATOR)))

    def names(self, database: str = "") -> list[str]:
        if not database:
            return list(items(self._catalog.listDatabases()))
        return list(items(self._catalog.listTables(database))) if self._catalog.databaseExists(database) else []

    def locations(self, database: str) -> Iterator[tuple[str, str]]:
        """The tables of *database* that have a location, each with it."""
        for found in items(self._catalog.getTablesByName(database, self._catalog.listTables(database))):
            location = optional(found.storage().locationUri())
            if location is not None and kind(found.tableType()) != "" and found.tableType().name() != "VIEW":
                yield found.identifier().table(), location.toString()
