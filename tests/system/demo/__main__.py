"""``make demo``: a week and more rerun by Airflow with spark-submit, while Hive, other DAGs and a dead task hold locks.

Exits with 0 only if every check at the end holds. ``--keep`` leaves all of it up until Ctrl-C.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from rich.console import Console

from airflow_hivelock import compat
from airflow_hivelock.locks import Lock, LockMode, LockObject, Tenure
from tests.support.airflow_server.database import Database
from tests.system.demo import picture, report, truth, work
from tests.system.demo.observer import Observer, summary
from tests.system.demo.stage import EXAMPLES, Stage
from tests.system.race.spark import run_job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

OUTPUT = Path("demo-output")
FIRST, LAST = date(2013, 1, 12), date(2013, 1, 20)
HIVES_DAY = date(2013, 1, 16)
RANGE = {"first": "2013-01-21", "last": "2013-01-23"}
CRASH_DAY = date(2013, 1, 31)
STARVED_S = 60.0
PROGRESS_S = 10.0

MOMENT_S = 0 if compat.TRIGGERS_RENDER else 20
"""How long a waiting task may be in a worker's slot at its begin: an older Airflow starts it there, on a machine that is full."""

IN_SLOTS = (
    f"no waiting task was in a worker slot for more than {MOMENT_S} s"
    if MOMENT_S
    else "no waiting task ever used a worker slot"
)

console = Console(width=150 if not sys.stdout.isatty() else None)
started = time.monotonic()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keep", action="store_true", help="leave Airflow up at the end, until Ctrl-C")
    parser.add_argument("--database", choices=get_args(Database), default="postgresql", help="Airflow's own")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir()
    stage = Stage.up(OUTPUT.resolve(), arguments.database, say)
    try:
        holds = Demo(stage).run()
        say("everything holds" if holds else f"something does not hold; the logs are in {OUTPUT}/")
        if arguments.keep:
            say(f"Airflow: {stage.airflow.url} (no password; Ctrl-C ends it)")
            signal.pause()
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    finally:
        say("stopping everything")
        stage.down()
    return 0 if holds else 1


