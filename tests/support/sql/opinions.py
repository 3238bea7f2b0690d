"""Compares the text planner, Spark's analysed plan, and the files that Spark touched when it ran the statement.

``python -m tests.support.sql.opinions FOLDER HOME [FILE…]`` runs the statements of Spark's own suite, file by file, in a
local session. As soon as it finds one of these, it prints it:

- *under-locked*: Spark read or changed a table or partition that the plan did not lock. The files that the executed plan
  opened show what Spark read. The files of the warehouse show what Spark changed.
- a difference between the two planners, with its kind and the reason in :mod:`.judged`. It prints the first five of a
  kind, and all that have no reason.

At the end it prints the figures. FOLDER has the suite's ``inputs``, and HOME is an empty folder. It exits with 1 if a
statement was under-locked, or if a difference has no reason.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from airflow_hivelock.locks import InvalidRequest, LockObject
from airflow_hivelock.locks.model.object import unescape_level
from airflow_hivelock.locks.plan import plan_touched
from airflow_hivelock.locks.plan.data import as_kept
from airflow_hivelock.locks.plan.planner import Planner
from airflow_hivelock.locks.plan.session import SessionState
from airflow_hivelock.locks.plan.sql import Sql
from airflow_hivelock.locks.plan.statement import add
from airflow_hivelock.locks.plan.tables import KnownTables
from airflow_hivelock.spark.jvm import items, kind, optional
from airflow_hivelock.spark.plans import SessionPlans
from tests.support.local_spark import local_spark
from tests.support.sql import scans
from tests.support.sql.judged import REFUSED, judgement
from tests.support.sql.suite import rendered, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from airflow_hivelock.locks.plan.text import Plan

FILE_S = 120.0
MOST_SHOWN = 5


def session(home: Path) -> SparkSession:
    """A local session with Hive's catalog, and the tables that the suite's files expect."""
    spark = local_spark(home)
    columns = ("unique1", "unique2", "two", "four", "ten", "twenty", "hundred", "thousand", "twothousand", "fivethous")
    tenk = ", ".join(f"cast(id % 100 as int) {column}" for column in columns)
    spark.sql(
        f"create table tenk1 using parquet as select {tenk}, 'a' stringu1, 'b' stringu2, 'c' string4 from range(100)"
    )
    spark.sql("create table onek using parquet as select * from tenk1")
    for table, value in {"int4_tbl": "int", "float8_tbl": "double", "int8_tbl": "bigint"}.items():
        names = ("q1", "q2") if table == "int8_tbl" else ("f1",)
        spark.sql(
            f"create table {table} using parquet as select {', '.join(f'cast(id as {value}) {each}' for each in names)} from range(5)"
        )
    return spark


def read(node: Any) -> Iterator[str]:
    """The tables and partitions that an executed plan has read, from the files that its scans open."""
    name = kind(node)
    if name == "AdaptiveSparkPlanExec":
        yield from read(node.executedPlan())
    elif name == "FileSourceScanExec":
        found = optional(node.tableIdentifier())
        if found is not None:
            table = f"{found.database().get()}.{found.table()}"
            yield table
            yield from {partition_of(table, unquote(each)) for each in opened(node)}
    elif name == "HiveTableScanExec":
        found = node.relation().tableMeta().identifier()
        table = f"{found.database().get()}.{found.table()}"
        yield table
        if node.relation().isPartitioned():
            yield from (f"{table}/{each.getName()}" for each in items(node.prunedPartitions()))
    elif name == "InMemoryTableScanExec":
        yield from read(node.relation().cachedPlan())
    elif "QueryStageExec" in name:
        yield from read(node.plan())
    elif name == "ExecutedCommandExec":
        yield from (each for child in items(node.cmd().children()) if "Exec" in kind(child) for each in read(child))
    for each in (*items(node.children()), *items(node.subqueries())):
        yield from read(each)


def opened(scan: Any) -> Iterator[str]:
    """The files that a scan opens when it runs."""
    for rdd in items(scan.inputRDDs()):
        for part in rdd.filePartitions() if not hasattr(rdd.filePartitions(), "size") else items(rdd.filePartitions()):
            yield from (str(each.filePath()) for each in part.files())


def partition_of(table: str, path: str) -> str:
    """The partition of *table* that contains the file, from the folders of its path. The table if there is none."""
    levels = [folder for folder in path.split("/")[:-1] if "=" in folder]
    return "/".join([table, *levels])


def changed(home: Path, before: dict[str, tuple[int, int]]) -> set[str]:
    """The tables and partitions in the warehouse with files that differ from *before*."""
    after = files(home)
    paths = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    return {partition_of(table, path) for path in paths if (table := table_of(path))}


def as_object(name: str, tables: KnownTables) -> LockObject:
    """The object of that name, with the values of its partition as Hive stores them."""
    table, *levels = name.split("/")
    database, _, table = table.partition(".")
    found = LockObject(database, table, tuple(unescape_level(level) for level in levels))
    try:
        return as_kept(found, tables)
    except InvalidRequest:  # the table has been dropped, so the types of its columns are not known
        return found


def lacks(plan: Plan, touched: Iterable[str], written: Iterable[str], tables: KnownTables) -> Iterator[str]:
    """The tables and partitions that Spark read or changed, and the plan does not lock.

    SHARED on a table does not cover its partitions. EXCLUSIVE covers everything below the object.
    """
    exclusive, shared = set(plan.writes), {*plan.reads, *plan.writes}
    above = {parent for each in shared for parent in each.parents}
    for name in touched:
        each = as_object(name, tables)
        if each not in shared | above and not exclusive & set(each.parents):
            yield f"read {name}"
    for name in written:
        each = as_object(name, tables)
        if each not in exclusive and not exclusive & set(each.parents):
            yield f"changed {name}"


def files(home: Path) -> dict[str, tuple[int, int]]:
    warehouse = home / "warehouse"
    found = (path for path in warehouse.rglob("*") if path.is_file() and not path.name.endswith(".crc"))
    return {str(path.relative_to(warehouse)): (path.stat().st_mtime_ns, path.stat().st_size) for path in found}


def table_of(path: str) -> str:
    first, *rest = Path(path).parts
    if first.endswith(".db"):
        return f"{first.removesuffix('.db')}.{rest[0]}" if rest else ""
    return f"default.{first}"


class Opinions:
    """The figures of one run."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self._spark = spark
        self._home = home
        self._plans = SessionPlans(spark)
        self.count: Counter[str] = Counter()
        self.under: list[str] = []
        self.differences: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def file(self, file: Path) -> None:
        """Run a file in a new session, for a limited time."""
        self._run(file.name, split(file.read_text(errors="replace")))

    def scans(self) -> None:
        """Run the texts of :mod:`.scans`, which read partitions, each in a new session."""
        scans.make(self._spark, self._home / "tables")
        lines = Path(scans.__file__).with_name("scans.txt").read_text().splitlines()
        for line in lines:
            if line and not line.startswith("#"):
                self._run("scans.txt", ["use dw", *filter(str.strip, line[2:].split(";"))])

    def _run(self, name: str, statements: Iterable[str]) -> None:
        spark = self._spark.newSession()
        jvm: Any = spark._jvm
        jvm.SparkSession.setActiveSession(spark._jsparkSession)
        planner = Planner(SessionState(KnownTables(self._plans.tables)), "stricter", 1_000)
        until = time.monotonic() + FILE_S
        for written in statements:
            if time.monotonic() > until:
                self.count["left out: its file took too long"] += 1
                continue
            self._statement(spark, rendered(written), planner, f"{name}: {' '.join(written.split())[:150]}")
        spark.sql("use default")

    def _statement(self, spark: Any, text: str, planner: Planner, where: str) -> None:
        self.count["statements"] += 1
        before = planner.session.remember()
        by_text = self._by_text(text, planner)
        if not self._compare(spark, text, by_text, where):  # it has created no view and no variable
            planner.session.undo(before, planner.session.remember())

    def _compare(self, spark: Any, text: str, by_text: Plan | str, where: str) -> bool:
        """Plan and run the statement in Spark. Return whether it has succeeded."""
        try:
            plan = self._plans.of_sql(spark._jsparkSession, text, runs=True).plan
        except InvalidRequest as error:
            self.count["refused here"] += 1
            self.refused[str(error)[:70]] += 1
            return False
        except Exception:  # noqa: BLE001 - Spark refuses many of them, as its suite expects
            self.count["refused by Spark"] += 1
            return False
        self.count["planned"] += 1
        before = files(self._home)
        try:
            frame = spark.sql(text)
            execution = frame._jdf.queryExecution()
            analysed = execution.analyzed()
            if kind(analysed) == "CommandResult":
                touched = set(read(analysed.commandPhysicalPlan()))
            else:
                execution.toRdd().count()
                touched = set(read(execution.executedPlan()))
        except Exception:  # noqa: BLE001
            self.count["failed when run"] += 1
            return False
        self.count["run"] += 1
        written = changed(self._home, before)
        self.count["partitions read"] += sum("/" in each for each in touched)
        self.count["partitions changed"] += sum("/" in each for each in written)
        missing = list(lacks(plan, touched, written, KnownTables(self._plans.tables)))
        if missing:
            self.under.append(f"{', '.join(missing)} in {where}")
            print(f"UNDER-LOCKED: {self.under[-1]}", flush=True)
        if isinstance(by_text, str) or shown(by_text) != shown(plan):
            differs = f"{REFUSED}: {by_text}" if isinstance(by_text, str) else difference(by_text, plan)
            why = judgement(text, differs)
            self.count["differences"] += 1
            self.count["differences that are not judged"] += not why
            locks = "" if isinstance(by_text, str) else f"\n         text {shown(by_text)}\n         plan {shown(plan)}"
            name = f"{differs}: {why or 'NOT JUDGED'}"
            self.differences[name] += 1
            if not why or self.differences[name] <= MOST_SHOWN:
                print(f"{name}\n      {where}{locks}", flush=True)
        return True

    def _by_text(self, text: str, planner: Planner) -> Plan | str:
        for kept in (planner.scans, planner.writes, planner.looks):
            kept.clear()
        planner.session.tables = KnownTables(self._plans.tables)
        planner.session.forget_stored_views()
        try:
            for statement in Sql(text).statements:
                add(statement, planner)
            return plan_touched(planner)
        except (InvalidRequest, RecursionError) as error:
            return str(error).partition(": ")[2][:70]


