"""The processes of a task on its host, and everything that they have started there."""

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
from airflow_hivelock.spark import driver_work
from airflow_hivelock.work import pod
from airflow_hivelock.work.pod import Pod

if TYPE_CHECKING:
    from collections.abc import Collection


MARK = "AIRFLOW_HIVELOCK_WORK"
"""A variable in the environment of everything that a task starts. It identifies a process even after its parents have
ended.
"""

STOP_S = 30.0
"""How long a killed process may take to disappear, in seconds."""

MOST_DECLARED = 300

_MARK = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Processes:
    """A task's process, and everything that it has started on its host, such as ``spark-submit`` in client mode.

    The process that asks never counts: what runs in a task's own process ends with its ``execute()``.

    :param boot: the kernel's id of this boot, because process ids start again with each boot.
    :param started: when the task's process started, in the kernel's ticks since boot. A later process can get the same
        id.
    :param mark: the text in the environment of everything that the task starts.
    :param submits: whether the processes submit work elsewhere, for example to a cluster. That work can outlive them.
    :param pod: the pod that they run in. Every host can ask its cluster about it.
    :param queue: the task's queue. A worker of that queue runs on the host.
    :param gone: who declared the host gone, when and why; ``""`` if it was not declared.
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
        """Check the fields, because they come from a store and decide which processes are killed.

        :raises ValueError: a field does not identify processes.
        """
        given: Any = self.pod
        if isinstance(given, dict):
            object.__setattr__(self, "pod", Pod(**given))
        elif not isinstance(given, Pod | None):
            raise ValueError(f"pod={given!r:.80}")
        validate.one_line(self.queue, "queue")
        validate.one_line(self.gone, "gone", MOST_DECLARED)
        validate.numbers(vars(self), ("pid", "started"))
        validate.one_line(self.host, "host")
        validate.one_line(self.boot, "boot")
        if not _MARK.fullmatch(self.mark):
            raise ValueError(f"mark={self.mark!r:.80}")
        if not isinstance(self.submits, bool):
            raise ValueError(f"submits={self.submits!r:.80}")

    def running(self) -> bool:
        """Whether at least one of them still runs.

        :raises CannotTell: they are on another host, which may still be up.
        """
        return bool(self._alive())

    def living(self) -> dict[int, str]:
        """Return those that still run: their ids, each with its program.

        :raises CannotTell: they are on another host, which may still be up.
        """
        return {process.pid: _program(process) for process in self._alive()}

    def stop(self, patience_s: float = 0.0) -> None:
        """End them, and wait until they have ended. They have *patience_s* seconds to end by themselves.

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
        """Whether they are on this host. In a pod the uid must match, because a later pod can have the same name."""
        mine = pod.here()
        uid, my_uid = (each.uid if each else "" for each in (self.pod, mine))
        return (self.host, uid) == (socket.gethostname(), my_uid)

    def declared_gone(self, declaration: str) -> Processes:
        """Return a copy with the declaration that the host is gone.

        :param declaration: who declares it, when and why; only its first characters are kept.
        """
        return replace(
            self, gone=declaration if len(declaration) <= MOST_DECLARED else f"{declaration[: MOST_DECLARED - 1]}…"
        )

    def __str__(self) -> str:
        gone = f", which was declared gone by {self.gone}" if self.gone else ""
        return f"process {self.pid} on {self.host}{gone} (and what it started)"

    def _alive(self) -> list[psutil.Process]:
        if not self.is_here:
            self._end_with_their_host()
            return []
        if self.boot != _boot():
            return []
        return [process for process in psutil.process_iter() if self._is_mine(process)]

    def _end_with_their_host(self) -> None:
        """Return if they have ended with their host.

        :raises CannotTell: the host may still be up.
        """
        if self.gone:
            return
        why = f", for example by a task of queue {self.queue!r} that runs on that host" if self.queue else ""
        if self.pod is not None:
            try:
                if self.pod.has_ended():
                    return
                why = f": {self.pod} is still there"
            except CannotTell as error:
                why = f": {error}"
        raise CannotTell(
            f"{self} can only be checked there{why}. If that host is gone for good, declare it: hivelock host-gone {self.host}"
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
    """Return what those tasks of a run, or all of them, have started on this host and still runs. Airflow's own marks
    show it.

    It finds processes that a task without HiveLockMixin has left behind, such as spark-submit or a shell. No lease
    records these. It does not find a task's own process, which has the marks only in its memory. It leaves out the
    caller's processes.
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
    """Return the program's name without its arguments, which may contain passwords."""
    try:
        return str(process.name())
    except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
        return "?"


def _task_of(process: psutil.Process, dag_id: str, run_id: str) -> str | None:
    """Return the task of that run that has started *process*; None if there is none, or if the process has ended."""
    try:
        marks = process.environ()
        if (marks.get("AIRFLOW_CTX_DAG_ID"), marks.get("AIRFLOW_CTX_DAG_RUN_ID")) != (dag_id, run_id):
            return None
        return None if process.status() == psutil.STATUS_ZOMBIE else marks.get("AIRFLOW_CTX_TASK_ID")
    except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
        return None  # gone, or another user's


def _started(pid: int) -> int:
    try:
        return driver_work.started(pid)
    except FileNotFoundError:  # it has ended, or this is not Linux
        return int(psutil.Process(pid).create_time())


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:  # not Linux
        return str(int(psutil.boot_time()))
