"""Measure, print the table and write ``contention.md``: ``python -m tests.bench.contention``.

A real Airflow (LocalExecutor with six slots, PostgreSQL) and a real ZooKeeper on this machine, which should do little else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench import runner
from tests.bench.contention.play import play, staged
from tests.bench.contention.scenes import SLOTS, scenes
from tests.support.documented import table

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


def main() -> None:
    parser = runner.parser("tests.bench.contention", __doc__)
    parser.add_argument(
        "--scenes", default="16,busy", help="names with commas between them, or all; default: %(default)s"
    )
    arguments = parser.parse_args()
    job_s = 2.0 if arguments.quick else 6.0
    every = scenes(quick=arguments.quick)
    chosen = [scene for scene in every if arguments.scenes == "all" or scene.name in arguments.scenes.split(",")]
    busy_s = max(scene.busy_s for scene in every)
    rows = []
    with runner.workplace() as scratch, staged(scratch, job_s, busy_s) as stage:
        for scene in chosen:
            runner.say(scene.title)
            found = play(stage, scene)
            runner.say(repr(found))
            rows.append(_row(scene.title, found))
    conditions = f"{SLOTS} slots, {job_s:g} s a job, a worker start {stage.start_s:.1f} s; {runner.machine()}."
    runner.publish(arguments.output, "contention.md", f"# Contention\n\n{conditions}\n\n{table(HEAD, rows)}")


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


if __name__ == "__main__":
    main()
