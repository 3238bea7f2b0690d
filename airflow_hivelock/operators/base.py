"""What the operators that name locks have in common, and the four ways in which one waits for them."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowException, BaseOperator, TaskDeferred
from airflow.triggers.base import StartTriggerArgs

from airflow_hivelock import compat, metrics
from airflow_hivelock.compat import AirflowRescheduleException
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks.errors import InvalidRequest, LockLost, LockTimeout, StoreUnavailable
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.locks.model import MAX_PRIORITY, Lease, LockRequest
from airflow_hivelock.operators.arguments import (
    CheckedPartial,
    Waiting,
    check_names,
    check_terms,
    check_waiting,
    is_reference,
)
from airflow_hivelock.spec import RENDERED, LeaseTerms, LockSpec, Owner
from airflow_hivelock.templates import StrictNames, is_file, sql_source
from airflow_hivelock.triggers.lock import HiveLockTrigger
from airflow_hivelock.waiting import Round, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk.definitions.mappedoperator import OperatorPartial


RESCHEDULE = timedelta(minutes=1)
"""How long after a poke that found the locks taken the next one comes."""

_OTHER_FILES = re.compile(r"\{%-?\+?\s*(include|import|from|extends)\b")

_ASKS_THE_TASK = re.compile(r"xcom_pull|\btask\s*[.\[|]")

GLANCE_S = 1.0
"""How often a worker that waits in its slot looks whether it has been killed."""


class NamesLocks(StrictNames, BaseOperator):
    """Base of the operators that have ``reads`` and ``writes``.

    :param reads: data that is read, as ``dw.flights/dt={{ ds }}``: a database, a table, a partition or a range of them.
    :param writes: data that is written.
    :param lock_sql: HiveQL or Spark SQL, or a file of it (``.sql``, ``.hql``), that is going to run: what it reads and
        writes is locked as well. True: the operator's own ``sql`` or ``hql``.
    :param lock_database: what names in it without a database are in; by default the operator's own ``schema``, or ``default``.
    :param unpartitioned: those tables among them that have no partitions, where no metastore can be asked.
    :param partition_columns: by table, the partition columns of others, outermost first, where none can be asked; as in
        ``PARTITIONED BY``, with their types or without: ``{"dw.hourly": ["dt date", "hr string"]}``.
    :param support_concurrency: False locks nothing, and risks what locks are for; None: as the connection says.
    :param hivelock_conn_id: the connection to the lock store.
    """

    template_fields: Sequence[str] = RENDERED

    # Only ever set on instances: Airflow applies a class's own to mapped tasks without their mapped arguments.
    start_trigger_args: StartTriggerArgs | None = None
    start_from_trigger: bool = False

    def __init__(
        self,
        *,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        lock_sql: str | bool = "",
        lock_database: str = "",
        unpartitioned: Sequence[str] = (),
        partition_columns: Mapping[str, Sequence[str]] | None = None,
        support_concurrency: bool | None = None,
        hivelock_conn_id: str = HiveLockHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.reads = reads
        self.writes = writes
        self.lock_sql = (self.own_sql() or self._refuse_sql()) if lock_sql is True else lock_sql or ""
        self.lock_database = lock_database or getattr(self, "schema", None) or "default"
        self.unpartitioned = unpartitioned
        self.partition_columns = partition_columns
        self.support_concurrency = support_concurrency
        self.hivelock_conn_id = hivelock_conn_id
        check_names(vars(self) | {"dag": self.dag if self.has_dag() else None})  # type: ignore[no-untyped-call]

    @classmethod
    def check_arguments(cls, given: Mapping[str, Any]) -> None:
        """Refuse what cannot be meant, when the DAG is parsed; those of a mapped task one by one.

        :raises InvalidRequest: naming the task and the argument.
        """
        check_names(given)

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """Airflow's."""
        cls.check_arguments(kwargs)
        made = super().partial(**kwargs)
        made.__class__ = CheckedPartial
        return made

    def resolve_template_files(self) -> None:
        """Airflow's, when it has parsed the DAG: a file's text is shipped to the triggerer, which has not the file."""
        if is_file(self.lock_sql):
            with suppress(InvalidRequest):  # it may be there where the task runs
                self.lock_sql = sql_source(self.get_template_env(), self.lock_sql)
        super().resolve_template_files()
        if self.start_trigger_args is not None and self.start_trigger_args.trigger_kwargs is not None:
            self.start_trigger_args.trigger_kwargs["lock_sql"] = self.lock_sql
            if self._needs_a_worker_to_render():
                self.start_from_trigger, self.start_trigger_args = False, None

    def own_sql(self) -> str:
        """The operator's own ``sql`` or ``hql``, its statements one after the other; "" if it has none in text."""
        own = getattr(self, "sql", None) or getattr(self, "hql", None)
        given = own if isinstance(own, list | tuple) else [own]
        texts = [text for text in given if isinstance(text, str) and (len(given) == 1 or not is_file(text))]
        return "\n;\n".join(texts) if len(texts) == len(given) else ""

    def _refuse_sql(self) -> NoReturn:
        raise InvalidRequest(
            f"{self.task_id}: lock_sql=True, but the operator has no sql or hql of its own, in text or in one file: give lock_sql"
        )

    def _start_in_triggerer(self, trigger: type, next_method: str, trigger_kwargs: dict[str, Any]) -> None:
        """Have the task begin in the triggerer, where that can render its fields; else it begins on a worker."""
        if self._needs_a_worker_to_render():
            return
        self.start_from_trigger = True
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=f"{trigger.__module__}.{trigger.__name__}",
            next_method=next_method,
            trigger_kwargs=self._spec_kwargs() | trigger_kwargs,
        )

    def _spec_kwargs(self) -> dict[str, Any]:
        """The arguments of each trigger that say what to lock, and where."""
        return {"hivelock_conn_id": self.hivelock_conn_id, **asdict(LockSpec.of(self))}

    def _defer_to(
        self, trigger: Any, next_method: str, trigger_kwargs: dict[str, Any], hook: HiveLockHook, context: Any
    ) -> NoReturn:
        """Have the triggerer wait for what a worker has begun."""
        owner, attempt = str(self._lock_owner(hook, context)), context["ti"].try_number
        made = trigger(**self._spec_kwargs(), **trigger_kwargs, owner=owner, attempt=attempt)
        self.defer(trigger=made, method_name=next_method)

    def _request(self, hook: HiveLockHook, context: Any, *terms: LeaseTerms, **options: Any) -> LockRequest:
        owner, attempt = self._lock_owner(hook, context), context["ti"].try_number
        return LockSpec.of(self).request(hook, owner, attempt, *terms, **options)

    def _lock_owner(self, hook: HiveLockHook, context: Any) -> Owner:
        """Who this task is in the lock store."""
        return Owner.of(hook.installation, context["ti"])

    def _needs_a_worker_to_render(self) -> bool:
        """Whether the triggerer lacks what the templates use: XComs, the DAG's macros and filters, native rendering."""
        if not compat.TRIGGERS_RENDER:
            return True
        lists = (self.reads, self.writes)
        if any(isinstance(names, str) or is_reference(names) for names in lists):
            return True
        if any(map(is_reference, (*self.reads, *self.writes, self.lock_sql))):
            return True
        # Jinja looks for other files where the DAG is, and the triggerer has only what was serialized of it.
        if _OTHER_FILES.search(str(self.lock_sql)):
            return True
        # In a triggerer xcom_pull hangs for ever, and the task's own fields are as they were written.
        if _ASKS_THE_TASK.search(f"{lists}{self.lock_sql}"):
            return True
        dag = self.dag if self.has_dag() else None  # type: ignore[no-untyped-call]
        return bool(dag and (dag.user_defined_macros or dag.user_defined_filters))


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
        before_s = given.waited_s if given else 0.0
        wait = self._begin(hook, context, self._left_s(hook, context), changed.set, before_s)
        try:
            while not isinstance(lease := wait.poll(), Lease):
                if self.waiting in ("trigger", "defer"):
                    # Without a place in the queue: nobody would give it up for a task that is marked failed before its
                    # trigger has begun. One that cannot be withdrawn now ends with this process's session.
                    with suppress(StoreUnavailable):
                        wait.give_up()
                    if given and given.number:
                        self._say_outrun(wait, given.next())
                    kwargs = self._lock_kwargs(ends_task and self.waiting == "trigger", given)
                    self._defer_to(HiveLockTrigger, resume, kwargs, hook, context)
                if self.waiting == "reschedule":
                    raise AirflowRescheduleException(datetime.now(UTC) + RESCHEDULE)  # type: ignore[no-untyped-call]
                changed.wait(min(GLANCE_S, wait.wait_s() or GLANCE_S))
                changed.clear()
                if self._killed:
                    raise AirflowException(f"{self.task_id} was killed while it waited for locks; it left the queue")
        except (TaskDeferred, AirflowRescheduleException, LockTimeout):
            raise
        except BaseException:
            wait.give_up()
            raise
        return lease

    def on_kill(self) -> None:
        # A signal handler: what waits or acquires is interrupted somewhere, and has to finish what it does.
        self._killed = True
        super().on_kill()

    def _retake(self, context: Any, given: Any) -> Lease:
        """The lease that the trigger acquired, taken over by this process: what the trigger does later is void."""
        hook = HiveLockHook(self.hivelock_conn_id)
        owner = self._lock_owner(hook, context)
        if isinstance(given, str):  # dag.test() resumes even a task that its trigger has ended
            given = (found := hook.manager().lease_of(str(owner))) and found.to_json()
            if given is None:
                raise AirflowException("the trigger failed the task; its log says why")
        lease = Lease.from_json(given)
        if waited := Round.told_with(given):
            self.log.info("The triggerer has acquired lease %s after waiting %s", lease.id, waited)
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
        with suppress(LockTimeout):
            wait.poll()
        wait.give_up()

    def _lock_kwargs(self, ends_task: bool, given: Round | None = None) -> dict[str, Any]:
        """The trigger's arguments, but for the names.

        :param given: as for :meth:`_acquire`.
        """
        again = given.next() if given else Round()
        return {
            "lease_s": self.lease_duration.total_seconds(),
            **asdict(LeaseTerms.of(self)),
            "timeout_s": None if self.lock_timeout is None else self.lock_timeout.total_seconds(),
            "ends_task": ends_task,
            "round_number": again.number,
            "waited_s": again.waited_s,
            "waited_for": list(again.waited_for),
        }

    def _begin(
        self,
        hook: HiveLockHook,
        context: Any,
        timeout_s: float | None,
        wake: Callable[[], None],
        before_s: float = 0.0,
    ) -> Wait:
        lease_s = self.lease_duration.total_seconds()
        request = self._request(hook, context, LeaseTerms.of(self), lease_s=lease_s, wait=timeout_s != 0)
        return Wait(hook.manager(), request, timeout_s, wake, self.log, before_s)

    def _left_s(self, hook: HiveLockHook, context: Any) -> float | None:
        """The time-out, in seconds; 0 for the poke that comes after it."""
        own = self.lock_timeout
        timeout_s = LockSpec.of(self).timeout_s(hook) if own is None else own.total_seconds()
        if timeout_s is None:
            return None
        first = context["ti"].get_first_reschedule_date(context) if self.waiting == "reschedule" else None
        late = first is not None and datetime.now(UTC) - first >= timedelta(seconds=timeout_s)
        return 0.0 if late else timeout_s


def _ignore() -> None:
    """A wake-up that nobody waits for."""
