"""What the operators that acquire locks have in common: the four ways in which one waits for them."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from airflow.providers.common.compat.sdk import AirflowException, TaskDeferred

from airflow_hivelock import metrics
from airflow_hivelock.compat import AirflowRescheduleException
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks.errors import AccessDenied, LockLost, LockTimeout, StoreUnavailable
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.locks.model import MAX_PRIORITY, Lease, LockRequest
from airflow_hivelock.operators.arguments import Waiting, check_terms, check_waiting
from airflow_hivelock.operators.base import NamesLocks
from airflow_hivelock.spec import LeaseTerms, LockSpec
from airflow_hivelock.triggers.lock import HiveLockTrigger
from airflow_hivelock.waiting import Wait, patiently
from airflow_hivelock.waiting.rounds import FIRST, MOST_UNANSWERED, Round

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

RESCHEDULE = timedelta(minutes=1)
"""How long after a poke that found the locks taken the next one comes."""

GLANCE_S = 1.0
"""How often a worker that waits in its slot looks whether it has been killed."""


class AcquiresLocks(NamesLocks):
    """Base of the operators that acquire locks.

    :param lease_duration: how long the lease is trusted without renewal.
    :param timeout: how long to wait for locks, and not for a worker slot; ``timedelta(0)``: fail at once; None: as the
        connection says, by default as long as it takes.
    :param waiting: ``trigger``: in the triggerer from start to end, where no slot is used and on success no callback of
        the task runs; its templates know neither XComs nor the DAG's own macros, so a task that uses them begins on a
        worker. It ships the DAG with every waiting task: prefer ``defer`` for DAGs of many hundred tasks.
        ``defer``: begins and ends on a worker. What begins there takes at once what is free, and defers only to wait. ``reschedule``: looks once a minute, and keeps no place in the queue
        in between. ``poke``: waits in its worker slot.
    :param max_leases: how many leases of its group may be out at a time, this one included; None: any number. Counted in
        the lock store. A task that waits for one holds nothing, and is in nobody's way.
    :param lease_group: which leases are counted; None: those of the DAG's tasks that name no group. DAGs that name the
        same group share it.
    :param lock_priority: of the tasks that wait for a lock, the larger goes first, within the lock store's bound on being
        passed; None: the task's own ``priority_weight``, which is 1 unless it says otherwise.
    """

    def __init__(
        self,
        *,
        lease_duration: timedelta = timedelta(hours=1),
        timeout: timedelta | None = None,
        waiting: Waiting = "trigger",
        max_leases: int | None = None,
        lease_group: str | None = None,
        lock_priority: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_waiting(
            {"task_id": self.task_id, "lease_duration": lease_duration, "timeout": timeout, "waiting": waiting}
        )
        weight = max(-MAX_PRIORITY, min(MAX_PRIORITY, self.priority_weight))
        self.max_leases = max_leases
        self.lease_group = lease_group
        self.lock_priority = weight if lock_priority is None else lock_priority
        check_terms(vars(self))
        self.lease_duration = lease_duration
        self.lock_timeout = timeout  # not self.timeout, which is a sensor's own
        self.waiting = waiting
        self._killed = False

    @classmethod
    def check_arguments(cls, given: Mapping[str, Any]) -> None:
        super().check_arguments(given)
        check_waiting(given)
        check_terms(given)

    def _acquire(self, context: Any, given: Round | None = None, *, resume: str, ends_task: bool) -> Lease | None:
        """The lease, waited for in the chosen style; None where locking is turned off.

        :param given: the round after which the task asks again, its worker slot in hand; of number 0 for the first time;
            None for a task whose trigger keeps the locks.
        :param resume: the method that a deferred task goes on with.
        :param ends_task: whether, with ``waiting="trigger"``, the trigger ends the task.
        :raises TaskDeferred: the triggerer waits.
        :raises AirflowRescheduleException: a later poke waits.
        """
        hook = HiveLockHook(self.hivelock_conn_id)
        if not LockSpec.of(self).locks(hook, self.log):
            return None
        changed = threading.Event()
        wait = self._begin(hook, context, self._left_s(hook, context), changed.set, given or FIRST)
        try:
            while not isinstance(lease := wait.poll(), Lease):
                if self._defers:
                    again = wait.round().next(answered=not wait.silent)
                    # Without a place in the queue: no process would give it up for a task that is marked failed before its
                    # trigger has begun. One that cannot be withdrawn now ends with this process's session. If a lease was
                    # granted and the answer was lost, the trigger takes it up: it asks for the same owner.
                    with suppress(StoreUnavailable):
                        wait.give_up()
                    if given and given.number:
                        self._say_outrun(wait, again)
                    self._wait_in_triggerer(
                        hook, context, again if given else replace(again, number=0), resume, ends_task
                    )
                if self.waiting == "reschedule":
                    raise AirflowRescheduleException(datetime.now(UTC) + RESCHEDULE)  # type: ignore[no-untyped-call]
                changed.wait(min(GLANCE_S, wait.wait_s() or GLANCE_S))
                changed.clear()
                if self._killed:
                    raise AirflowException(f"{self.task_id} was killed while it waited for locks; it left the queue")
        except (TaskDeferred, AirflowRescheduleException, LockTimeout):
            raise
        except BaseException:
            with suppress(StoreUnavailable):
                wait.give_up()
            raise
        return lease

    @property
    def _defers(self) -> bool:
        """Whether it waits in the triggerer, for locks and for a lock store that does not answer."""
        return self.waiting in ("trigger", "defer")

    def _wait_in_triggerer(
        self, hook: HiveLockHook, context: Any, again: Round, resume: str, ends_task: bool
    ) -> NoReturn:
        check_unanswered(self.task_id, again.unanswered)
        kwargs = self._lock_kwargs(ends_task and self.waiting == "trigger", again)
        self._defer_to(HiveLockTrigger, resume, kwargs, hook, context)

    def on_kill(self) -> None:
        # A signal handler: what waits or acquires is interrupted somewhere, and has to finish what it does.
        self._killed = True
        super().on_kill()

    def _patiently(self, ask: Callable[[], T]) -> T:
        """What *ask* returns, once the lock store answers: for what is asked when the task cannot go back to the triggerer."""

        def check() -> None:
            if self._killed:
                raise AirflowException(f"{self.task_id} was killed while it waited for the lock store")

        return patiently(ask, self.log, check)

    def _retake(self, context: Any, given: Any, *, resume: str, ends_task: bool) -> Lease:
        """The lease that the trigger acquired, taken over by this process: what the trigger does later is void.

        :raises TaskDeferred: the lock store does not answer; the trigger keeps the lease until the next worker asks.
        """
        try:
            return self._retaken(context, given)
        except AccessDenied:
            raise
        except StoreUnavailable as error:
            self.log.warning("Back to waiting in the triggerer: %s", error)
            again = replace(Round.with_lease(given).next(answered=False), number=0)
            self._wait_in_triggerer(HiveLockHook(self.hivelock_conn_id), context, again, resume, ends_task)

    def _retaken(self, context: Any, given: Any) -> Lease:
        hook = HiveLockHook(self.hivelock_conn_id)
        owner = self._lock_owner(hook, context)
        if isinstance(given, str):  # dag.test() resumes even a task that its trigger has ended
            given = (found := hook.manager().lease_of(str(owner))) and found.to_json()
            if given is None:
                raise AirflowException("the trigger failed the task; its log says why")
        lease = Lease.from_json(given)
        if (told := Round.with_lease(given)).waited_for:
            self.log.info("The triggerer has acquired lease %s after waiting %s", lease.id, told.past)
        request = LockRequest(
            owner=lease.owner,
            locks=lease.locks,
            lease_s=lease.lease_s,
            attempt=context["ti"].try_number,
            wait=False,
            query=owner.query,
        )
        pending = hook.manager().begin(request, _ignore, 0.0)
        taken = pending.poll()
        if not isinstance(taken, Lease):
            pending.withdraw()
            raise LockLost(f"{lease.owner}: lease {lease.id} was lost before the task resumed")
        return taken

    def _say_outrun(self, wait: Wait, again: Round) -> None:
        if wait.blockers:
            metrics.outrun()
        self.log.info(
            "%s; back to waiting in the triggerer%s",
            f"Outrun by {printable(wait.blockers[0].owner)}" if wait.blockers else "The lock store does not answer",
            f" ({again})" if again.late else ", which now takes the locks and keeps them until there is a worker slot",
        )

    def _give_back(self, context: Any) -> None:
        """Leave the queue and release the lease, whatever this task has got so far.

        For the ends of which the trigger is not told: an execution time-out while it waits, a failure of its own.
        """
        wait = self._begin(HiveLockHook(self.hivelock_conn_id), context, 0, _ignore)
        wait.counts = False
        try:
            with suppress(LockTimeout):
                wait.poll()
            wait.give_up()
        except StoreUnavailable as error:  # it must not hide why the task ends
            self.log.warning("What it may have in the lock store stays until the keeper frees it: %s", error)

    def _lock_kwargs(self, ends_task: bool, again: Round = FIRST) -> dict[str, Any]:
        """The trigger's arguments, except the names.

        :param again: the round that the trigger begins.
        """
        return {
            "lease_s": self.lease_duration.total_seconds(),
            **asdict(LeaseTerms.of(self)),
            "timeout_s": None if self.lock_timeout is None else self.lock_timeout.total_seconds(),
            "ends_task": ends_task,
            "round_number": again.number,
            "waited_s": again.waited_s,
            "waited_for": list(again.waited_for),
            "slot_s": again.slot_s,
            "asked_s": again.asked_s,
            "unanswered": again.unanswered,
        }

    def _begin(
        self,
        hook: HiveLockHook,
        context: Any,
        timeout_s: float | None,
        wake: Callable[[], None],
        before: Round = FIRST,
    ) -> Wait:
        given = {"lease_s": self.lease_duration.total_seconds(), "wait": timeout_s != 0, "asked": before.asked}
        terms = LeaseTerms.of(self)
        return Wait(
            lambda: (hook.manager(), self._request(hook, context, terms, **given)), timeout_s, wake, self.log, before
        )

    def _left_s(self, hook: HiveLockHook, context: Any) -> float | None:
        """The time-out, in seconds; 0 for the poke that comes after it."""
        own = self.lock_timeout
        timeout_s = LockSpec.of(self).timeout_s(hook) if own is None else own.total_seconds()
        if timeout_s is None:
            return None
        first = context["ti"].get_first_reschedule_date(context) if self.waiting == "reschedule" else None
        late = first is not None and datetime.now(UTC) - first >= timedelta(seconds=timeout_s)
        return 0.0 if late else timeout_s


def check_unanswered(task_id: str, unanswered: int) -> None:
    """Refuse to send a task to the triggerer for ever: that one may reach the lock store, and no worker.

    :raises StoreUnavailable: too many workers in a row have got no answer.
    """
    if unanswered > MOST_UNANSWERED:
        raise StoreUnavailable(
            f"{task_id}: the lock store has answered none of {MOST_UNANSWERED} workers in a row, for more than ten minutes. "
            "Look whether workers reach it: airflow connections test, or hivelock check on a worker"
        )


def _ignore() -> None:
    """A wake-up that nobody waits for."""
