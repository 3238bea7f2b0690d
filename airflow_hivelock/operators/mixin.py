"""HiveLockMixin: makes the work of any operator run under locks."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowException, TaskDeferred

from airflow_hivelock import metrics
from airflow_hivelock.compat import (
    AirflowRescheduleException,
    TaskAwaitingInput,
    TaskDeferralError,
    TaskDeferralTimeout,
)
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.links import with_ours
from airflow_hivelock.locks.errors import AccessDenied, CannotTell, InvalidRequest, LockLost, StoreUnavailable
from airflow_hivelock.locks.model import Lease
from airflow_hivelock.operators import environment, hive_jobs, triggering
from airflow_hivelock.operators.acquiring import AcquiresLocks, TaskKilled, check_unanswered
from airflow_hivelock.operators.assets import names_of_assets
from airflow_hivelock.operators.base import NamesLocks
from airflow_hivelock.operators.inspection import check_order, check_resumes, nearest
from airflow_hivelock.operators.passed import check_lease, check_not_empty, check_one_of, current_lease, work_name
from airflow_hivelock.operators.submitting import SubmitsJobs
from airflow_hivelock.spark import URL
from airflow_hivelock.spec import OFF, LockSpec
from airflow_hivelock.triggers.lock import HiveLockTrigger
from airflow_hivelock.triggers.store import HiveLockStoreTrigger
from airflow_hivelock.waiting.rounds import FIRST, Round
from airflow_hivelock.work import applications
from airflow_hivelock.work.jobs import table
from airflow_hivelock.work.jobs.job import Job
from airflow_hivelock.work.lease_holder import LeaseHolder
from airflow_hivelock.work.processes import MARK, Processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Work
    from airflow_hivelock.work.applications import Application


_GOES_ON = (TaskDeferred, TaskAwaitingInput, AirflowRescheduleException)
"""Exceptions that end ``execute()`` but not the work."""

_UNWATCHED = (TaskDeferralError, TaskDeferralTimeout)
"""Exceptions that end a deferred task's wait for its work, but do not show the state of that work."""


