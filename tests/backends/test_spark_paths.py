"""Data that a PySpark session does not name as a table of Hive: by a path, in a stream, in another catalog, in a view."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.sql.catalog import Catalog

from airflow_hivelock.locks import InvalidRequest, LockManager, LockMode
from airflow_hivelock.spark import enable_hive_locks
from tests.backends.conftest import URL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from airflow_hivelock.spark import HiveLocks

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

TABLES = (
    "create database dw",
    "create table dw.p (k int, dt string) using parquet partitioned by (dt)",
    "insert into dw.p values (1, '2024-01-01')",
    "create table dw.target (k int) stored as textfile",
    "create database od",
    "create table od.q (k int)",
    "use od",
    "create view dw.v as select * from q",
    "use default",
)


@pytest.fixture(scope="module")
def home(spark: SparkSession) -> str:
    """The folder of the tables."""
    return f"{spark.conf.get('spark.sql.warehouse.dir')}/dw.db"


WAYS: dict[str, Callable[[Any, str], Any]] = {
    "start": lambda stream, path: stream.start(path),
    "start, by name": lambda stream, path: stream.start(path=path),
    "start, in capitals": lambda stream, path: stream.start(PATH=path),
    "option": lambda stream, path: stream.option("path", path).start(),
    "option, by name": lambda stream, path: stream.option(key="Path", value=path).start(),
    "option, half by name": lambda stream, path: stream.option("path", value=path).start(),
    "options": lambda stream, path: stream.options(path=path).start(),
}


def described(stream: Any) -> Any:
    """The stream, through a temporary view."""
    stream.createOrReplaceTempView("described")
    return stream.sparkSession.table("described")


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_into_a_tables_files_is_refused(
    way: str, spark: SparkSession, home: str, locks: HiveLocks, tmp_path: Path
) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("cast(value as int) k")
    stream = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path))
    with pytest.raises(InvalidRequest, match=r"a stream that touches dw\.p "):
        WAYS[way](stream, f"{home}/p").stop()


@pytest.mark.parametrize(
    "read",
    {
        "a table": lambda spark, _: spark.readStream.table("dw.p"),
        "a temporary view": lambda spark, _: described(spark.readStream.table("dw.p")),
        "a path": lambda spark, home: spark.readStream.schema("k int").parquet(f"{home}/p/dt=2024-01-01"),
        "an option": lambda spark, home: spark.readStream.schema("k int").option("PATH", f"{home}/p").load(),
        "a pattern": lambda spark, home: spark.readStream.schema("k int").parquet(f"{home[:-1]}*/{{o,p}}/dt=*"),
        "files beside a stream": lambda spark, home: (
            spark.readStream.format("rate").load().join(spark.read.parquet(f"{home}/p"))
        ),
    }.values(),
)
def test_a_stream_from_a_table_is_refused(
    read: Callable[[SparkSession, str], Any], spark: SparkSession, home: str, locks: HiveLocks, tmp_path: Path
) -> None:
    stream = read(spark, home).writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(InvalidRequest, match=r"a stream that touches dw\.p "):
        stream.start().stop()


@pytest.mark.parametrize("name", ["elsewhere", "p*.csv", "p*/{o,p}"])
def test_a_stream_between_other_files_starts(
    name: str, spark: SparkSession, locks: HiveLocks, taken: Callable[[], list[str]], tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    stream = spark.readStream.schema("k int").parquet(f"{tmp_path}/{name}").writeStream.format("parquet")
    query = stream.option("checkpointLocation", f"{tmp_path}/c").option("path", f"{tmp_path}/out").start()
    query.processAllAvailable()
    query.stop()
    assert taken() == []


@pytest.mark.parametrize(
    "save",
    [
        lambda writer, path: writer.option("path", path).save(None),
        lambda writer, path: writer.option("path", value=path).save(),
        lambda writer, path: writer.save(PATH=path),
    ],
)
def test_the_path_of_a_write_can_be_an_option(
    save: Callable[[Any, str], Any], spark: SparkSession, home: str, taken: Callable[[], list[str]]
) -> None:
    save(spark.sql("select 1 k").write.mode("append"), f"{home}/p/dt=2024-01-02")
    assert taken() == ["dw.p!"]


def moved(spark: SparkSession, path: str) -> None:
    """Create a table, list all locations, and move the table."""
    spark.sql("create table dw.made (k int) using parquet")
    spark.table("dw.made").write.parquet(path)
    spark.sql(f"alter table dw.made set location '{path}'")


MADE: dict[str, Callable[[SparkSession, str], Any]] = {
    "create": lambda spark, path: spark.sql(f"create table dw.made (k int) using parquet location '{path}'"),
    "create as select": lambda spark, path: spark.sql(
        f"create table dw.made using parquet location '{path}' as select 1 k"
    ),
    "set location": lambda spark, path: moved(spark, path),
    "saveAsTable": lambda spark, path: spark.range(1).write.option("path", path).saveAsTable("dw.made"),
    "catalog": lambda spark, path: spark.catalog.createTable("dw.made", path, "parquet", spark.range(1).schema),
    "under a lease": lambda spark, path: spark.sql(
        f"execute immediate \"create table dw.made (k int) using parquet location '{path}'\""
    ),
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("folder", ["plain", "a folder, 100%"])
def test_the_files_of_a_new_table_are_recognised(
    folder: str, made: str, spark: SparkSession, locks: HiveLocks, taken: Callable[[], list[str]], tmp_path: Path
) -> None:
    if made == "under a lease" and pyspark.__version__ < "4":
        pytest.skip("Spark 3.5 has no EXECUTE IMMEDIATE")
    path = f"{tmp_path}/{folder}"
    rows = spark.range(1).selectExpr("cast(id as int) k")
    rows.write.parquet(f"{tmp_path}/other")  # Spark has listed all locations
    try:
        with locks.lease(writes=["dw.made"]):
            MADE[made](spark, path)
        taken()
        rows.write.mode("append").parquet(path)
        assert taken() == ["dw.made!"]
        spark.sql(f"insert overwrite directory '{path}' using parquet select 1 k")
        assert taken() == ["dw.made!"]
        spark.read.schema("k int").parquet(path).collect()
        assert taken() == ["dw.made"]
    finally:
        with locks.lease(writes=["dw.made"]):
            spark.sql("drop table if exists dw.made")


def test_load_data_takes_files_out_of_a_table(
    spark: SparkSession, home: str, taken: Callable[[], list[str]], tmp_path: Path
) -> None:
    spark.sql("create table dw.source (k int) stored as textfile")
    spark.sql("insert into dw.source values (1)")
    taken()
    spark.sql(f"load data inpath '{home}/source/part-*' into table dw.target")
    assert sorted(taken()) == ["dw.source!", "dw.target!"]
    (tmp_path / "rows").write_text("2\n")
    spark.sql(f"load data local inpath '{tmp_path}/rows' into table dw.target")
    assert taken() == ["dw.target!"]


@pytest.mark.parametrize("kind", ["using parquet", "stored as parquet"])
def test_create_as_select_writes_the_folder_of_another_table(
    kind: str, spark: SparkSession, home: str, locks: HiveLocks, taken: Callable[[], list[str]]
) -> None:
    """Spark writes into the folder if it is empty."""
    spark.sql("create table dw.empty (k int) using parquet")
    taken()
    try:
        spark.sql(f"create table dw.made {kind} location '{home}/empty' as select 1 k")
        assert sorted(taken()) == ["dw.empty!", "dw.made!"]
        spark.sql("drop table if exists dw.made")
        taken()
        spark.sql(f"create table dw.made {kind} as select 1 k")
        assert taken() == ["dw.made!"]
    finally:
        spark.sql("drop table if exists dw.made")
        spark.sql("drop table dw.empty")


LAKE = {
    "": "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
    ".url": "jdbc:derby:memory:lake;create=true",
    ".driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
}
"""The settings of the catalog ``lake``, which has no tables."""

WRITES: dict[str, Callable[[SparkSession, str], Any]] = {
    "insertInto": lambda spark, name: spark.range(1).write.insertInto(name),
    "saveAsTable": lambda spark, name: spark.range(1).write.mode("append").saveAsTable(name),
    "writeTo": lambda spark, name: spark.range(1).writeTo(name).append(),
    "catalog": lambda spark, name: spark.catalog.recoverPartitions(name),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_name_is_in_the_current_catalog(write: str, spark: SparkSession, manager: LockManager) -> None:
    for name, value in LAKE.items():
        spark.conf.set(f"spark.sql.catalog.lake{name}", value)
    history = len(manager.history())
    for others, error in ((), "is in a catalog of its own"), (["lake"], "NOT_FOUND|NOT_SUPPORTED"):
        locks = enable_hive_locks(spark, URL, others=others)
        try:
            with pytest.raises(Exception, match=error):
                WRITES[write](spark, "lake.t")
            spark.sql("use lake")
            for name in ("t", "dw.p"):
                with pytest.raises(Exception, match=error):
                    WRITES[write](spark, name)
            assert len(manager.history()) == history
            with suppress(Exception):  # it has its locks before Spark refuses it
                spark.range(1).writeTo("spark_catalog.dw.p").append()
        finally:
            spark.sql("use spark_catalog")
            locks.disable()
        history += 1
        assert len(manager.history()) == history


def test_a_table_like_one_of_another_catalog(spark: SparkSession, manager: LockManager) -> None:
    """Spark refuses to create it, so only the locks count."""
    for name, value in LAKE.items():
        spark.conf.set(f"spark.sql.catalog.lake{name}", value)
    spark.sql("create namespace lake.s")
    spark.sql("create table lake.s.b (k int)")
    history = {past.lease_id for past in manager.history()}
    locks = enable_hive_locks(spark, URL, others=["lake"])
    try:
        for sql in ("create table lake.s.a like lake.s.b", "create table lake.s.a like dw.target"):
            with pytest.raises(Exception, match=r"CREATE TABLE LIKE|REQUIRES_SINGLE_PART|SYNTAX"):
                spark.sql(sql)
    finally:
        locks.disable()
    taken = [lock for past in manager.history() if past.lease_id not in history for lock in past.locks]
    assert not any(lock.mode is LockMode.EXCLUSIVE for lock in taken)


@pytest.mark.skipif(not hasattr(Catalog, "dropDatabase"), reason="Spark 4.2 added it")
def test_a_database_is_dropped_by_its_name_with_a_catalog(spark: SparkSession, taken: Callable[[], list[str]]) -> None:
    spark.sql("create database gone")
    taken()
    spark.catalog.dropDatabase("spark_catalog.gone")
    assert taken() == ["gone!"]


def test_a_lease_of_a_view_holds_the_tables_of_the_database_where_it_was_created(
    spark: SparkSession, taken: Callable[[], list[str]], locks: HiveLocks
) -> None:
    with locks.lease(reads=["dw.v"]):
        assert spark.table("dw.v").count() == 0
    assert taken() == ["dw.v", "od.q"]
