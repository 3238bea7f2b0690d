"""hive_lock: the tasks of a ``with`` block under one lock."""

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
    """In a DAG: ``with hive_lock(writes=["dw.delays/dt={{ ds }}"]) as lease:``. Each task made inside runs under that
    lock.

    It makes a HiveLockOperator before them and, as its teardown, a HiveUnlockOperator after them. This includes tasks
    that wait for tasks outside, or that such tasks wait for. Blocks can be nested.

    Yields the lease, ``lock.output``. A task that gets it (``lease=lease``) also stops when the lease is lost.

    :param task_id: the lock task's; by default ``lock``, with a number if the DAG, or its task group, has one already.
        The unlock task's is then ``unlock``, with the same number; else ``unlock_`` and this.
    :param work_timeout: as for HiveUnlockOperator.
    :param terms: further arguments of HiveLockOperator.
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
    # Not by Airflow's own setup context: it connects the lock only to tasks without any predecessor, so others would
    # not wait for it.
    for task in tasks.values():
        if not tasks.keys() & task.upstream_task_ids:
            lock >> task
        if not tasks.keys() & task.downstream_task_ids:
            task >> unlock
