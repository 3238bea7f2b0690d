"""``hive_lock()``: runs the tasks of a ``with`` block under one lock."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.decorator import get_unique_task_id

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.operators.lock import HiveLockOperator, HiveUnlockOperator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow.sdk import XComArg

LOCK, UNLOCK = "lock", "unlock"


@contextmanager
def hive_lock(
    *,
    reads: Sequence[str] = (),
    writes: Sequence[str] = (),
    task_id: str = "",
    work_timeout: timedelta = timedelta(minutes=5),
    **terms: Any,
) -> Iterator[XComArg]:
    """In a DAG: ``with hive_lock(writes=["dw.delays/dt={{ ds }}"]) as lease:``. Each task that you create inside runs
    under that lock.

    A HiveLockOperator is added before these tasks and, as its teardown, a HiveUnlockOperator after them. Tasks inside
    can have upstream and downstream tasks outside. Blocks can be nested.

    The block yields the lease, ``lock.output``. A task with ``lease=lease`` also stops when the lease is lost.

    :param task_id: the id of the lock task. The default is ``lock``, with a number if the DAG or the task group already
        has that id. The unlock task is then ``unlock`` with the same number, otherwise ``unlock_`` and this id.
    :param work_timeout: as for HiveUnlockOperator.
    :param terms: other arguments of HiveLockOperator.
    :raises InvalidRequest: there is no task inside.
    """
    unique = task_id or get_unique_task_id(LOCK, terms.get("dag"), terms.get("task_group"))
    lock = HiveLockOperator(task_id=unique, reads=reads, writes=writes, **terms)
    before = set(lock.dag.task_dict)
    yield lock.output
    tasks = {task.task_id: task for task in lock.dag.tasks if task.task_id not in before}
    if not tasks:
        raise InvalidRequest(
            f"{lock.task_id}: the block has no task, so no work would run under the lock. Create the tasks inside the block"
        )
    where = {name: terms[name] for name in ("dag", "task_group", "hivelock_conn_id") if name in terms}
    unlock = HiveUnlockOperator(
        task_id=f"{UNLOCK}_{task_id}" if task_id else unique.replace(LOCK, UNLOCK, 1),
        work_timeout=work_timeout,
        **where,
    ).as_teardown(setups=lock)
    # Airflow's own setup context connects the lock only to tasks without any predecessor. Other tasks would not wait
    # for the lock.
    for task in tasks.values():
        if not tasks.keys() & task.upstream_task_ids:
            lock >> task
        if not tasks.keys() & task.downstream_task_ids:
            task >> unlock