def shown(plan: Plan) -> tuple[list[str], list[str]]:
    return [str(each) for each in plan.reads], [str(each) for each in plan.writes]


def difference(text: Plan, plan: Plan) -> str:
    """The direction in which the two planners differ."""

    def names(found: list[LockObject], other: list[LockObject]) -> bool:
        return bool(set(found) - set(other))

    parts = [
        name
        for name, differs in {
            "only the text reads more": names(text.reads, [*plan.reads, *plan.writes]),
            "only the text writes more": names(text.writes, plan.writes),
            "only the plan reads more": names(plan.reads, [*text.reads, *text.writes]),
            "only the plan writes more": names(plan.writes, text.writes),
        }.items()
        if differs
    ]
    return " and ".join(parts) or "a read is covered by a write in one of them"


def main() -> int:
    folder, home, *only = sys.argv[1:]
    logging.disable()
    spark = session(Path(home))
    opinions, began = Opinions(spark, Path(home)), time.monotonic()
    for file in sorted(Path(folder).rglob("*.sql")):
        if not only or file.name in only:
            opinions.file(file)
            print(f"{file.name}: {dict(opinions.count)}", file=sys.stderr, flush=True)
    opinions.scans()
    ran, under = opinions.count["run"], len(opinions.under)
    print(f"\n{time.monotonic() - began:.0f} s; {dict(opinions.count)}")
    print(
        f"\nThe locks contain everything that Spark touched: {ran - under} of {ran} statements. Under-locked: {under}"
    )
    print(*opinions.under, sep="\n")
    print("\nRefused here:", *(f"{count:5} {why}" for why, count in opinions.refused.most_common()), sep="\n")
    print("\nDifferences:", *(f"{count:5} {name}" for name, count in opinions.differences.most_common()), sep="\n")
    return bool(opinions.under or opinions.count["differences that are not judged"])


if __name__ == "__main__":
    sys.exit(main())
