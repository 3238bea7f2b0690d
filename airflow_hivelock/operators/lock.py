"""Operators that acquire locks for other tasks, and release them."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowException, BaseOperator, TaskDeferred

from airflow_hivelock import metrics
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.links import Linked
from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.locks.model import Lease
from airflow_hivelock.locks.pending import Patience
from airflow_hivelock.operators.acquiring import AcquiresLocks
from airflow_hivelock.operators.arguments import (
    check_callbacks,
    check_connection,
    check_lists,
    check_objects,
    check_span,
    names_nothing,
)
from airflow_hivelock.operators.force_unlock import by_whom
from airflow_hivelock.operators.passed import check_lease, current_lease, is_foreign
from airflow_hivelock.operators.releasing import (
    Instance,
    Instances,
    ReleasesLocks,
    acquires,
    holds_for_others,
    leases_of,
    warning_of,
    work_under,
)
from airflow_hivelock.spec import OFF, Owner
from airflow_hivelock.triggers.lock import HiveLockTrigger
from airflow_hivelock.waiting import patiently
from airflow_hivelock.waiting.rounds import FIRST
from airflow_hivelock.work.applications import running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import LockObject
    from airflow_hivelock.waiting.rounds import Round


WORK_POLL_S = 2.0
"""The time between two checks of an unlock task whether the work under the locks is over, in seconds."""


class HiveLockOperator(AcquiresLocks):
    """Acquire all locks at once for later tasks. Return the lease.

    The locks are held until a HiveUnlockOperator (as a teardown), ``release_locks`` in a callback, or a force release
    ends them.

    :param sql: another name of ``lock_sql``.
    """

    _resume_method = "acquired"
    _deferred_grant = False
    without_block = False
    """Whether hive_lock() made this task, and ``with`` has not opened its block."""

    one_connection = True  # the unlock task looks for the leases of all map indexes in one store

    def __init__(self, *, sql: Any = "", **kwargs: Any) -> None:
        if sql:
            if kwargs.get("lock_sql"):
                raise InvalidRequest(f"{kwargs.get('task_id')}: pass sql or lock_sql, not both")
            kwargs["lock_sql"] = sql
        super().__init__(**kwargs)
        self.check_whole(vars(self))
        self._warning = ""
        if self.waiting == "trigger":
            self._start_in_triggerer(HiveLockTrigger, self._lock_kwargs())

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        super().check_arguments({"lock_sql": arguments.get("sql"), **arguments})

    def resolve_template_files(self) -> None:
        """Prepare the warning about a lock without an unlock. Airflow calls this when the DAG has all of its tasks."""
        if self.without_block:
            self.refuse_without_block()
        super().resolve_template_files()
        self._warning = warning_of(self)
        if self.start_trigger_args is not None and self.start_trigger_args.trigger_kwargs is not None:
            self.start_trigger_args.trigger_kwargs["warning"] = self._warning

    def refuse_without_block(self) -> NoReturn:
        raise InvalidRequest(
            f"{self.task_id}: hive_lock(…) opens a block of tasks. Write with hive_lock(…): and create the tasks inside. To lock one "
            "task, write @task.hivelock(…), or use locked()"
        )

    def execute(self, context: Any) -> dict[str, Any]:
        lease = self._acquire(context)
        if lease and self._warning:
            self.log.warning("%s", self._warning)
        return lease.to_json() if lease else OFF

    def acquired(self, context: Any, event: Any) -> dict[str, Any]:
        """Resume the task after the trigger has acquired the locks."""
        return OFF if event == OFF else self._retake(context, event).to_json()

    def _lock_kwargs(self, again: Round = FIRST) -> dict[str, Any]:
        return super()._lock_kwargs(again) | {"warning": self._warning}

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferred:
            raise
        except BaseException:
            self._give_back(context)
            raise


class HiveUnlockOperator(Linked, ReleasesLocks, BaseOperator):
    """Release the locks of HiveLockOperators. Use it as ``.as_teardown(setups=lock)``.

    The task first waits until no task between the HiveLockOperators and this one works. It succeeds if the locks are
    already free. It fails without a HiveLockOperator upstream and without a ``lease``.

    In the mapped task group of its HiveLockOperators, each map index waits for the work of its own index, and releases
    the locks of that index.

    :param objects: release only the locks on these objects and on objects below them, such as the finished days of a
        range, ``dw.delays/dt=2013-01-01..2013-01-05``. The task then waits only for the tasks before it, and in a
        mapped task group only for those of the same index. Another HiveUnlockOperator must release the rest. If a template
        or XCom is an empty list, nothing is released. If it is None, the task fails.
    :param lease: the lease to release, or a list of leases, of HiveLockOperators of the same run. If its template or XCom
        is None, nothing is released. If a mapped task gets None, it fails. ``"upstream"`` means the leases of the
        HiveLockOperators directly upstream (the setups), or of all upstream if none is directly upstream.
    :param lease_dag_id: another DAG whose runs can have acquired *lease*. The audit trail has such releases. Not a
        template.
    :param work_timeout: how long to wait for that work, and for a lock store that does not answer.
    """

    template_fields: Sequence[str] = ("lease", "objects")

    def __init__(
        self,
        *,
        objects: Any = None,
        lease: Any = "upstream",  # not None, which a mapped task can get from another task
        lease_dag_id: str | None = None,
        work_timeout: timedelta = timedelta(minutes=5),
        hivelock_conn_id: str = HiveLockHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_callbacks(vars(self))
        check_span({"task_id": self.task_id, "work_timeout": work_timeout}, "work_timeout")
        if lease is None:
            raise InvalidRequest(
                f"{self.task_id}: lease=None is not a lease. Pass lease=lock.output, or remove lease to release the leases of the "
                "lock tasks upstream"
            )
        self._of_upstream = bool(lease == "upstream")
        self.lease = None if self._of_upstream else lease
        check_lease(self, self.lease, lease_dag_id, many=True)
        if lease_dag_id is not None and objects is not None:
            raise InvalidRequest(f"{self.task_id}: lease_dag_id releases whole leases. Remove objects")
        if objects is not None:
            check_objects(self, objects)
        self.objects = objects
        self.lease_dag_id = lease_dag_id
        self.work_timeout = work_timeout
        self.hivelock_conn_id = hivelock_conn_id
        check_connection(vars(self))
        self._given = () if objects is None else ("objects",)

    def resolve_template_files(self) -> None:
        """Check the tasks upstream. Airflow calls this when the DAG has all of its tasks."""
        super().resolve_template_files()
        check_lists(self, "lease", "objects")
        self._check_upstream()

    def can_release(self, lock: Any) -> bool:
        return not self._of_upstream or lock.task_id in {task.task_id for task in self._lock_tasks()}

    def execute(self, context: Any) -> list[str]:
        """Release the leases. Return their ids, including partly released leases.

        :raises InvalidRequest: there is no lease to release; or this task may not release the lease; or no lease ever
            held one of *objects*.
        """
        self._check_upstream()
        if names_nothing(self, self._given):
            return []
        objects = None if self.objects is None else rules.objects("objects", self.objects)
        hook = HiveLockHook(self.hivelock_conn_id)
        self._me = Owner.of(hook.installation, context["ti"])
        if not self._of_upstream and not self._passed():
            self.log.warning(
                "Nothing to release: the lock task has passed no lease. Either locking was turned off for it, or it did not run"
            )
            return []
        patience = Patience(self.work_timeout.total_seconds(), None, time.monotonic)
        freed: list[str] = []

        def release() -> list[str]:
            list(self._leases())  # refuse a foreign lease before any wait
            self._await_work(patience)
            leases = list(self._leases())
            if objects is not None:
                return self._release_parts(leases, objects)
            for manager, lease in leases:
                if self._release(manager, lease, by_whom(hook, context)):
                    self.log.info("Released lease %s of %s", lease.id, printable(lease.owner))
                    metrics.released(lease.since)
                    freed.append(lease.id)
            if not freed:
                self.log.info("Released nothing: connection %r has none of the leases any more", self.hivelock_conn_id)
            return freed

        return patiently(release, self.log, patience=patience, prefix="Not released yet. ")

    def _release(self, manager: LockManager, lease: Lease, user: str) -> bool:
        """Return whether this call has released *lease*. The release of another run's lease goes to the audit trail."""
        if not is_foreign(lease, self._me):
            return manager.release(lease)
        reason = f"released by a task of another run, as lease_dag_id={self.lease_dag_id!r} allows"
        freed = manager.force_release(lease.id, reason=reason, user=user, seen=lease)
        if not freed and manager.find(lease.id) is not None:
            raise AirflowException(
                f"lease {lease.id} of {lease.owner} was not released, because it was taken over or new work under it began "
                "just now. Clear this task"
            )
        return freed

    def _release_parts(self, leases: Sequence[tuple[LockManager, Lease]], objects: Sequence[LockObject]) -> list[str]:
        freed = []
        had = [lock for _, lease in leases for lock in (*lease.locks, *lease.released)]
        for manager, lease in leases:
            held = (*lease.locks, *lease.released)
            # Pass an object that is in no lease to each lease, so that one of them refuses it.
            named = [target for target in objects if rules.concern(held, target) or not rules.concern(had, target)]
            if not named:
                continue
            left = manager.release(lease, objects=named)
            rest = f"{len(left.locks)} locks are still held" if left else "no lock is left"
            self.log.info(
                "Released %d objects of lease %s of %s; %s", len(named), lease.id, printable(lease.owner), rest
            )
            freed.append(lease.id)
        return freed

    def _check_upstream(self) -> None:
        if self._of_upstream and not self._lock_tasks():
            raise InvalidRequest(
                f"{self.task_id}: no HiveLockOperator is upstream, so there is no lease to release. Write "
                f"lock >> work >> {self.task_id}.as_teardown(setups=lock), or pass lease=lock.output"
            )

    def _lock_tasks(self) -> list[Any]:
        """The lock tasks whose leases are to be released."""
        if not self._of_upstream:
            mine = {owner.task_id for owner in self._owners()}
            return [task for task in self.dag.tasks if task.task_id in mine and holds_for_others(task)]
        upstream = list(self.upstream_list), self.get_flat_relatives(upstream=True)
        found = ([task for task in tasks if holds_for_others(task)] for tasks in upstream)
        return next(filter(None, found), [])

    @property
    def _instance(self) -> Instance:
        return self, self._me.map_index

    def _owners(self) -> list[Owner]:
        """The owners of the passed leases that are of this run."""
        owners = (Owner.parse(lease.owner) for lease in self._passed() if not is_foreign(lease, self._me))
        return [owner for owner in owners if owner]

    def _passed(self) -> list[Lease]:
        given = [self.lease] if isinstance(self.lease, dict | str | None) else list(self.lease)
        return [Lease.from_json(lease) for lease in given if lease is not None and lease != OFF]

    def _leases(self) -> Iterator[tuple[LockManager, Lease]]:
        if self._of_upstream:
            for lock in self._lock_tasks():
                yield from leases_of(lock, self._me.run_id, of=self._instance)
        else:
            manager = HiveLockHook(self.hivelock_conn_id).manager()
            for given in self._passed():
                self._check_not_of_work(given)
                if (lease := current_lease(given, self._me, manager, self.lease_dag_id)) is not None:
                    yield manager, lease

    def _check_not_of_work(self, lease: Lease) -> None:
        """Check that *lease* is not the own lease of a working task, which releases it when the work is over.

        :raises InvalidRequest: it is such a lease.
        """
        owner = Owner.parse(lease.owner)
        task = self.dag.task_dict.get(owner.task_id) if owner and owner.dag_id == self.dag_id else None
        if owner and (owner.hold or (task and acquires(task) and not holds_for_others(task))):
            raise InvalidRequest(
                f"{self.task_id}: lease {lease.id} is the own lease of {owner.work}, which releases it when its work is over. "
                "Pass a lease that a HiveLockOperator returned"
            )

    def _await_work(self, patience: Patience) -> None:
        """Wait until no task works under the leases, and no process of these tasks runs.

        :raises CannotTell: the state of a process is unknown. The locks stay.
        """
        work = {task.task_id: task for lock in self._lock_tasks() for task in work_under(lock, self)}
        while working := self._working(work):
            patience.answered()
            if not patience.left_s():
                raise AirflowException(
                    f"not released, because work still runs under the locks after {self.work_timeout}: "
                    f"{', '.join(working)}. Stop it, and clear this task"
                )
            self.log.info("Waiting for %s", ", ".join(working))
            time.sleep(WORK_POLL_S)

    def _working(self, work: Mapping[str, Any]) -> list[str]:
        locks = self._lock_tasks()
        known = Instances(self.dag_id, self._me.run_id, [self, *locks, *work.values()])
        if self.objects is not None:
            of = [self._instance]
        elif not self._of_upstream:
            of = [
                (lock, owner.map_index) for lock in locks for owner in self._owners() if owner.task_id == lock.task_id
            ]
        else:
            of = [(lock, index) for lock in locks for index in known.indexes(lock, self._instance)]
        if found := known.unfinished(work.values(), of=of):
            return found
        recorded = (each for _, lease in self._leases() for each in lease.works)
        return running(each for each in recorded if self.objects is None or self._concerns(each.name, work, known))

    def _concerns(self, name: str, work: Mapping[str, Any], known: Instances) -> bool:
        """Whether work *name* needs this part of the lease: an earlier task, with the same index in a mapped group."""
        task_id, _, index = name.partition("[")
        map_index = int(index[:-1]) if index[:-1].isdecimal() else -1
        return task_id in work and known.together((work[task_id], map_index), self._instance)
