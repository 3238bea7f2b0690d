"""Reads Spark's analysed plan into the planner. This is the only mapping from Spark's plan nodes to reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.hive.transactional import Write
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.plan.filters import filtered
from airflow_hivelock.locks.plan.query import Scan
from airflow_hivelock.spark import commands
from airflow_hivelock.spark.holding import NotPlanned
from airflow_hivelock.spark.jvm import items, kind, optional, values

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from airflow_hivelock.locks.plan.planner import Planner
    from airflow_hivelock.spark.jvm import Jvm
    from airflow_hivelock.spark.names import NamesOfPlans
    from airflow_hivelock.spark.places import Places


class PlanReader:
    """Reads one analysed plan into *planner*.

    :param session: Spark's session in the JVM.
    :param lenient: lock everything that an unknown command names, EXCLUSIVE, in place of a refusal.
    :ivar queries: the analysed queries, each with its optimised plan.
    :ivar by_path: the plan reads or writes a path.
    :ivar moves: the plan may create, move or drop a table.
    :ivar transacts: the plan changes a table of Spark's data source version 2. Spark may begin a transaction when it
        analyses such a plan.
    """

    def __init__(
        self, jvm: Jvm, session: Any, planner: Planner, names: NamesOfPlans, places: Places, *, lenient: bool = False
    ) -> None:
        self._jvm = jvm
        self._session = session
        self._planner = planner
        self._names = names
        self._places = places
        self._lenient = lenient
        self.queries: list[tuple[Any, Any]] = []
        self.by_path = self.transacts = self.moves = False

    def statement(self, analysed: Any) -> bool:
        """Add what the plan touches if it contains a command. Return whether it does. Spark runs a query later."""
        if kind(analysed) in ("Union", "WithCTE"):
            found = [self.statement(child) for child in items(analysed.children())]  # any() would skip some of them
            return any(found)
        if kind(analysed) not in commands.KNOWN and not self._jvm.is_command(analysed):
            return False
        self._command(analysed)
        return True

    def query(self, analysed: Any) -> None:
        """Add the views of the query, and the data that it reads after Spark's optimiser has narrowed it."""
        self.looks(analysed)
        optimised = self._jvm.optimised(self._session, analysed)
        self.queries.append((analysed, optimised))
        self._scans(optimised, [])

    def write_table(self, parts: Any) -> None:
        """Add a write of a whole table.

        :param parts: its name, as Spark's parser splits it.
        """
        self._planner.write(*self._names.of_parts(parts), how=Write.OVERWRITE)

    def write_target(self, parts: Any) -> None:
        """Add a write of a table by a DataFrame. It can name a temporary view, and then changes the tables below it."""
        self.write_table(parts)
        for leaf in self._names.below(parts):
            self._write_relation(leaf)
            for path in _paths(leaf):
                self.write_path(path)

    def write_database(self, parts: Any) -> None:
        """Add a write of a database."""
        self._planner.write(*self._names.of_database(parts))

    def read_table(self, parts: Any) -> None:
        """Add a read of a whole table."""
        for found in self._names.of_parts(parts):
            self._planner.look(found)
            self._planner.scans.append(Scan(found))

    def write_path(self, path: Any) -> None:
        """Add writes of the tables with files at *path*. Spark's own writer needs the whole table."""
        self.by_path = True
        for found in self._places.of(path):
            self._planner.write(LockObject(found.database, found.table), how=Write.OVERWRITE)

    def read_path(self, path: Any) -> None:
        """Add reads of the tables or partitions with files at *path*."""
        self.by_path = True
        for found in self._places.of(path):
            self._planner.look(LockObject(found.database, found.table))
            self._planner.scans.append(Scan(found))

    def _command(self, node: Any) -> None:
        name = kind(node)
        self.transacts |= name in commands.TRANSACTS
        self.moves |= name in commands.MOVES or name not in commands.KNOWN
        if name in commands.NOTHING:
            return
        if name in commands.INSERTS:
            self._insert(node, name)
        elif name in commands.ROWS:
            self._rows(node)
        elif name in commands.VIEWS:
            self._view(node, name)
        elif name in commands.CREATES_AS_SELECT:
            self._create_as_select(node, name)
        elif name in commands.SCANS:
            self._analyse(node, name)
        elif name in commands.COPIES:
            made, *copied = self._names.places(node)  # each can be in another catalog
            self._planner.write(*(each for each in (made,) if each is not None))
            self._planner.look(*(each for each in copied if each is not None))
        elif name in commands.RENAMES:
            self._rename(node)
        elif name == "SetVariable":
            self.query(node.sourceQuery())
        elif name == "AnalyzeTablesCommand":
            self._planner.scan_tables(optional(node.databaseName()) or self._planner.session.database)
        elif name in commands.LOOKS:
            self._planner.look(*self._names.named(node))
        elif name in commands.WRITES:
            self._change(node, name)
        else:
            self._unknown(node, name)

    def _change(self, node: Any, name: str) -> None:
        target = next(iter(self._names.named(node)), None)
        if target is None:  # it is temporary, or in another catalog
            return
        if name in _IF_NOT_EXISTS and node.ignoreIfExists():
            self._planner.look(target)  # Spark does not change an existing table
            return
        self._planner.write(
            *self._names.partitions(node, name, target), how=Write.INSERT if name.startswith("LoadData") else None
        )
        self._planner.look(target)
        if name.startswith("LoadData") and not node.isLocal():
            self.write_path(node.path())  # Spark moves the files, maybe out of another table

    def _analyse(self, node: Any, name: str) -> None:
        if queries := list(_inner(node)):
            for query in queries:
                self.query(query)
            return
        for target in self._names.named(node):
            self._planner.look(target)
            self._planner.scans += map(Scan, self._names.partitions(node, name, target))

    def _rename(self, node: Any) -> None:
        if kind(node) == "AlterTableRenameCommand":
            old, new = self._names.of_table(node.oldName()), [node.newName().table()]
        else:
            old, new = next(iter(self._names.named(node)), None), list(items(node.newName()))
        if old is not None:  # else it is temporary, or in another catalog
            self._planner.write(old, LockObject(*[old.database, *new][-2:]))  # Spark keeps the table's database

    def _view(self, node: Any, name: str) -> None:
        if name == "CreateViewCommand" and kind(node.viewType()) != "PersistedView":
            return  # an action that reads the temporary view locks its tables
        self._planner.write(*self._names.named(node)[:1])
        for query in _inner(node):
            self.looks(query)

    def _create_as_select(self, node: Any, name: str) -> None:
        for target in self._names.named(node)[:1]:
            self._planner.write(target, how=Write.OVERWRITE)
        if name.endswith("Command"):
            described = node.table() if name.startswith("CreateDataSource") else node.tableDesc()
            location = optional(described.storage().locationUri())
        else:
            location = optional(node.tableSpec().location())
        if location is not None:  # it can be the folder of another table
            self.write_path(location if isinstance(location, str) else self._jvm.path(location))
        queries = list(_inner(node)) or [node.query()]
        for query in queries:
            self.query(query)

    def _insert(self, node: Any, name: str) -> None:
        if name == "InsertIntoHiveTable":
            target = self._names.of_table(node.table().identifier())
            if target is not None:
                found = self._names.partitions(node, name, target)
                self._planner.write(*found, how=Write.OVERWRITE if node.overwrite() else Write.INSERT)
        elif name == "InsertIntoHadoopFsRelationCommand":
            table = optional(node.catalogTable())
            if table is None:
                self.write_path(node.outputPath())
            elif (target := self._names.of_table(table.identifier())) is not None:
                # Spark's own writers of different partitions share a directory of the table.
                self._planner.write(target, how=Write.OVERWRITE)
        elif name == "SaveIntoDataSourceCommand":
            path = optional(node.options().get("path"))
            if path is not None:
                self.write_path(path)
        elif name in ("InsertIntoDataSourceDirCommand", "InsertIntoHiveDirCommand"):
            location = optional(node.storage().locationUri())
            if location is not None:
                self.write_path(self._jvm.path(location))
        elif name == "InsertIntoDataSourceCommand":
            self._write_relation(node.logicalRelation())
        else:
            self._write_relation(node.table())
        self.query(node.query())

    def _rows(self, node: Any) -> None:
        target, *others = items(node.children())
        for leaf in items(target.collectLeaves()):
            self._write_relation(leaf)
        for each in (target, *others):
            self.query(each)
        # Subqueries use columns of the outer query, so Spark cannot narrow them alone.
        for each in items(node.subqueriesAll()):
            for leaf in items(each.collectLeaves()):
                self._scan(leaf, [])

    def _unknown(self, node: Any, name: str) -> None:
        if not self._lenient:
            raise NotPlanned(
                f"the locks of Spark's command {name} are not known; run it under a lease that names its data, "
                "HiveLocks.lease(writes=[…]), or let unknown commands lock everything that they name: "
                "enable_hive_locks(…, unknown='lock')"
            )
        named = self._names.named(node)
        leaves = [leaf for each in (node, *_inner(node)) for leaf in items(each.collectLeaves())]
        found = [each for leaf in leaves if (each := self._names.of_relation(leaf)) is not None]
        if not named and not found:
            raise NotPlanned(
                f"Spark's command {name} names no known table, so its locks are not known; run it under a lease that "
                "names its data, HiveLocks.lease(writes=[…])"
            )
        self._planner.write(*named, *found)

    def stream(self, analysed: Any) -> None:
        """Add all tables and views of a stream, and the tables with files at the paths that it reads."""
        self.looks(analysed)
        for each in (analysed, *items(analysed.subqueriesAll())):
            for leaf in items(each.collectLeaves()):
                if self._names.of_relation(leaf) is not None:
                    continue
                for path in _paths(leaf):
                    self._planner.look(*self._places.of(path))
                if kind(leaf) == "StreamingRelation":
                    for option, value in values(leaf.dataSource().options()):
                        if option.lower() == "path":
                            self._planner.look(*self._places.matching(str(value)))

    def looks(self, node: Any) -> None:
        """Add all tables and views of an analysed query."""
        for each in (node, *items(node.subqueriesAll())):
            self._looks_below(each)

    def _looks_below(self, node: Any) -> None:
        children = list(items(node.children()))
        if not children:
            found = self._names.of_relation(node)
            if found is not None:
                self._planner.look(found)
        elif node.nodeName() == "View" and not node.isTempView():
            found = self._names.of_table(node.desc().identifier())
            if found is not None:
                self._planner.look(found)
        for child in children:
            self._looks_below(child)

    def _scans(self, node: Any, filters: list[Any]) -> None:
        """Add what an optimised query reads.

        :param filters: the conditions directly above *node*.
        """
        for subquery in items(node.subqueriesAll()):
            self._scans_below(subquery, [])
        self._scans_below(node, filters)

    def _scans_below(self, node: Any, filters: list[Any]) -> None:
        name = node.nodeName()
        children = list(items(node.children()))
        if not children:
            self._scan(node, filters)
            return
        above = filters if name == "SubqueryAlias" else []
        if name == "Filter":
            # Spark does not push a condition below one with rand(), so the conditions above exclude no partition.
            above = [*(filters if node.condition().deterministic() else ()), node.condition()]
        for child in children:
            self._scans_below(child, above)

    def _scan(self, leaf: Any, filters: list[Any]) -> None:
        name = kind(leaf)
        if name in commands.NO_DATA:
            return
        if name == "InMemoryRelation":
            # Spark can lose blocks of a cache. It then reads the tables again.
            self._scans(leaf.cacheBuilder().logicalPlan(), [])
            return
        found = self._names.of_relation(leaf)
        if found is not None:
            known = self._planner.session.tables.table(found)
            columns = known.partition_columns if known else ()
            self._planner.scans.append(filtered(found, _texts(filters, columns) if columns else ()))
            return
        for path in _paths(leaf):
            self.read_path(path)
        if name not in ("LogicalRelation", "DataSourceV2Relation", "DataSourceV2ScanRelation") and not self._lenient:
            raise NotPlanned(
                f"Spark's plan reads data by {name}, and its tables are not known; run the statement under a lease that "
                "names its data, HiveLocks.lease(reads=[…])"
            )

    def _write_relation(self, relation: Any) -> None:
        found = self._names.of_relation(relation)
        if found is not None:
            self._planner.write(found, how=Write.CHANGE)


