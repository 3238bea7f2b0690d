"""The track: real servers, two resident Sparks, and a week of flights to race on."""

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
"""Hive has no queue: it sleeps and asks again."""
LOAD = ROOT / "dags_examples" / "jobs" / "load_flights.py"


@dataclass(frozen=True)
class Mode:
    """What guards the jobs.

    :param locks: each job holds its locks while it runs.
    :param hive_writer: Hive's writer, which stages privately, in place of Spark's own.
    :param by_session: the session takes the locks of each statement. No job names them.
    """

    name: str
    locks: bool
    hive_writer: bool
    by_session: bool = False


SPARK_ALONE = Mode("no lock", locks=False, hive_writer=False)
WRITER_ALONE = Mode("no lock, Hive's writer", locks=False, hive_writer=True)
LOCKS_ALONE = Mode("locks, Spark's writer", locks=True, hive_writer=False)
OURS = Mode("ours", locks=True, hive_writer=True)
"""As the locked operators run a job: under partition locks, with Hive's writer."""
SESSION = Mode("each statement locks", locks=True, hive_writer=True, by_session=True)
"""As a notebook runs, with ``enable_hive_locks``."""

MODES = (SPARK_ALONE, WRITER_ALONE, LOCKS_ALONE, OURS)


@dataclass(frozen=True)
class Outcome:
    """One try.

    :param errors: of jobs that failed.
    :param wrong: what the reader saw, or the table has, that no order of the two jobs explains.
    :param race_s: from the start of both jobs to the end of the later one.
    """

    errors: tuple[str, ...]
    wrong: tuple[str, ...]
    race_s: float

    @property
    def harmed(self) -> bool:
        return bool(self.errors or self.wrong)

    @property
    def silent(self) -> bool:
        """Wrong, and both jobs said that all was well."""
        return bool(self.wrong) and not self.errors


@dataclass
class Track:
    """Races on it, one after the other, each on a table of its own."""

    locks_url: str
    metastore: Metastore
    sparks: Sequence[ResidentSpark]
    zookeeper: ZooKeeperServer
    hive: HiveSession | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def race(self, scenario: Scenario, mode: Mode) -> Outcome:
        """Start all jobs together, and look at what they leave. The third one is Hive's."""
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
        """All steps of the locks so far. Spark takes none of its own."""
        return validate(transactions([self.zookeeper]), Layout(), hive=self.hive is not None)

    @property
    def _hive(self) -> HiveSession:
        assert self.hive, "a scenario with a job of Hive's needs one"
        return self.hive

    def _make(self, table: str) -> None:
        """A new table: a resident Spark has not cached it."""
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
    """What Hive answers to :data:`ROWS`, or to an INSERT."""
    try:
        rows = [line.split("\t") for line in answer.result(HIVE_S)]
    except HiveError as error:
        return Reply(error=f"Hive: {error}")
    return Reply(rows=tuple((day, job, int(count), int(named)) for day, job, count, named in rows))


@contextmanager
def track(workdir: Path, *, locks_in_metastore: bool = False, with_hive: bool = False) -> Iterator[Track]:
    """Start everything, the metastore with locks of its own, and load the week by the example's own job; four JVMs in
    all, and one more for Hive.

    The metastore is that of the release ``$HIVE``; without that of the one in PySpark's jars.
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
            # Cold drivers compile themselves for seconds, each at its own pace: that is no race.
            ready.race(SAME_PARTITION.with_hive() if with_hive else SAME_PARTITION, SPARK_ALONE)
            yield ready
