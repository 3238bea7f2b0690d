"""Which partitions a real Spark reads for a statement: ``python -m tests.support.sql.scans HOME``, texts as JSON on stdin.

One line of JSON is printed for each text: the partitions by their names, or why Spark refuses it. The last statement of
a text is planned and not run; those before it run, in a session of their own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from airflow_hivelock.locks import LockObject
from airflow_hivelock.locks.hive.catalog import Table
from tests.support.servers.jvm import driver

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

READS_S = 240.0
"""How long Spark has for all the texts of one call."""

DAYS = tuple(f"2024-01-{day:02d}" for day in range(1, 11))
_LEVELS: dict[str, tuple[tuple[str, str, tuple[Any, ...]], ...]] = {
    "sales": (("dt", "string", DAYS),),
    "orders": (("dt", "string", DAYS),),
    "hourly": (("dt", "string", DAYS[:3]), ("hr", "int", (3, 4, 5))),
    "daily": (("day", "date", DAYS[:5]),),
}
_COLUMNS = {
    "sales": "id int, amt int, region string",
    "orders": "id int, k int",
    "hourly": "id int, amt int",
    "daily": "id int, amt int",
    "plain": "id int, name string, k int",
    "big": "id bigint, name string",
}
_VIEWS = {
    "v_sales": "select * from dw.sales",
    "v_recent": "select id, amt, dt from dw.sales where dt >= '2024-01-08'",
    "v_renamed": "select id, dt as day from dw.orders",
    "v_salted": "select *, rand() as salt from dw.sales",
    "v_both": "select id, dt from dw.sales union all select id, dt from dw.orders",
    "v_totals": "select dt, sum(amt) as total from dw.sales group by dt",
    "v_nested": "select id, dt from dw.v_sales where id > 0",
}


def _partitions(table: str) -> Iterator[str]:
    names = [""]
    for column, _, values in _LEVELS.get(table, ()):
        names = [f"{name}/{column}={value}" for name in names for value in values]
    return (f"dw.{table}{name}" for name in names if name)


class Tables:
    """A catalog that knows the tables and views."""

    def table(self, table: LockObject) -> Table | None:
        if table.database != "dw":
            return None
        if table.table in _VIEWS:
            return Table(table_type="VIRTUAL_VIEW", view_text=_VIEWS[table.table])
        if table.table not in _COLUMNS:
            return None
        levels = _LEVELS.get(table.table, ())
        return Table(tuple(each[0] for each in levels), partition_types=tuple(each[1] for each in levels))

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        found = map(LockObject.parse, _partitions(below.table))
        return (each for each in found if each.is_below(below))

    def names(self, database: str = "") -> list[str]:
        return [*_COLUMNS, *_VIEWS] if database == "dw" else [] if database else ["dw"]


def read_by_spark(texts: Sequence[str], home: Path) -> list[list[str] | str]:
    """For each text the partitions that Spark reads, or, as text, why it refuses it."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.support.sql.scans", str(home)],
        input=json.dumps(list(texts)),
        capture_output=True,
        text=True,
        timeout=READS_S,
        check=False,
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(('["', "[]", '"'))]
    if done.returncode or len(found) != len(texts):
        raise RuntimeError(f"Spark read {len(found)} of {len(texts)} texts: {done.stderr[-2000:]}")
    return found


def make(spark: SparkSession, home: Path) -> None:
    """Make the tables and views below *home*. Each partition has one file: Spark lists no partition that is empty."""
    spark.sql("create database dw")
    for name, columns in _COLUMNS.items():
        by = ", ".join(f"{column} {kind}" for column, kind, _ in _LEVELS.get(name, ()))
        below = ["/".join(each.split("/")[1:]) for each in _partitions(name)] or [""]
        for each in below:
            folder = home / name / each
            folder.mkdir(parents=True)
            (folder / "rows.json").write_text('{"id": 1, "amt": 2, "region": "EU", "name": "a", "k": 3}\n')
        partitioned = f"partitioned by ({', '.join(each.split()[0] for each in by.split(', '))})" if by else ""
        schema = ", ".join(filter(None, (columns, by)))
        spark.sql(f"create table dw.{name} ({schema}) using json {partitioned} location '{home / name}'")
        if by:
            spark.sql(f"msck repair table dw.{name}")
    for name, text in _VIEWS.items():
        spark.sql(f"create view dw.{name} as {text}")


class _Spark:
    def __init__(self, home: Path) -> None:
        from pyspark.sql import SparkSession

        options = {
            "spark.driver.memory": "512m",
            **driver(),
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.ui.enabled": "false",
        }
        builder = SparkSession.builder.master("local[1]")
        for name, value in options.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("OFF")
        make(self.spark, home / "tables")
        self.plain = self.spark.newSession()

    def read(self, text: str) -> list[str]:
        session = self.spark.newSession() if ";" in text else self.plain
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)  # type: ignore[union-attr]
        session.sql("use dw")
        *before, last = [each for each in text.split(";") if each.strip()]
        for each in before:
            session.sql(each)
        state = session._jsparkSession.sessionState()
        skip = session._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()  # type: ignore[union-attr]
        plan = state.executePlan(state.sqlParser().parsePlan(last), skip).executedPlan()
        return sorted(set(_scanned(plan)))


def _scanned(node: Any) -> Iterator[str]:
    kind = node.getClass().getSimpleName()
    if kind == "AdaptiveSparkPlanExec":
        yield from _scanned(node.initialPlan())
    elif kind == "FileSourceScanExec":
        for directory in _each(node.selectedPartitions().partitionDirectories()):
            for file in _each(directory.files()):
                path = unquote(urlsplit(file.getPath().toString()).path)
                if "=" in path:
                    yield re.sub(r".*/tables/(.*)/[^/]*$", r"dw.\1", path)
    elif kind == "InMemoryTableScanExec":
        yield from _scanned(node.relation().cachedPlan())
    for below in (node.children(), node.subqueries()):
        for each in _each(below):
            yield from _scanned(each)


def _each(found: Any) -> Iterator[Any]:
    """Scala's sequences and arrays."""
    if hasattr(found, "__getitem__"):
        yield from found
        return
    iterator = found.iterator()
    while iterator.hasNext():
        yield iterator.next()


def main() -> None:
    spark = _Spark(Path(sys.argv[1]))
    for text in json.load(sys.stdin):
        try:
            found: Any = spark.read(text)
        except Exception as error:  # noqa: BLE001 - that Spark refuses it is an answer
            found = str(error).splitlines()[0]
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
