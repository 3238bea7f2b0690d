"""The track of a race: real servers, two resident Sparks, and a table with a week of flights."""

from __future__ import annotations

import itertools
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from tests.support.servers import HiveError, HiveSession, ZooKeeperServer, lock_metastore
from tests.system.histories.trace.validate import Trace, validate
from tests.system.histories.transactions import transactions
from tests.system.race.order import Order, Reply
from tests.system.race.scenario import BASE, COLUMNS, FLIGHTS, ROWS, SAME_PARTITION, Job, Scenario
from tests.system.race.spark import ROOT, ResidentSpark, run_job

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from tests.support.servers import Metastore

TXN_TIMEOUT_S = 300
HIVE_S = 300.0
PATIENT = {"hive.lock.numretries": "200", "hive.lock.sleep.between.retries": "1s"}
"""Hive does not queue. It sleeps and tries again."""
LOAD = ROOT / "dags_examples" / "jobs" / "load_flights.py"


@dataclass(frozen=True)
class Mode:
    """The protection of the jobs.

    :param locks: each job holds its locks while it runs.
    :param hive_writer: the jobs use Hive's writer, whose jobs have separate staging directories, and not Spark's writer.
    :param by_session: the session takes the locks of each statement. No job names its locks.
    """

    name: str
    locks: bool
    hive_writer: bool
    by_session: bool = False


SPARK_ALONE = Mode("no lock", locks=False, hive_writer=False)
WRITER_ALONE = Mode("no lock, Hive's writer", locks=False, hive_writer=True)
LOCKS_ALONE = Mode("locks, Spark's writer", locks=True, hive_writer=False)
OURS = Mode("ours", locks=True, hive_writer=True)
"""The mode of the locked operators: partition locks, and Hive's writer."""
SESSION = Mode("each statement locks", locks=True, hive_writer=True, by_session=True)
"""The mode of a notebook with ``enable_hive_locks``."""

MODES = (SPARK_ALONE, WRITER_ALONE, LOCKS_ALONE, OURS)


@dataclass(frozen=True)
class Outcome:
    """The result of one try.

    :param errors: the errors of jobs that failed.
    :param wrong: rows that a reader saw, or that the table has, and that no order of the jobs explains.
    :param race_s: the time from the start of the jobs to the end of the last one, in seconds.
    """

    errors: tuple[str, ...]
    wrong: tuple[str, ...]
    race_s: float

    @property
    def harmed(self) -> bool:
        return bool(self.errors or self.wrong)

    @property
    def silent(self) -> bool:
        """Rows are wrong, and no job has failed."""
        return bool(self.wrong) and not self.errors


@dataclass
class Track:
    """Runs one race after the other, each on a new table."""

    locks_url: str
    metastore: Metastore
    sparks: Sequence[ResidentSpark]
    zookeeper: ZooKeeperServer
    hive: HiveSession | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def race(self, scenario: Scenario, mode: Mode) -> Outcome:
        """Start all jobs together, and check the table after they have ended. The third job is Hive's."""
        table = f"race.try_{next(self._numbers)}"
        self._make(table)
        orders = [self._order(job, table, mode) for job in scenario.jobs[:2]]
        started = time.monotonic()
        for spark, order in zip(self.sparks, orders, strict=True):
            spark.send(order)
        asked = [self._hive.submit(job.hive_statement.format(table=table)) for job in scenario.jobs[2:]]
        replies = [spark.receive() for spark in self.sparks]
        replies += [_hives(answer) for answer in asked]
        race_s = time.monotonic() - started
        seen = [
            scenario.wrong(reply.rows, finished=False)
            for job, reply in zip(scenario.jobs, replies, strict=True)
            if job.day is None and not reply.error
        ]
        left = scenario.wrong(self._statements(f"REFRESH TABLE {table}", ROWS.format(table=table)).rows, finished=True)
        self._statements(f"DROP TABLE {table}")
        return Outcome(
            errors=tuple(reply.error for reply in replies if reply.error),
            wrong=tuple(wrong for wrong in (*seen, left) if wrong),
            race_s=race_s,
        )

    def trace(self) -> Trace:
        """All steps of the locks so far. Spark alone takes no locks."""
        return validate(transactions([self.zookeeper]), Layout(), hive=self.hive is not None)

    @property
    def _hive(self) -> HiveSession:
        assert self.hive, "a scenario with a job of Hive needs real Hive"
        return self.hive

    def _make(self, table: str) -> None:
        """Create a new table. No resident Spark has cached it."""
        self._statements(
            "CREATE DATABASE IF NOT EXISTS race",
            f"CREATE TABLE {table} LIKE dw.flights",
            f"ALTER TABLE {table} ADD COLUMNS (job STRING)",
            f"INSERT OVERWRITE TABLE {table} PARTITION (dt) SELECT {COLUMNS}, '{BASE}', dt FROM dw.flights",
        )

    def _order(self, job: Job, table: str, mode: Mode) -> Order:
        return Order(
            owner=f"{table}/{job.name}",
            statements=(job.statement.format(table=table),),
            settings={"spark.sql.hive.convertInsertingPartitionedTable": str(not mode.hive_writer).lower()},
            locks_url=self.locks_url if mode.locks else None,
            reads=() if mode.by_session else tuple(name.format(table=table) for name in job.reads),
            writes=() if mode.by_session else tuple(name.format(table=table) for name in job.writes),
            by_session=mode.by_session,
        )

    def _statements(self, *statements: str) -> Reply:
        reply = self.sparks[0].run(Order("track", statements))
        if reply.error:
            raise RuntimeError(f"{statements[-1]}: {reply.error}")
        return reply


def _hives(answer: Future[list[str]]) -> Reply:
    """Hive's answer to :data:`ROWS` or to an INSERT."""
    try:
        rows = [line.split("\t") for line in answer.result(HIVE_S)]
    except HiveError as error:
        return Reply(error=f"Hive: {error}")
    return Reply(rows=tuple((day, job, int(count), int(named)) for day, job, count, named in rows))


@contextmanager
def track(workdir: Path, *, locks_in_metastore: bool = False, with_hive: bool = False) -> Iterator[Track]:
    """Start all servers, and load the week with the example's own job. It starts four JVMs, and one more for Hive.

    The metastore has locks. It is that of the Hive release ``$HIVE``, or the one in PySpark's jars.
    """
    with (
        ZooKeeperServer(workdir, heap_mb=128) as zookeeper,
        lock_metastore(workdir, txn_timeout_s=TXN_TIMEOUT_S) as metastore,
    ):
        run_job(metastore, LOAD, "--from", min(FLIGHTS), "--to", max(FLIGHTS))
        with (
            ResidentSpark(workdir / "spark_a", metastore) as one,
            ResidentSpark(workdir / "spark_b", metastore) as other,
            HiveSession(workdir, zookeeper=zookeeper, metastore=metastore, config=PATIENT)
            if with_hive
            else nullcontext() as hive,
        ):
            in_metastore = f"metastore://127.0.0.1:{metastore.port}?timeout_s={TXN_TIMEOUT_S}"
            ready = Track(
                in_metastore if locks_in_metastore else zookeeper.url, metastore, (one, other), zookeeper, hive
            )
            # New drivers spend some seconds on compiling, each at its own pace. So the first race does not count.
            ready.race(SAME_PARTITION.with_hive() if with_hive else SAME_PARTITION, SPARK_ALONE)
            yield ready
