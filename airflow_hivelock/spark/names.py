"""Converts names of tables and databases in Spark's plans into objects to lock."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.model.object import CATALOG
from airflow_hivelock.locks.plan.data import as_kept
from airflow_hivelock.locks.plan.session import GLOBAL
from airflow_hivelock.spark.commands import SPECS
from airflow_hivelock.spark.jvm import elements, items, kind, optional, specs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from airflow_hivelock.locks.plan.tables import KnownTables

_NAMES = ("ResolvedTable", "ResolvedIdentifier", "ResolvedPersistentView")
_RELATIONS = ("LogicalRelation", "HiveTableRelation", "DataSourceV2Relation")

_NAME_DATABASES = frozenset(
    """
    AlterDatabasePropertiesCommand AlterDatabaseSetLocationCommand CreateDatabaseCommand DescribeDatabaseCommand
    DropDatabaseCommand SetNamespaceCollationCommand UnsetNamespacePropertiesCommand
    """.split()  # noqa: SIM905
)
"""Commands with a database's name as a text."""


class NamesOfPlans:
    """Converts the names in the plans of one session.

    :param session: Spark's session in the JVM.
    :param catalogs: Spark's catalogs with Hive's tables.
    :param others: the catalogs with tables that need no lock here.
    """

    def __init__(
        self,
        session: Any,
        tables: KnownTables,
        catalogs: Collection[str] = (CATALOG,),
        others: Collection[str] = (),
    ) -> None:
        self._session = session
        self._catalog = session.sessionState().catalog()
        self._manager = session.sessionState().catalogManager()
        self._tables = tables
        self._catalogs = catalogs
        self._others = others

    def named(self, node: Any) -> list[LockObject]:
        """The tables and databases in a command, in its order. Temporary views and those of other catalogs are omitted."""
        return list(dict.fromkeys(each for each in self.places(node) if each is not None))

    def places(self, node: Any) -> list[LockObject | None]:
        """As :meth:`named`, with None for each omitted one."""
        found: list[LockObject | None] = []
        for child in items(node.children()):
            found += self._resolved(child)
        for each in elements(node):
            name = kind(each)
            if name == "Some":
                each = each.get()
                name = kind(each)
            if name == "TableIdentifier":
                found.append(self.of_table(each))
            elif name == "CatalogTable":
                found.append(self.of_table(each.identifier()))
            elif name in (*_NAMES, "ResolvedNamespace"):
                found += self._resolved(each)
            elif name in _RELATIONS:
                found.append(self.of_relation(each))
            elif isinstance(each, str) and kind(node) in _NAME_DATABASES:
                found.append(LockObject(each))
        return found

    def _resolved(self, node: Any) -> Iterator[LockObject | None]:
        name = kind(node)
        if name in _NAMES:
            identifier = node.identifier()
            yield self.of_identifier(node.catalog().name(), identifier)
        elif name == "ResolvedNamespace":
            parts = list(items(node.namespace()))
            if parts and self._covers(node.catalog().name(), parts):
                yield LockObject(parts[-1])

    def of_table(self, identifier: Any) -> LockObject | None:
        """The table of a TableIdentifier; None for a temporary view."""
        database = optional(identifier.database())
        if database is None:
            if self._catalog.isTempView(identifier):
                return None
            database = self._catalog.getCurrentDatabase()
        elif str(database).lower() == GLOBAL:
            return None
        return LockObject(str(database), str(identifier.table()))

    def of_identifier(self, catalog: str, identifier: Any) -> LockObject | None:
        parts = [*identifier.namespace(), identifier.name()]
        if not self._covers(catalog, parts):
            return None
        return LockObject(str(parts[-2]), str(parts[-1]))

    def of_parts(self, parts: Any) -> Iterator[LockObject]:
        """The table of that name. Empty for a temporary view, or for a table that needs no lock."""
        names = [str(part) for part in items(parts)]
        if len(names) > 1 and names[0].lower() == GLOBAL:
            return
        # Spark reads the first part as a catalog if a catalog has that name, and uses the current catalog otherwise.
        if len(names) == 1 or not self._manager.isCatalogRegistered(names[0]):
            names = [self._manager.currentCatalog().name(), *names]
            if len(names) == 2:
                names[1:1] = self._manager.currentNamespace()
        if self._covers(names[0], names[1:]):
            yield LockObject(names[-2], names[-1])

    def below(self, parts: Any) -> Iterator[Any]:
        """The relations of the temporary view of that name. Empty if there is no such view."""
        if self._catalog.isTempView(parts):
            name = ".".join(f"`{str(part).replace('`', '``')}`" for part in items(parts))
            yield from items(self._session.table(name).queryExecution().analyzed().collectLeaves())

    def of_database(self, parts: Any) -> Iterator[LockObject]:
        """The database of that name. Empty if its tables need no lock."""
        *catalog, name = (str(part) for part in items(parts))
        if self._covers(catalog[0] if catalog else self._manager.currentCatalog().name(), [name]):
            yield LockObject(name)

    def _covers(self, catalog: str, parts: Iterable[str]) -> bool:
        if catalog in self._catalogs:
            return True
        if catalog in self._others or catalog == "system":
            return False
        raise InvalidRequest(
            f"{'.'.join((catalog, *parts))} is in a catalog of its own. Use enable_hive_locks(…, catalogs="
            f"['{CATALOG}', '{catalog}']) if its tables are in this Hive metastore, or others=['{catalog}'] if they need "
            "no lock"
        )

    def partitions(self, node: Any, name: str, table: LockObject) -> list[LockObject]:
        """The partitions of *table* that the command *node* names. The table itself if it names none."""
        named = (spec for accessor in SPECS.get(name, ()) for spec in specs(getattr(node, accessor)()))
        return [self._partition(table, spec) for spec in named] or [table]

    def _partition(self, table: LockObject, spec: Mapping[str, str]) -> LockObject:
        """The partition of *spec*, or the prefix from its first columns. The table if a value is not certain."""
        known = self._tables.table(table)
        levels: list[tuple[str, str]] = []
        for column in known.partition_columns if known else ():
            if column not in spec:
                break
            levels.append((column, spec[column]))
        with suppress(InvalidRequest):
            return as_kept(LockObject(table.database, table.table, tuple(levels)), self._tables)
        return table

    def of_relation(self, leaf: Any) -> LockObject | None:
        """The table of a relation; None if it has none."""
        name = kind(leaf)
        if name == "DataSourceV2ScanRelation":
            leaf, name = leaf.relation(), "DataSourceV2Relation"
        if name == "LogicalRelation":
            table = optional(leaf.catalogTable())
            return None if table is None else self.of_table(table.identifier())
        if name == "HiveTableRelation":
            return self.of_table(leaf.tableMeta().identifier())
        if name == "StreamingRelation":
            table = optional(leaf.dataSource().catalogTable())
            return None if table is None else self.of_table(table.identifier())
        if name in ("DataSourceV2Relation", "StreamingRelationV2"):
            catalog, identifier = optional(leaf.catalog()), optional(leaf.identifier())
            return None if catalog is None or identifier is None else self.of_identifier(catalog.name(), identifier)
        return None
