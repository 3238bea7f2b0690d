"""Tables of Spark's commands, by the class of the command's node in the analysed plan.

The planner decides the locks for each kind of command. The tables cover Spark 3.5 to 4.3. The reader of plans refuses
a class that is in none of these tables.
"""

from __future__ import annotations

NOTHING = frozenset(
    """
    AddArchivesCommand AddFilesCommand AddJarsCommand ClearCacheCommand CloseCursor CommandResult CreateFunction
    CreateFunctionCommand CreateSQLFunctionCommand CreateTempViewUsing CreateUserDefinedFunction CreateVariable
    DeclareCursor DescribeFunction DescribeFunctionCommand DescribeProcedureCommand DescribeQueryCommand DropFunction
    DropFunctionCommand DropTempViewCommand DropVariable ExplainCommand ListArchivesCommand
    ListFilesCommand ListJarsCommand NoopCommand RefreshFunction RefreshFunctionCommand RefreshResource ResetCommand
    SetCatalogAndNamespace SetCatalogCommand SetCommand SetNamespaceCommand SetPathCommand ShowCatalogsCommand
    ShowCollationsCommand ShowCurrentNamespaceCommand ShowFunctions ShowFunctionsCommand ShowNamespaces
    ShowNamespacesCommand ShowProceduresCommand StreamingExplainCommand UncacheTable
    """.split()  # noqa: SIM905
)
"""Commands that concern neither data nor metadata of tables. They lock nothing."""

LOOKS = frozenset(
    """
    CreateDatabaseCommand CreateNamespace DescribeColumn DescribeColumnCommand DescribeDatabaseCommand DescribeNamespace
    DescribeRelation DescribeRelationJsonCommand DescribeTableCommand DescribeTablePartition RefreshTable
    RefreshTableCommand ShowColumns ShowColumnsCommand ShowCreateTable ShowCreateTableAsSerdeCommand
    ShowCreateTableCommand ShowPartitions ShowPartitionsCommand ShowPartitionsJsonCommand ShowTableExtended
    ShowTablePartition ShowTableProperties ShowTablePropertiesCommand ShowTables ShowTablesCommand ShowTablesExtended
    ShowTablesJsonCommand ShowViews ShowViewsCommand
    """.split()  # noqa: SIM905
)
"""Commands that only read metadata. They lock their tables and databases SHARED."""

SCANS = frozenset(
    """
    AnalyzeColumn AnalyzeColumnCommand AnalyzePartitionCommand AnalyzeTable AnalyzeTableCommand CacheTable
    CacheTableAsSelect
    """.split()  # noqa: SIM905
)
"""Commands that read the data of their table or of their query."""

WRITES = frozenset(
    """
    AddCheckConstraint AddColumns AddConstraint AddPartitions AlterColumn AlterColumns AlterDatabasePropertiesCommand
    AlterDatabaseSetLocationCommand AlterTableAddColumnsCommand AlterTableAddPartitionCommand
    AlterTableChangeColumnCommand AlterTableChangeColumnCommentsCommand AlterTableClusterBy AlterTableCollation
    AlterTableDropPartitionCommand AlterTableRenamePartitionCommand
    AlterTableSerDePropertiesCommand AlterTableSetLocationCommand AlterTableSetPropertiesCommand
    AlterTableUnsetPropertiesCommand AlterViewSchemaBinding AlterViewSchemaBindingCommand CommentOnNamespace
    CommentOnTable CreateIndex CreateTable CreateTableCommand CreateDataSourceTableCommand DropColumns DropConstraint
    DropDatabaseCommand DropIndex DropNamespace DropPartitions DropTable DropTableCommand DropView LoadData
    LoadDataCommand RecoverPartitions RenameColumn RenamePartitions RepairTable RepairTableCommand ReplaceColumns
    ReplaceTable SetNamespaceCollationCommand SetNamespaceLocation SetNamespaceProperties SetTableLocation
    SetTableProperties SetTableSerDeProperties SetViewProperties TruncatePartition TruncateTable TruncateTableCommand
    UnsetNamespacePropertiesCommand UnsetTableProperties UnsetViewProperties
    """.split()  # noqa: SIM905
)
"""Commands that change the first table or database that they name, or only the named partitions: EXCLUSIVE."""

