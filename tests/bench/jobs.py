"""What the benchmarks' DAGs share: a job that notes its begin and its end, under locks in one task, and starts of workers."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.bash import BashOperator

from airflow_hivelock import HiveLockHook, HiveLockMixin
from airflow_hivelock.locks import LockTimeout
from airflow_hivelock.spec import Owner
from tests.bench.rerun import job
from tests.bench.rerun.ways import HIVES_SLEEP_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_hivelock.locks import Lease

SCRATCH = Path(os.environ["BENCH_SCRATCH"])


class LockedJob(HiveLockMixin, BashOperator):
    """One task that locks, works and frees."""


def slept_for(context: Any, *, reads: Sequence[str] = (), writes: Sequence[str] = ()) -> Lease:
    """A lease, got as Hive does with ``hive.lock.sleep.between.retries`` at its default: it sleeps in the worker's slot."""
    hook = HiveLockHook()
    owner = str(Owner.of(hook.installation, context["ti"]))
    while True:
        try:
            return hook.manager().acquire(owner=owner, reads=reads, writes=writes)
        except LockTimeout:
            time.sleep(HIVES_SLEEP_S)


def work(notes: str, name: str, partition: str) -> dict[str, Any]:
    """The arguments of a BashOperator that works for ``BENCH_JOB_S`` seconds.

    :param notes: the name of the notes.
    :param name: of the job, in its notes.
    :param partition: the file that it writes.
    """
    script = f"{sys.executable} -IS {job.__file__} {SCRATCH}/{notes}.notes {name}"
    return {"task_id": "job", "bash_command": f"exec {script} {os.environ['BENCH_JOB_S']} {SCRATCH}/{partition}"}


def noting(what: str, notes: str, name: str) -> Callable[..., None]:
    """A callback before or after a task, which notes that.

    :param name: the key of the name in the task's context.
    """

    def note(context: Any, result: Any = None) -> None:
        job.note(SCRATCH / f"{notes}.notes", what, context[name])

    return note
