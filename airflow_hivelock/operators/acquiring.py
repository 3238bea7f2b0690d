"""The base class of the operators that acquire locks, with four ways to wait for them."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from airflow.providers.common.compat.sdk import AirflowException, BaseOperator, TaskDeferred

from airflow_hivelock import metrics
from airflow_hivelock.compat import AirflowRescheduleException
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks import rules
from airflow_hivelock.locks.durations import span
from airflow_hivelock.locks.errors import AccessDenied, LockLost, LockTimeout, StoreUnavailable, Superseded
from airflow_hivelock.locks.model import MAX_PRIORITY, DeferredGrant, Lease, LockRequest
from airflow_hivelock.operators.arguments import Waiting, check_terms, check_waiting
from airflow_hivelock.operators.base import NamesLocks
from airflow_hivelock.spec import LeaseTerms, LockSpec, priority_in
from airflow_hivelock.triggers.lock import HiveLockTrigger
from airflow_hivelock.waiting import Wait, attempts, patiently
from airflow_hivelock.waiting.rounds import FIRST, MOST_UNANSWERED, Round
from airflow_hivelock.work import facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

RESCHEDULE = timedelta(minutes=1)
"""The time between two pokes."""

GLANCE_S = 1.0
"""The time between two checks of a waiting worker whether it was killed, in seconds."""


class TaskKilled(BaseException):
    """Airflow kills the task. No Exception, so that the task's own code does not handle it and continue."""


def stops_work(on_kill: Callable[[], None]) -> bool:
    """Whether *on_kill* of an operator stops its work. A function of Python, for example, has no ``on_kill()`` of its own."""
    return getattr(on_kill, "__func__", None) is not BaseOperator.on_kill


