"""Writers under locks, in the shapes that DAGs give them.

A writer goes on until its gate opens: a file named for its run, or for its run, task and try.
"""

from __future__ import annotations

import ctypes
import socket
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Variable

from airflow_hivelock import HiveLockMixin, HiveLockOperator, HiveUnlockOperator, release_locks
from tests.system.deaths import writer
from tests.system.deaths.play import DAY, LATER_DAY, NEXT_DAY, NO_SLOTS
from tests.system.deaths.remote import Remote
from tests.system.deaths.shape import AT_ONCE, command, look, names, options

CALLED: dict[str, Any] = {f"on_{end}_callback": release_locks for end in ("success", "failure", "retry")}
RUN_CALLED: dict[str, Any] = {f"on_{end}_callback": release_locks for end in ("success", "failure")}
RUN_S = 30
TASK_S = 15
CLONE_NEWUTS = 0x04000000


def writes(day: str = DAY) -> dict[str, Any]:
    return {"bash_command": f"exec {command(day)}"}


def held_up(context: Any) -> None:
    """Hold up the worker before its task asks for its locks, until the run may."""
    asks = Path(Variable.get("gates")) / f"{context['run_id']}.asks"
    until = time.monotonic() + writer.LONGEST_S
    while not asks.exists() and time.monotonic() < until:
        time.sleep(writer.BEAT_S)


def on_worker(context: Any) -> None:
    """Continue as on a host of the run's own, in a namespace for host names: no other process has that name."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUTS):
        raise OSError(ctypes.get_errno(), "unshare")
    socket.sethostname(f"worker-of-{context['run_id'].replace('_', '-')}"[:60])


class LockedBash(HiveLockMixin, BashOperator):
    pass


class LockedRemote(HiveLockMixin, Remote):
    pass


def chain(*jobs: Any, unlock: bool = True, **lock_options: Any) -> None:
    """Jobs, one after the other, between a lock task and what frees it. A job is a class of operators."""
    lock = HiveLockOperator(task_id="lock", **names(), **lock_options)
    last: Any = lock
    for number, kind in enumerate(jobs):
        given = {"lease": lock.output} if issubclass(kind, HiveLockMixin) else {}
        job = kind(task_id=f"job{number or ''}", **given, **writes())
        last >> job
        last = job
    if unlock:
        last >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)


with DAG("own", **options()):
    LockedBash(task_id="job", **names(), **writes(), skip_on_exit_code=99)

with DAG("own_next_day", **options()):
    LockedBash(task_id="job", **names(NEXT_DAY), **writes(NEXT_DAY))

with DAG("own_two_days_later", **options()):
    LockedBash(task_id="job", **names(LATER_DAY), **writes(LATER_DAY))

with DAG("own_three", **options()):
    for _n in range(3):
        LockedBash(task_id=f"job{_n}", **names(f"dt={_n}"), **writes(f"dt={_n}"))

with DAG("own_again", **options()):
    LockedBash(task_id="job", **names(), **writes(), **AT_ONCE)

with DAG("own_held_up", **options()):
    LockedBash(task_id="job", pre_execute=held_up, **names(), **writes())

with DAG("own_held_up_again", **options()):
    LockedBash(task_id="job", pre_execute=held_up, **names(), **writes(), **AT_ONCE)

with DAG("own_on_worker", **options()):
    LockedBash(task_id="job", pre_execute=on_worker, **names(), **writes())

with DAG("own_without_slot", **options()):
    LockedBash(task_id="job", pool=NO_SLOTS, **names(), **writes())

with DAG("own_called", **options()):
    LockedBash(task_id="job", **names(), **writes(), **CALLED)

with DAG("own_defaults", default_args=CALLED, **options()):
    LockedBash(task_id="job", **names(), **writes())

with DAG("own_run_called", **RUN_CALLED, **options()):
    LockedBash(task_id="job", **names(), **writes())

with DAG("own_timed", **options()):
    LockedBash(task_id="job", **names(), **writes(), execution_timeout=timedelta(seconds=TASK_S))

with DAG("own_run_timed", dagrun_timeout=timedelta(seconds=RUN_S), **options()):
    LockedBash(task_id="job", **names(), **writes())

with DAG("own_late", **options()):
    LockedBash(task_id="job", **names(), **writes(), timeout=timedelta(seconds=5))

for _style in ("poke", "defer"):
    with DAG(f"own_{_style}", **options(max_active_runs=20)):
        LockedBash(task_id="job", waiting=_style, **names(), **writes())

with DAG("mapped", **options()):
    LockedBash.partial(task_id="job").expand_kwargs([{**names(f"dt={n}"), **writes(f"dt={n}")} for n in range(3)])

with DAG("chained", **options()):
    chain(LockedBash)

with DAG("chain_again", default_args=AT_ONCE, **options()):
    chain(LockedBash)

with DAG("chain_two", **options()):
    chain(LockedBash, LockedBash)

with DAG("chain_plain", **options()):
    chain(BashOperator)

with DAG("chain_timed", **options()):
    chain(LockedBash, execution_timeout=timedelta(seconds=TASK_S))

with DAG("chain_run_timed", dagrun_timeout=timedelta(seconds=RUN_S), **options()):
    chain(LockedBash)

with DAG("open", **options()):
    chain(LockedBash, unlock=False)

with DAG("open_defaults", default_args=CALLED, **options()):
    chain(LockedBash, unlock=False)

with DAG("open_run_called", **RUN_CALLED, **options()):
    chain(LockedBash, unlock=False)

with DAG("several", **options()):
    _locks = [HiveLockOperator(task_id=f"lock{n}", **names(f"dt={n}")) for n in range(2)]
    _jobs = [LockedBash(task_id=f"job{n}", lease=_locks[n].output, **writes(f"dt={n}")) for n in range(2)]
    _unlock = HiveUnlockOperator(task_id="unlock").as_teardown(setups=_locks)
    for _lock, _job in zip(_locks, _jobs, strict=True):
        _lock >> _job >> _unlock

with DAG("elsewhere", **options()):
    LockedRemote(task_id="job", command=command(), **names())

with DAG("elsewhere_called", **options()):
    LockedRemote(task_id="job", command=command(), **names(), **CALLED)

with DAG("elsewhere_timed", **options()):
    LockedRemote(task_id="job", command=command(), defer_for=timedelta(seconds=TASK_S), **names())

with DAG("elsewhere_run_timed", dagrun_timeout=timedelta(seconds=RUN_S), **options()):
    LockedRemote(task_id="job", command=command(), **names())

with DAG("elsewhere_kept", **options()):
    LockedRemote(task_id="job", command=command(NEXT_DAY), lease_duration=timedelta(seconds=60), **names(NEXT_DAY))

with DAG("daily", max_active_runs=2, end_date=datetime(2013, 2, 1, tzinfo=UTC), **options(schedule="@daily")):
    LockedBash(task_id="job", **names(), **writes())

look()
