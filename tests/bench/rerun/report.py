"""The ways side by side, as a table."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from tests.bench.rerun.figures import Figures
from tests.bench.rerun.ways import Kind
from tests.bench.runner import TARGETS, Target
from tests.bench.samples import Samples
from tests.support.documented import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.bench.rerun.figures import Wait
    from tests.bench.rerun.ways import Way

HEAD = (
    "way",
    "held ÷ worked",
    "locked before its work, s: median (longest)",
    "locked without work, s: mean",
    "most days held at once",
    "SELECTs refused (day being written)",
    "ALTER TABLE waited, s",
    "daily run waited, s",
    "longest job, s",
    "makespan, s",
    "÷ without locks",
    "worker starts a day",
)


LATER_S = 5.0
"""What ALTER TABLE and the daily run may wait beyond the longest job, for Airflow to notice and to start them."""

REFUSED_TOO_MUCH = 0.02

MOST_IDLE = 1.2
"""How long a chain of lock, job and unlock may hold its day without work, by Airflow's own time from one task to the next."""

SLOWER = 1.1


def markdown(results: Mapping[Way, Figures | Exception], conditions: str) -> str:
    """The whole report; the first of *results* is what the others' makespans are measured by."""
    first = next(iter(results.values()))
    floor_s = math.nan if isinstance(first, Exception) else first.makespan_s
    ended = {way: found for way, found in results.items() if isinstance(found, Figures)}
    step_s = next((found.between_s for found in ended.values() if found.between_s), ())
    targets = [target.row for way, found in ended.items() for target in _targets(way, found, floor_s, step_s)]
    ways = table(HEAD, (_row(way, found, floor_s) for way, found in results.items()))
    return f"# How long a rerun closes its days to others\n\n{conditions}\n\n{ways}\n{table(TARGETS, targets)}"


def _row(way: Way, found: Figures | Exception, floor_s: float) -> Iterator[str]:
    yield way.title
    if isinstance(found, Exception):
        yield f"**{type(found).__name__}**"
        return
    held = found.held
    yield f"{held.ratio:.2f}" if held else "–"
    before_s = held.idle_before_s if held else Samples.of(found.between_s)
    yield f"{before_s.median:.1f} ({before_s.high:.1f})" if before_s.values else "–"
    yield f"{statistics.mean(held.idle_s.values):.1f}" if held else "–"
    yield str(held.most) if held else "–"
    yield f"{100 * found.refused:.1f} % ({100 * found.floor:.1f} %)"
    yield _waited(found.alter)
    yield _waited(found.daily)
    yield f"{found.longest_job_s:.1f}"
    yield f"{found.makespan_s:.0f}"
    yield f"{found.makespan_s / floor_s:.2f}"
    yield f"{found.starts:.1f}"


def _targets(way: Way, found: Figures, floor_s: float, step_s: Sequence[float]) -> Iterator[Target]:
    """
    :param step_s: what Airflow itself takes from one task to the next, a day.
    """
    if way.most_held is None:
        return
    held = found.held
    yield Target(f"{way.title}: held ÷ worked", held.ratio if held else math.nan, way.most_held)
    yield Target(f"{way.title}: SELECTs refused, above the floor", found.refused - found.floor, REFUSED_TOO_MUCH)
    yield Target(f"{way.title}: makespan, against without locks", found.makespan_s / floor_s, SLOWER, " ×")
    if way.kind is Kind.CHAIN and held and step_s:
        ratio = statistics.mean(held.idle_s.values) / statistics.mean(step_s)
        yield Target(f"{way.title}: locked without work, against a step of Airflow's own", ratio, MOST_IDLE, " ×")
    for name, wait in (("ALTER TABLE", found.alter), ("daily run", found.daily)):
        if wait is not None:
            waited_s = wait.seconds if wait.reached else math.inf
            yield Target(f"{way.title}: {name} waits", waited_s, found.longest_job_s + LATER_S, " s")


def _waited(wait: Wait | None) -> str:
    if wait is None:
        return "–"
    return f"{wait.seconds:.1f}" if wait.reached else f"not in {wait.seconds:.0f}"
