"""Finds the leases of a task, and checks whether the work under them is over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import TaskInstanceState
from airflow.sdk.bases.operator import get_merged_defaults

from airflow_hivelock import comms
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.operators.acquiring import AcquiresLocks
from airflow_hivelock.operators.arguments import CALLBACKS
from airflow_hivelock.operators.inspection import mentions
from airflow_hivelock.operators.mixin import HiveLockMixin
from airflow_hivelock.spec import Owner
from airflow_hivelock.work import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease


Instance = tuple[Any, int]
"""A task, and the map index of its instance: -1 if it is not mapped."""

_ALWAYS = ("all_done", "always")
"""The trigger rules of tasks that also run after a failed or skipped task."""


class ReleasesLocks(ABC):
    """The base class of operators that release the leases of HiveLockOperators."""

    @abstractmethod
    def can_release(self, lock: Any) -> bool:
        """Whether the task can release the lease of the lock task *lock* upstream."""


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


def leases_of(
    task: Any, run_id: str, map_index: int | None = None, of: Instance | None = None
) -> list[tuple[LockManager, Lease]]:
    """The leases of *task* in that run, each with its lock manager.

    :param map_index: the index of a mapped task. None means all indexes.
    :param of: omit the indexes that do not belong together with this instance in a mapped task group.
    :raises CannotTell: Airflow does not report the map indexes.
    :raises StoreUnavailable: the lock store does not answer.
    """
    hook = HiveLockHook(_argument(task, "hivelock_conn_id") or HiveLockHook.default_conn_name)
    if map_index is None:
        map_indexes = Instances(task.dag_id, run_id, [task, *(of or ())[:1]]).indexes(task, of)
    else:
        map_indexes = [map_index]
    manager = hook.manager()
    owners = (Owner(hook.installation, task.dag_id, run_id, task.task_id, index) for index in map_indexes)
    found = [manager.lease_of(str(owner)) for owner in owners]
    return [(manager, lease) for lease in found if lease is not None]


def warning_of(lock: Any) -> str:
    """A warning if no task works under the lease of *lock*, or if no task downstream of it, and no callback, releases it
    in every run. Otherwise an empty text."""
    if not lock.has_dag():
        return ""
    tasks = [lock, *lock.get_flat_relatives(upstream=False)]
    unlocks = [task for task in tasks if _can_release(task, lock)]
    whole = [task.task_id for task in unlocks if releases_all(task)]
    if whole and not work_under(lock):
        return (
            f"No task runs between {lock.task_id} and {whole[0]}, so no work of {lock.dag_id} is under these locks. Put the work "
            f"between them: {lock.task_id} >> work >> {whole[0]}"
        )
    if any(task.is_teardown or task.trigger_rule in _ALWAYS for task in unlocks):
        return ""
    settings = [getattr(each, name, None) for each in (lock.dag, *tasks) for name in CALLBACKS]
    callbacks = chain.from_iterable(each if isinstance(each, list | tuple) else [each] for each in settings if each)
    if any(mentions(callback, "release_locks") for callback in callbacks):
        return ""
    until = "They are held until the run is over and the keeper frees them"
    if unlocks:
        unlock = unlocks[0].task_id
        return (
            f"{unlock} does not run after a task that failed or was skipped. Then no task of {lock.dag_id} releases the locks of "
            f"{lock.task_id}. {until}. Make it a teardown: {unlock}.as_teardown(setups={lock.task_id})"
        )
    return (
        f"No task of {lock.dag_id} releases the locks of {lock.task_id}. {until}. Add "
        f"HiveUnlockOperator(task_id=…).as_teardown(setups={lock.task_id}) after the work"
    )


def _can_release(task: Any, lock: Any) -> bool:
    """Whether *task* downstream of *lock* can release its whole lease. A teardown can do so in the user's own code."""
    if task.is_mapped or not issubclass(task.operator_class, ReleasesLocks):
        return task.is_teardown or releases_all(task)
    return releases_all(task) and task.can_release(lock)


