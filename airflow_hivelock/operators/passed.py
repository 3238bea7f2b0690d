"""Checks whether a task may use a lease that was passed to it, in an XCom or in the conf of a run.

An XCom can be edited. So the lock store is asked for the lease's holder, and the holder is compared with the task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.operators.arguments import is_rendered
from airflow_hivelock.spec import Owner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease


def check_lease(task: Any, lease: Any, lease_dag_id: Any, *, many: bool = False) -> None:
    """Check the arguments for a lease that *task* does not acquire, when the DAG is parsed.

    :param many: *lease* can be a list of leases.
    :raises InvalidRequest: *lease* is a task, a plain value, or the output of a mapped task; *lease_dag_id* is not a plain
        id, or there is no *lease*.
    """
    task_id, dag = task.task_id, task.dag if task.has_dag() else None
    if (isinstance(lease, str | int) or hasattr(lease, "task_id")) and not is_rendered(lease, dag):
        raise InvalidRequest(
            f"{task_id}: lease={lease!r:.80} is not a lease. Pass the value that the lock task returns: lease=lock.output"
        )
    lock = getattr(lease, "operator", None)
    if lock is not None and lock.is_mapped and not many:
        raise InvalidRequest(
            f"{task_id}: {lock.task_id} is mapped, so lease={lock.task_id}.output is a list of leases. Map this task too: "
            f".partial(…).expand(lease={lock.task_id}.output)"
        )
    if lease_dag_id is None:
        return
    if not isinstance(lease_dag_id, str) or not lease_dag_id.strip() or is_rendered(lease_dag_id):
        raise InvalidRequest(
            f"{task_id}: lease_dag_id={lease_dag_id!r} is invalid. Use the id of the DAG that acquires the leases"
        )
    if lease is None:
        raise InvalidRequest(f"{task_id}: lease_dag_id={lease_dag_id!r} is for a lease of another DAG. Pass lease too")


def check_one_of(arguments: Mapping[str, Any]) -> None:
    """Check that the whole *arguments* of a task pass a lease, or name locks.

    :raises InvalidRequest: they do neither, or both.
    """
    named = any(arguments.get(name) for name in ("reads", "writes", "lock_sql", "locks"))
    if named == (arguments.get("lease") is not None):
        raise InvalidRequest(f"{arguments.get('task_id')}: pass one of lease, lock_sql, or reads and writes")


def check_not_empty(task: Any) -> None:
    """Check that another task has given *task* a lease, or something to lock.

    :raises InvalidRequest: it has given neither.
    """
    if task.lease is None and not (task.reads or task.writes or task.lock_sql):
        raise InvalidRequest(
            f"{task.task_id} has no lease and nothing to lock. If a template of this task rendered to nothing, correct it. If "
            "another task should return the value, it has returned nothing: perhaps a user has marked it as success. Clear that task"
        )


def is_foreign(lease: Lease, me: Owner) -> bool:
    """Whether another run, of any DAG, has acquired *lease*."""
    owner = Owner.parse(lease.owner)
    return owner is None or (owner.dag_id, owner.run_id) != (me.dag_id, me.run_id)


def work_name(lease: Lease, me: Owner) -> str:
    """The name of the work of the task *me* under *lease*.

    A task of the other DAG can have the same id. Its work must not look like an earlier try of this task.
    """
    return f"{me.dag_id}/{me.run_id}/{me.work}" if is_foreign(lease, me) else me.work


def dag_of_work(name: str) -> str:
    """The DAG in a :func:`work_name`. Empty for the work of a task of the lease's own run. No id has a slash."""
    return name.partition("/")[0] if "/" in name else ""


def current_lease(passed: Lease, me: Owner, manager: LockManager, lease_dag_id: str | None) -> Lease | None:
    """The current state of the lease that was *passed* to the task *me*. The lock task's next try can have changed it.

    :param lease_dag_id: another DAG whose leases the task may use, in addition to those of its own run.
    :return: None if the lease has ended.
    :raises InvalidRequest: the task may not use the lease.
    """
    _check_owner(passed.id, passed.owner, me, lease_dag_id)
    found = manager.lease_of(passed.owner)
    if found is not None and found.id == passed.id:
        return found
    if (other := manager.find(passed.id)) is not None:
        raise InvalidRequest(
            f"{me.task_id}: lease {other.id} belongs to {other.owner}, but the passed lease names {passed.owner}. Pass the value "
            "that the lock task returned"
        )
    return None


def _check_owner(lease_id: str, owner: str, me: Owner, lease_dag_id: str | None) -> None:
    named = Owner.parse(owner)
    if named is None or named.installation != me.installation:
        raise InvalidRequest(
            f"{me.task_id}: lease {lease_id} belongs to {owner}, which is not a task of this Airflow ({me.installation}). To free "
            f"it by force, use HiveForceUnlockOperator(leases=[{lease_id!r}], stale=False, reason=…)"
        )
    if (named.dag_id, named.run_id) != (me.dag_id, me.run_id) and named.dag_id != lease_dag_id:
        raise InvalidRequest(
            f"{me.task_id}: lease {lease_id} belongs to {owner}, which is not of this run ({me.dag_id}, {me.run_id}). If this "
            f"task is to use leases of that DAG, write lease_dag_id={named.dag_id!r}"
        )
