"""The common part of every stand-in: jobs that are processes, and a way to give no answer about some of them."""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    State = Literal["running", "succeeded", "failed", "cancelled"]

END_S = 5.0
HOLD_S = 300.0
POLL_S = 0.05


class Silent(Exception):
    """No answer is to be given."""


class Refused(Exception):
    """Who asks may not."""


class Unknown(Exception):
    """There is no such job."""


@dataclass
class Job:
    """A process.

    :param spec: what it was submitted as, for calls that give that back.
    """

    id: str
    command: Sequence[str]
    spec: dict[str, Any]
    process: subprocess.Popen[bytes]
    cancelled: bool = False

    @property
    def state(self) -> State:
        status = self.process.poll()
        if status is None:
            return "running"
        return "cancelled" if self.cancelled else "failed" if status else "succeeded"

    def cancel(self) -> None:
        """End it, as most clusters do: they say that it has ended only once it has."""
        if self.state == "running":
            self.cancelled = True
            self.process.terminate()


@dataclass
class Cluster(ABC):
    """Jobs by id. It can give no answer about the jobs of some runs, which the last part of a word of their commands
    names.

    :ivar silent: the runs whose jobs get no answer, and are not accepted.
    :ivar refused: the runs whose jobs may not be asked about.
    :ivar held: the runs whose jobs start, but whose ids are returned only after a release.
    """

    kind: ClassVar[str]
    conn_id: ClassVar[str]
    """The id of the connection that its operators use by default."""

    jobs: dict[str, Job] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @abstractmethod
    def connection(self) -> Mapping[str, Any]:
        """The fields of the Airflow connection that leads here."""

    def environment(self) -> Mapping[str, str]:
        """Additional variables for Airflow's processes."""
        return {}

    @abstractmethod
    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None:
        for job in self.jobs.values():
            job.process.kill()
            job.process.wait(END_S)

    def submit(self, command: Sequence[str], spec: dict[str, Any] | None = None, job_id: str = "") -> Job:
        """
        :raises Silent: it is silent about that run.
        """
        with self._lock:
            number = next(self._numbers)
            job_id = job_id or self.name(number)
            if _names(command, self.silent):
                raise Silent
            started = subprocess.Popen(command, env={}, stdin=subprocess.DEVNULL, start_new_session=True)
            job = self.jobs[job_id] = Job(job_id, command, spec or {}, started)
        until = time.monotonic() + HOLD_S
        while _names(command, self.held) and time.monotonic() < until:
            time.sleep(POLL_S)
        return job

    def job(self, job_id: str) -> Job:
        """Return the job.

        :raises Silent: it gives no answer about that run.
        :raises Refused: it refuses questions about that run.
        :raises Unknown: there is no job with that id.
        """
        job = self.jobs.get(job_id)
        if job is None:
            raise Unknown(job_id)
        if _names(job.command, self.silent):
            raise Silent
        if _names(job.command, self.refused):
            raise Refused
        return job

    def name(self, number: int) -> str:
        """The id of the job of that number."""
        return str(number)


def _names(command: Sequence[str], runs: set[str]) -> bool:
    return any(word.endswith(f"/{run}") for word in command for run in list(runs))
