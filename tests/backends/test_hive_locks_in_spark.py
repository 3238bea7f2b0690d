"""A PySpark session under Hive's locks: the locks of each statement, and their release."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from airflow_hivelock.locks import InvalidRequest, LockLost, LockManager, LockTimeout
from airflow_hivelock.locks.plan.text import plan_sql
from airflow_hivelock.spark import commands, enable_hive_locks
from airflow_hivelock.spark.interception import ACTIONS
from airflow_hivelock.spark.plans import SessionPlans
from tests.backends.conftest import URL
from tests.backends.spark_plans import PLANS
from tests.docs.blocks import Block, Kind, blocks
from tests.support.sql.judged import JUDGED, Judged, judgement

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_hivelock.locks.plan.text import Plan
    from airflow_hivelock.spark import HiveLocks

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

TABLES = (
    "create database dw",
    "create table dw.src (k int, dt string) using parquet partitioned by (dt)",
    "insert into dw.src values (1, '2024-01-01'), (2, '2024-01-02')",
    "create table dw.h (k int) partitioned by (dt string, hr int) stored as parquet",
    "insert into dw.h partition (dt = '2024-01-01', hr = 1) values (1)",
    "create table dw.t (k int) stored as textfile",
    "create table dw.p (k int) using parquet",
    "create table dw.flights (delay int) partitioned by (dt string) stored as parquet",
    "insert into dw.flights partition (dt = '2013-01-15') values (5)",
    "create table dw.delays (delay int) partitioned by (dt string) stored as parquet",
    "create view dw.v as select * from dw.src where dt >= '2024-01-02'",
    "create temporary view made as select 1 k",
)


@pytest.mark.parametrize("statement", PLANS)
def test_a_statement_locks_what_sparks_plan_touches(statement: str, locks: HiveLocks) -> None:
    _, *lines = locks.explain(statement).splitlines()
    found = {}
    for line in lines:
        target, _, mode = line.partition(" -> ")
        found[target.replace(".dt=", "/dt=")] = mode
    above = {name for name in found for other in found if other.startswith((f"{name}/", f"{name}."))}
    shown = [f"{name}{'!' * (mode == 'EXCLUSIVE')}" for name, mode in found.items() if name not in above]
    views = [name for name in PLANS[statement].split() if name in above]
    assert sorted([*shown, *views]) == sorted(PLANS[statement].split())


@pytest.mark.parametrize("judged", JUDGED, ids=lambda each: each.example)
def test_the_planners_differ_where_it_is_judged(judged: Judged, spark: SparkSession) -> None:
    """Remove a row of tests/support/sql/judged.py that is no longer true."""
    if pyspark.__version__ < "4" and " function " in judged.example:
        pytest.skip("Spark 3.5 has no functions in SQL")

    def shown(found: Plan) -> list[str]:
        locked = [*map(str, found.reads), *(f"{each}!" for each in found.writes)]
        return [each for each in locked if not any(other.startswith(f"{each}/") for other in locked)]

    plans = SessionPlans(spark)
    by_plan = plans.of_sql(spark._jsparkSession, judged.example, runs=True).plan
    if judged.text == "refused":
        with pytest.raises(InvalidRequest):
            plan_sql(judged.example, plans.tables)
    else:
        assert shown(plan_sql(judged.example, plans.tables)) == judged.text.split()
    assert shown(by_plan) == judged.plan.split()
    assert judgement(judged.example, judged.differs) == judged.why


def day(spark: SparkSession) -> Any:
    return spark.table("dw.src").where("dt = '2024-01-01'")


CALLS: dict[str, tuple[Callable[[SparkSession, str, str], Any], str]] = {
    "count": (lambda spark, *_: day(spark).count(), ""),
    "collect": (lambda spark, *_: day(spark).collect(), ""),
    "show": (lambda spark, *_: day(spark).show(), ""),
    "take": (lambda spark, *_: day(spark).take(1), ""),
    "first": (lambda spark, *_: day(spark).first(), ""),
    "isEmpty": (lambda spark, *_: day(spark).isEmpty(), ""),
    "describe": (lambda spark, *_: day(spark).describe(), ""),
    "toLocalIterator": (lambda spark, *_: list(day(spark).toLocalIterator()), ""),
    "foreach": (lambda spark, *_: day(spark).foreach(print), ""),
    "localCheckpoint": (lambda spark, *_: day(spark).localCheckpoint(), ""),
    "pivot": (lambda spark, *_: day(spark).groupBy("k").pivot("dt"), ""),
    "a write to nowhere": (lambda spark, *_: day(spark).write.format("noop").mode("append").save(), ""),
    "a write elsewhere": (lambda spark, _, folder: day(spark).write.parquet(f"{folder}/elsewhere"), ""),
    "insertInto": (lambda spark, *_: day(spark).select("k").write.insertInto("dw.t"), "dw.t!"),
    "insertInto a temporary view": (
        lambda spark, *_: spark.table("dw.t").createTempView("tv") or appends(spark).insertInto("tv"),
        "default.tv! dw.t!",
    ),
    "saveAsTable": (lambda spark, *_: day(spark).write.mode("overwrite").saveAsTable("dw.saved"), "dw.saved!"),
    "a write to a table's files": (lambda spark, home, _: appends(spark).parquet(f"{home}/dw.db/p"), "dw.p!"),
    "the same by option": (lambda spark, home, _: appends(spark).option("path", f"{home}/dw.db/p").save(), "dw.p!"),
    # From here on, a write to the files of dw.p is also one to those of dw.n.
    "create in a table's files": (
        lambda spark, home, _: day(spark).writeTo("dw.n").using("orc").option("path", f"{home}/dw.db/p/_n").create(),
        "dw.n! dw.p!",
    ),
    "a read of a table's files": (
        lambda spark, home, _: spark.read.parquet(f"{home}/dw.db/src/dt=2024-01-01").collect(),
        "",
    ),
    "a parameter by name": (lambda spark, *_: spark.sql(f"{COPY} where dt = :dt", {"dt": "2024-01-01"}), "dw.t!"),
    "a parameter by place": (lambda spark, *_: spark.sql(f"{COPY} where dt = ?", ["2024-01-01"]), "dw.t!"),
    "a number and a NULL as parameters": (
        lambda spark, *_: spark.sql(
            f"{COPY} where dt = :dt and k < :k and k is distinct from :none",
            {"dt": "2024-01-01", "k": -1.5e-300, "none": None},
        ),
        "dw.t!",
    ),
    "a frame in SQL": (lambda spark, *_: spark.sql("insert into dw.t select k from {f}", f=day(spark)), "dw.t!"),
    "a new session of the driver": (lambda spark, *_: day(spark.newSession()).count(), ""),
}
"""Calls that read the day *dw.src/dt=2024-01-01*, and what else they lock."""

COPY = "insert into dw.t select k from dw.src"


def appends(spark: SparkSession) -> Any:
    return day(spark).select("k").write.mode("append")


@pytest.mark.parametrize("call", CALLS)
def test_a_call_locks_what_it_touches_while_it_runs(
    call: str, spark: SparkSession, taken: Callable[[], list[str]], tmp_path: Path
) -> None:
    act, besides = CALLS[call]
    act(spark, spark.conf.get("spark.sql.warehouse.dir") or "", str(tmp_path))
    assert sorted(taken()) == sorted(["dw.src/dt=2024-01-01", *besides.split()])


def test_what_only_describes_data_locks_nothing(spark: SparkSession, taken: Callable[[], list[str]]) -> None:
    spark.sql("select * from dw.src").filter("k = 1").createOrReplaceTempView("described")
    day(spark).join(spark.table("dw.t"), "k").cache().unpersist()
    assert taken() == []
    assert spark.sql("select k from described where dt = '2024-01-01'").collect()
    assert taken() == ["dw.src/dt=2024-01-01"]


@pytest.mark.parametrize("shown", [repr, lambda frame: frame._repr_html_()], ids=["repr", "html"])
def test_a_frame_that_shows_its_rows_locks_them(
    spark: SparkSession, taken: Callable[[], list[str]], shown: Callable[[Any], Any]
) -> None:
    shown(day(spark))
    assert taken() == []
    spark.conf.set("spark.sql.repl.eagerEval.enabled", "true")
    try:
        assert "2024-01-01" in shown(day(spark))
    finally:
        spark.conf.unset("spark.sql.repl.eagerEval.enabled")
    assert taken() == ["dw.src/dt=2024-01-01"]


def test_the_rows_of_a_command_are_no_data(spark: SparkSession, taken: Callable[[], list[str]]) -> None:
    shown = spark.sql("show partitions dw.src")
    assert taken() == ["dw.src"]
    assert {row.partition for row in shown.filter("partition like 'dt%'").collect()} == {
        "dt=2024-01-01",
        "dt=2024-01-02",
    }
    shown.show()
    assert taken() == []


@pytest.mark.parametrize(
    "fail",
    [
        lambda spark: spark.sql("insert into dw.t select raise_error('no')"),
        lambda spark: spark.sql("select raise_error(dt) from dw.src").collect(),
        lambda spark: day(spark).write.insertInto("dw.t"),
        lambda spark: next(spark.sql("select raise_error(dt) from dw.src").toLocalIterator()),
    ],
)
def test_a_statement_that_fails_releases_its_locks(
    spark: SparkSession, taken: Callable[[], list[str]], fail: Callable[[Any], Any]
) -> None:
    with pytest.raises(Exception, match=r"USER_RAISED|MISMATCH|number of data columns|SparkException"):
        fail(spark)
    assert taken()


def test_a_waiting_statement_shows_the_holder(
    spark: SparkSession, locks: HiveLocks, manager: LockManager, capsys: pytest.CaptureFixture[str]
) -> None:
    locks.disable()
    shown = enable_hive_locks(spark, URL, timeout_s=1.5, progress=True)
    theirs = manager.acquire(owner="ann", writes=["dw.t"])
    with pytest.raises(LockTimeout, match="ann holds"):
        spark.table("dw.t").count()
    assert "s for dw.t SHARED: ann holds dw.t EXCLUSIVE" in capsys.readouterr().err
    assert not manager.waiters()
    manager.release(theirs)
    spark.table("dw.t").count()
    shown.disable()


def test_a_reader_that_waited_sees_the_files_that_are_there_now(
    spark: SparkSession, locks: HiveLocks, manager: LockManager
) -> None:
    spark.sql("create table dw.files (k int) using parquet")
    spark.sql("insert into dw.files values (1)")
    read = spark.table("dw.files")  # Spark has listed its files
    theirs = manager.acquire(owner="ann", writes=["dw.files"])
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.extend(read.collect()))
    reader.start()
    while not manager.waiters():
        reader.join(0.01)
    written = spark._jsparkSession.sql("insert overwrite dw.files values (2), (3)")
    assert written
    manager.release(theirs)
    reader.join()
    assert sorted(row.k for row in found) == [2, 3]


def test_an_iterator_holds_its_locks_to_its_end(spark: SparkSession, locks: HiveLocks, manager: LockManager) -> None:
    rows: Any = spark.table("dw.src").toLocalIterator()
    next(rows)
    assert [str(lease.locks[1].object) for lease in manager.leases()] == ["dw.src"]
    spark.sql("insert into dw.t values (1)")
    with pytest.raises(InvalidRequest, match="would wait for its own lease"):
        spark.sql("insert into dw.src values (1, '2024-01-01')")
    rows.close()
    assert not manager.leases()


def test_one_lease_for_several_statements(
    spark: SparkSession, taken: Callable[[], list[str]], locks: HiveLocks
) -> None:
    with locks.lease(reads=["dw.src/dt=2024-01-01"], writes=["dw.t"]):
        assert day(spark).count() == 1
        spark.sql("insert into dw.t select k from dw.src where dt = '2024-01-01'")
        assert day(spark).rdd.count() == 1
    assert taken() == ["dw.src/dt=2024-01-01", "dw.t!"]


def test_beyond_its_lease_a_statement_asks(
    spark: SparkSession, taken: Callable[[], list[str]], locks: HiveLocks
) -> None:
    with locks.lease(reads=["dw.src/dt=2024-01-01"]):
        spark.table("dw.src").where("dt = '2024-01-02'").count()
    assert taken() == ["dw.src/dt=2024-01-01", "dw.src/dt=2024-01-02"]


def test_beyond_its_lease_a_statement_can_fail(spark: SparkSession, locks: HiveLocks, manager: LockManager) -> None:
    locks.disable()
    strict = enable_hive_locks(spark, URL, outside="fail")
    with strict.lease(reads=["dw.src/dt=2024-01-01"]):
        assert day(spark).count() == 1
        with pytest.raises(InvalidRequest, match="SHARED, and its lease does not hold"):
            spark.table("dw.src").where("dt = '2024-01-02'").count()
    strict.disable()


def test_under_the_lease_of_a_task_it_locks_nothing_again(spark: SparkSession, manager: LockManager) -> None:
    given = manager.start_work(manager.acquire(owner="task", writes=["dw.t"]), "load", "spark-submit")
    for name, value in {"lease": given.id, "work": "load", "token": str(given.token)}.items():
        spark.conf.set(f"spark.hivelock.{name}", value)
    try:
        under = enable_hive_locks(spark, URL, outside="fail")
        spark.sql("insert into dw.t values (1)")
        with pytest.raises(InvalidRequest, match="does not hold"):
            day(spark).count()
        manager.start_work(given, "load", "a later try")
        with pytest.raises(LockLost):
            spark.sql("insert into dw.t values (1)")
        manager.release(given)
        with pytest.raises(LockLost):
            spark.table("dw.t").count()
        under.disable()
    finally:
        for name in ("lease", "work", "token"):
            spark.conf.unset(f"spark.hivelock.{name}")


def test_a_statement_whose_lease_was_freed_by_force_fails(
    spark: SparkSession, locks: HiveLocks, manager: LockManager
) -> None:
    rows = day(spark).toLocalIterator()
    manager.force_release_all(held_s=0, reason="not needed", user="ops")
    with pytest.raises(LockLost, match="do not trust its result"):
        list(rows)


def test_an_rdd_and_a_stream_would_read_without_locks(spark: SparkSession, locks: HiveLocks) -> None:
    with pytest.raises(InvalidRequest, match="an RDD reads dw"):
        day(spark).rdd  # noqa: B018
    if spark.version >= "4.2":  # older ones take no DataFrame here
        with pytest.raises(InvalidRequest, match=r"spark\.read\.json of a DataFrame reads dw"):
            spark.read.json(day(spark).selectExpr("to_json(struct(*))"))
    stream = spark.readStream.format("rate").load().selectExpr("cast(value as int) k")
    with pytest.raises(InvalidRequest, match="write each batch with foreachBatch"):
        stream.writeStream.toTable("dw.t")
    with pytest.raises(InvalidRequest, match="a stream that touches dw"):
        stream.join(spark.table("dw.t"), "k").writeStream.format("memory").queryName("q").start()


def test_a_streams_batches_lock_for_themselves(
    spark: SparkSession, taken: Callable[[], list[str]], tmp_path: Path
) -> None:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def write(batch: Any, _number: int) -> None:
        batch.selectExpr("cast(value as int) k").write.insertInto("dw.t")

    query = (
        stream.writeStream.foreachBatch(write).trigger(once=True).option("checkpointLocation", str(tmp_path)).start()
    )
    query.awaitTermination(60)
    assert taken() == ["dw.t!"]


def test_threads_wait_for_one_another(spark: SparkSession, locks: HiveLocks, manager: LockManager) -> None:
    def write(value: int) -> None:
        spark.sql(f"insert overwrite table dw.t select {value} from range(100)")

    writers = [threading.Thread(target=write, args=(value,)) for value in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len({row.k for row in spark.table("dw.t").collect()}) == 1
    assert not manager.leases()


def test_an_unknown_command_is_refused_or_locks_what_it_names(
    spark: SparkSession, locks: HiveLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "KNOWN", commands.KNOWN - {"AlterTableSetPropertiesCommand"})
    monkeypatch.setattr(commands, "WRITES", commands.WRITES - {"AlterTableSetPropertiesCommand"})
    statement = "alter table dw.t set tblproperties ('a' = 'b')"
    with pytest.raises(InvalidRequest, match="AlterTableSetPropertiesCommand are not known"):
        spark.sql(statement)
    with locks.lease(writes=["dw.t"]):
        spark.sql(statement)
    locks.disable()
    lenient = enable_hive_locks(spark, URL, unknown="lock")
    assert "dw.t -> EXCLUSIVE" in lenient.explain(statement)
    lenient.disable()


@pytest.mark.skipif(pyspark.__version__ < "4", reason="Spark 3.5 has no EXECUTE IMMEDIATE")
def test_what_runs_while_it_is_analysed_is_refused(spark: SparkSession, locks: HiveLocks) -> None:
    before = spark.table("dw.t").count()
    with pytest.raises(InvalidRequest, match="EXECUTE IMMEDIATE"):
        spark.sql("execute immediate 'insert into dw.t values (1)'")
    assert spark.table("dw.t").count() == before
    with locks.lease(writes=["dw.t"]):
        spark.sql("execute immediate 'insert into dw.t values (1)'")
    assert spark.table("dw.t").count() == before + 1


def test_disable_restores_pysparks_own_methods(spark: SparkSession, manager: LockManager) -> None:
    frame = type(spark.range(1))
    before = {name: getattr(frame, name, None) for name in (*ACTIONS, "rdd")}, SparkSession.sql
    locks = enable_hive_locks(spark, URL)
    assert SparkSession.sql is not before[1]
    locks.disable()
    assert ({name: getattr(frame, name, None) for name in before[0]}, SparkSession.sql) == before
    history = len(manager.history())
    spark.table("dw.t").count()
    assert len(manager.history()) == history


def test_the_lock_store_can_be_in_the_configuration(spark: SparkSession, manager: LockManager) -> None:
    with pytest.raises(InvalidRequest, match=r"spark\.hivelock\.url"):
        enable_hive_locks(spark)
    spark.conf.set("spark.hivelock.url", URL)
    history = len(manager.history())
    locks = enable_hive_locks(spark)
    spark.table("dw.t").count()
    assert len(manager.history()) == history + 1
    locks.disable()
    spark.conf.unset("spark.hivelock.url")


@pytest.mark.parametrize("block", blocks(Kind.NOTEBOOK), ids=str)
def test_the_guides_notebook_runs(block: Block, spark: SparkSession, manager: LockManager) -> None:
    history = len(manager.history())
    text = re.sub(r'"zookeeper://[^"]*"', repr(URL), block.padded)
    given: dict[str, Any] = {"spark": spark, "__name__": "docs"}
    exec(compile(text, block.page, "exec", dont_inherit=True), given)
    given["locks"].disable()
    assert len(manager.history()) > history
    assert spark.table("dw.delays").where("dt = '2013-01-15'").count() == 1