class Demo:
    """The story, told in order by :meth:`run`."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.airflow = stage.airflow
        self.hive = stage.hive
        self.locks = stage.locks
        self.hives: Tenure | None = None

    def run(self) -> bool:
        say("loading the 336,776 flights of 2013, a partition a day")
        run_job(self.stage.metastore, EXAMPLES / "jobs" / "load_flights.py", cores=2)
        for dag_id in (
            "unrelated",
            "flights_daily",
            "flights_range_rerun",
            "alter_table",
            "crash",
            "force_release_stale_locks",
        ):
            self.airflow.unpause(dag_id)
        with Observer(self.airflow, self.locks) as observer:
            begun = datetime.now(UTC)
            self.rerun_against_hive(observer)
            freed = self.leave_and_free_a_stale_lock()
            ended = datetime.now(UTC)
            over = {"success", "failed"}
            self.airflow.wait(
                lambda: over.issuperset(state for state, _ in observer.unrelated(begun, ended)),
                60,
                "the unrelated DAG ends",
            )
            return self.account(observer, observer.unrelated(begun, ended), freed)

    def rerun_against_hive(self, observer: Observer) -> None:
        """A backfill of nine days; a Hive session holds one of them, an ALTER TABLE and a range rerun queue behind."""
        self.hive.run(f"lock table dw.flights partition (dt='{HIVES_DAY}') exclusive")
        since = self.locks.now()
        say(f"Hive holds dw.flights/dt={HIVES_DAY} EXCLUSIVE; backfill of {FIRST} to {LAST} starts")
        backfill = self.airflow.backfill("flights_daily", _midnight(FIRST), _midnight(LAST))
        self.wait_for(
            observer, lambda: self.finished("flights_daily", "delays") >= 3, "three days are done beside Hive's lock"
        )
        alter = self.airflow.trigger("alter_table")
        rerun = self.airflow.trigger("flights_range_rerun", conf=RANGE)
        say("ALTER TABLE asks for the whole table, and a range rerun for three days more: both queue, in that order")
        others = (LAST - FIRST).days
        self.wait_for(
            observer, lambda: self.finished("flights_daily", "delays") >= others, "all days but Hive's are done"
        )
        for waiter in self.locks.waiters():
            say(
                f"waiting for a {waiter.waits_for.value}: {waiter.owner}, position {waiter.position}"
                + "".join(f"; {blocker}" for blocker in waiter.blocked_by[:1])
            )
        self.hive.run(f"unlock table dw.flights partition (dt='{HIVES_DAY}')")
        say("Hive's session unlocks")
        held = Lock(LockObject.parse(f"dw.flights/dt={HIVES_DAY}"), LockMode.EXCLUSIVE)
        self.hives = Tenure("", "a Hive session", (held,), since, since, self.locks.now())
        self.wait_for(
            observer,
            lambda: (
                all(run.state == "success" for run in self.airflow.runs("flights_daily", backfill_id=backfill))
                and self.airflow.run("alter_table", alter).state == "success"
                and self.airflow.run("flights_range_rerun", rerun).state == "success"
            ),
            "backfill, ALTER TABLE and range rerun succeed",
        )

    def leave_and_free_a_stale_lock(self) -> bool:
        """A task is killed with SIGKILL and leaves its lock, a run waits for it, the force-release DAG frees it."""
        partition = f"dw.delays/dt={CRASH_DAY}"
        crash = self.airflow.trigger("crash", conf={"dt": str(CRASH_DAY)})
        self.airflow.wait(lambda: self.airflow.run("crash", crash).state == "failed", 120, "the crashed run fails")
        stands = [str(holder) for holder in self.locks.show(partition)]
        say(f"its task was killed with SIGKILL, and {stands[0] if stands else 'NO lock stands'}")
        waiting = self.airflow.trigger("flights_daily", logical_date=_midnight(CRASH_DAY))
        self.airflow.wait(lambda: self.locks.waiters(partition), 120, "a run waits for the stale lock")
        say("a run waits for it; the force-release DAG is told to free what is stale")
        self.airflow.trigger("force_release_stale_locks", conf={"dry_run": False, "grace_minutes": 0})
        self.airflow.wait(
            lambda: self.airflow.run("flights_daily", waiting).state == "success",
            240,
            "the run behind the stale lock succeeds",
        )
        say("freed; the run behind it has succeeded")
        return bool(stands)

    def account(self, observer: Observer, unrelated: list[tuple[str, float]], freed: bool) -> bool:
        """Print what happened, and check it."""
        delays_s = [delay_s for _, delay_s in unrelated]
        expected = truth.expected()
        days = [FIRST + timedelta(days=day) for day in range((LAST - FIRST).days + 1)]
        ranged = [date.fromisoformat(RANGE["first"]) + timedelta(days=day) for day in range(3)]
        written = {str(day) for day in (*days, *ranged, CRASH_DAY)}
        found = self.written_partitions()
        # A task with an ended invitation asks again: its wait began before that.
        ours = [
            replace(tenure, asked=min(tenure.asked, observer.asked.get(tenure.owner, tenure.asked)))
            for tenure in self.locks.history("dw")
        ]
        tenures = [*ours, *filter(None, [self.hives])]
        done = work.jobs(self.stage.notes.read_text().splitlines())
        console.print(report.timeline(tenures, done))
        console.print(report.partitions(found, expected))
        console.print(
            f"unrelated DAG, due every 20 s: {summary(delays_s)}; most tasks waiting at once: {observer.most_waiting}"
        )
        holds = work.Holds.of(tenures, done)
        console.print(report.holds(holds))
        checks = {
            f"{len(written)} partitions were written, each equal to the CSV": found
            == {day: expected[day] for day in written},
            IN_SLOTS: observer.samples > 0 and max(observer.waited_in_slot.values(), default=0) <= MOMENT_S,
            "every run of the unrelated DAG succeeded": {state for state, _ in unrelated} == {"success"},
            f"the unrelated DAG never started later than {STARVED_S:.0f} s": max(delays_s) < STARVED_S,
            "a SIGKILLed task's lock stood until the force-release DAG freed it": freed,
            "no lock and no waiter is left": not self.locks.show() and not self.locks.waiters(),
            "Hive's own SHOW LOCKS is empty": self.hive.run("show locks") == [],
        }
        late = f"an unrelated DAG started {max(delays_s):.1f} s late at most"
        self.draw(tenures, done, checks, f"held ÷ worked {holds.ratio:.2f}; {late}")
        return report.checks(console, checks)

    def draw(self, tenures: Sequence[Tenure], done: work.Jobs, checks: Mapping[str, bool], said: str) -> None:
        """Leave the timeline as a page and as a picture."""
        drawn = picture.rows(tenures, done, {entry.lease_id for entry in self.locks.audit()})
        made = picture.figure(drawn, f"Nine days rerun while a Hive session holds one of them; {said}")
        (OUTPUT / "timeline.png").write_bytes(picture.png(made))
        (OUTPUT / "timeline.html").write_text(picture.page(made, drawn, checks))
        say(f"who waited and who held, as a page: {OUTPUT}/timeline.html")

    def written_partitions(self) -> dict[str, truth.Delays]:
        """The sums of each partition of dw.delays, read by Hive."""
        rows = self.hive.run(
            "select dt, sum(flights), sum(departed), sum(dep_delay_minutes), sum(arr_delay_minutes) from dw.delays group by dt",
            timeout_s=180,
        )
        fields = (row.split("\t") for row in rows)
        return {day: truth.Delays(*map(int, sums)) for day, *sums in fields}

    def finished(self, dag_id: str, task_id: str) -> int:
        return sum(task.state == "success" for task in self.airflow.task_instances(dag_id, task_id=task_id))

    def wait_for(self, observer: Observer, condition: Callable[[], object], what: str) -> None:
        """Wait, and say every few seconds how it goes."""
        told = 0.0

        def holds() -> bool:
            nonlocal told
            if time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                states = observer.states("flights_daily", "delays")
                say(
                    f"days: {states['success']} done, {states['running']} running, {observer.waiting} tasks wait in the triggerer"
                )
            return bool(condition())

        self.airflow.wait(holds, 420, what)


def say(text: str) -> None:
    """A line with the seconds since the start."""
    console.print(f"[dim]{time.monotonic() - started:5.0f} s[/dim]  {text}", highlight=False)


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
