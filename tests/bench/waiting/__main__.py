"""Measure, print the tables, and write ``rerun.md``, ``waiting.md`` and ``waiting.png``: ``python -m tests.bench.waiting [PART]``.

A real Airflow (LocalExecutor with four slots, PostgreSQL) and a real ZooKeeper on this machine, which should do little else.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench import rerun
from tests.bench.waiting import phases
from tests.bench.waiting.report import Results, markdown, plot
from tests.bench.waiting.site import FLOOR, WAYS, Site

started = time.monotonic()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.waiting", description=__doc__.partition("\n")[0])
    parser.add_argument("part", nargs="?", choices=("rerun", "waiting"), help="default: both")
    parser.add_argument("--output", type=Path, default=Path("bench-output"), help="directory; default: %(default)s")
    parser.add_argument("--runs", type=int, default=1_000, help="blocked runs of ours; default: %(default)s")
    parser.add_argument("--beside", type=int, default=60, help="blocked runs of each way; default: %(default)s")
    parser.add_argument("--starts", type=int, default=60, help="of the unrelated DAG; default: %(default)s")
    parser.add_argument("--idle-s", type=float, default=300, help="how long nothing happens; default: %(default)s")
    parser.add_argument("--days", type=int, default=60, help="of a rerun; default: %(default)s")
    parser.add_argument("--job-s", type=float, default=10, help="how long a day's job takes; default: %(default)s")
    parser.add_argument("--store", choices=rerun.STORES, default="zookeeper", help="of a rerun's locks")
    parser.add_argument("--ways", default="", help="to rerun: names with commas between them; default: all")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # with what it has started
    ended = arguments.part == "waiting" or _rerun(arguments)
    if arguments.part != "rerun":
        _waiting(arguments)
    return 0 if ended else 1


def _rerun(arguments: argparse.Namespace) -> bool:
    """Whether all ways came to their end."""
    ways = [name for name in arguments.ways.split(",") if name]
    with TemporaryDirectory(prefix="rerun-") as scratch:
        output = arguments.output / "rerun.md"
        ended = rerun.measure(Path(scratch), arguments.store, arguments.days, arguments.job_s, ways, say, output)
    print(output.read_text())
    say(f"written to {output}")
    return ended


def _waiting(arguments: argparse.Namespace) -> None:
    runs, beside, starts = arguments.runs, arguments.beside, arguments.starts
    with TemporaryDirectory(prefix="waiting-") as scratch, Site.up(Path(scratch)) as site:
        say("Airflow is up")
        phases.idle_starts(site, 5)
        floor: list[float] = []
        many: list[phases.Way] = []
        airflows: list[phases.Way] = []
        for turn in range(2):  # by turns, so that what drifts drifts for both
            say(f"turn {turn + 1}: nobody waits")
            floor += phases.idle_starts(site, starts // 2)
            say(f"turn {turn + 1}: {runs:,} wait")
            many.append(phases.way(site, "trigger", runs, starts // 2, arguments.idle_s * turn))
            say(str(many[-1]))
            say(f"turn {turn + 1}: {runs:,} wait for time, on a trigger of Airflow's own")
            airflows.append(phases.way(site, FLOOR, runs, starts // 2))
            say(str(airflows[-1]))
        ways = []
        for name in reversed(WAYS):
            say(f"{beside} runs wait: {name}")
            ways.append(phases.way(site, name, beside, starts // 3))
            say(str(ways[-1]))
        say(f"{beside} hand-overs")
        hand_overs = phases.hand_overs(site, beside)
        say(str(hand_overs))
        say("the triggerer is killed")
        killed_s = phases.killed_triggerer(site, min(200, runs))
    results = Results(floor, airflows, many, ways, hand_overs, killed_s)
    (arguments.output / "waiting.md").write_text(markdown(results))
    plot(results, arguments.output / "waiting.png")
    print(markdown(results))
    say(f"written to {arguments.output}/waiting.md and waiting.png")


def say(text: str) -> None:
    print(f"{time.monotonic() - started:5.0f} s  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
