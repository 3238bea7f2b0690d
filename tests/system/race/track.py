"""The track: real servers, two resident Sparks, and a week of flights to race on."""

from __future__ import annotations

import itertools
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.servers import ZooKeeperServer, lock_metastore
from tests.system.race.order import Order, Reply
from tests.system.race.scenario import BASE, COLUMNS, FLIGHTS, ROWS, SAME_PARTITION, Job, Scenario
from tests.system.race.spark import ROOT, ResidentSpark, run_job

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.servers import Metastore

TXN_TIMEOUT_S = 300
LOAD = ROOT / "dags_examples" / "jobs" / "load_flights.py"


@dataclass(frozen=True)
class Mode:
    """What guards the jobs.

    :param locks: each job holds its locks while it runs.
    :param hive_writer: Hive's writer, which stages privately, in place of Spark's own.
    """

    name: str
    locks: bool
    hive_writer: bool


SPARK_ALONE = Mode("no lock", locks=False, hive_writer=False)
WRITER_ALONE = Mode("no lock, Hive's writer", locks=False, hive_writer=True)
LOCKS_ALONE = Mode("locks, Spark's writer", locks=True, hive_writer=False)
OURS = Mode("ours", locks=True, hive_writer=True)
"""As the locked operators run a job: under partition locks, with Hive's writer."""
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
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def race(self, scenario: Scenario, mode: Mode) -> Outcome:
        """Start both jobs together, and look at what they leave."""
        table = f"race.try_{next(self._numbers)}"
        self._make(table)
        orders = [self._order(job, table, mode) for job in scenario.jobs]
        started = time.monotonic()
        for spark, order in zip(self.sparks, orders, strict=True):
            spark.send(order)
        replies = [spark.receive() for spark in self.sparks]
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

    def _make(self, table: str) -> None:
        """A table nobody has seen: whatever a resident Spark has cached is of another one."""
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
            reads=tuple(name.format(table=table) for name in job.reads),
            writes=tuple(name.format(table=table) for name in job.writes),
        )

    def _statements(self, *statements: str) -> Reply:
        reply = self.sparks[0].run(Order("track", statements))
        if reply.error:
            raise RuntimeError(f"{statements[-1]}: {reply.error}")
        return reply


@contextmanager
def track(workdir: Path, *, locks_in_metastore: bool = False) -> Iterator[Track]:
    """Everything started, the metastore so that it keeps locks itself, and the week loaded by the example's own job; four JVMs once it stands.

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
        ):
            in_metastore = f"metastore://127.0.0.1:{metastore.port}?timeout_s={TXN_TIMEOUT_S}"
            ready = Track(in_metastore if locks_in_metastore else zookeeper.url, metastore, (one, other))
            # Cold drivers compile themselves for seconds, each at its own pace: that is no race.
            ready.race(SAME_PARTITION, SPARK_ALONE)
            yield ready
