"""The ways side by side, as a table."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from tests.bench.rerun.figures import Figures, median_and_longest
from tests.bench.rerun.ways import Kind

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
    rows = [HEAD, ["---"] * len(HEAD), *(_row(way, found, floor_s) for way, found in results.items())]
    step_s = next((found.between_s for found in results.values() if isinstance(found, Figures) and found.between_s), ())
    aims = [aim for way, found in results.items() for aim in _aims(way, found, floor_s, step_s)]
    table = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join(("# How long a rerun closes its days to others", "", conditions, "", *table, "", *aims, ""))


def _row(way: Way, found: Figures | Exception, floor_s: float) -> Iterator[str]:
    yield way.title
    if isinstance(found, Exception):
        yield f"**{type(found).__name__}**"
        return
    held = found.held
    yield f"{held.ratio:.2f}" if held else "–"
    before_s = held.idle_before_s if held else found.between_s
    yield median_and_longest(before_s) if before_s else "–"
    yield f"{statistics.mean(held.idle_s):.1f}" if held else "–"
    yield str(held.most) if held else "–"
    yield f"{100 * found.refused:.1f} % ({100 * found.floor:.1f} %)"
    yield _waited(found.alter)
    yield _waited(found.daily)
    yield f"{found.longest_job_s:.1f}"
    yield f"{found.makespan_s:.0f}"
    yield f"{found.makespan_s / floor_s:.2f}"
    yield f"{found.starts:.1f}"


def _aims(way: Way, found: Figures | Exception, floor_s: float, step_s: Sequence[float]) -> Iterator[str]:
    """A line for each aim of the way, and whether it is met.

    :param step_s: what Airflow itself takes from one task to the next, a day.
    """
    if way.most_held is None or isinstance(found, Exception):
        return
    patience_s = found.longest_job_s + LATER_S
    aims = {
        f"held ÷ worked at most {way.most_held}": found.held is not None and found.held.ratio <= way.most_held,
        f"SELECTs refused at most {100 * REFUSED_TOO_MUCH:g} points above the floor": found.refused
        <= found.floor + REFUSED_TOO_MUCH,
        f"makespan at most {SLOWER} × without locks": found.makespan_s <= SLOWER * floor_s,
    }
    if way.kind is Kind.CHAIN and found.held is not None and step_s:
        ratio = statistics.mean(found.held.idle_s) / statistics.mean(step_s)
        aims[f"locked without work {ratio:.2f} × a step of Airflow's own, at most {MOST_IDLE}"] = ratio <= MOST_IDLE
    for name, wait in (("ALTER TABLE", found.alter), ("daily run", found.daily)):
        if wait is not None:
            aims[f"{name} waits at most {patience_s:.1f} s"] = wait.reached and wait.seconds <= patience_s
    for aim, met in aims.items():
        yield f"- {way.title}: {aim}: {'met' if met else '**missed**'}"


def _waited(wait: Wait | None) -> str:
    if wait is None:
        return "–"
    return f"{wait.seconds:.1f}" if wait.reached else f"not in {wait.seconds:.0f}"
