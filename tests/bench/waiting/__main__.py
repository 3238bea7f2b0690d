"""Measure, print the tables, and write ``rerun.md``, ``waiting.md`` and ``waiting.png``: ``python -m tests.bench.waiting [PART]``.

A real Airflow (LocalExecutor with four slots, PostgreSQL) and a real ZooKeeper on this machine, which should do little else.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench import runner
from tests.bench.rerun.measure import measure
from tests.bench.samples import Samples
from tests.bench.waiting import phases
from tests.bench.waiting.report import Results, markdown, plot
from tests.bench.waiting.site import FLOOR, SLOTS, WAYS, Site


def main() -> int:
    parser = runner.parser("tests.bench.waiting", __doc__)
    parser.add_argument("part", nargs="?", choices=("rerun", "waiting"), help="default: both")
    arguments = parser.parse_args()
    ended = arguments.part == "waiting" or measure(arguments.output, quick=arguments.quick)
    if arguments.part != "rerun":
        waiting(arguments.output, quick=arguments.quick)
    return 0 if ended else 1


def waiting(output: Path, *, quick: bool) -> None:
    runs, beside, starts, idle_s = (8, 6, 6, 10.0) if quick else (1_000, 60, 60, 300.0)
    unpaused = (*(f"rerun_{way}" for way in (*WAYS, FLOOR)), "one_by_one", "unrelated")
    dags = Path(__file__).parent / "dags"
    with runner.workplace() as scratch, Site.up(scratch, dags, slots=SLOTS, unpaused=unpaused) as site:
        runner.say("Airflow is up")
        phases.idle_starts(site, 5)
        floors: list[Samples] = []
        many: list[phases.Way] = []
        airflows: list[phases.Way] = []
        for turn in range(2):  # by turns, so that what drifts drifts for both
            runner.say(f"turn {turn + 1}: nobody waits")
            floors.append(phases.idle_starts(site, starts // 2))
            runner.say(f"turn {turn + 1}: {runs:,} wait")
            many.append(phases.way(site, "trigger", runs, starts // 2, idle_s * turn))
            runner.say(str(many[-1]))
            runner.say(f"turn {turn + 1}: {runs:,} wait for time, on a trigger of Airflow's own")
            airflows.append(phases.way(site, FLOOR, runs, starts // 2))
            runner.say(str(airflows[-1]))
        ways = []
        for name in reversed(WAYS):
            runner.say(f"{beside} runs wait: {name}")
            ways.append(phases.way(site, name, beside, starts // 3))
            runner.say(str(ways[-1]))
        runner.say(f"{beside} hand-overs")
        hand_overs = phases.hand_overs(site, beside)
        runner.say(str(hand_overs))
        runner.say("the triggerer is killed")
        killed_s = phases.killed_triggerer(site, min(200, runs))
    results = Results(
        Samples.of(delay for floor in floors for delay in floor.values), airflows, many, ways, hand_overs, killed_s
    )
    runner.publish(output, "waiting.md", markdown(results))
    plot(results, output / "waiting.png")


if __name__ == "__main__":
    sys.exit(main())
