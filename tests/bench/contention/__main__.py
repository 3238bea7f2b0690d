"""Measure, print the table and write ``contention.md``: ``python -m tests.bench.contention``.

A real Airflow (LocalExecutor with six slots, PostgreSQL) and a real ZooKeeper on this machine, which should do little else.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.bench.contention.play import play, staged
from tests.bench.contention.scenes import SLOTS, scenes

if TYPE_CHECKING:
    from tests.bench.contention.figures import Figures

HEAD = (
    "scene",
    "inversions by priority",
    "by arrival",
    "worker starts a task",
    "nobody works while a task waits, s: median (longest)",
    "makespan ÷ (jobs + starts)",
    "daily run waited, s",
    "ALTER TABLE waited, s",
)

started = time.monotonic()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.contention", description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("bench-output"), help="directory; default: %(default)s")
    parser.add_argument("--job-s", type=float, default=6, help="how long a job takes; default: %(default)s")
    parser.add_argument("--busy-s", type=float, default=300, help="how long slots are busy; default: %(default)s")
    parser.add_argument("--many", type=int, default=1_000, help="tasks over many tables; default: %(default)s")
    parser.add_argument("--tables", type=int, default=50, help="how many tables; default: %(default)s")
    parser.add_argument(
        "--scenes", default="16,busy", help="names with commas between them, or all; default: %(default)s"
    )
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # with what it has started
    every = scenes(arguments.many, arguments.tables, arguments.busy_s)
    chosen = [scene for scene in every if arguments.scenes == "all" or scene.name in arguments.scenes.split(",")]
    rows = [HEAD, ("---",) * len(HEAD)]
    with (
        TemporaryDirectory(prefix="contention-") as scratch,
        staged(Path(scratch), arguments.job_s, arguments.busy_s) as stage,
    ):
        for scene in chosen:
            say(scene.title)
            found = play(stage, scene)
            say(repr(found))
            rows.append(_row(scene.title, found))
            conditions = (
                f"{SLOTS} slots, {arguments.job_s:g} s a job, a worker start {stage.start_s:.1f} s; load of the machine "
                f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
            )
            table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
            (arguments.output / "contention.md").write_text(f"# Contention\n\n{conditions}\n\n{table}")
    print((arguments.output / "contention.md").read_text())
    return 0


def _row(title: str, found: Figures) -> tuple[str, ...]:
    median, longest = found.idle_s
    waited = (f"{late_s:.1f}" if late_s is not None else "–" for late_s in (found.daily_s, found.alter_s))
    return (
        title,
        str(found.by_priority),
        str(found.by_arrival),
        f"{found.starts:.2f}",
        f"{median:.1f} ({longest:.1f})",
        f"{found.makespan:.2f}",
        *waited,
    )


def say(text: str) -> None:
    print(f"{time.monotonic() - started:5.0f} s  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
