"""A rival changes tables and views while a statement of Spark waits for its locks. The statement locks what it then touches.

The rival is another session. Like another application, it has its own caches, and it takes no locks.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from airflow_hivelock.locks.model import LockMode
from airflow_hivelock.locks.rules import named

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.spark import HiveLocks

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

STORED = "stored as parquet"

TABLES = (
    "create database dw",
    f"create table dw.gate (k int) {STORED}",
    f"create table dw.a (k int) {STORED}",
    f"create table dw.b (k int) {STORED}",
)
"""Each statement waits for ``dw.gate``."""


@pytest.fixture
def rival(spark: SparkSession) -> Callable[..., None]:
    """Run statements without locks, in a new session."""
    session: Any = spark.newSession()

    def run(*statements: str) -> None:
        for statement in statements:
            session._jsparkSession.sql(statement)

    return run


@pytest.fixture
def waits(locks: HiveLocks, manager: LockManager) -> Any:
    """Run a statement that waits for its locks until another step is done. Return the last locks that it took."""

    def run(statement: Callable[[], object], meanwhile: Callable[[], object]) -> list[str]:
        theirs = manager.acquire(owner="ann", writes=["dw.gate"])
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(statement)
            while not manager.waiters() and not running.done():
                time.sleep(0.01)
            meanwhile()
            manager.release(theirs)
            running.result()
        last = max(manager.history(), key=lambda each: each.granted or each.asked)
        return [f"{lock.object}{'!' * (lock.mode is LockMode.EXCLUSIVE)}" for lock in named(last.locks)]

    return run


RIVALS = {
    "a view reads another table": (
        ["create or replace view dw.v as select k from dw.a"],
        "insert into dw.gate select k from dw.v",
        ["create or replace view dw.v as select k from dw.b"],
        "dw.b dw.gate! dw.v",
    ),
    "a view reads its table by another view": (
        ["create or replace view dw.w as select k from dw.a", "create or replace view dw.v as select k from dw.a"],
        "insert into dw.gate select k from dw.v",
        ["create or replace view dw.v as select k from dw.w"],
        "dw.a dw.gate! dw.v dw.w",
    ),
    "a partition is added": (
        [
            f"create table dw.p (k int) partitioned by (dt string) {STORED}",
            "alter table dw.p add partition (dt = '1')",
        ],
        "insert into dw.gate select k from dw.p",
        ["alter table dw.p add partition (dt = '2')"],
        "dw.gate! dw.p/dt=1 dw.p/dt=2",
    ),
    "a table has other partitions": (
        [f"create table dw.r (k int, hr string) partitioned by (dt string) {STORED}"],
        "insert into dw.gate select k from dw.r where dt = '1'",
        [
            "drop table dw.r",
            f"create table dw.r (k int, dt string) partitioned by (hr string) {STORED}",
            "alter table dw.r add partition (hr = '7')",
        ],
        "dw.gate! dw.r/hr=7",
    ),
    "a table is a view": (
        [f"create table dw.n (k int) {STORED}"],
        "insert into dw.gate select k from dw.n",
        ["drop table dw.n", "create view dw.n as select k from dw.b"],
        "dw.b dw.gate! dw.n",
    ),
    "the target has its partitions in another order": (
        [f"create table dw.x (k int) partitioned by (dt string, hr string) {STORED}"],
        "insert overwrite table dw.x partition (dt = '1', hr = '2') select k from dw.gate",
        ["drop table dw.x", f"create table dw.x (k int) partitioned by (hr string, dt string) {STORED}"],
        "dw.gate dw.x/hr=2/dt=1!",
    ),
}


@pytest.mark.parametrize("case", RIVALS)
def test_a_statement_locks_what_it_touches_in_the_end(
    case: str, spark: SparkSession, rival: Callable[..., None], waits: Any
) -> None:
    before, statement, changes, locked = RIVALS[case]
    rival(*before)
    assert waits(lambda: spark.sql(statement), lambda: rival(*changes)) == locked.split()


@pytest.mark.skipif(pyspark.__version__ < "4", reason="Spark 3.5 has no functions in SQL")
def test_a_function_reads_what_is_locked(spark: SparkSession, rival: Callable[..., None], waits: Any) -> None:
    make = "create or replace function dw.most() returns int return (select max(k) from dw.{table})"
    rival("insert into dw.a values (1)", "insert into dw.b values (2)", make.format(table="a"))
    locked = waits(
        lambda: spark.sql("insert overwrite dw.gate select dw.most()"), lambda: rival(make.format(table="b"))
    )
    [row] = spark.table("dw.gate").collect()
    assert locked == [{1: "dw.a", 2: "dw.b"}[row.k], "dw.gate!"]


def test_a_table_made_of_another_has_the_rows_that_are_there_in_the_end(
    spark: SparkSession, rival: Callable[..., None], waits: Any
) -> None:
    rival("create table dw.files (k int) using parquet", "insert into dw.files values (1)")
    assert spark.table("dw.files").count() == 1, "Spark has listed its files"
    waits(
        lambda: spark.sql(f"create table dw.copy {STORED} as select k from dw.files union all select k from dw.gate"),
        lambda: rival("truncate table dw.gate", "insert overwrite dw.files values (2), (3)"),
    )
    assert sorted(row.k for row in spark.table("dw.copy").collect()) == [2, 3]


@pytest.mark.parametrize(
    "act",
    [
        lambda frame: frame.count(),
        lambda frame: frame.write.insertInto("dw.a"),
        lambda frame: list(frame.toLocalIterator()),
    ],
)
def test_an_action_locks_a_partition_that_is_added(
    act: Callable[[Any], object], spark: SparkSession, rival: Callable[..., None], waits: Any
) -> None:
    rival(
        "drop table if exists dw.q",
        f"create table dw.q (k int) partitioned by (dt string) {STORED}",
        "alter table dw.q add partition (dt = '1')",
    )
    frame = spark.table("dw.gate").unionAll(spark.table("dw.q").select("k"))
    locked = waits(lambda: act(frame), lambda: rival("alter table dw.q add partition (dt = '2')"))
    assert set(locked) >= {"dw.gate", "dw.q/dt=1", "dw.q/dt=2"}


def test_the_time_is_that_of_the_reading(spark: SparkSession, rival: Callable[..., None], waits: Any) -> None:
    """Otherwise a statement that waits over midnight reads a day that it has not locked."""
    rival(f"create table dw.seconds (k int) partitioned by (at int) {STORED}")
    soon = int(time.time()) + 10
    rival(f"alter table dw.seconds add partition (at = {soon})")
    frame = spark.sql(
        "select k from dw.gate union all select k from dw.seconds where at <= cast(unix_timestamp() as int)"
    )

    def until_then() -> None:
        while time.time() <= soon:
            time.sleep(0.05)

    assert waits(frame.count, until_then) == ["dw.gate", f"dw.seconds/at={soon}"]
