"""A real Airflow on PostgreSQL and a real ZooKeeper, and what is read off them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import sqlalchemy as sa

from tests.bench import site
from tests.bench.measure import zxid
from tests.bench.samples import Samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks import Lease

LOCKED = "dw.flights/dt=2013-01-15"
ROOT = "/airflow_hivelock"
FLOOR = "timedelta"
"""Waiting on a trigger of Airflow's own, for no lock."""

WAYS = ("sleep", "poke", "reschedule", "defer", "trigger")
SLOTS = 4
IN_A_SLOT = ("queued", "running", "restarting")


@dataclass(frozen=True)
class Load:
    """The resources used in a period."""

    seconds: float
    scheduler_cpu_s: float
    triggerer_cpu_s: float
    zookeeper_cpu_s: float
    zookeeper_writes: int
    task_instance_writes: int


@dataclass
class Site(site.Site):
    """Everything that is measured on."""

    def __post_init__(self) -> None:
        self._database = sa.create_engine(self.airflow.database_url)

    def hold(self) -> Lease:
        """Keep all requests waiting."""
        return self.locks.acquire(owner="the one in the way", writes=[LOCKED], timeout_s=60)

    def block(self, dag_id: str, count: int) -> None:
        """Start *count* runs, and wait until all that can wait do so: without a slot, or in all slots."""
        before = self.blocked(dag_id)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: self.airflow.trigger(dag_id), range(count)))
        if dag_id in ("rerun_trigger", "one_by_one", "rerun_defer"):
            self.wait(lambda: len(self.locks.waiters()) >= before + count, f"{count} waiters")
        elif dag_id == f"rerun_{FLOOR}":
            self.wait(lambda: self._in_triggerer(dag_id) >= before + count, f"{count} triggers")
        elif dag_id == "rerun_reschedule":
            self.wait(lambda: self.states(dag_id).get("up_for_reschedule", 0) > 0, "a reschedule")
        else:
            self.wait(lambda: self.states(dag_id).get("running", 0) == SLOTS, "full slots")

    def blocked(self, dag_id: str) -> int:
        """How many of its tasks are not over."""
        return sum(count for state, count in self.states(dag_id).items() if state not in ("success", "failed"))

    def states(self, dag_id: str) -> dict[str, int]:
        """The number of tasks of the DAG in each state."""
        query = sa.text("select coalesce(state, 'none'), count(*) from task_instance where dag_id = :dag group by 1")
        with self._database.connect() as connection:
            return {str(state): int(count) for state, count in connection.execute(query, {"dag": dag_id})}

    def drain(self, dag_id: str, held: Lease) -> float:
        """Let all of them have the lock, free what they took; how long that took, in seconds.

        Those that wait for time alone are marked success.
        """
        begun = time.monotonic()
        self.locks.release(held)
        if dag_id == f"rerun_{FLOOR}":
            self._end_by_hand(dag_id)
        self.wait(lambda: self.blocked(dag_id) == 0, f"{dag_id} to be over")
        took = time.monotonic() - begun
        for lease in self.locks.leases():
            self.locks.release(lease)
        assert set(self.states(dag_id)) == {"success"}, self.states(dag_id)
        return took

    def starts(self, count: int, every_s: float) -> list[str]:
        """Start the unrelated DAG, over and over; the ids of its runs."""
        runs = []
        due = time.monotonic()
        for _ in range(count):
            due += every_s
            runs.append(self.airflow.trigger("unrelated"))
            time.sleep(max(0.0, due - time.monotonic()))
        return runs

    def delays_s(self, runs: list[str]) -> Samples:
        """How long after each run was queued its task began, in seconds; waits until all have."""
        query = sa.text(
            "select extract(epoch from ti.start_date - dr.queued_at) from dag_run dr join task_instance ti "
            "using (dag_id, run_id) where dr.run_id = any(:runs) and ti.start_date is not null"
        )

        def begun() -> list[float]:
            with self._database.connect() as connection:
                found = [float(row[0]) for row in connection.execute(query, {"runs": runs})]
            return found if len(found) == len(runs) else []

        return Samples.of(self.wait(begun, "the unrelated runs to start"))

    def ended(self, dag_id: str) -> dict[str, float]:
        """When each of its tasks was over, by run, in epoch seconds."""
        query = sa.text(
            "select run_id, extract(epoch from end_date) from task_instance where dag_id = :dag and end_date is not null"
        )
        with self._database.connect() as connection:
            return {str(run): float(at) for run, at in connection.execute(query, {"dag": dag_id})}

    def in_slots(self, dag_id: str) -> int:
        """How many of its tasks take a worker's slot."""
        return sum(count for state, count in self.states(dag_id).items() if state in IN_A_SLOT)

    @contextmanager
    def measured(self, into: list[Load]) -> Iterator[None]:
        """Append what the block spent."""
        before, begun = self._spent(), time.monotonic()
        yield
        after = self._spent()
        into.append(Load(time.monotonic() - begun, *(b - a for a, b in zip(before, after, strict=True))))  # type: ignore[arg-type]

    def signs_of_life(self) -> dict[str, str]:
        """The session behind each request that waits, by its node."""
        nodes = self.zookeeper.ephemerals()
        return {path: session for path, session in nodes.items() if path.startswith(f"{ROOT}/alive/")}

    def triggerer_memory_bytes(self) -> int:
        """The memory of the triggerer's processes; shared pages count once."""
        return self.airflow.process("triggerer").memory_bytes()

    def _in_triggerer(self, dag_id: str) -> int:
        """How many of its tasks wait on a trigger that a triggerer has."""
        query = sa.text(
            "select count(*) from task_instance ti join trigger t on t.id = ti.trigger_id "
            "where ti.dag_id = :dag and t.triggerer_id is not null"
        )
        with self._database.connect() as connection:
            return int(connection.scalar(query, {"dag": dag_id}) or 0)

    def _end_by_hand(self, dag_id: str) -> None:
        runs = [run.run_id for run in self.airflow.runs(dag_id) if run.state == "running"]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda run_id: self.airflow.set_run_state(dag_id, run_id, "success"), runs))

    def _spent(self) -> tuple[float, float, float, int, int]:
        cpu_s = (_cpu_s(self.airflow.process(kind).members()) for kind in ("scheduler", "triggerer"))
        query = sa.text("select n_tup_upd + n_tup_ins from pg_stat_user_tables where relname = 'task_instance'")
        with self._database.connect() as connection:
            writes = int(connection.scalar(query) or 0)
        return *cpu_s, _cpu_s([self.zookeeper.pid]), zxid(self.zookeeper), writes  # type: ignore[return-value]


def _cpu_s(pids: list[int]) -> float:
    total = 0.0
    for pid in pids:
        try:
            times = psutil.Process(pid).cpu_times()
        except psutil.NoSuchProcess:
            continue  # a task's process, over since it was listed
        total += times.user + times.system + times.children_user + times.children_system
    return total
