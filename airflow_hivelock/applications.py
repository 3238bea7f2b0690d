"""What runs under a lease, and whether it has ended: a dead task does not mean a dead Spark application.

Each is recorded on the lease in words that another process can take up: the processes of a task on its host, before
anything starts there; and the id that a cluster gave the job, once it has one.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import psutil
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_hivelock.locks import stored
from airflow_hivelock.supervisor import CannotTell

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from airflow_hivelock.locks.model import Work

MARK = "AIRFLOW_HIVELOCK_WORK"
"""In the environment of all that a task starts, so that it is found even when its parents are gone."""

STOP_S = 30.0
"""How long what was killed may take to be gone."""

_MARK = re.compile("[0-9a-f]{32}")
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,512}")
"""``driver-20130101000000-0000``, ``application_1357000000000_0001``, ``namespace:pod-name``."""

POLL_S = 0.5
"""How often a cluster is asked meanwhile."""


@dataclass(frozen=True)
class Processes:
    """A task's process and all that it has started on its host, as ``spark-submit`` in client mode is.

    Whoever asks is never one of them: what runs in a task's own process ends with its ``execute()``.

    :param boot: the kernel's id of this boot, for process ids begin anew with each.
    :param started: when the task's process was, in the kernel's ticks since boot; tells it from a later one of its id.
    :param mark: in the environment of what it starts.
    :param submits: whether it hands work on, to a cluster say: that they have ended then tells nothing of that.
    """

    kind: ClassVar = "processes"

    pid: int = field(default_factory=os.getpid)
    started: int = field(default_factory=lambda: _started(os.getpid()))
    host: str = field(default_factory=socket.gethostname)
    boot: str = field(default_factory=lambda: _boot())
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    submits: bool = False

    def __post_init__(self) -> None:
        """:raises ValueError: what tells no process from others: it comes out of a store, and what it says is killed."""
        stored.numbers(vars(self), ("pid", "started"))
        _one_line(self.host, "host")
        _one_line(self.boot, "boot")
        if not _MARK.fullmatch(self.mark):
            raise ValueError(f"mark={self.mark!r:.80}")
        if not isinstance(self.submits, bool):
            raise ValueError(f"submits={self.submits!r:.80}")

    def running(self) -> bool:
        """Whether any of them still runs.

        :raises CannotTell: they are on another host.
        """
        return bool(self._alive())

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

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (and what it started)"

    def _alive(self) -> list[psutil.Process]:
        if self.host != socket.gethostname():
            raise CannotTell(f"{self} can only be asked for there")
        if self.boot != _boot():
            return []
        return [process for process in psutil.process_iter() if self._is_mine(process)]

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                return False
            if process.pid == self.pid and _started(process.pid) == self.started:
                return True
            return bool(process.environ().get(MARK) == self.mark)
        except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
            return False  # gone, or another user's


@dataclass(frozen=True)
class SparkJob:
    """What a cluster manager runs: a driver of a standalone master, an application of YARN's, a driver pod.

    :param conn_id: the Spark connection that it was submitted through.
    :param job_id: as SparkSubmitOperator records it for its own retries.
    """

    kind: ClassVar = "spark"

    conn_id: str
    job_id: str
    deploy_mode: str | None = None

    def __post_init__(self) -> None:
        """:raises ValueError: what no cluster calls a job: it becomes part of a command, or of a URL."""
        _one_line(self.conn_id, "conn_id")
        if not _JOB_ID.fullmatch(self.job_id):
            raise ValueError(f"job_id={self.job_id!r:.80}")
        if self.deploy_mode not in (None, "client", "cluster"):
            raise ValueError(f"deploy_mode={self.deploy_mode!r:.80}")

    def running(self) -> bool:
        """Whether the cluster has it as neither ended nor unknown.

        :raises CannotTell: the cluster does not answer.
        """
        try:
            asking = self._operator()
            status = asking.get_job_status(self.job_id, {})
            active = bool(asking.is_job_active(status))
        except Exception as error:
            raise CannotTell(f"{self} cannot be asked for through connection {self.conn_id!r}: {error}") from error
        if not active and status.upper() == "UNKNOWN":  # a pod whose node does not answer
            raise CannotTell(f"{self}: the cluster does not know how it is")
        return active

    def stop(self) -> None:
        """Have the cluster end it, and wait until it has.

        :raises CannotTell: the cluster does not answer, or it does not end.
        """
        try:
            self._kill()
        except Exception as error:
            raise CannotTell(f"{self} cannot be ended through connection {self.conn_id!r}: {error}") from error
        if not self.ends(STOP_S):
            raise CannotTell(f"{self} did not end within {STOP_S:g} s of being killed")

    def ends(self, patience_s: float) -> bool:
        """Whether it has ended within *patience_s*: a cluster says so some time after it was told to end it.

        :raises CannotTell: as :meth:`running`.
        """
        deadline = time.monotonic() + patience_s
        while self.running():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def __str__(self) -> str:
        return f"Spark job {self.job_id}"

    def _kill(self) -> None:
        operator = self._operator()
        operator._hook = hook = operator._get_hook()
        if hook._is_yarn_cluster_mode:
            hook._yarn_application_id = self.job_id
        elif hook._is_kubernetes:
            _, hook._kubernetes_driver_pod = operator._parse_k8s_external_id(self.job_id)
            hook._delete_driver_pod()  # its on_kill() does so only while it tracks
            return
        else:
            hook._driver_id = self.job_id
        operator.on_kill()

    def _operator(self) -> SparkSubmitOperator:
        return SparkSubmitOperator(
            task_id="asks", conn_id=self.conn_id, deploy_mode=self.deploy_mode, yarn_track_via_rm_api=True
        )


Application = Processes | SparkJob

_KINDS: dict[str, type[Application]] = {kind.kind: kind for kind in (Processes, SparkJob)}


def encode(application: Application) -> str:
    """*application* as a lease records it."""
    return json.dumps({"kind": application.kind, **asdict(application)}, separators=(",", ":"))


def decode(text: str) -> Application:
    """The inverse of :func:`encode`.

    :raises CannotTell: somebody else recorded it, or a newer version.
    """
    try:
        data = stored.load(text)
        return _KINDS[data.pop("kind")](**data)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CannotTell(f"{text[:80]!r} is no application that this version knows") from error


def running(works: Iterable[Work]) -> list[str]:
    """Those of *works* that still run.

    :raises CannotTell: whether one of them does.
    """
    found = []
    for work in works:
        application = of(work)
        if application.running():
            found.append(f"{application} of {work.name}")
        elif isinstance(application, Processes) and application.submits:
            raise CannotTell(f"{application} of {work.name} has ended, and may have left work to a cluster")
    return found


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


def of(work: Work) -> Application:
    """What runs as *work*.

    :raises CannotTell: nothing was recorded that this version knows.
    """
    if not work.application:
        raise CannotTell(
            f"{work.name} was deferred, and has not come back to say what became of the work that it waited for"
        )
    return decode(work.application)


def _task_of(process: psutil.Process, dag_id: str, run_id: str) -> str | None:
    """The task of that run that has started *process*; None for no such one, or one that has ended."""
    try:
        marks = process.environ()
        if (marks.get("AIRFLOW_CTX_DAG_ID"), marks.get("AIRFLOW_CTX_DAG_RUN_ID")) != (dag_id, run_id):
            return None
        return None if process.status() == psutil.STATUS_ZOMBIE else marks.get("AIRFLOW_CTX_TASK_ID")
    except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
        return None  # gone, or another user's


def _one_line(text: str, name: str) -> None:
    if not stored.text(text, name).isprintable() or len(text) > 300:
        raise ValueError(f"{name}={text!r:.80}")


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
