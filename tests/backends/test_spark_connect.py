"""A session of Spark Connect under Hive's locks. The text planner works out the locks, and calls without text are refused."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import InvalidRequest, LockManager, LockTimeout
from airflow_hivelock.spark import enable_hive_locks
from tests.backends.conftest import URL
from tests.support.servers.spark_connect import SparkConnectServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.spark import HiveLocks

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

TABLES = (
    "create database dw",
    "create table dw.src (k int, dt string) using parquet partitioned by (dt)",
    "insert into dw.src values (1, '2024-01-01'), (2, '2024-01-02')",
    "create table dw.h (k int) partitioned by (dt string) stored as parquet",
    "insert into dw.h partition (dt = '2024-01-01') values (1)",
    "create table dw.t (k int) stored as textfile",
    "create view dw.v as select * from dw.src where dt >= '2024-01-02'",
)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    reason = "Spark Connect needs grpcio, grpcio-status, pandas and pyarrow: make test has them"
    sessions = pytest.importorskip("pyspark.sql.connect.session", reason=reason, exc_type=ImportError)
    if SparkConnectServer.missing():
        pytest.skip("this PySpark has no server of Spark Connect: make test has one")
    with SparkConnectServer(tmp_path_factory.mktemp("connect")) as server:
        session = sessions.SparkSession.builder.remote(server.url).create()
        for statement in TABLES:
            session.sql(statement)
        session.range(1).createOrReplaceTempView("made_before")
        yield session
        session.stop()


def test_a_command_locks_what_its_text_touches(spark: Any, taken: Callable[[], list[str]]) -> None:
    spark.sql("insert overwrite dw.h partition (dt = '2024-01-01') select k from dw.v")
    assert taken() == ["dw.h/dt=2024-01-01!", "dw.src/dt=2024-01-02", "dw.v"]
    spark.sql("insert into dw.src values (3, '2024-01-02')")
    assert taken() == ["dw.src!"], "Spark's own writer shares a directory of the table"
    spark.sql("use dw")
    spark.sql("alter table t set tblproperties ('a' = 'b')")
    assert taken() == ["dw.t!"]
    spark.sql("insert into dw.t select k from src where dt = :dt", {"dt": "2024-01-01"})
    assert "dw.t!" in taken()
    spark.sql("use default")
    assert taken() == []


def test_a_query_locks_when_it_runs(spark: Any, taken: Callable[[], list[str]]) -> None:
    day = spark.sql("select * from dw.src where dt = '2024-01-01'")
    assert taken() == []
    assert day.where("k = 1").count() == 1
    assert taken() == ["dw.src/dt=2024-01-01"]
    day.show()
    assert taken() == ["dw.src/dt=2024-01-01"]
    assert len(spark.table("dw.src").where("dt = '2024-01-01'").toPandas()) == 1
    assert taken() == ["dw.src/dt=2024-01-01", "dw.src/dt=2024-01-02"], "filters of DataFrames are not read"
    assert spark.range(3).count() == 3
    assert taken() == []


def test_a_temporary_view_locks_what_it_reads(spark: Any, taken: Callable[[], list[str]]) -> None:
    spark.sql("create or replace temporary view late as select * from dw.src where dt = '2024-01-02'")
    assert taken() == ["dw.src"], "no other job may drop its tables while Spark creates it"
    spark.sql("select * from late").createOrReplaceTempView("later")
    assert taken() == []
    spark.sql("select count(*) from later").collect()
    assert taken() == ["dw.src/dt=2024-01-02"]
    with pytest.raises(Exception, match="ALREADY_EXISTS"):
        spark.sql("create temporary view late as select 1 k")
    spark.sql("select count(*) from late").collect()
    assert "dw.src/dt=2024-01-02" in taken(), "a statement that failed has changed no view"


@pytest.mark.parametrize(
    ("cache", "clear"),
    [
        (lambda spark: spark.sql("cache lazy table dw.src"), lambda spark: spark.sql("clear cache")),
        (
            lambda spark: [
                spark.sql(text)
                for text in ("create or replace temporary view seen as select * from dw.src", "cache table seen")
            ],
            lambda spark: spark.sql("clear cache"),
        ),
        (lambda spark: spark.catalog.cacheTable("dw.src"), lambda spark: spark.catalog.clearCache()),
        (lambda spark: spark.table("dw.src").persist(), lambda spark: spark.catalog.clearCache()),
    ],
    ids=["CACHE TABLE", "CACHE TABLE of a view", "cacheTable", "persist"],
)
def test_a_query_locks_all_partitions_that_spark_reads_into_a_cache(
    cache: Callable[[Any], Any], clear: Callable[[Any], Any], spark: Any, taken: Callable[[], list[str]]
) -> None:
    day = "select count(*) from dw.src where dt = '2024-01-01'"
    cache(spark)
    taken()
    spark.sql(day).collect()
    assert taken() == ["dw.src/dt=2024-01-01", "dw.src/dt=2024-01-02"]
    clear(spark)
    spark.sql(day).collect()
    assert taken() == ["dw.src/dt=2024-01-01"]


def test_a_views_own_column_names_count(spark: Any, taken: Callable[[], list[str]]) -> None:
    spark.sql("create view dw.renamed (dt, day) as select string(k), dt from dw.src")
    taken()
    spark.sql("select * from dw.renamed where dt = '2024-01-01'").collect()
    assert taken() == ["dw.renamed", "dw.src/dt=2024-01-01", "dw.src/dt=2024-01-02"]
    spark.sql("select * from dw.renamed where day = '2024-01-01'").collect()
    assert taken() == ["dw.renamed", "dw.src/dt=2024-01-01"]


def test_an_unknown_temporary_view_is_refused(spark: Any, taken: Callable[[], list[str]]) -> None:
    spark.table("dw.t").where("k > 1").createOrReplaceTempView("filtered")
    for view in ("made_before", "filtered"):
        with pytest.raises(InvalidRequest, match=f"{view} is not a known table or temporary view"):
            spark.sql(f"select * from {view}").collect()
    spark.range(2).createOrReplaceGlobalTempView("everywhere")
    with pytest.raises(InvalidRequest, match="created by another session"):
        spark.sql("select * from global_temp.everywhere").collect()
    spark.sql("create or replace temporary view filtered as select * from dw.t")
    spark.sql("select * from filtered").collect()
    assert taken() == ["dw.t", "dw.t"]


@pytest.mark.parametrize(
    ("what", "run"),
    {
        "insertInto": lambda frame, _: frame.write.insertInto("dw.t"),
        "saveAsTable": lambda frame, _: frame.write.mode("append").saveAsTable("dw.t"),
        "parquet": lambda frame, path: frame.write.mode("overwrite").parquet(path),
        "writeTo": lambda frame, _: frame.writeTo("dw.t").append(),
        "read by path": lambda frame, path: frame.sparkSession.read.schema("k int").csv(path).collect(),
        "catalog": lambda frame, _: frame.sparkSession.catalog.createTable("dw.made", schema=frame.schema).collect(),
        "a frame in SQL": lambda frame, _: frame.sparkSession.sql("insert into dw.t select * from {f}", f=frame),
    }.items(),
)
def test_a_call_without_text_is_refused_and_runs_under_a_lease(
    what: str, run: Callable[[Any, str], Any], spark: Any, locks: HiveLocks, manager: LockManager, tmp_path: Any
) -> None:
    frame, folder = spark.sql("select cast(7 as int) k"), tmp_path / "files"
    folder.mkdir()
    with pytest.raises(InvalidRequest, match=r"not covered in Spark Connect.*HiveLocks\.lease"):
        run(frame, str(folder))
    before = len(manager.history())
    with locks.lease(writes=["dw.t", "dw.made"]):
        if what == "catalog":  # the table does not exist, so the call succeeds
            run(frame, str(folder))
        else:
            with suppress(Exception):
                run(frame, str(folder))
    assert len(manager.history()) == before + 1


def test_sql_that_the_planner_refuses_runs_under_a_lease(
    spark: Any, locks: HiveLocks, taken: Callable[[], list[str]]
) -> None:
    spark.sql("create or replace temporary view known as select * from dw.t")
    statement = "/*/**/*/ create or replace temporary view known as select 1 k"
    with pytest.raises(InvalidRequest, match=r"in Spark Connect run it under a lease.*HiveLocks\.lease"):
        spark.sql(statement)
    with locks.lease(reads=["dw.t"]):
        spark.sql(statement)
    with pytest.raises(InvalidRequest, match="is not a known table or temporary view"):
        spark.sql("select * from known").collect()
    assert taken() == ["dw.t", "dw.t"]


@pytest.mark.parametrize("option", [{"unknown": "lock"}, {"catalogs": ["spark_catalog", "lake"]}, {"others": ["lake"]}])
def test_options_that_need_a_plan_are_refused(option: dict[str, Any], spark: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"no effect in Spark Connect.*remove them"):
        enable_hive_locks(spark, URL, **option)


def test_a_view_that_another_session_has_changed_locks_what_it_reads_now(
    spark: Any, locks: HiveLocks, taken: Callable[[], list[str]]
) -> None:
    spark.sql("create or replace view dw.w as select k from dw.h")
    past_the_locks: Any = locks
    past_the_locks._side._ask("create or replace view dw.w as select k from dw.t")
    taken()
    spark.sql("select * from dw.w").collect()
    assert taken() == ["dw.t", "dw.w"]


@pytest.mark.parametrize(
    "text",
    [
        "select * from parquet.`{home}/dw.db/src`",
        "insert overwrite directory '{home}/dw.db/src' using parquet select 1",
        "create temporary view files using parquet options (path '{home}/dw.db/src')",
    ],
)
def test_sql_that_names_files_is_refused(text: str, spark: Any, locks: HiveLocks) -> None:
    home = spark.conf.get("spark.sql.warehouse.dir")
    with pytest.raises(InvalidRequest, match="names files by path"):
        spark.sql(text.format(home=home)).collect()


def test_it_waits_for_others(spark: Any, locks: HiveLocks, manager: LockManager) -> None:
    theirs = manager.acquire(owner="ann", writes=["dw.t"])
    locks.disable()
    short = enable_hive_locks(spark, URL, timeout_s=0.5, progress=False)
    try:
        with pytest.raises(LockTimeout, match="ann holds"):
            spark.sql("insert into dw.t values (1)")
    finally:
        short.disable()
        manager.release(theirs)
    assert not manager.waiters()


def test_a_reader_that_waited_sees_the_rows_that_are_there_now(
    spark: Any, locks: HiveLocks, manager: LockManager
) -> None:
    spark.sql("create table dw.files (k int) using parquet")
    spark.sql("insert into dw.files values (1)")
    read = spark.table("dw.files")
    assert read.count() == 1
    theirs = manager.acquire(owner="ann", writes=["dw.files"])
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.extend(read.collect()))
    reader.start()
    while not manager.waiters():
        reader.join(0.01)
    other = spark.newSession() if hasattr(spark, "newSession") else None
    if other is not None:
        with pytest.raises(InvalidRequest, match="takes no locks"):
            other.sql("insert overwrite dw.files values (2), (3)")
    manager.release(theirs)
    reader.join()
    assert [row.k for row in found] == [1]


def test_a_statement_that_fails_releases_its_locks(spark: Any, taken: Callable[[], list[str]]) -> None:
    with pytest.raises(Exception, match="USER_RAISED"):
        spark.sql("insert into dw.t select raise_error('no')")
    with pytest.raises(Exception, match="USER_RAISED"):
        spark.sql("select raise_error(dt) from dw.src where dt = '2024-01-01'").collect()
    assert taken() == ["dw.t!", "dw.src/dt=2024-01-01"]


def test_an_error_of_the_connection_is_no_end_of_the_statement(spark: Any, locks: HiveLocks) -> None:
    side: Any = locks
    with pytest.raises(Exception, match="USER_RAISED") as answered:
        spark.sql("select raise_error('no')").collect()
    assert side._side.ended(answered.value)
    lost = pytest.importorskip("pyspark.errors.exceptions.connect").SparkConnectGrpcException
    assert not side._side.ended(lost("failed to connect to all addresses"))


def test_an_iterator_holds_its_locks_until_it_is_closed(spark: Any, locks: HiveLocks, manager: LockManager) -> None:
    rows: Any = spark.table("dw.src").toLocalIterator()
    next(rows)
    assert len(manager.leases()) == 1
    rows.close()
    assert not manager.leases()


def test_explain_and_disable(spark: Any, manager: LockManager) -> None:
    client = type(spark.client)
    before = client._execute, client._execute_and_fetch_as_iterator
    locks = enable_hive_locks(spark, URL)
    assert client._execute is not before[0]
    assert "dw.t -> EXCLUSIVE" in locks.explain("drop table dw.t")
    assert "dw.src.dt=2024-01-02 -> SHARED" in locks.explain(spark.sql("select * from dw.v"))
    locks.disable()
    assert (client._execute, client._execute_and_fetch_as_iterator) == before
    history = len(manager.history())
    spark.table("dw.t").count()
    assert len(manager.history()) == history
