"""Run the races and print how many tries did harm: ``python -m tests.system.race --tries 20``.

It fails in each of these cases:

- A try under our locks did harm.
- Without locks, less than half of the tries to overwrite one partition did harm. A race that is harmless without locks
  proves nothing about the locks.
- A step of the locks in ZooKeeper is not a step of the specification.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.support import documented
from tests.system.race.scenario import SCENARIOS, Scenario
from tests.system.race.track import MODES, OURS, SESSION, SPARK_ALONE, Mode, Outcome, Track, track

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Tally:
    """The tries of one scenario in one mode."""

    outcomes: Sequence[Outcome]

    @property
    def harmed(self) -> int:
        return sum(outcome.harmed for outcome in self.outcomes)

    def __str__(self) -> str:
        silent = sum(outcome.silent for outcome in self.outcomes)
        how = f" ({silent} silent, {self.harmed - silent} failed)" if self.harmed else ""
        return f"{self.harmed}/{len(self.outcomes)}{how}, {mean(o.race_s for o in self.outcomes):.1f} s"


def run(course: Track, scenario: Scenario, mode: Mode, tries: int) -> Tally:
    """Race *tries* times. Print each harm when it happens."""
    outcomes = []
    for number in range(1, tries + 1):
        outcome = course.race(scenario, mode)
        outcomes.append(outcome)
        if outcome.harmed:
            harms = [*outcome.wrong, *(error.partition("\n")[0] for error in outcome.errors)]
            print(f"{scenario.name}, {mode.name}, try {number}: {' | '.join(harms)}", file=sys.stderr, flush=True)
    return Tally(outcomes)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.race", description=__doc__)
    parser.add_argument("--tries", type=int, default=20, help="of each scenario in each mode; default: %(default)s")
    parser.add_argument("--all", action="store_true", help="also locks with Spark's writer, and Hive's writer alone")
    parser.add_argument("--session", action="store_true", help="the locks of enable_hive_locks; no job names its locks")
    parser.add_argument("--hive", action="store_true", help="real Hive takes part, with its own locks")
    parser.add_argument("--first", action="store_true", help="only the first scenario")
    parser.add_argument("--metastore", action="store_true", help="locks in the metastore of the Hive release $HIVE")
    arguments = parser.parse_args()
    scenarios: Sequence[Scenario] = SCENARIOS[:1] if arguments.first else SCENARIOS
    if arguments.hive:
        scenarios = tuple(scenario.with_hive() for scenario in scenarios)
    ours = SESSION if arguments.session else OURS
    modes = MODES if arguments.all else (SPARK_ALONE, ours)

    started = time.monotonic()
    tallies: dict[tuple[Scenario, Mode], Tally] = {}
    with (
        TemporaryDirectory(prefix="race-") as workdir,
        track(Path(workdir), locks_in_metastore=arguments.metastore, with_hive=arguments.hive) as course,
    ):
        for scenario in scenarios:
            for mode in modes:
                tallies[scenario, mode] = run(course, scenario, mode, arguments.tries)
                print(f"{scenario.name}, {mode.name}: {tallies[scenario, mode]}", file=sys.stderr, flush=True)
        trace = course.trace()
    jobs = f"two Spark jobs at once{', and real Hive' if arguments.hive else ''}"
    lines = ([scenario.name, *(str(tallies[scenario, mode]) for mode in modes)] for scenario in scenarios)
    print(documented.table([jobs, *(mode.name for mode in modes)], lines))
    print("harmful tries/tries (silent, or a job failed), mean time until the last job had ended.")
    print(f"{time.monotonic() - started:.0f} s in all.")
    print(trace, *trace.wrong, sep="\n")

    bites = 2 * tallies[scenarios[0], SPARK_ALONE].harmed >= arguments.tries
    safe = not any(tallies[scenario, ours].harmed for scenario in scenarios)
    return 0 if bites and safe and not trace.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
