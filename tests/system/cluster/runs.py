"""Runs of DAGs whose job runs in a cluster until its gate opens. The gate is a file with the name of the run."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import psutil

from airflow_hivelock.work import applications
from airflow_hivelock.work.spark_job import SparkJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_hivelock.locks import LockManager
    from tests.support.airflow_server import AirflowServer

WAIT_S = 600

DRIVERS = {
    "org.apache.spark.deploy.worker.DriverWrapper",
    "org.apache.spark.deploy.yarn.ApplicationMaster",
}
"""What a driver in a cluster is called by the operating system."""


class Start(Protocol):
    def __call__(self, dag_id: str, table: str) -> Run: ...


class Run:
    """A run of one of the DAGs on a table of its own."""

    def __init__(self, af: AirflowServer, gates: Path, dag_id: str, table: str) -> None:
        self.af, self.dag_id = af, dag_id
        self.run_id = af.trigger(dag_id, conf={"table": table}, run_id=f"{dag_id}-{table}-{len(af.runs(dag_id))}")
        self.owner = f"here/{dag_id}/{self.run_id}/job/-1"
        self._gate = gates / self.run_id

    def log(self) -> list[str]:
        """What its drivers have noted."""
        log = self._gate.with_name(f"{self.run_id}.log")
        return log.read_text().splitlines() if log.exists() else []

    def begun(self, drivers: int = 1) -> None:
        self.af.wait(lambda: len(self.log()) == drivers, WAIT_S, f"{drivers} drivers of {self.run_id} to have begun")

    def job(self, manager: LockManager) -> SparkJob:
        """What its lease has recorded."""
        lease = manager.lease_of(self.owner)
        assert lease
        job = applications.decode(lease.works[0].application)
        assert isinstance(job, SparkJob), job
        return job

    def driver(self, manager: LockManager) -> str:
        """The id that its lease has recorded."""
        return self.job(manager).job_id

    def kill_task(self) -> None:
        os.kill(self.af.task_process(self.dag_id, self.run_id, "job").pid, signal.SIGKILL)

    def alive(self) -> int:
        """How many drivers of it there are, by the operating system's word."""
        lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
        return sum(str(self._gate) in line and not DRIVERS.isdisjoint(line) for line in lines)

    def retried(self) -> None:
        """Wait until its second try works."""

        def works() -> bool:
            task = self.af.task(self.dag_id, self.run_id, "job")
            return (task.try_number, task.state) == (2, "running")

        self.af.wait(works, WAIT_S, "the second try")

    def open_gate(self) -> None:
        self._gate.touch()

    def end(self) -> str:
        self.open_gate()
        return self.ended()

    def ended(self) -> str:
        self.af.wait(lambda: self._state() in ("success", "failed"), WAIT_S, f"{self.run_id} to end")
        return self._state()

    def _state(self) -> str:
        return self.af.run(self.dag_id, self.run_id).state


@contextmanager
def starting(af: AirflowServer, gates: Path) -> Iterator[Start]:
    """Start runs; what they have left running ends with this."""
    runs: list[Run] = []

    def start(dag_id: str, table: str) -> Run:
        runs.append(Run(af, gates, dag_id, table))
        return runs[-1]

    yield start
    for left in runs:
        left.open_gate()


def owners(manager: LockManager, table: str) -> list[str]:
    return [holder.owner for holder in manager.show(f"{table}/dt=2013-01-15")]
