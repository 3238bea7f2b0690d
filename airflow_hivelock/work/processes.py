"""The processes of a task on its host, with all processes that they have started there."""

from __future__ import annotations

import os
import re
import shlex
import socket
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import psutil

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.locks.pauses import tries
from airflow_hivelock.spark import driver_work
from airflow_hivelock.work import pod
from airflow_hivelock.work.pod import Pod

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


MARK = "AIRFLOW_HIVELOCK_WORK"
"""A variable in the environment of each program that a task starts. It remains when the parent process has ended.

A process that is only forked, as by multiprocessing, shows the environment of the program before the work began. It has
an open :func:`mark_file` instead.
"""

MARK_FILE = "airflow-hivelock-"

STOP_S = 30.0
"""The longest wait for the end of a killed process, in seconds."""

MOST_LOOKS = 20
"""The largest number of looks at the environment of a process. They take a fifth of a second."""

MOST_DECLARED = 300

_MARK = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Processes:
    """A task's process, and the processes that it has started on its host, such as ``spark-submit`` in client mode.

    The calling process never counts, because work in a task's own process ends with its ``execute()``.

    :param boot: the kernel's id of this boot, because process ids start again with each boot.
    :param started: the start of the task's process in the kernel's ticks since boot, because process ids are reused.
    :param mark: the text in the environment of each process that the task starts.
    :param submits: whether the processes submit work, for example to a cluster. That work can run longer than they do.
    :param pod: the pod of the processes. Every host can ask the pod's cluster about it.
    :param queue: the task's queue. A worker of that queue runs on the host.
    :param gone: the declaration that the host is gone: user, time and reason. Empty without one.
    :param user_id: the operating system's user of the processes. Only this user and root can read their environment. A
        record without it counts as the caller's.
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
    user_id: int = field(default_factory=os.geteuid)

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
        validate.numbers(vars(self), ("pid", "started", "user_id"))
        validate.one_line(self.host, "host")
        validate.one_line(self.boot, "boot")
        if not _MARK.fullmatch(self.mark):
            raise ValueError(f"mark={self.mark!r:.80}")
        if not isinstance(self.submits, bool):
            raise ValueError(f"submits={self.submits!r:.80}")

    @classmethod
    def none(cls) -> Processes:
        """The record of work that has no process: it has not begun, or waits for the next start of its task.

        It shows that the lease is for its task's own work. Each version reads processes that ended with their host.
        """
        return cls(pid=0, started=0, host="", boot="", mark="0" * 32, pod=None, gone="its task, which waits")

    @property
    def exist(self) -> bool:
        """Whether processes were recorded. False for :meth:`none`."""
        return bool(self.host)

    def running(self) -> bool:
        """Whether at least one of the processes still runs.

        :raises CannotTell: they are on another host, which can still be up.
        """
        return bool(self._alive())

    def living(self) -> dict[int, str]:
        """Return the program names of the processes that still run, by process id.

        :raises CannotTell: they are on another host, which can still be up.
        """
        return {process.pid: _program(process) for process in self._alive()}

    def stop(self, patience_s: float = 0.0) -> None:
        """Wait *patience_s* seconds for the processes to end, then kill them.

        :raises CannotTell: they are on another host, or do not end.
        """
        # psutil remembers an earlier process with the same id, and would refuse to kill this one in its place.
        psutil.process_iter.cache_clear()
        _, alive = psutil.wait_procs(self._alive(), patience_s)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if psutil.wait_procs(alive, STOP_S)[1]:
            raise CannotTell(f"{self} did not end within {STOP_S:g} s of SIGKILL")

    @property
    def is_here(self) -> bool:
        """Whether the processes are on this host. A pod's uid must match too, because a later pod can have its name."""
        mine = pod.here()
        uid, my_uid = (each.uid if each else "" for each in (self.pod, mine))
        return (self.host, uid) == (socket.gethostname(), my_uid)

    def declared_gone(self, declaration: str) -> Processes:
        """Return a copy with the declaration that the host is gone.

        :param declaration: user, time and reason. A long text is cut.
        """
        return replace(
            self, gone=declaration if len(declaration) <= MOST_DECLARED else f"{declaration[: MOST_DECLARED - 1]}…"
        )

    def __str__(self) -> str:
        if not self.exist:
            return "no process"
        gone = f", which was declared gone by {self.gone}" if self.gone else ""
        return f"process {self.pid} on {self.host}{gone} (and what it started)"

    def _alive(self) -> list[psutil.Process]:
        if not self.is_here:
            self._end_with_their_host()
            return []
        if self.boot != _boot():
            return []
        self._check_all_are_visible()
        return [process for process in psutil.process_iter() if self._is_mine(process)]

    def _end_with_their_host(self) -> None:
        """Check that the processes have ended with their host.

        :raises CannotTell: the host can still be up.
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
            f"{self} can only be checked there{why}. If that host is gone for good, declare it: hivelock host-gone "
            f"{shlex.quote(self.host)}"
        )

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                return False
            if process.pid == self.pid and _started(process.pid) == self.started:
                return True
            if _environment(process).get(MARK) == self.mark:
                return True
            return _started(process.pid) >= self.started and self._has_mark_file(process)
        except psutil.AccessDenied:
            self._check_is_not_theirs(process)
            return False
        except (psutil.NoSuchProcess, ProcessLookupError):
            return False

    def _has_mark_file(self, process: psutil.Process) -> bool:
        """Whether *process* was forked while the mark's file was open."""
        name = f"/memfd:{MARK_FILE}{self.mark} (deleted)"
        try:
            with os.scandir(f"/proc/{process.pid}/fd") as files:
                for each in files:
                    with suppress(FileNotFoundError):  # it has been closed
                        if os.readlink(each.path) == name:
                            return True
        except FileNotFoundError:  # the process has ended, or this is not Linux
            return False
        except PermissionError as error:
            raise psutil.AccessDenied(process.pid) from error
        return False

    def _check_all_are_visible(self) -> None:
        """Check that this user sees the processes of other users.

        :raises CannotTell: the kernel hides them (``hidepid=2`` of /proc, ``ProtectProc`` of systemd).
        """
        if os.geteuid() not in (0, self.user_id) and Path("/proc/self").exists() and not Path("/proc/1").exists():
            raise CannotTell(
                f"{self} ran as user {self.user_id}, and user {os.geteuid()} cannot see processes of other users. Mount "
                "/proc without hidepid=2, or run the triggerer as that user. If the work has ended, free the lease"
            )

    def _check_is_not_theirs(self, process: psutil.Process) -> None:
        """Check that the unreadable *process* cannot be one of the processes, which run as another user (run_as_user).

        :raises CannotTell: it can be one of them.
        """
        if self.user_id == os.geteuid():
            return  # a process that no other one may read, such as ssh-agent
        with suppress(psutil.Error, ProcessLookupError):
            if process.uids().effective == self.user_id and _started(process.pid) >= self.started:
                raise CannotTell(
                    f"{self} ran as user {self.user_id}, and process {process.pid} of that user cannot be read by user "
                    f"{os.geteuid()}. It may be a part of the work. When the work has ended, free the lease"
                )


