"""release_locks: a callback that releases the locks of ended work."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import structlog

from airflow_hivelock import comms, metrics
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.links import connection_of
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.operators.releasing import Instances, acquires, holds_for_others, leases_of, work_under
from airflow_hivelock.spec import Owner
from airflow_hivelock.work.applications import running

if TYPE_CHECKING:
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease

log = structlog.get_logger(__name__)


def release_locks(context: Any) -> None:
    """Release the locks whose work has ended.

    Use it as ``on_success_callback``, ``on_failure_callback`` or ``on_retry_callback`` of a task or a DAG. A task's
    callback releases the locks that the task acquired, and the locks of the HiveLockOperators upstream of the task. A
    DAG's callback releases all locks of the run. Both keep the locks that a retry needs, and the locks under which
    another task still works. A later callback or the unlock task releases those. In a mapped task group, each map index
    has its own locks and its own work. Airflow can call it in the task's process or in the DAG processor.

    :raises CannotTell: Airflow does not report whether the work is over.
    :raises StoreUnavailable: the lock store does not answer.
    """
    if "reason" in context:
        _release_run(context["dag"], context["run_id"])
    else:
        _release_task(context)


def _release_run(dag: Any, run_id: str) -> None:
    if not all(hasattr(task, "operator_class") for task in dag.tasks):
        _release_tested(dag, run_id)
        return
    for task in filter(acquires, dag.tasks):
        work = work_under(task) if holds_for_others(task) else [task]
        _release(task, leases_of(task, run_id), run_id, work)


def _release_tested(dag: Any, run_id: str) -> None:
    """Release the locks of a run of ``dag.test()``. It passes the serialized DAG, without classes, when all tasks have
    ended."""
    for conn_id in {conn_id for task in dag.tasks if (conn_id := connection_of(task))}:
        hook = HiveLockHook(conn_id)
        manager = hook.manager()
        for lease in manager.leases():
            owner = Owner.parse(lease.owner)
            if owner and (owner.installation, owner.dag_id, owner.run_id) == (hook.installation, dag.dag_id, run_id):
                _release_ended(manager, lease)


def _release_task(context: Any) -> None:
    task, ti = context["task"], context["ti"]
    me = (ti.task_id, -1 if ti.map_index is None else ti.map_index)
    if not _over(ti, me):
        log.info("Keeping the locks of %s: another try needs them", ti.task_id)
        return
    # In the DAG processor, a mapped task has no operator that has run. Then the recorded work decides.
    if acquires(task) and not holds_for_others(task) and not task.is_mapped and not task.end_work(context):
        log.info("Keeping the locks of %s: its work may still run", ti.task_id)
    elif acquires(task):
        work = work_under(task) if holds_for_others(task) else []
        mine = [
            (manager, lease) for manager, lease in leases_of(task, ti.run_id, me[1]) if lease.attempt <= ti.try_number
        ]
        _release(task, mine, ti.run_id, work, me)
    for lock in filter(holds_for_others, task.get_flat_relatives(upstream=True)):
        _release(lock, leases_of(lock, ti.run_id, of=(task, me[1])), ti.run_id, work_under(lock), me)


def _over(ti: Any, me: tuple[str, int]) -> bool:
    """Whether the task has ended, and Airflow does not try it again."""
    # In a task's own process, Airflow may still list the task as running when the callback runs.
    state = ti.state or comms.task_states(ti.dag_id, ti.run_id, [ti.task_id]).get(me)
    return state is None or state in comms.FINISHED


def _release(
    lock: Any,
    leases: list[tuple[LockManager, Lease]],
    run_id: str,
    work: list[Any],
    caller: tuple[str, int] | None = None,
) -> None:
    """Release the *leases* of the task *lock*, except those under which its *work* is unfinished."""
    if not leases:
        return
    known = Instances(lock.dag_id, run_id, [lock, *work])

    @cache
    def unfinished(map_index: int) -> list[str]:
        return known.unfinished(work, caller, of=[(lock, map_index)])

    for manager, lease in leases:
        # Without a mapped task group, all leases are for the same work.
        owner = Owner.parse(lease.owner) if lock.get_closest_mapped_task_group() else None
        working = unfinished(owner.map_index if owner else -1)
        if working:
            _keep(lease, f"these tasks have not ended: {', '.join(working)}")
        else:
            _release_ended(manager, lease)


def _release_ended(manager: LockManager, lease: Lease) -> None:
    """Release *lease* unless its work may still run. Its tasks have ended."""
    try:
        alive = running(lease.works)
    except CannotTell as error:
        alive = [str(error)]
    if alive:
        _keep(lease, f"its work may still run: {', '.join(alive)}")
    elif manager.release(lease):
        log.info("Released lease %s of %s", lease.id, printable(lease.owner))
        metrics.released(lease.since)


def _keep(lease: Lease, why: str) -> None:
    log.info("Keeping lease %s of %s: %s", lease.id, printable(lease.owner), printable(why))
