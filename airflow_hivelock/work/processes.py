"""The processes of a task on its host, and all that they have started there."""

from __future__ import annotations

import os
import re
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import psutil

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work import pod
from airflow_hivelock.work.pod import Pod

if TYPE_CHECKING:
    from collections.abc import Collection


MARK = "AIRFLOW_HIVELOCK_WORK"
"""In the environment of all that a task starts, so that it is found even when its parents are gone."""

STOP_S = 30.0
"""How long what was killed may take to be gone."""

MOST_SAID = 300

_MARK = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Processes:
    """A task's process and all that it has started on its host, as ``spark-submit`` in client mode is.

    Whoever asks is never one of them: what runs in a task's own process ends with its ``execute()``.

    :param boot: the kernel's id of this boot, for process ids begin anew with each.
    :param started: when the task's process was, in the kernel's ticks since boot; tells it from a later one of its id.
    :param mark: in the environment of what it starts.
    :param submits: whether it hands work on, to a cluster say: that they have ended then tells nothing of that.
    :param pod: the pod that they run in, of which the cluster can be asked from every host.
    :param queue: the queue of the task: its host, or one of its hosts, serves that.
    :param gone: who has said, when and why, that their host is gone, and they with it; ``""``: nobody.
    """

    kind: ClassVar = "processes"

    pid: int = field(default_factory=os.getpid)
    started: int = field(default_factory=lambda: _started(os.getpid()))
    host: str = field(default_factory=socket.gethostname)
    boot: str = field(default_factory=lambda: _boot())
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    submits: bool = False
    pod: Pod | None = field(default_factory=pod.here)
    queue: str = ""
    gone: str = ""

    def __post_init__(self) -> None:
        """:raises ValueError: what tells no process from others: it comes out of a store, and what it says is killed."""
        given: Any = self.pod
        if isinstance(given, dict):
            object.__setattr__(self, "pod", Pod(**given))
        elif not isinstance(given, Pod | None):
            raise ValueError(f"pod={given!r:.80}")
        validate.one_line(self.queue, "queue")
        validate.one_line(self.gone, "gone", MOST_SAID)
        validate.numbers(vars(self), ("pid", "started"))
        validate.one_line(self.host, "host")
        validate.one_line(self.boot, "boot")
        if not _MARK.fullmatch(self.mark):
            raise ValueError(f"mark={self.mark!r:.80}")
        if not isinstance(self.submits, bool):
            raise ValueError(f"submits={self.submits!r:.80}")

    def running(self) -> bool:
        """Whether any of them still runs.

        :raises CannotTell: they are on another host, which may still be there.
        """
        return bool(self._alive())

    def living(self) -> dict[int, str]:
        """Those of them that still run: their ids, each with its program.

        :raises CannotTell: they are on another host, which may still be there.
        """
        return {process.pid: _program(process) for process in self._alive()}

    def stop(self, patience_s: float = 0.0) -> None:
        """End them, and wait until they have ended; they have *patience_s* to do so by themselves.

        :raises CannotTell: they are on another host, or do not end.
        """
        _, alive = psutil.wait_procs(self._alive(), patience_s)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if psutil.wait_procs(alive, STOP_S)[1]:
            raise CannotTell(f"{self} did not end within {STOP_S:g} s of SIGKILL")

    @property
    def is_here(self) -> bool:
        """Whether they are on this host: in this very pod, if in one, for a later one may have its name."""
        mine = pod.here()
        uid, my_uid = (each.uid if each else "" for each in (self.pod, mine))
        return (self.host, uid) == (socket.gethostname(), my_uid)

    def declared_gone(self, said: str) -> Processes:
        """These, with the word that their host is gone.

        :param said: who says so, when and why; only its first characters are kept.
        """
        return replace(self, gone=said if len(said) <= MOST_SAID else f"{said[: MOST_SAID - 1]}…")

    def __str__(self) -> str:
        gone = f", which is gone by the word of {self.gone}" if self.gone else ""
        return f"process {self.pid} on {self.host}{gone} (and what it started)"

    def _alive(self) -> list[psutil.Process]:
        if not self.is_here:
            self._end_with_their_host()
            return []
        if self.boot != _boot():
            return []
        return [process for process in psutil.process_iter() if self._is_mine(process)]

    def _end_with_their_host(self) -> None:
        """:raises CannotTell: it may still be there."""
        if self.gone:
            return
        why = f", by a task of queue {self.queue!r} where that host serves it" if self.queue else ""
        if self.pod is not None:
            try:
                if self.pod.has_ended():
                    return
                why = f": {self.pod} is still there"
            except CannotTell as error:
                why = f": {error}"
        raise CannotTell(
            f"{self} can only be asked for there{why}. Once that host is gone, say so with hivelock host-gone {self.host}"
        )

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                return False
            if process.pid == self.pid and _started(process.pid) == self.started:
                return True
            return bool(process.environ().get(MARK) == self.mark)
        except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
            return False  # gone, or another user's


def started(dag_id: str, run_id: str, task_ids: Collection[str] | None = None) -> list[str]:
    """What those tasks of a run, or all of them, have started on this host and still runs: by Airflow's own marks.

    It finds what a task without HiveLockMixin has left behind, of which no lease has a record: spark-submit, a shell.
    Not a task's own process, which has these marks in its memory only; and nothing that the caller has started.
    """
    besides = {child.pid for child in psutil.Process().children(recursive=True)} | {os.getpid()}
    return [
        f"process {process.pid} of {task_id} on this host"
        for process in psutil.process_iter()
        if process.pid not in besides
        and (task_id := _task_of(process, dag_id, run_id)) is not None
        and (task_ids is None or task_id in task_ids)
    ]


def _program(process: psutil.Process) -> str:
    """Its name only: arguments may hold passwords."""
    try:
        return str(process.name())
    except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
        return "?"


def _task_of(process: psutil.Process, dag_id: str, run_id: str) -> str | None:
    """The task of that run that has started *process*; None for no such one, or one that has ended."""
    try:
        marks = process.environ()
        if (marks.get("AIRFLOW_CTX_DAG_ID"), marks.get("AIRFLOW_CTX_DAG_RUN_ID")) != (dag_id, run_id):
            return None
        return None if process.status() == psutil.STATUS_ZOMBIE else marks.get("AIRFLOW_CTX_TASK_ID")
    except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
        return None  # gone, or another user's


def _started(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except FileNotFoundError:  # gone, or no Linux
        return int(psutil.Process(pid).create_time())


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:  # no Linux
        return str(int(psutil.boot_time()))
