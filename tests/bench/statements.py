"""Measure the time that locks add to a statement of Spark: ``python -m tests.bench.statements``.

Each round runs each statement with locks and without, in one local session with Hive's catalog. It also acquires, records
and releases the same locks without Spark: this is the floor. ZooKeeper syncs each write to disk, as by default. The
benchmark takes three minutes.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyspark

from airflow_hivelock.locks import connect
from airflow_hivelock.spark import enable_hive_locks, interception
from tests.bench.runner import machine, parser, publish, rounds, say, workplace
from tests.bench.samples import Samples, number, timed
from tests.support.documented import table
from tests.support.local_spark import local_spark
from tests.support.servers import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.spark import HiveLocks

DAYS = 50
WARM_UP = 8

TABLES = (
    "create database dw",
    "create table dw.flights (delay int) partitioned by (dt int) stored as parquet",
    f"insert into dw.flights partition (dt) select cast(id as int), cast(id % {DAYS} as int) from range(1000)",
    "create table dw.delays (delay int) partitioned by (dt int) stored as parquet",
    "create view dw.late as select * from dw.flights where delay > 10",
)

INSERT = "insert overwrite table dw.delays partition (dt = 1) select delay from dw.flights where dt = 1"


@dataclass(frozen=True)
class Case:
    """A statement, and the data that it locks."""

    name: str
    run: Callable[[Any], object]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


CASES = (
    Case("INSERT OVERWRITE of a partition", lambda spark: spark.sql(INSERT), ("dw.flights/dt=1",), ("dw.delays/dt=1",)),
    Case("count of a partition", lambda spark: spark.table("dw.flights").where("dt = 1").count(), ("dw.flights/dt=1",)),
    Case(
        f"count of a view on {DAYS} partitions",
        lambda spark: spark.table("dw.late").count(),
        ("dw.late", *(f"dw.flights/dt={day}" for day in range(DAYS))),
    ),
    Case(
        "ALTER TABLE … SET TBLPROPERTIES",
        lambda spark: spark.sql("alter table dw.delays set tblproperties ('seen' = 'yes')"),
        writes=("dw.delays",),
    ),
    Case("SHOW PARTITIONS", lambda spark: spark.sql("show partitions dw.flights"), ("dw.flights",)),
    Case("SET, which locks nothing", lambda spark: spark.sql("set a = b")),
)


@dataclass(frozen=True)
class Cost:
    """The times of one case, round by round."""

    without: Samples
    locked: Samples
    floor: Samples

    def row(self, name: str) -> list[str]:
        shown = (
            *(each for part in (self.without, self.locked) for each in (part.median, part.p99)),
            self.locked.median - self.without.median,
            self.locked.p99 - self.without.p99,
            *((self.floor.median, self.floor.p99) if any(self.floor.values) else ()),
        )
        cells = [number(each) for each in shown]
        return [name, *cells, *["–"] * (8 - len(cells))]


HEAD = (
    "statement",
    *(head for what in ("without", "with locks", "added", "floor") for head in (f"{what}: median", "p99")),
)


def floor(manager: LockManager, case: Case) -> None:
    """Acquire, record and release the locks of *case* as a driver does, without Spark."""
    lease = manager.acquire(owner="floor", reads=case.reads, writes=case.writes)
    manager.release(manager.start_work(lease, "driver", "{}"))


def measure(spark: Any, locks: HiveLocks, manager: LockManager, times: int) -> Iterator[tuple[str, Cost]]:
    """The cost of each case."""
    side: Any = locks._side
    statements = side._statements

    def run(case: Case, *, locked: bool) -> float:
        interception.remove(statements)
        if locked:
            interception.install(statements)
        return timed(lambda: case.run(spark))

    for case in CASES:
        say(case.name)
        ways: dict[str, Callable[[], float]] = {
            "without": partial(run, case, locked=False),
            "locked": partial(run, case, locked=True),
            "floor": partial(timed, partial(floor, manager, case)) if case.reads or case.writes else lambda: 0.0,
        }
        yield case.name, Cost(**{way: Samples.of(taken) for way, taken in rounds(ways, times, WARM_UP).items()})


def main() -> None:
    arguments = parser("tests.bench.statements", __doc__).parse_args()
    times = 4 if arguments.quick else 40
    with (
        workplace() as home,
        ZooKeeperServer(home, heap_mb=128, fsync=True) as zookeeper,
        local_spark(home / "spark") as spark,
        closing(connect(zookeeper.url)) as manager,
    ):
        for statement in TABLES:
            spark.sql(statement)
        locks = enable_hive_locks(spark, zookeeper.url, progress=False)
        costs = list(measure(spark, locks, manager, times))
        locks.disable()
    rows = table(HEAD, (cost.row(name) for name, cost in costs))
    conditions = f"Spark {pyspark.__version__}, {machine()}, {times} rounds, milliseconds"
    publish(arguments.output, "statements.md", f"{conditions}\n\n{rows}")


if __name__ == "__main__":
    main()
