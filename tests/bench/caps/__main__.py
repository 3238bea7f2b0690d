"""Measure, print the table and write ``caps.md``: ``python -m tests.bench.caps``.

A real Airflow (LocalExecutor, PostgreSQL) and a real ZooKeeper. Somebody else holds some of a rerun's days for a minute;
another day of the same DAG, the daily run, comes while they wait.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from airflow_hivelock.locks import LockManager, connect
from tests.bench.caps.ways import MOST, WAYS, Way
from tests.bench.rerun import figures
from tests.support.airflow_server import AirflowServer
from tests.support.servers import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST = datetime(2013, 1, 1, tzinfo=UTC)
HOLD_S = 60.0
DAILY_AFTER_S = 10.0
STUCK_S = 300.0
HEAD = ("cap", "days held", "the other days were done after, s", "daily run waited, s", "all days were done after, s")


@dataclass(frozen=True)
class Stage:
    """What all ways share; their jobs note in *scratch* what they do."""

    airflow: AirflowServer
    locks: LockManager
    scratch: Path

    def ended(self, way: Way) -> dict[str, figures.Span]:
        """When the days' jobs ran, of those that have ended."""
        path = self.scratch / f"{way.name}.notes"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []  # the last line may be half written
        return figures.jobs(lines)[0]


@contextmanager
def staged(workdir: Path, job_s: float) -> Iterator[Stage]:
    scratch = workdir / "scratch"
    scratch.mkdir()
    with ZooKeeperServer(workdir, heap_mb=256) as zookeeper, connect(zookeeper.url) as locks:
        place = {"host": zookeeper.hosts, "schema": "hive_zookeeper_namespace", "extra": {"installation": "bench"}}
        with AirflowServer(
            workdir / "airflow",
            Path(__file__).parent / "dags",
            connections={"hivelock_default": {"conn_type": "hivelock", **place}},
            config={("core", "parallelism"): str(4 * MOST)},
            env={"CAPS_SCRATCH": str(scratch), "CAPS_JOB_S": str(job_s)},
        ) as airflow:
            for way in WAYS:
                if way.include_deferred is not None:
                    pool = {"name": way.name, "slots": MOST, "include_deferred": way.include_deferred}
                    airflow.api.call("POST", "pools", json=pool)
            airflow.wait(lambda: airflow.api.knows_dag(WAYS[-1].name), STUCK_S, "the DAGs to be parsed")
            yield Stage(airflow, locks, scratch)


def play(stage: Stage, way: Way, days: int, held: int, month: int) -> list[str]:
    """A row of the table. The first *held* of the days of that *month* are held."""
    airflow = stage.airflow
    dates = [FIRST.replace(month=month) + timedelta(days=number) for number in range(days + 1)]
    *names, today = [f"{date:%Y-%m-%d}" for date in dates]
    lease = stage.locks.acquire(owner="somebody else", writes=[f"{way.table}/dt={name}" for name in names[:held]])
    airflow.api.pause(way.name, True)
    for date in dates[:-1]:
        airflow.trigger(way.name, date)
    airflow.api.pause(way.name, False)
    begun = time.time()
    airflow.wait(lambda: time.time() > begun + DAILY_AFTER_S, STUCK_S, "the daily run's time")
    airflow.trigger(way.name, dates[-1])
    asked = time.time()
    airflow.wait(lambda: time.time() > begun + HOLD_S, STUCK_S, "the hold's end")
    stage.locks.release(lease)
    airflow.wait(lambda: {*names, today} <= stage.ended(way).keys(), STUCK_S, f"all days of {way.name}")
    ended = stage.ended(way)
    airflow.wait(lambda: {run.state for run in airflow.runs(way.name)} <= {"success"}, STUCK_S, "the runs' ends")
    done_s = max(ended[name].ended for name in names[held:]) - begun
    all_s = max(span.ended for name, span in ended.items() if name in names) - begun
    return [way.title, str(held), f"{done_s:.0f}", f"{ended[today].begun - asked:.0f}", f"{all_s:.0f}"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.caps", description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("bench-output"), help="directory; default: %(default)s")
    parser.add_argument("--days", type=int, default=12, help="of a rerun; default: %(default)s")
    parser.add_argument("--job-s", type=float, default=3, help="how long a day's job takes; default: %(default)s")
    parser.add_argument("--held", type=int, nargs="+", default=[1, MOST], help="how many days; default: %(default)s")
    arguments = parser.parse_args()
    rows = [list(HEAD), ["---"] * len(HEAD)]
    with TemporaryDirectory(prefix="caps-") as scratch, staged(Path(scratch), arguments.job_s) as stage:
        for month, held in enumerate(arguments.held, 1):
            for way in WAYS:
                rows.append(play(stage, way, arguments.days, held, month))
                print(rows[-1], file=sys.stderr, flush=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    (arguments.output / "caps.md").write_text(table)
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
