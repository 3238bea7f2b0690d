"""A row at work: its own table, its runs, who writes and who holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import psutil

from airflow_hivelock.locks.model import WaitsFor
from tests.support import airflow_server
from tests.support.spans import noted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from airflow_hivelock.locks import Lease, LockManager
    from airflow_hivelock.locks.model import Waiter
    from tests.support.airflow_server import AirflowServer
    from tests.support.clusters import Cluster
    from tests.support.servers import ZooKeeperServer

T = TypeVar("T")

WAIT_S = 240.0
"""For any one thing to happen: only what hangs takes so long."""

DAY, NEXT_DAY, LATER_DAY = "dt=2013-01-15", "dt=2013-01-16", "dt=2013-01-17"
NO_SLOTS = "no_slots"
"""A pool without any."""


@dataclass(frozen=True)
class Stage:
    """What all rows share.

    :param manager: the rows' own session with the lock store that Airflow uses.
    :param gates: where the writers note that they live, and look for what ends them.
    :param servers: ZooKeeper's; none where the locks are elsewhere.
    :param clusters: what runs jobs elsewhere, by kind.
    """

    af: AirflowServer
    manager: LockManager
    gates: Path
    servers: Sequence[ZooKeeperServer]
    clusters: Mapping[str, Cluster] = field(default_factory=dict)


@dataclass(frozen=True)
class Life:
    """A writer's, from its first note to its last."""

    pid: int
    first_ms: float
    last_ms: float


@dataclass
class Run(airflow_server.Run):
    """A run of one of the DAGs."""

    gates: Path
    wait_s = WAIT_S

    def open(self, status: int = 0, task_id: str = "", try_number: int = 1) -> None:
        """Let the writers of the run, or of one try of a task, end with that status."""
        name = f"{self.run_id}.{task_id}.{try_number}" if task_id else self.run_id
        scratch = self.gates / f"{name}.scratch"
        scratch.write_text(str(status))
        scratch.replace(self.gates / name)

    def open_if_closed(self) -> None:
        self.let_ask()
        if not (self.gates / self.run_id).exists():
            self.open()

    def let_ask(self) -> None:
        """Let go on the workers that are held up before they ask for locks."""
        (self.gates / f"{self.run_id}.asks").touch()

    def hold_up(self) -> None:
        """Hold up again those that are started from here on."""
        (self.gates / f"{self.run_id}.asks").unlink()


@dataclass
class Play:
    """The tools of a row: a table that no other row uses."""

    stage: Stage
    name: str
    runs: list[Run] = field(default_factory=list)
    days: set[str] = field(default_factory=set)
    rivals: list[Lease] = field(default_factory=list)

    @property
    def table(self) -> str:
        return f"dw.{self.name}"

    def start(self, dag_id: str) -> Run:
        af, number = self.stage.af, len(self.runs)
        run_id = af.trigger(dag_id, conf={"table": self.table}, run_id=f"{self.name}-{number}")
        self.runs.append(Run(af, dag_id, run_id, self.stage.gates))
        return self.runs[-1]

    def at_work(self, dag_id: str) -> Run:
        """A new run, which writes under its lock."""
        run = self.start(dag_id)
        self.writing()
        return run

    def until(self, condition: Callable[[], T], what: str) -> T:
        return self.stage.af.wait(condition, WAIT_S, f"{self.name}: {what}")

    def lives(self, day: str = DAY) -> list[Life]:
        """The writers of the partition, in the order of their first notes."""
        self.days.add(day)
        notes = self.stage.gates / f"{self.table}@{day}.beats"
        beats: dict[int, list[float]] = {}
        for line in noted(notes):
            pid, time_ns = line.split()
            beats.setdefault(int(pid), []).append(int(time_ns) / 1e6)
        lives = (Life(pid, times[0], times[-1]) for pid, times in beats.items())
        return sorted(lives, key=lambda life: life.first_ms)

    def writing(self, count: int = 1, day: str = DAY) -> int:
        """Wait until that many have begun to write, and the lock is held; the last one's process id."""
        self.until(lambda: len(self.lives(day)) >= count, f"{count} writers")
        lives, tasks = self.lives(day), self.stage.af.task_instances
        assert self.owners(day), (
            f"{len(lives)} wrote, and nobody holds: {lives}, {self._waiters()}, {[*map(str, tasks())]}"
        )
        return lives[-1].pid

    def owners(self, day: str = DAY) -> list[str]:
        return [holder.owner for holder in self.stage.manager.show(f"{self.table}/{day}")]

    def hold(self, day: str = DAY) -> Lease:
        """A lease of another owner, for the row's runs to wait for."""
        lease = self.stage.manager.acquire(owner=f"rival {self.name} {day}", writes=[f"{self.table}/{day}"])
        self.rivals.append(lease)
        return lease

    def waiters(self) -> list[str]:
        """Whose turn has not come."""
        return [one.owner for one in self._waiters() if one.waits_for is not WaitsFor.SLOT]

    def invited(self) -> list[str]:
        """Whose turn has come, and who waits for a worker slot."""
        return [one.owner for one in self._waiters() if one.waits_for is WaitsFor.SLOT]

    def _waiters(self) -> Sequence[Waiter]:
        return self.stage.manager.waiters(self.table)

    def await_waiters(self, count: int = 1) -> None:
        self.until(lambda: len(self.waiters()) == count, f"{count} waiters")

    def await_end_of_work(self, day: str = DAY) -> None:
        self.until(lambda: not running(self.lives(day)[-1].pid), "the work to be ended")

    def is_kept(self, run: Run) -> None:
        """The run is over, and the force release looks: who still writes still holds."""
        run.await_end()
        assert running(self.lives()[-1].pid)
        self.force_release()
        assert self.owners() == [run.owner()], "freed under the hands of a writer"

    def force_release(self) -> None:
        """Have a HiveForceUnlockOperator look at the table; it frees what is stale."""
        self.start("look").await_end()

    def settle(self, frees_itself: bool) -> None:
        """Let everything go to its end, and wait until what is to be free by itself is."""
        for run in self.runs:
            run.open_if_closed()
        for rival in self.rivals:
            self.stage.manager.release(rival)
        for run in self.runs:
            run.await_end()
        self.until(
            lambda: not any(running(life.pid) for day in self.days for life in self.lives(day)), "writers to end"
        )
        if frees_itself:
            self.until(lambda: not self.stage.manager.show(self.table), "its locks to be freed")


def running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