class AcquiresLocks(NamesLocks):
    """The base class of the operators that acquire locks.

    :param lease_duration: the duration of the lease without renewal.
    :param timeout: the longest wait for locks, without the wait for a worker slot. ``timedelta(0)`` fails at once. None
        means the connection's time-out, by default no limit.
    :param waiting: the way to wait. ``trigger`` waits in the triggerer from start to end, without a slot. On success no
        callback of the task runs. The triggerer cannot render some names, such as XComs and the DAG's own macros. A
        task with them starts on a worker. Each waiting task carries a copy of the DAG: prefer ``defer`` for DAGs of
        many hundred tasks. ``defer`` starts and ends on a worker. It acquires free locks at once, and defers only to
        wait. ``reschedule`` polls once a minute, and has no queue position in between. ``poke`` waits in the worker
        slot.
    :param max_leases: the largest number of leases of the group at a time, including this one. None means no limit. A
        limit of the group in the lock store takes precedence. The lock store counts the leases. A task that waits for
        a permit holds no lock, and blocks no other task.
    :param lease_group: the group whose leases are counted. DAGs with the same group share it. None means the DAG's
        tasks without a group.
    :param weight: the number of leases of its group that the task counts for. None means the group's default in the
        lock store, or 1.
    :param lock_priority: the waiter with the larger priority goes first, within the lock store's limit on overtaking.
        None means the task's own ``priority_weight``, which is 1 by default. In a run of a backfill the number is at
        most 0, so the DAG's daily run goes first. A request of priority 0 or less can be overtaken for a week, any
        other for an hour.
    """

    _deferred_grant: ClassVar[bool]
    """Whether the task itself works under the locks. It then acquires them in a worker slot, so that no task waits for a
    holder that waits for a slot. Otherwise the trigger acquires them and keeps them."""

    def __init__(
        self,
        *,
        lease_duration: timedelta = timedelta(hours=1),
        timeout: timedelta | None = None,
        waiting: Waiting = "trigger",
        max_leases: int | None = None,
        lease_group: str | None = None,
        weight: int | None = None,
        lock_priority: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_waiting(
            {"task_id": self.task_id, "lease_duration": lease_duration, "timeout": timeout, "waiting": waiting}
        )
        urgency = max(-MAX_PRIORITY, min(MAX_PRIORITY, self.priority_weight))
        self.max_leases = max_leases
        self.lease_group = lease_group
        self.weight = weight
        self.lock_priority = urgency if lock_priority is None else lock_priority
        check_terms(vars(self))
        self.lease_duration = lease_duration
        self.lock_timeout = timeout  # self.timeout would be a sensor's own time-out
        self.waiting = waiting
        self._killed = False

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        super().check_arguments(arguments)
        check_waiting(arguments)
        check_terms(arguments)

    def _acquire(self, context: Any, before: Round = FIRST) -> Lease | None:
        """Wait in the chosen way, and return the lease. None if locking is turned off.

        :param before: the round before this request.
        :raises TaskDeferred: the triggerer waits.
        :raises AirflowRescheduleException: a later poke waits.
        """
        return attempts.as_current_try(context["ti"], lambda: self._acquire_once(context, before), self.log)

    def _acquire_once(self, context: Any, before: Round) -> Lease | None:
        hook = HiveLockHook(self.hivelock_conn_id)
        if not LockSpec.of(self).takes_locks(hook, self.log):
            return None
        changed = threading.Event()
        # A worker joins no queue. Its trigger does, because the trigger lives longer than this process.
        deferred = DeferredGrant(hook.settings.invitation_s, has_slot=True) if self._defers else None
        wait = self._begin(hook, context, self._left_s(hook, context), changed.set, before, deferred)
        try:
            while not isinstance(lease := wait.poll(), Lease):
                if self._defers:
                    again = wait.round().next(answered=not wait.silent)
                    # If the answer with a grant was lost, the trigger takes over the lease, because it has the same owner.
                    if before.number:
                        self._log_slot_given_back(wait, before, again)
                    self._wait_in_triggerer(
                        hook, context, again if self._deferred_grant else again.without_deferred_grant()
                    )
                if self.waiting == "reschedule":
                    raise AirflowRescheduleException(datetime.now(UTC) + RESCHEDULE)  # type: ignore[no-untyped-call]
                changed.wait(min(GLANCE_S, wait.wait_s() or GLANCE_S))
                changed.clear()
                self._check_not_killed()
            self._check_not_killed()
        except (TaskDeferred, LockTimeout):
            raise
        except BaseException:  # also a reschedule: until the next poke, no process acts for the request
            with suppress(StoreUnavailable):
                wait.give_up()
            raise
        facts.granted(lease, wait.round())
        return lease

    def _check_not_killed(self) -> None:
        if self._killed:
            raise AirflowException(f"{self.task_id} was killed while it waited for locks. It gives everything back")

    @property
    def _defers(self) -> bool:
        """Whether the task waits in the triggerer, for locks and for a lock store that does not answer."""
        return self.waiting in ("trigger", "defer")

    def _wait_in_triggerer(self, hook: HiveLockHook, context: Any, again: Round) -> NoReturn:
        check_unanswered(self.task_id, again.unanswered)
        self._defer_to(HiveLockTrigger, self._lock_kwargs(again), hook, context)

    def on_kill(self) -> None:
        # This runs in a signal handler. The interrupted wait or acquisition has to finish its step.
        self._killed = True
        super().on_kill()

    @property
    def _stops(self) -> bool:
        """Whether the operator itself can stop its work."""
        return stops_work(super().on_kill)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Return the result of *ask* when the lock store answers. Use it if the task cannot return to the triggerer."""

        def check() -> None:
            if self._killed:
                raise AirflowException(f"{self.task_id} was killed while it waited for the lock store")

        return patiently(ask, self.log, check)

    def _retake(self, context: Any, event: Any) -> Lease:
        """Take over the trigger's lease, and return it. Later calls of the trigger have no effect.

        :raises TaskDeferred: the lock store does not answer. The trigger keeps the lease until the next worker asks.
        """
        try:
            return attempts.as_current_try(context["ti"], lambda: self._retake_once(context, event), self.log)
        except AccessDenied:
            raise
        except StoreUnavailable as error:
            self.log.warning("Returning to the triggerer to wait: %s", error)
            again = Round.of_event(event).next(answered=False).without_deferred_grant()
            self._wait_in_triggerer(HiveLockHook(self.hivelock_conn_id), context, again)

    def _retake_once(self, context: Any, event: Any) -> Lease:
        hook = HiveLockHook(self.hivelock_conn_id)
        owner = self._lock_owner(hook, context)
        if isinstance(event, str):  # dag.test() even resumes a task that its trigger has ended
            event = (found := hook.manager().lease_of(str(owner))) and found.to_json()
            if event is None:
                raise AirflowException("the trigger failed the task. The reason is in the task's log")
        lease = Lease.from_json(event)
        if (before := Round.of_event(event)).waited_for:
            self.log.info("The triggerer has acquired lease %s after waiting %s", lease.id, before.past)
        request = LockRequest(
            owner=lease.owner,
            locks=lease.locks,
            lease_s=lease.lease_s,
            attempt=self._attempt(context),
            wait=False,
            query=owner.query,
            priority=priority_in(owner.run_id, self.lock_priority),
            limit=LeaseTerms.of(self).limit(owner.dag_id),  # for a new lease, if a user has freed this one
        )
        pending = hook.manager().begin(request, _ignore, 0.0)
        taken = None
        with suppress(LockTimeout):
            taken = pending.poll()
        if not isinstance(taken, Lease):
            pending.withdraw()
            raise LockLost(f"{lease.owner}: lease {lease.id} was lost before the task resumed")
        facts.granted(taken, before)
        return taken

    def _lease_of_this_try(self, hook: HiveLockHook, context: Any) -> Lease | None:
        """The lease that the task has had since before its deferral. None if it is lost.

        :raises Superseded: a later try holds the lease. Its work must keep its record and its locks.
        """
        return attempts.as_current_try(context["ti"], lambda: self._lease_of_this_try_once(hook, context), self.log)

    def _lease_of_this_try_once(self, hook: HiveLockHook, context: Any) -> Lease | None:
        lease, attempt = hook.manager().lease_of(str(self._lock_owner(hook, context))), self._attempt(context)
        # Airflow can start the next try while a slow worker of an earlier try resumes.
        if lease is not None and lease.attempt > attempt:
            raise Superseded(
                f"{lease.owner}: attempt {lease.attempt} has taken over lease {lease.id} on "
                f"{rules.few(rules.named(lease.locks), 3)}. This try (attempt {attempt}) must stop. The later try does its work",
                attempt=lease.attempt,
            )
        return lease

    def _log_slot_given_back(self, wait: Wait, before: Round, again: Round) -> None:
        why = "The lock store does not answer"
        if wait.blockers:
            lapsed = bool(before.until_s) and wait.manager.now().timestamp() > before.until_s
            metrics.slot_given_back(lapsed=lapsed)
            over = f", {span(before.slot_s)} after the invitation, which has ended" if lapsed else ""
            why = f"In the way{over}: {wait.blockers[0]}"
        self.log.info(
            "%s. This worker gives its slot back, and the triggerer waits%s",
            why,
            ", takes the locks, and keeps them until there is a worker slot" if again.last else f" ({again})",
        )

    def _give_back(self, context: Any) -> None:
        """Leave the queue, or release the lease that this task has.

        The trigger does not see some ends of the task: an execution time-out in the wait, or a failure of the trigger.
        """
        attempts.as_current_try(context["ti"], lambda: self._give_back_once(context), self.log)

    def _give_back_once(self, context: Any) -> None:
        wait = self._begin(HiveLockHook(self.hivelock_conn_id), context, 0, _ignore)
        wait.counts = False
        try:
            with suppress(LockTimeout):
                wait.poll()
            wait.give_up()
        except StoreUnavailable as error:  # keep the error that ended the task
            self.log.warning(
                "If the lock store has a request or lease of this task, it stays until the keeper frees it: %s", error
            )

    def _lock_kwargs(self, again: Round = FIRST) -> dict[str, Any]:
        """The trigger's arguments, except the names of objects.

        :param again: the round that the trigger begins.
        """
        return {
            "lease_s": self.lease_duration.total_seconds(),
            **asdict(LeaseTerms.of(self)),
            "timeout_s": None if self.lock_timeout is None else self.lock_timeout.total_seconds(),
            "ends_task": self.waiting == "trigger" and not self._deferred_grant,
            **again.arguments(),
        }

    def _begin(
        self,
        hook: HiveLockHook,
        context: Any,
        timeout_s: float | None,
        wake: Callable[[], None],
        before: Round = FIRST,
        deferred: DeferredGrant | None = None,
    ) -> Wait:
        options = {
            "lease_s": self.lease_duration.total_seconds(),
            "wait": timeout_s != 0,
            "asked": before.asked,
            "deferred": deferred,
        }
        terms = LeaseTerms.of(self)
        return Wait(
            lambda: (hook.manager(), self._request(hook, context, terms, **options)), timeout_s, wake, self.log, before
        )

    def _left_s(self, hook: HiveLockHook, context: Any) -> float | None:
        """The time-out in seconds, None for no limit. 0 for the first poke after the time-out."""
        own = self.lock_timeout
        timeout_s = LockSpec.of(self).timeout_s(hook) if own is None else own.total_seconds()
        if timeout_s is None:
            return None
        first = context["ti"].get_first_reschedule_date(context) if self.waiting == "reschedule" else None
        timed_out = first is not None and datetime.now(UTC) - first >= timedelta(seconds=timeout_s)
        return 0.0 if timed_out else timeout_s


def check_unanswered(task_id: str, unanswered: int) -> None:
    """Limit the returns of a task to the triggerer, which can perhaps reach the lock store although no worker can.

    :raises StoreUnavailable: too many workers in a row got no answer.
    """
    if unanswered > MOST_UNANSWERED:
        raise StoreUnavailable(
            f"{task_id}: {MOST_UNANSWERED} workers in a row got no answer from the lock store, for more than ten minutes. "
            "Check that workers reach it: run airflow connections test, or hivelock check on a worker"
        )


def _ignore() -> None:
    """A wake-up that does nothing."""
