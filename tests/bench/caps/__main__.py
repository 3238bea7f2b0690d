"""Measure, print the table and write ``caps.md``: ``python -m tests.bench.caps``.

A real Airflow (LocalExecutor, PostgreSQL) and a real ZooKeeper. Somebody else holds some of a rerun's days for a minute;
another day of the same DAG, the daily run, comes while they wait.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import runner
from tests.bench.caps.ways import MOST, WAYS, Way
from tests.bench.rerun import figures
from tests.bench.site import Site
from tests.support.documented import table

if TYPE_CHECKING:
    from tests.support.spans import Span

FIRST = datetime(2013, 1, 1, tzinfo=UTC)
DAYS, JOB_S = 12, 3.0
HELD = (1, MOST)
"""How many days are held."""

HOLD_S = 60.0
DAILY_AFTER_S = 10.0
HEAD = ("cap", "days held", "the other days were done after, s", "daily run waited, s", "all days were done after, s")


def play(site: Site, way: Way, days: int, held: int, month: int) -> list[str]:
    """A row of the table. The first *held* of the days of that *month* are held."""
    dates = [FIRST.replace(month=month) + timedelta(days=number) for number in range(days + 1)]
    *names, today = [f"{date:%Y-%m-%d}" for date in dates]
    lease = site.locks.acquire(owner="somebody else", writes=[f"{way.table}/dt={name}" for name in names[:held]])
    site.trigger_at_once(way.name, dict(zip(names, dates, strict=False)))
    begun = time.time()
    time.sleep(DAILY_AFTER_S)
    site.airflow.trigger(way.name, dates[-1])
    asked = time.time()
    site.wait(lambda: time.time() > begun + HOLD_S, "the hold's end")
    site.locks.release(lease)

    def ended() -> dict[str, Span]:
        return figures.jobs(site.notes(way.name))[0]

    site.wait(lambda: {*names, today} <= ended().keys(), f"all days of {way.name}")
    site.wait(lambda: {run.state for run in site.airflow.runs(way.name)} <= {"success"}, "the runs' ends")
    spans = ended()
    done_s = max(spans[name].ended for name in names[held:]) - begun
    all_s = max(spans[name].ended for name in names) - begun
    return [way.title, str(held), f"{done_s:.0f}", f"{spans[today].begun - asked:.0f}", f"{all_s:.0f}"]


def main() -> None:
    arguments = runner.parser("tests.bench.caps", __doc__).parse_args()
    helds, ways, days = (HELD[:1], WAYS[:2], MOST + 1) if arguments.quick else (HELD, WAYS, DAYS)
    pools = [
        {"name": way.name, "slots": MOST, "include_deferred": way.include_deferred}
        for way in WAYS
        if way.include_deferred is not None
    ]
    dags, env = Path(__file__).parent / "dags", {"BENCH_JOB_S": str(JOB_S)}
    rows = []
    with runner.workplace() as scratch, Site.up(scratch, dags, slots=4 * MOST, pools=pools, env=env) as site:
        for month, held in enumerate(helds, 1):
            for way in ways:
                rows.append(play(site, way, days, held, month))
                runner.say(str(rows[-1]))
    runner.publish(arguments.output, "caps.md", table(HEAD, rows))


if __name__ == "__main__":
    main()
