"""Writers under locks, in the shapes that DAGs give them.

A writer goes on until its gate opens: a file named for its run, or for its run, task and try.
"""

from __future__ import annotations

import ctypes
import socket
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Variable, get_current_context

from airflow_hivelock import HiveLockMixin, HiveLockOperator, HiveUnlockOperator, hold, release_locks
from tests.system.deaths import writer
from tests.system.deaths.play import DAY, LATER_DAY, NEXT_DAY, NO_SLOTS
from tests.system.deaths.remote import Remote
from tests.system.deaths.shape import AT_ONCE, command, look, names, options, words

if TYPE_CHECKING:
    from collections.abc import Mapping

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


class LockedFunction(HiveLockMixin, PythonOperator):
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


def own(dag_id: str, day: str = DAY, dag: Mapping[str, Any] = {}, **given: Any) -> None:
    """A DAG whose task locks, works and frees."""
    with DAG(dag_id, **options(**dag)):
        LockedBash(task_id="job", **names(day), **writes(day), **given)


def chained(dag_id: str, *jobs: Any, dag: Mapping[str, Any] = {}, **given: Any) -> None:
    with DAG(dag_id, **options(**dag)):
        chain(*(jobs or [LockedBash]), **given)


def elsewhere(dag_id: str, day: str = DAY, dag: Mapping[str, Any] = {}, **given: Any) -> None:
    """A DAG whose task is deferred while its work goes on."""
    with DAG(dag_id, **options(**dag)):
        LockedRemote(task_id="job", command=command(day), **names(day), **given)


RUN_TIMED: dict[str, Any] = {"dagrun_timeout": timedelta(seconds=RUN_S)}
TASK_TIMED: dict[str, Any] = {"execution_timeout": timedelta(seconds=TASK_S)}

own("own", skip_on_exit_code=99)
own("own_next_day", NEXT_DAY)
own("own_two_days_later", LATER_DAY)
own("own_again", **AT_ONCE)
own("own_held_up", pre_execute=held_up)
own("own_held_up_again", pre_execute=held_up, **AT_ONCE)
own("own_on_worker", pre_execute=on_worker)
own("own_without_slot", pool=NO_SLOTS)
own("own_called", **CALLED)
own("own_defaults", dag={"default_args": CALLED})
own("own_run_called", dag=RUN_CALLED)
own("own_timed", **TASK_TIMED)
own("own_run_timed", dag=RUN_TIMED)
own("own_late", timeout=timedelta(seconds=5))
own("own_poke", dag={"max_active_runs": 20}, waiting="poke")
own("own_defer", dag={"max_active_runs": 20}, waiting="defer")
own("daily", dag={"max_active_runs": 2, "end_date": datetime(2013, 2, 1, tzinfo=UTC), "schedule": "@daily"})

chained("chained")
chained("chain_again", dag={"default_args": AT_ONCE})
chained("chain_two", LockedBash, LockedBash)
chained("chain_plain", BashOperator)
chained("chain_timed", **TASK_TIMED)
chained("chain_run_timed", dag=RUN_TIMED)
chained("open", unlock=False)
chained("open_defaults", dag={"default_args": CALLED}, unlock=False)
chained("open_run_called", dag=RUN_CALLED, unlock=False)

elsewhere("elsewhere")
elsewhere("elsewhere_called", **CALLED)
elsewhere("elsewhere_timed", defer_for=timedelta(seconds=TASK_S))
elsewhere("elsewhere_run_timed", dag=RUN_TIMED)
elsewhere("elsewhere_kept", NEXT_DAY, lease_duration=timedelta(seconds=60))

with DAG("own_function", **options()):
    LockedFunction(
        task_id="job",
        python_callable=lambda *paths: writer.main(*map(Path, paths)),
        op_args=words()[3:],
        pre_execute=on_worker,
        **names(),
    )


def held_function(*paths: str) -> None:
    table = get_current_context()["params"]["table"]
    with hold(reads=[f"dw.flights/{DAY}"], writes=[f"{table}/{DAY}"]):
        writer.main(*map(Path, paths))


with DAG("held_function", **options()):
    PythonOperator(task_id="job", python_callable=held_function, op_args=words()[3:], pre_execute=on_worker)

with DAG("own_three", **options()):
    for _n in range(3):
        LockedBash(task_id=f"job{_n}", **names(f"dt={_n}"), **writes(f"dt={_n}"))

with DAG("mapped", **options()):
    LockedBash.partial(task_id="job").expand_kwargs([{**names(f"dt={n}"), **writes(f"dt={n}")} for n in range(3)])

with DAG("several", **options()):
    _locks = [HiveLockOperator(task_id=f"lock{n}", **names(f"dt={n}")) for n in range(2)]
    _jobs = [LockedBash(task_id=f"job{n}", lease=_locks[n].output, **writes(f"dt={n}")) for n in range(2)]
    _unlock = HiveUnlockOperator(task_id="unlock").as_teardown(setups=_locks)
    for _lock, _job in zip(_locks, _jobs, strict=True):
        _lock >> _job >> _unlock

look()
