"""``hive_lock()``: runs the tasks of a ``with`` block under one lock."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.bases.decorator import get_unique_task_id

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.operators.lock import HiveLockOperator, HiveUnlockOperator

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from airflow.sdk import XComArg

LOCK, UNLOCK = "lock", "unlock"


class _Block:
    """Connects the tasks of a ``with`` block to a lock task and its unlock task."""

    def __init__(self, lock: HiveLockOperator, unlock: dict[str, Any]) -> None:
        self._lock = lock
        self._unlock = unlock
        self._before: set[str] = set()

    def __enter__(self) -> XComArg:
        self._lock.without_block = False
        self._before = set(self._lock.dag.task_dict)
        return self._lock.output

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            return
        lock = self._lock
        tasks = {task.task_id: task for task in lock.dag.tasks if task.task_id not in self._before}
        if not tasks:
            raise InvalidRequest(
                f"{lock.task_id}: the block has no task, so no work would run under the lock. Create the tasks inside the block"
            )
        unlock = HiveUnlockOperator(**self._unlock).as_teardown(setups=lock)
        # Airflow's own setup context connects the lock only to tasks without any predecessor. Other tasks would not wait
        # for the lock.
        for task in tasks.values():
            if not tasks.keys() & task.upstream_task_ids:
                lock >> task
            if not tasks.keys() & task.downstream_task_ids:
                task >> unlock

    def update_relative(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse ``hive_lock(…) >> task`` and ``task >> hive_lock(…)``. Airflow calls this method of both."""
        self._lock.refuse_without_block()

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse ``@hive_lock(…)``: the block would begin when the function is called, in a run."""
        self._lock.refuse_without_block()


def hive_lock(
    *,
    reads: Sequence[str] = (),
    writes: Sequence[str] = (),
    task_id: str = "",
    work_timeout: timedelta = timedelta(minutes=5),
    **terms: Any,
) -> AbstractContextManager[XComArg]:
    """In a DAG: ``with hive_lock(writes=["dw.delays/dt={{ ds }}"]) as lease:``. Each task that you create inside runs
    under that lock.

    A HiveLockOperator is added before these tasks and, as its teardown, a HiveUnlockOperator after them. Tasks inside
    can have upstream and downstream tasks outside. Blocks can be nested.

    The block yields the lease, ``lock.output``. A task with ``lease=lease`` also stops when the lease is lost.

    :param task_id: the id of the lock task. The default is ``lock``, with a number if the DAG or the task group already
        has that id. The unlock task is then ``unlock`` with the same number, otherwise ``unlock_`` and this id.
    :param work_timeout: as for HiveUnlockOperator.
    :param terms: other arguments of HiveLockOperator.
    :raises InvalidRequest: there is no task inside, or no ``with`` before it, or no DAG around it.
    """
    unique = task_id or get_unique_task_id(LOCK, terms.get("dag"), terms.get("task_group"))
    where: dict[str, Any] = {name: terms[name] for name in ("dag", "task_group", "hivelock_conn_id") if name in terms}
    unlock_id = f"{UNLOCK}_{task_id}" if task_id else unique.replace(LOCK, UNLOCK, 1)
    lock: Any = HiveLockOperator(task_id=unique, reads=reads, writes=writes, **terms)
    if not lock.has_dag():
        raise InvalidRequest(
            f"{lock.task_id}: hive_lock(…) is outside a DAG. Write it inside with DAG(…): or a @dag function. In the function of "
            "a task, write with hold(…):"
        )
    lock.without_block = True
    return _Block(lock, {"task_id": unlock_id, "work_timeout": work_timeout, **where})
