"""Finds the leases of a task, and checks whether the work under them is over."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow_hivelock import comms
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.operators.acquiring import AcquiresLocks
from airflow_hivelock.operators.inspection import mentions
from airflow_hivelock.operators.mixin import HiveLockMixin
from airflow_hivelock.spec import Owner
from airflow_hivelock.work import processes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease


_CALLBACKS = ("on_success_callback", "on_failure_callback", "on_retry_callback", "on_skipped_callback")


class ReleasesLocks:
    """The marker class of operators that release the leases of HiveLockOperators."""


def releases_all(task: Any) -> bool:
    """Whether *task*, mapped or not, releases whole leases."""
    if not issubclass(task.operator_class, ReleasesLocks):
        return False
    if not task.is_mapped:
        return getattr(task, "objects", None) is None
    expanded = getattr(task.expand_input, "value", None)
    return "objects" not in task.partial_kwargs and not (isinstance(expanded, dict) and "objects" in expanded)


def acquires(task: Any) -> bool:
    """Whether *task*, mapped or not, acquires its own locks."""
    if not issubclass(task.operator_class, AcquiresLocks):
        return False
    return not issubclass(task.operator_class, HiveLockMixin) or _argument(task, "lease") is None


def holds_for_others(task: Any) -> bool:
    """Whether *task* acquires a lease for the tasks downstream."""
    return acquires(task) and not issubclass(task.operator_class, HiveLockMixin)


def leases_of(task: Any, run_id: str, map_index: int | None = None) -> list[tuple[LockManager, Lease]]:
    """The leases of *task* in that run, each with its lock manager.

    :param map_index: the index of a mapped task. None means all indexes.
    :raises CannotTell: Airflow does not report the map indexes.
    :raises StoreUnavailable: the lock store does not answer.
    """
    hook = HiveLockHook(_argument(task, "hivelock_conn_id") or HiveLockHook.default_conn_name)
    if map_index is None:
        states = comms.task_states(task.dag_id, run_id, [task.task_id])
        map_indexes = [index for _, index in states]
    else:
        map_indexes = [map_index]
    manager = hook.manager()
    owners = (Owner(hook.installation, task.dag_id, run_id, task.task_id, index) for index in map_indexes)
    found = [manager.lease_of(str(owner)) for owner in owners]
    return [(manager, lease) for lease in found if lease is not None]


def warning_of(lock: Any) -> str:
    """A warning if no task downstream of *lock*, and no callback, releases its lease. Otherwise an empty text."""
    if not lock.has_dag():
        return ""
    tasks = [lock, *lock.get_flat_relatives(upstream=False)]
    if any(task.is_teardown or releases_all(task) for task in tasks):
        return ""
    settings = [getattr(each, name, None) for each in (lock.dag, *tasks) for name in _CALLBACKS]
    callbacks = chain.from_iterable(each if isinstance(each, list | tuple) else [each] for each in settings if each)
    if any(mentions(callback, "release_locks") for callback in callbacks):
        return ""
    return (
        f"No task of {lock.dag_id} releases the locks of {lock.task_id}. They are held until the run is over and the keeper "
        f"frees them. Add HiveUnlockOperator(task_id=…).as_teardown(setups={lock.task_id}) after the work"
    )


def work_under(lock: Any, unlock: Any = None) -> list[Any]:
    """The tasks under the lease of *lock*: those before its unlock tasks, or all downstream if there are none.

    :param unlock: the unlock task to use. None means all.
    """
    downstream = {task.task_id: task for task in lock.get_flat_relatives(upstream=False)}
    unlocks = [unlock] if unlock is not None else [task for task in downstream.values() if releases_all(task)]
    if unlocks:
        before = {task_id for unlock in unlocks for task_id in unlock.get_flat_relative_ids(upstream=True)}
        downstream = {task_id: task for task_id, task in downstream.items() if task_id in before}
    return [task for task in downstream.values() if not task.is_teardown]


def unfinished(dag_id: str, run_id: str, tasks: Iterable[Any], caller: tuple[str, int] | None = None) -> list[str]:
    """The unfinished instances of *tasks* in that run. If there are none, their living processes on this host.

    :param caller: the calling instance, which is omitted. It is over even if Airflow does not show that yet.
    :raises CannotTell: Airflow does not answer.
    """
    task_ids = [task.task_id for task in tasks]
    states = comms.task_states(dag_id, run_id, task_ids)
    return [
        f"{task_id}[{map_index}]" if map_index >= 0 else task_id
        for (task_id, map_index), state in sorted(states.items())
        if (task_id, map_index) != caller and state not in comms.FINISHED
    ] or processes.started(dag_id, run_id, task_ids)


def _argument(task: Any, name: str) -> Any:
    return task.partial_kwargs.get(name) if task.is_mapped else getattr(task, name)