class HiveLockMixin(SubmitsJobs, AcquiresLocks):
    """Put it before an operator, as in ``class Locked(HiveLockMixin, BashOperator)``. The work then runs under locks.

    The definition of a class fails if its work could run without locks, because of its method order or its own
    ``execute``, or because it is a TriggerDagRunOperator.

    The task acquires the locks before ``execute()``, when it has a worker slot. Before that it waits in the triggerer,
    and holds no locks. The locks are kept while the operator defers, renewed while it runs, and released when the work
    is over. If they are lost, ``on_kill()`` stops the work and the task fails with LockLost.

    The lease records the work: the task's processes, and the submitted job as soon as the operator knows its id. This
    covers operators that wait and operators that defer. The locks are released when the cluster reports that the job
    has ended. A later try continues that job if the operator can (``durable``), or first ends the work of the earlier
    try. If it cannot check that work, it does not start, and the locks stay.

    Every process can check jobs of Livy, Databricks, Glue, EMR, Dataproc, Kubernetes and Spark. It can also check each
    ResumableJobMixin in a module that an installed provider lists among its operators. Only its own task can check the
    job of another ResumableJobMixin, because the keeper and the page import no class that only a lease names.
    Register your own kind of jobs in the entry point group ``airflow_hivelock.jobs``, so that they can check it too.

    The work of Bash, Python, sensors, and SQL ends with the task's process, except in HiveServer2, Impala and Spark
    Connect. For other operators, its end does not show the end of the work. The locks then stay until a user releases
    them, unless the class has ``work_ends_with_process = True``. ``timeout`` is always the longest wait for locks.

    :param lease: the return value of a HiveLockOperator of the same run (``lock.output``). The work then runs under
        that lease, and the task does not acquire or release it.
    :param lease_dag_id: another DAG whose runs can have acquired *lease*. Not a template.
    :param locks: ``"assets"`` reads the task's inlets and writes its outlets, if they are assets of Hive:
        ``Asset("hive://hive:10000/dw/delays", extra={"partition": "dt={{ ds }}"})``, without extra the whole table.
    """

    _resume_method = "execute_locked"
    _deferred_grant = True
    check_whole = staticmethod(check_one_of)

    work_ends_with_process: ClassVar[bool | None] = None
    """Whether the work ends with the task's process and its child processes.

    None means the known behaviour of the operator. An unknown operator has to report the end of its work.
    """

    def __init__(self, *, lease: Any = None, lease_dag_id: str | None = None, locks: Any = "", **kwargs: Any) -> None:
        if locks:
            kwargs |= names_of_assets(locks, kwargs)
        super().__init__(**kwargs)
        self.check_whole(vars(self) | {"lease": lease})
        check_lease(self, lease, lease_dag_id)
        if self.start_from_trigger:
            raise InvalidRequest(
                f"{self.task_id}: with start_from_trigger its work would start before it has its locks. Remove start_from_trigger"
            )
        self.lease = lease
        self.lease_dag_id = lease_dag_id
        self._held: LeaseHolder | None = None
        self._event: Any = None  # of the trigger, while execute() continues after it
        self._unlocked = False  # True: locking is turned off, or Hive itself locks
        if lease is None and self.waiting == "trigger":
            self._start_in_triggerer(HiveLockTrigger, self._lock_kwargs(FIRST.next()))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_order(cls, HiveLockMixin)
        triggering.check_class(cls)
        theirs = (base for base in cls.__mro__ if base not in HiveLockMixin.__mro__ and "template_fields" in vars(base))
        wrapped = vars(next(theirs, NamesLocks))["template_fields"]
        # After the operator's own fields, so that names can use them: {{ task.op_kwargs['day'] }}.
        cls.template_fields = tuple(dict.fromkeys((*wrapped, "lease", *NamesLocks.template_fields)))
        links: Any = cls.operator_extra_links
        own = property(lambda self: with_ours(links.__get__(self))) if isinstance(links, property) else with_ours(links)
        cls.operator_extra_links = own  # type: ignore[assignment]

    def execute(self, context: Any) -> Any:
        event, self._event = self._event, None
        if event is None:
            check_not_empty(self)
        self.get_ready()
        lease, idle_s = None, 0.0
        if self.lease is not None:
            lease = self._await_passed_lease(context, event["unanswered"] if event else 0)
        elif event is None:
            lease = self._acquire(context)
        elif (turn := Round.of_turn(event)) is not None:
            # Log the earlier wait, because the triggerer overwrites its log for a task when the task waits there again.
            metrics.arrived(turn.slot_s)
            self.log.info("Found free in %s, after waiting %s. Taking the locks now", turn, turn.past)
            lease = self._acquire(context, turn)
        elif event != OFF:
            lease = self._retake(context, event)
            idle_s = metrics.age_s(lease.since)
        with self._under(lease, context, idle_s=idle_s):
            return super().execute(context)

    def execute_locked(self, context: Any, event: Any) -> Any:
        """Resume the task after its trigger. This calls ``execute``, because a subclass can have its own."""
        self._event = event
        return self.execute(context)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        if next_method == self._resume_method:
            return super().resume_execution(next_method, next_kwargs, context)
        # The task cannot return to the operator's own trigger, so it waits for the lock store in place.
        goes_on = hasattr(self, next_method)
        lease = self._patiently(lambda: self._resumed_lease(context)) if goes_on else self._resumed_lease(context)
        if lease is not None or self._unlocked:
            with self._under(lease, context, resumed=True):
                if next_method == "execute":  # call the operator's own execute, because the lease is held
                    return super().execute(context, **(next_kwargs or {}))
                check_resumes(self, next_method)
                return super().resume_execution(next_method, next_kwargs, context)
        if goes_on:
            raise LockLost(f"{self.task_id}: its lease was lost while it was deferred. Check its output")
        try:  # the trigger that waited for the locks has failed
            return super().resume_execution(next_method, next_kwargs, context)
        finally:
            self._give_back(context)

    def on_kill(self) -> None:
        if self._unlocked:
            super().on_kill()
            return
        self._killed = True
        if (held := self._held) is None:
            return
        over = self._stop_and_end_work(held)
        if over and not held.works_here:
            held.release()
        # Work in this process continues after this signal handler, and releases the lease at its end. If nothing stops it,
        # Airflow kills the process seconds later, and only this host could see that the work has ended.
        elif held.works_here and held.entered and not self._stops and (over or not self._is_known):
            raise TaskKilled(f"{self.task_id} was killed")

    def use_lease(self, lease: Lease, work: Work) -> None:
        """Called before the work starts, with the lease, and the work's name and token."""

    def reconnects(self, context: Any, earlier: Application) -> Application | None:
        """The work of an earlier try that ``execute()`` will continue. None if it starts new work.

        Override this method in an operator that can continue work. The work then keeps its token.

        :param earlier: the record in the lease.
        :raises CannotTell: the state of that work is unknown.
        """
        return earlier if isinstance(earlier, Job) and earlier.reconnects(self, context) else None

    def work_is_over(self, context: Any) -> bool:
        """Whether all work has ended after ``execute()`` has raised. If not, the locks stay.

        Override this method if the work can run longer than the task, and is not a known kind of job.
        """
        return True

    def _await_passed_lease(self, context: Any, unanswered: int) -> Lease | None:
        """The current state of the passed lease. Wait in the chosen way for a silent lock store.

        :param unanswered: the number of the task's workers in a row without an answer from the lock store.
        :raises TaskDeferred: this worker gets no answer either.
        """
        try:
            return self._passed_lease(context) if self._defers else self._patiently(lambda: self._passed_lease(context))
        except AccessDenied:
            raise
        except StoreUnavailable as error:
            if not self._defers:
                raise
            check_unanswered(self.task_id, unanswered + 1)
            self.log.warning("Waiting in the triggerer until the lock store answers: %s", error)
            trigger = HiveLockStoreTrigger(hivelock_conn_id=self.hivelock_conn_id, unanswered=unanswered + 1)
            self.defer(trigger=trigger, method_name=self._resume_method)

    def _passed_lease(self, context: Any) -> Lease | None:
        """The current state of the passed lease. None if locking is turned off."""
        if self.lease == OFF:
            self._unlocked = True
            self.log.warning("NOT LOCKED: locking was turned off for the lock task, so this work has no locks either")
            return None
        hook = HiveLockHook(self.hivelock_conn_id)
        manager = hook.manager()
        given = Lease.from_json(self.lease)
        lease = current_lease(given, self._lock_owner(hook, context), manager, self.lease_dag_id)
        if lease is None:
            raise LockLost(f"{self.task_id}: lease {given.id} of {given.owner} has ended. Clear the lock task too")
        manager.renew(lease)
        return lease

    def _resumed_lease(self, context: Any) -> Lease | None:
        """The lease of a resumed task. None if it is lost, or if locking is turned off."""
        if self.lease is not None:
            return self._passed_lease(context)
        hook = HiveLockHook(self.hivelock_conn_id)
        if not LockSpec.of(self).takes_locks(hook, self.log):
            self._unlocked = True
            return None
        return self._lease_of_this_try(hook, context)

    @contextmanager
    def _under(self, lease: Lease | None, context: Any, resumed: bool = False, idle_s: float = 0.0) -> Iterator[None]:
        """Hold *lease*, if there is one, while the body runs the work.

        :param idle_s: the time for which the lease was already held without work, in seconds.
        """
        entered_at = time.monotonic()
        if lease is None:
            self._unlocked = True
            yield
            return
        hook = HiveLockHook(self.hivelock_conn_id)
        owner = self._lock_owner(hook, context)
        name = work_name(lease, owner)
        manager = self._patiently(hook.manager)
        if self._release_to_hive(manager, lease):
            yield
            return
        begun, held_now = applications.begun(lease, name) is not None, lease
        # Wait in place, because the store can have the record although its answer was lost. The record names this
        # process, and another host could not check it.
        lease = self._patiently(lambda: self._start_work(manager, held_now, name, context, resumed))
        work = lease.work(name)
        assert work is not None
        idle_s += time.monotonic() - entered_at
        held = self._held = LeaseHolder(
            manager, lease, work, super().on_kill, self.log, ours=self.lease is None, idle_s=idle_s
        )
        variables = environment.with_variables(self, {URL: hook.url, MARK: held.mark})
        with variables, self._released_at_end(held, context, begun), held:
            self.use_lease(lease, work)
            table.watch(self, held.record)
            hive_jobs.check_database(self)
            hive_jobs.take_no_locks(self, manager)
            if not nearest(type(self), "work_ends_with_process"):
                hive_jobs.call_when_connected(self, self.record_submission)
            if self._killed and not resumed:  # no second signal would stop its job
                raise AirflowException(f"{self.task_id} was killed before its work began")
            yield

    @contextmanager
    def _released_at_end(self, held: LeaseHolder, context: Any, begun: bool) -> Iterator[None]:
        """After the body, release the lease if all work has ended. Otherwise the keeper frees it later.

        :param begun: an earlier try or worker has begun the work.
        :raises LockLost: the lease was lost during the work.
        """
        over = False
        try:
            yield
            self._record_tried_job()
            # The cluster can have forgotten the finished job by now.
            over = held.job is None or held.job.over_with_success or held.end_work(cancelled=True)
        except _GOES_ON as pause:
            self._record_tried_job()
            held.pause("" if isinstance(pause, TaskDeferred) else None)
            raise
        except _UNWATCHED:
            over = not begun or (held.job is not None and held.end_work())
            if not over:
                self.log.warning("The work may still run where it was deferred to, so its lease is kept")
                held.pause("")
            raise
        except Exception as error:
            self._record_tried_job()
            over = not self._may_have_submitted(error) and self.end_work(context)
            if loss := held.loss:
                raise loss from error
            triggering.check_error(self.task_id, error)
            raise
        except BaseException:  # a kill or a time-out, while the work still runs
            over = self._stop_and_end_work(held)
            raise
        finally:
            if over:
                held.release()
        if loss := held.loss:
            raise loss

    def _release_to_hive(self, manager: LockManager, lease: Lease) -> bool:
        """Release *lease* if Hive locks the work in the same store: the work would wait for it. Return whether it does."""
        ours = self.lease is None
        try:
            locks_for_itself = hive_jobs.locks_for_itself(self, manager.capabilities)
        except BaseException:
            if ours:
                manager.release(lease)
            raise
        if not locks_for_itself:
            return False
        if not ours:
            raise InvalidRequest(
                f"{self.task_id}: its Hive takes its own locks in this metastore, and would wait for lease {lease.id}, "
                "which the task uses. Let the task take its own locks, or leave them to Hive"
            )
        self._patiently(lambda: manager.release(lease))
        self._unlocked = True
        self.log.info(
            "Hive takes its own locks in this metastore, so this lease is released. Hive 3 and later lock no external "
            "tables, unless hive.txn.ext.locking.enabled is true"
        )
        return True

    def _start_work(self, manager: LockManager, lease: Lease, name: str, context: Any, resumed: bool) -> Lease:
        """Record that the work starts, after all work of an earlier try has ended.

        :raises CannotTell: the state of the earlier work is unknown. The locks stay.
        """
        here = Processes(submits=resumed or self._can_outlive_process(), queue=self.queue or "")
        earlier = applications.begun(lease, name)
        if earlier is not None and resumed:
            if earlier.application and isinstance(applications.decode(earlier.application), Job):
                return lease
            return manager.record_work(lease, name, applications.encode(here))
        if earlier is not None:
            try:
                if (taken_up := self.reconnects(context, applications.of(earlier))) is not None:
                    self.log.info("Continuing %s, which an earlier try has started", taken_up)
                    return manager.record_work(lease, name, applications.encode(taken_up))
                applications.end(earlier, self.log)
            except CannotTell as error:
                raise CannotTell(
                    f"{lease.owner}: not started, because an earlier try may still write: {error}. When it has ended, free "
                    f"the lease with HiveForceUnlockOperator(leases=[{lease.id!r}], stale=False), and clear this task"
                ) from error
        return manager.start_work(lease, name, applications.encode(here))

    def end_work(self, context: Any) -> bool:
        """After :meth:`work_is_over`, kill the task's processes. Return whether all work has ended; False if unknown."""
        try:
            over = self.work_is_over(context) and (self._held is None or self._held.end_work())
        except Exception:
            self.log.exception("The lease is kept, because the state of the work is unknown")
            return False
        if not over:
            self.log.warning("The lease is kept, because the work still runs. The keeper frees it when that has ended")
        return over

    def _can_outlive_process(self) -> bool:
        """Whether the work can continue outside the task's process from its start."""
        if (ends := nearest(type(self), "work_ends_with_process")) is not None:
            return not ends
        overridden = type(self).work_is_over is not HiveLockMixin.work_is_over
        return overridden or bool(getattr(self, "deferrable", False)) or not self._ends_with_process

    def _stop_and_end_work(self, held: LeaseHolder) -> bool:
        super().on_kill()
        submitted = self._may_have_submitted(None, stopped=self._stops)
        if submitted and self._is_known:
            return False
        return held.end_work(cancelled=held.job is not None and table.job_of(self) == held.job) and not submitted
