"""What each of Spark's commands does, by the class of its node in the analysed plan.

The rules of what that locks are the planner's own. Spark 3.5 to 4.3 are covered. The reader of plans refuses a class
that is in none of these tables.
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
"""Commands that touch no data, and nothing that describes data."""

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
"""What they name must stay: SHARED."""

SCANS = frozenset(
    """
    AnalyzeColumn AnalyzeColumnCommand AnalyzePartitionCommand AnalyzeTable AnalyzeTableCommand CacheTable
    CacheTableAsSelect
    """.split()  # noqa: SIM905
)
"""They read the data of what they name, or of the query in them."""

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
"""They change what they name first, or only the partitions that they name: EXCLUSIVE. It includes tables and databases."""

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
"""Where a command keeps the partitions that it names."""

RENAMES = frozenset(("AlterTableRenameCommand", "RenameTable"))
VIEWS = frozenset("AlterViewAs AlterViewAsCommand CreateView CreateViewCommand CreateMetricViewCommand".split())  # noqa: SIM905
CREATES_AS_SELECT = frozenset(
    """
    CreateDataSourceTableAsSelectCommand CreateHiveTableAsSelectCommand CreateTableAsSelect ReplaceTableAsSelect
    """.split()  # noqa: SIM905
)
ROWS = frozenset("DeleteFromTable DeleteFromTableWithFilters InsertOnlyMerge MergeIntoTable UpdateTable".split())  # noqa: SIM905
"""They change rows of their first child, and read the others."""

INSERTS = frozenset(
    """
    AppendData InsertIntoDataSourceCommand InsertIntoDataSourceDirCommand InsertIntoHadoopFsRelationCommand
    InsertIntoHiveDirCommand InsertIntoHiveTable OverwriteByExpression OverwritePartitionsDynamic ReplaceData
    SaveIntoDataSourceCommand WriteDelta
    """.split()  # noqa: SIM905
)

COPIES = frozenset(("CreateTableLike", "CreateTableLikeCommand"))

NO_DATA = frozenset(
    """
    CTERelationRef CommandResult ExternalRDD LocalRelation LocalTableScan LogicalRDD OneRowRelation Range
    ResolvedNamespace ResolvedIdentifier ResolvedTable ResolvedPersistentView ResolvedTempView StreamingDataSourceV2Relation
    StreamingDataSourceV2ScanRelation StreamingExecutionRelation StreamingRelation StreamingRelationV2 UnionLoopRef
    """.split()  # noqa: SIM905
)
"""Leaves of a query that read no table."""

OWN = frozenset(("AnalyzeTablesCommand", "SetVariable"))
"""Each of them is read in its own way."""

KNOWN = OWN | NOTHING | LOOKS | SCANS | WRITES | RENAMES | VIEWS | CREATES_AS_SELECT | ROWS | INSERTS | COPIES
