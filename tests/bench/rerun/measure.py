"""All ways, one after the other on one Airflow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.bench.rerun.play import blocked, clear, rerun
from tests.bench.rerun.report import markdown
from tests.bench.rerun.stage import STORES, staged
from tests.bench.rerun.ways import BLOCKED, MORE_SLOTS, SLOTS, UNLOCKED, WAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from tests.bench.rerun.figures import Figures
    from tests.bench.rerun.ways import Way

__all__ = ["STORES", "measure"]


def measure(
    workdir: Path,
    store: str,
    days: int,
    job_s: float,
    names: Collection[str],
    say: Callable[[str], None],
    output: Path,
) -> bool:
    """Write the report to *output* again after each way, and return whether all of them ended.

    :param names: of the ways to measure; empty: all. The one without locks is always among them.
    """
    ways = [way for way in WAYS if not names or way.name in names or way == UNLOCKED]
    results: dict[Way, Figures | Exception] = {}
    loads = []
    with staged(workdir, store, job_s) as stage:
        say("Airflow is up")
        for way in ways:
            if way.max_leases and not stage.locks.capabilities.limits:
                say(f"{store} does not count leases: left out: {way.title}")
                continue
            say(f"{days} days: {way.title}")
            try:
                results[way] = (blocked if way == BLOCKED else rerun)(stage, way, days)
            except Exception as error:  # noqa: BLE001 - the other ways are worth their figures all the same
                results[way] = error
                clear(stage, way)
            say(repr(results[way]))
            loads.append(os.getloadavg()[0])
            conditions = (
                f"{days} days on {SLOTS} slots and {MORE_SLOTS} for unlock tasks, {job_s:g} s a job, locks in {store}; load of the machine "
                f"{min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} cores."
            )
            output.write_text(markdown(results, conditions))
    return not any(isinstance(found, Exception) for found in results.values())