def work_under(lock: Any, unlock: Any = None) -> list[Any]:
    """The tasks under the lease of *lock*: those before its unlock tasks, or all downstream if there are none.

    :param unlock: the unlock task to use. None means all.
    """
    downstream = {task.task_id: task for task in lock.get_flat_relatives(upstream=False)}
    unlocks = [unlock] if unlock is not None else [task for task in downstream.values() if releases_all(task)]
    if unlocks:
        before = {task_id for unlock in unlocks for task_id in unlock.get_flat_relative_ids(upstream=True)}
        downstream = {task_id: task for task_id, task in downstream.items() if task_id in before}
    # A teardown before an unlock task can write the locked data. Without unlock tasks, it is not known to be under the lease.
    return [
        task
        for task in downstream.values()
        if not task.is_teardown or (unlocks and not issubclass(task.operator_class, ReleasesLocks))
    ]


class Instances:
    """The instances of *tasks* of one DAG in a run, with their states.

    :raises CannotTell: Airflow does not answer.
    """

    def __init__(self, dag_id: str, run_id: str, tasks: Iterable[Any]) -> None:
        self._dag_id = dag_id
        self._run_id = run_id
        self._states = comms.task_states(dag_id, run_id, dict.fromkeys(task.task_id for task in tasks))
        kept = (task_id for (task_id, _), state in self._states.items() if state != TaskInstanceState.REMOVED)
        self._counts = Counter(kept)

    def indexes(self, task: Any, of: Instance | None = None) -> list[int]:
        """The map indexes of *task*, or those that belong together with the instance *of*."""
        indexes = (index for task_id, index in self._states if task_id == task.task_id)
        return [index for index in indexes if of is None or self.together((task, index), of)]

    def together(self, one: Instance, other: Instance) -> bool:
        """Whether both have the same index in their innermost common mapped task group. True without such a group."""
        return _together(one, other, lambda task: self._counts[task.task_id])

    def unfinished(
        self, tasks: Iterable[Any], caller: tuple[str, int] | None = None, of: Collection[Instance] = ()
    ) -> list[str]:
        """The unfinished instances of *tasks*. If there are none, their living processes on this host.

        :param caller: the calling instance, which is omitted. It is over even if Airflow does not show that yet.
        :param of: omit instances that do not belong together with one of these. Empty means all instances.
        """
        wanted = {task.task_id: task for task in tasks}
        states = {key: state for key, state in self._states.items() if key[0] in wanted}
        alive = {key for key, state in states.items() if key != caller and state not in comms.FINISHED}
        mine = {
            (task_id, index)
            for task_id, index in states
            if not of or any(self.together((wanted[task_id], index), each) for each in of)
        }
        names = [f"{task_id}[{index}]" if index >= 0 else task_id for task_id, index in sorted(alive & mine)]
        # A process does not show its index. If it can be of another index that still works, it counts only after a
        # failure: processes that outlive a success are rare, and a wait for the other index can be a deadlock.
        failed = {task_id for task_id, index in mine if states[task_id, index] == TaskInstanceState.FAILED}
        others = {task_id for task_id, _ in alive} - failed
        return names or processes.started(self._dag_id, self._run_id, wanted.keys() - others)


def _together(one: Instance, other: Instance, count: Callable[[Any], int]) -> bool:
    """See :meth:`Instances.together`. It matches instances as Airflow's scheduler does.

    :param count: returns the number of a task's instances.
    """
    groups, their_groups = ([group.group_id for group in task.iter_mapped_task_groups()] for task, _ in (one, other))
    common = next((group for group in groups if group in their_groups), None)
    if common is None or one[1] < 0 or other[1] < 0:
        return True
    if groups[0] == their_groups[0]:
        return one[1] == other[1]
    if common not in (groups[0], their_groups[0]):
        return True  # no task here shows how many indexes the common group has
    outer, inner = (one, other) if common == groups[0] else (other, one)
    # In a group inside another, each index of the outer group has a block of indexes.
    blocks, indexes = count(outer[0]), count(inner[0])
    return not blocks or indexes % blocks > 0 or inner[1] * blocks // max(indexes, 1) == outer[1]


def _argument(task: Any, name: str) -> Any:
    if not task.is_mapped:
        return getattr(task, name)
    given = task.partial_kwargs
    if name in given:
        return given[name]
    # Airflow adds the default_args of the DAG and of task groups only when it makes the operator of a map index.
    return get_merged_defaults(task.dag, task.task_group, None, given.get("default_args"))[0].get(name)
