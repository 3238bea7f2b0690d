"""The state of the work under a lease, its living processes, and the next step for the user."""

from __future__ import annotations

import shlex
import socket
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import structlog

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.locks.rules import few
from airflow_hivelock.spec import Owner
from airflow_hivelock.work import applications
from airflow_hivelock.work.processes import Processes, started
from airflow_hivelock.work.stale import is_for_its_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.model import Lease, Work

log = structlog.get_logger(__name__)

RUNS, ENDED, AWAY, UNTOLD, SILENT = "runs", "ended", "away", "untold", "silent"

LEFT_BEHIND = "left behind"
"""The name of processes that tasks have started and that no lease records."""

MOST_NAMED = 5

_LOOK_AT_LOGS = (
    "The logs of the API server and of the triggerer have the reason. Make sure that nothing writes before you free it."
)


@dataclass(frozen=True)
class WorkState:
    """The state of work.

    :param code: ``runs``; ``ended``; ``away`` (on another host, which this process cannot check); ``untold`` (unknown);
        ``silent`` (its cluster has not answered).
    :param text: the state in words, with the process and its host.
    :param next: the next step for the user. Empty if there is none.
    """

    code: str
    text: str
    next: str = ""


def ask(lease: Lease) -> dict[str, WorkState]:
    """The state of each work of *lease*, by name, and of the processes that its tasks have left on this host.

    The keeper makes the same checks on the triggerer's host before it frees a lease.
    """
    found = {work.name: how(work) for work in lease.works}
    owner = Owner.parse(lease.owner)
    if owner is not None and not any(answer.code == RUNS for answer in found.values()):
        own = [owner.task_id] if is_for_its_task(owner, lease) else None
        if left := started(owner.dag_id, owner.run_id, own):
            here = socket.gethostname()
            text = f"{', '.join(left).replace('on this host', f'on {here}')} still runs"
            found[LEFT_BEHIND] = WorkState(RUNS, text, f"Wait until it ends, or end it on {here}.")
    return found


def judge(jobs: Sequence[Sequence[str]], never: tuple[str, str] | None = None) -> tuple[str, str]:
    """The keeper's expected verdict on a lease of a finished task, and the next step for the user.

    The keeper makes the same checks in the triggerer. It reports a verdict only if it cannot check the work.

    :param jobs: the rows of the work: see :func:`airflow_hivelock.ui.holders.job_rows`.
    :param never: see :func:`airflow_hivelock.ui.holders.never_freed`.
    """
    by_code = {row[2]: (row[0], *row[3:]) for row in reversed(jobs) if len(row) > 2}
    if RUNS in by_code:
        name, text, step = by_code[RUNS]
        return f"keeps it, because {'' if name == LEFT_BEHIND else f'{name} '}{text}", step
    if AWAY in by_code:
        name, text, step = by_code[AWAY]
        return f"{text} whether {name} has ended{'' if never else '; a triggerer there then frees it'}", step
    for code in (SILENT, UNTOLD):
        if code in by_code:
            name, _, step = by_code[code]
            return f"does not know whether {name} has ended", step
    return never or ("frees it within a minute, if its task is over and Airflow's triggerer runs", "")


def how(work: Work) -> WorkState:
    """The state of *work*, as far as this process can check it."""
    try:
        application = applications.of(work)
        if isinstance(application, Processes):
            return _of_processes(application)
        if not application.running():
            return WorkState(ENDED, "has ended")
        return WorkState(RUNS, "still runs", "Wait until it ends, or end it in its cluster.")
    except CannotTell as error:
        log.info("Whether %s runs: %s", printable(work.name), error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - hooks of clusters raise any exception
        log.warning("Whether %s runs: %r", printable(work.name), error)
        return WorkState(SILENT, "its cluster gives no answer", f"Check that its cluster is up. {_LOOK_AT_LOGS}")
    return WorkState(UNTOLD, "cannot be checked from here", _LOOK_AT_LOGS)


def unanswered(lease: Lease, *, asked: bool) -> dict[str, WorkState]:
    """The states of the work of *lease* before :func:`ask` has answered.

    :param asked: False while :func:`ask` still waits for a thread.
    """
    if not asked:
        text = "is not checked yet, because other clusters have not answered"
        return {work.name: WorkState(UNTOLD, text, "Look again in a minute.") for work in lease.works}
    silent = WorkState(SILENT, "its cluster has not answered yet", "Check that its cluster is up, and look again.")
    return {work.name: silent for work in lease.works}


def _of_processes(asked: Processes) -> WorkState:
    try:
        living = asked.living()
    except CannotTell as error:
        if asked.is_here:  # another user's processes
            raise
        log.info("Whether %s runs: %s", asked, error)
        host = asked.host
        return WorkState(
            AWAY,
            f"only {host} can tell",
            f"Look on {host}: ps -p {asked.pid}. If {host} will not come back: airflow hivelock host-gone {shlex.quote(host)}",
        )
    if not living:
        return WorkState(ENDED, "has ended")
    names = few([f"{pid} ({program})" for pid, program in living.items()], MOST_NAMED)
    shown = names if asked.pid in living else f"{names}, started by process {asked.pid}, which has ended"
    pids = [str(pid) for pid in living][:MOST_NAMED]
    see = f"On {asked.host}, ps -fp {','.join(pids)} shows more. Wait until it ends, or end it: kill {' '.join(pids)}"
    return WorkState(RUNS, f"still runs on {asked.host}: {shown}", see)


@lru_cache(maxsize=8_192)
def host_of(application: str) -> str:
    """The other host of *application*. Empty if it is here or in a cluster, or if its host was declared gone."""
    try:
        asked = applications.decode(application)
    except CannotTell:
        return ""
    return asked.host if isinstance(asked, Processes) and not (asked.gone or asked.is_here) else ""


@lru_cache(maxsize=8_192)
def what(application: str) -> str:
    """The recorded *application* as text."""
    if not application:
        return "the work that it waits for"
    try:
        return str(applications.decode(application)).removesuffix(" (and what it started)")
    except CannotTell as error:
        return str(error)