_FILE_TABLES = frozenset("AvroTable CSVTable JsonTable OrcTable ParquetTable TextTable".split())  # noqa: SIM905
"""Tables of Spark's data source version 2 that stand for files at a path."""

_IF_NOT_EXISTS = frozenset(("CreateDataSourceTableCommand", "CreateTable", "CreateTableCommand"))


def _paths(leaf: Any) -> Iterator[Any]:
    """The paths that a relation without a table reads."""
    name = kind(leaf)
    if name == "LogicalRelation" and kind(leaf.relation()) == "HadoopFsRelation":
        yield from items(leaf.relation().location().rootPaths())
    elif name in ("DataSourceV2Relation", "DataSourceV2ScanRelation"):
        table = (leaf if name == "DataSourceV2Relation" else leaf.relation()).table()
        if kind(table) in _FILE_TABLES:
            yield from items(table.fileIndex().rootPaths())


def _inner(node: Any) -> Iterator[Any]:
    """The queries inside a command that are not its children."""
    return items(node.innerChildren())


def _texts(filters: Iterable[Any], columns: Collection[str]) -> Iterator[str]:
    """The SQL of the filters by which Spark excludes partitions. They use only partition columns."""
    for each in filters:
        if kind(each) == "And":
            yield from _texts((each.left(), each.right()), columns)
            continue
        references = [attribute.name().lower() for attribute in items(each.references().toSeq())]
        if references and set(references) <= set(columns) and each.deterministic():
            yield each.sql()