SPECS = {
    "AlterTableAddPartitionCommand": ("partitionSpecsAndLocs",),
    "AlterTableDropPartitionCommand": ("specs",),
    "AlterTableRenamePartitionCommand": ("oldPartition", "newPartition"),
    "AlterTableSerDePropertiesCommand": ("partSpec",),
    "AlterTableSetLocationCommand": ("partitionSpec",),
    "AnalyzePartitionCommand": ("partitionSpec",),
    "InsertIntoHiveTable": ("partition",),
    "LoadDataCommand": ("partition",),
    "TruncateTableCommand": ("partitionSpec",),
}
"""By command, the fields with the partitions that it names."""

RENAMES = frozenset(("AlterTableRenameCommand", "RenameTable"))
VIEWS = frozenset("AlterViewAs AlterViewAsCommand CreateView CreateViewCommand CreateMetricViewCommand".split())  # noqa: SIM905
CREATES_AS_SELECT = frozenset(
    """
    CreateDataSourceTableAsSelectCommand CreateHiveTableAsSelectCommand CreateTableAsSelect ReplaceTableAsSelect
    """.split()  # noqa: SIM905
)
ROWS = frozenset("DeleteFromTable DeleteFromTableWithFilters InsertOnlyMerge MergeIntoTable UpdateTable".split())  # noqa: SIM905
"""Commands that change rows of their first child, and read the other children."""

INSERTS = frozenset(
    """
    AppendData InsertIntoDataSourceCommand InsertIntoDataSourceDirCommand InsertIntoHadoopFsRelationCommand
    InsertIntoHiveDirCommand InsertIntoHiveTable OverwriteByExpression OverwritePartitionsDynamic ReplaceData
    SaveIntoDataSourceCommand WriteDelta
    """.split()  # noqa: SIM905
)

TRANSACTS = ROWS | frozenset(
    """
    AppendData CreateTableAsSelect OverwriteByExpression OverwritePartitionsDynamic ReplaceTableAsSelect
    """.split()  # noqa: SIM905
)
"""Writes of Spark's second version of sources."""

COPIES = frozenset(("CreateTableLike", "CreateTableLikeCommand"))

MOVES = (
    RENAMES
    | CREATES_AS_SELECT
    | COPIES
    | frozenset(
        """
        AlterTableSetLocationCommand CreateDataSourceTableCommand CreateTable CreateTableCommand DropDatabaseCommand
        DropNamespace DropTable DropTableCommand ReplaceTable SetTableLocation
        """.split()  # noqa: SIM905
    )
)
"""Commands that create, move or drop a table. The list of the tables' locations is made again after them."""

NO_DATA = frozenset(
    """
    CTERelationRef CommandResult ExternalRDD LocalRelation LocalTableScan LogicalRDD OneRowRelation Range
    ResolvedNamespace ResolvedIdentifier ResolvedTable ResolvedPersistentView ResolvedTempView StreamingDataSourceV2Relation
    StreamingDataSourceV2ScanRelation StreamingExecutionRelation StreamingRelation StreamingRelationV2 UnionLoopRef
    """.split()  # noqa: SIM905
)
"""Leaves of a query that read no table."""

OWN = frozenset(("AnalyzeTablesCommand", "SetVariable"))
"""Commands that the reader of plans handles one by one."""

KNOWN = OWN | NOTHING | LOOKS | SCANS | WRITES | RENAMES | VIEWS | CREATES_AS_SELECT | ROWS | INSERTS | COPIES

DELTA = {
    "DeltaMergeBuilder": ("execute",),
    "DeltaOptimizeBuilder": ("executeCompaction", "executeZOrderBy"),
    "DeltaTable": tuple(
        """
        addFeatureSupport clone cloneAtTimestamp cloneAtVersion delete dropFeatureSupport generate restoreToTimestamp
        restoreToVersion update upgradeTableProtocol vacuum
        """.split()  # noqa: SIM905
    ),
    "DeltaTableBuilder": ("execute",),
}
"""By class of ``delta.tables``, the methods that change a table. They run in the JVM, so there is no plan to read."""