@contextmanager
def mark_file(mark: str) -> Iterator[None]:
    """Keep a file in memory open. Its name contains *mark*, and processes that are forked in the block inherit it."""
    if not mark or not hasattr(os, "memfd_create"):  # not Linux
        yield
        return
    file = os.memfd_create(f"{MARK_FILE}{mark}")  # a program that is started does not inherit it
    try:
        yield
    finally:
        os.close(file)


def started(dag_id: str, run_id: str, task_ids: Collection[str] | None = None) -> list[str]:
    """Return texts for the living processes that tasks of a run have started on this host.

    Airflow's own environment variables identify them. So this finds processes that no lease records, such as a shell of
    a task without HiveLockMixin. It does not find a task's own process, which has the variables only in memory. It
    omits the caller's processes.

    :param task_ids: the tasks to look for. None means all tasks of the run.
    """
    callers = {child.pid for child in psutil.Process().children(recursive=True)} | {os.getpid()}
    return [
        f"process {process.pid} of {task_id} on this host"
        for process in psutil.process_iter()
        if process.pid not in callers
        and (task_id := _task_of(process, dag_id, run_id)) is not None
        and (task_ids is None or task_id in task_ids)
    ]


def _environment(process: psutil.Process) -> dict[str, str]:
    """Return the environment of *process*.

    For a moment, a process that starts another program shows neither its environment nor its arguments.
    """
    found: dict[str, str] = {}
    for _ in tries(MOST_LOOKS):
        found = process.environ()
        if found or process.cmdline() or not process.exe():  # a thread of the kernel has no program
            break
    return found


def _program(process: psutil.Process) -> str:
    """Return the program's name without its arguments, because these can contain passwords."""
    try:
        return str(process.name())
    except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
        return "?"


def _task_of(process: psutil.Process, dag_id: str, run_id: str) -> str | None:
    """Return the id of the run's task that started *process*. None if no task of the run did, or if it has ended."""
    try:
        marks = _environment(process)
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
