"""All ways, one after the other on one Airflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench import runner
from tests.bench.rerun.play import blocked, clear, rerun
from tests.bench.rerun.report import markdown
from tests.bench.rerun.stage import staged
from tests.bench.rerun.ways import BLOCKED, LATE, MORE_SLOTS, SLOTS, UNLOCKED, WAYS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.rerun.figures import Figures
    from tests.bench.rerun.ways import Way


def measure(output: Path, *, quick: bool) -> bool:
    """Publish the report, and return whether all ways ended."""
    days, job_s, ways = (8, 2.0, (UNLOCKED, LATE, BLOCKED)) if quick else (60, 10.0, WAYS)
    results: dict[Way, Figures | Exception] = {}
    with runner.workplace() as scratch, staged(scratch, job_s) as stage:
        for way in ways:
            runner.say(f"{days} days: {way.title}")
            try:
                results[way] = (blocked if way == BLOCKED else rerun)(stage, way, days)
            except Exception as error:  # noqa: BLE001 - the other ways are worth their figures all the same
                results[way] = error
                clear(stage, way)
            runner.say(repr(results[way]))
    conditions = (
        f"{days} days on {SLOTS} slots and {MORE_SLOTS} for unlock tasks, {job_s:g} s a job, locks in ZooKeeper; "
        f"{runner.machine()}."
    )
    runner.publish(output, "rerun.md", markdown(results, conditions))
    return not any(isinstance(found, Exception) for found in results.values())
