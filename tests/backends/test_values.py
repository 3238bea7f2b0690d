"""Real Hive and real Spark create partitions from values in many spellings: a lock has the name that both use, or none.

A plan with their metastore: two spellings lead to one lock, and an unknown one is reported.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import InvalidRequest, LockObject, LockTimeout, connect
from airflow_hivelock.locks.hive.catalog import connect_catalog
from airflow_hivelock.locks.model.object import unescape_level
from airflow_hivelock.locks.plan import plan, plan_statements
from airflow_hivelock.locks.spelling import canonical
from tests.support.servers import HiveError, HiveSession, Metastore, ZooKeeperServer
from tests.system.race.spark import run_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_hivelock.locks.hive.catalog import Catalog

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

WHOLE = ("7", "07", "+7", "-07", "-0", " 7", "x", "7.0", "1e1", "300", "9223372036854775808")
MOMENTS = ("2024-02-09 10:00:00", "2024-2-9 1:2:3.50", "2024-02-09 10:00:00.0", "2024-02-09", "2024-02-09T10:00:00")
TRIED = {
    "string": ("2024-2-9", "07", "A", "a ", " a"),
    "varchar(3)": ("ab", "a ", "abcd"),
    "char(3)": ("a", "a ", " a", "abcd"),
    **dict.fromkeys(("tinyint", "int", "bigint"), WHOLE),
    "date": ("2024-02-09", "2024-2-9", "20240209", "2024-02-30", "0024-2-9", "12024-02-09", "2024-02", "x"),
    "boolean": ("true", "FALSE", "false", "TRUE", "x"),
    "decimal(5,2)": ("1.25", "01.25", "+1.25", "1.250", "1", "1.5", "0", "10000.25", "x"),
    "decimal(3,0)": ("7", "07", "7.0", "-0", "1000"),
    "double": ("1", "1.50", "0.1", "-2.50", "0", "0.001", "9999999", "x"),
    "float": ("1", "1.50", "0.1", "0.123456"),
    "timestamp": ("2024-02-09 10:00:00.25", *MOMENTS, "x"),
}
"""Spellings, by type."""

ADD = "alter table {table} add partition (p={literal})"

SPARK_JOB = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.enableHiveSupport().getOrCreate()
made = []
for table, statement in json.loads(open(sys.argv[1]).read()):
    try:
        spark.sql(statement)
        ((name,),) = spark.sql(f"show partitions {table}").collect()
    except Exception:
        name = None
    made.append(name)
print("MADE" + json.dumps(made))
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Metastore, HiveSession]]:
    home = tmp_path_factory.mktemp("values")
    with (
        ZooKeeperServer(home) as zookeeper,
        Metastore(home) as metastore,
        HiveSession(home, zookeeper=zookeeper, metastore=metastore) as hive,
    ):
        for statement in (
            "create database shop",
            "create table shop.sales (a int) partitioned by (d date, n int)",
            "alter table shop.sales add partition (d='2024-02-09', n=7)",
            "create table shop.events (a int) partitioned by (n int)",
            "insert overwrite table shop.events partition (n) select 1, '07'",
        ):
            hive.run(statement)
        yield home, metastore, hive


@pytest.fixture(scope="module")
def catalog(servers: tuple[Path, Metastore, HiveSession]) -> Catalog:
    return connect_catalog(servers[1].uri)


def test_a_value_is_locked_under_the_name_that_hive_and_spark_give_it(
    servers: tuple[Path, Metastore, HiveSession],
) -> None:
    home, metastore, hive = servers
    tried = [(kind, value) for kind, values in TRIED.items() for value in values]
    statements = []
    by_hive: list[str | None] = []
    for number, (kind, value) in enumerate(tried):
        # Hive takes each text for true: a boolean is written without quotes.
        literal = value if kind == "boolean" and value.lower() in ("true", "false") else f"'{value}'"
        for who in ("hive", "spark"):
            hive.run(f"create table {who}_{number} (a int) partitioned by (p {kind})")
        try:
            hive.run(ADD.format(table=f"hive_{number}", literal=literal))
        except HiveError:
            by_hive.append(None)
        else:
            by_hive += hive.run(f"show partitions hive_{number}")
        statements.append((f"spark_{number}", ADD.format(table=f"spark_{number}", literal=literal)))
    (home / "statements.json").write_text(json.dumps(statements))
    (home / "job.py").write_text(SPARK_JOB)
    printed = run_job(metastore, home / "job.py", str(home / "statements.json"))
    by_spark = json.loads(printed.rpartition("MADE")[2])
    wrong = []
    for (kind, value), *names in zip(tried, by_hive, by_spark, strict=True):
        made = [name and unescape_level(name)[1] for name in names]
        try:
            right = set(made) - {None} == {canonical(value, kind)}
        except InvalidRequest:
            right = len(set(made)) == 2 or made == [None, None]
        if not right:
            wrong.append((kind, value, made))
    assert not wrong


def test_two_spellings_of_one_partition_do_not_run_together(catalog: Catalog) -> None:
    with connect("memory://spellings") as manager:
        manager.acquire(owner="one", writes=plan([], ["shop.sales/d=2024-2-9/n=7"], catalog)[1])
        for name in ("shop.sales/d=2024-02-09/n=+7", "shop.sales/d=2024-02-9/n=007"):
            with pytest.raises(LockTimeout, match="one holds"):
                manager.acquire(owner="other", writes=plan([], [name], catalog)[1])
        sql = "insert overwrite table shop.sales partition (n='07', d='2024-2-9') select 1"
        with pytest.raises(LockTimeout, match="one holds"):
            manager.acquire(owner="other", writes=plan_statements(sql, catalog)[1])


def test_a_partition_that_hive_made_under_an_odd_name_is_locked_under_it(catalog: Catalog) -> None:
    assert plan(["shop.events"], [], catalog)[0][1:] == [LockObject.parse("shop.events/n=07")]
    assert plan([], ["shop.events/n=07"], catalog)[1] == [LockObject.parse("shop.events/n=07")]
    assert plan([], ["shop.events/n=007"], catalog)[1] == [LockObject.parse("shop.events/n=7")]


def test_who_reads_a_value_locks_the_partition_that_hive_made_of_another_spelling(
    servers: tuple[Path, Metastore, HiveSession], catalog: Catalog
) -> None:
    odd = LockObject.parse("shop.events/n=07")
    query = "select a from shop.events where n = 7"
    assert servers[2].run(query) == ["1"]
    assert odd in plan_statements(query, catalog)[0]
    assert odd in plan(["shop.events/n=7"], [], catalog)[0]


def test_a_name_that_the_metastore_does_not_know(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InvalidRequest, match=r"no such table to read; did you mean shop\.sales\?"):
        plan(["shop.slaes/d=2024-02-09"], [], catalog)
    for reads, writes in ((["shopp.sales"], []), ([], ["shopp.sales"]), (["shopp"], [])):
        with pytest.raises(InvalidRequest, match=r"there is no database shopp; did you mean shop\?"):
            plan(reads, writes, catalog)
    with pytest.raises(InvalidRequest, match="n is of type int, and 'x' is not a valid int"):
        plan(["shop.sales/d=2024-02-09/n=x"], [], catalog)
    assert not caplog.records
    assert plan([], ["shop.slaes"], catalog)[1] == [LockObject("shop", "slaes")]
    assert "shop.slaes: there is no such table to write; did you mean shop.sales?" in caplog.text
