"""HiveLockMixin: locks around any operator."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk.exceptions import (
    AirflowRescheduleException,
    TaskAwaitingInput,
    TaskDeferralError,
    TaskDeferralTimeout,
)
from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_delay, wait_fixed

from airflow_hivelock import applications, metrics
from airflow_hivelock.acquiring import AcquiresLocks, NamesLocks
from airflow_hivelock.applications import MARK, Processes
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.inspection import check_order
from airflow_hivelock.links import HiveLocksLink
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest, LockLost, StoreUnavailable
from airflow_hivelock.locks.model import Lease
from airflow_hivelock.owners import Owner
from airflow_hivelock.spark import URL
from airflow_hivelock.supervisor import CannotTell
from airflow_hivelock.triggers import HiveLockTrigger
from airflow_hivelock.waiting import OFF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.applications import Application
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Work

STOP_S = 2.0
"""How long what the task has started may take to end by itself, before it is killed."""

CHECK_S = 30.0
"""How often at least a running task looks whether its lease still stands; it is also told of changes."""

RETRY_S = 5.0
"""How long after a failure it tries again."""

RELEASE_S = 60.0
"""For how long it tries to release while the lock store does not answer."""

_GOES_ON = (TaskDeferred, TaskAwaitingInput, AirflowRescheduleException)
"""What ends ``execute()`` but not the work."""

_UNWATCHED = (TaskDeferralError, TaskDeferralTimeout)
"""What ends the wait for work that a deferred task has elsewhere, and tells nothing of that work."""

_RESUME = "execute_locked"


class HiveLockMixin(AcquiresLocks):
    """Put before an operator, as in ``class Locked(HiveLockMixin, BashOperator)``: its work runs under locks.

    A class whose own order, or whose own ``execute``, would let the work go without them cannot be made.

    They are acquired before ``execute()``, kept while the operator defers, renewed while it runs, and released when
    the work is over. When they are lost, ``on_kill()`` stops the work and the task fails with LockLost.

    The lease records what runs. A later try first ends what an earlier one has left running, on the same host, and does
    not start where it cannot tell; nobody frees the locks before.
    ``timeout`` is the time to wait for locks, also where the operator has an argument of that name.

    :param lease: what a HiveLockOperator returned (``lock.output``): the work then runs under that lease, which
        it neither acquires nor releases.
    """

    def __init__(self, *, lease: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if bool(self.reads or self.writes or self.lock_sql) == (lease is not None):
            raise InvalidRequest(f"{self.task_id}: give either lease, or reads and writes, or lock_sql")
        self.lease = lease
        self._held: _Held | None = None
        self._unlocked = False
        if lease is None and self.waiting == "trigger":
            self._start_in_triggerer(HiveLockTrigger, _RESUME, self._lock_kwargs(ends_task=False))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_order(cls, HiveLockMixin)
        theirs = (base for base in cls.__mro__ if base not in HiveLockMixin.__mro__ and "template_fields" in vars(base))
        wrapped = vars(next(theirs, NamesLocks))["template_fields"]
        cls.template_fields = tuple(dict.fromkeys(("lease", *NamesLocks.template_fields, *wrapped)))
        if isinstance(links := cls.operator_extra_links, tuple | list) and HiveLocksLink() not in links:
            cls.operator_extra_links = (*links, HiveLocksLink())

    def execute(self, context: Any) -> Any:
        lease = self._acquire(context, resume=_RESUME, ends_task=False) if self.lease is None else self._adopt()
        with self._under(lease, context):
            return super().execute(context)

    def execute_locked(self, context: Any, event: Any) -> Any:
        """Go on once the trigger has acquired the locks."""
        lease = None if event == OFF else self._retake(context, event)
        with self._under(lease, context):
            return super().execute(context)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        if next_method == _RESUME:
            return super().resume_execution(next_method, next_kwargs, context)
        lease = self._standing(context)
        if lease is not None or self._unlocked:
            with self._under(lease, context, resumed=True):
                return super().resume_execution(next_method, next_kwargs, context)
        if hasattr(self, next_method):
            raise LockLost(f"{self.task_id}: its lease was lost while it was deferred")
        try:  # the trigger failed that waited for the locks
            return super().resume_execution(next_method, next_kwargs, context)
        finally:
            self._give_back(context)

    def on_kill(self) -> None:
        if self._unlocked:
            self._stop_work()
            return
        if self._held is None:  # the work has not begun
            self._killed = True
            return
        self._stop_work()
        if self._held.is_over():
            self._held.release()

    def use_lease(self, lease: Lease, work: Work) -> None:
        """Called before the work starts, for what it needs to know: its lease, and its own name and token under it."""

    def reconnects(self, context: Any, earlier: Application) -> Application | None:
        """What an earlier try has started and ``execute()`` will take up; None where it starts anew.

        For an operator to override that can: the work then keeps its token.

        :param earlier: what the lease has recorded of it.
        :raises CannotTell: whether there is something to take up.
        """
        return None

    def record_application(self, application: Application) -> None:
        """Record what the work has become, as soon as it is known: the job that a cluster now runs, say."""
        if self._held is not None:
            self._held.record(application)

    def work_is_over(self, context: Any) -> bool:
        """Whether nothing of the work still runs, after ``execute()`` has raised; if not, its locks stay.

        For an operator to override whose work can outlive its task, as a Spark application in a cluster does.
        """
        return True

    def submits(self) -> None:
        """Record that what runs here is about to hand work on, to a cluster say: its end then tells nothing of that work."""
        if self._held is not None:
            self._held.submits()

    def _submits(self) -> bool:
        """Whether that has to be expected from the start."""
        overridden = type(self).work_is_over is not HiveLockMixin.work_is_over
        return overridden or bool(getattr(self, "deferrable", False))

    def _stop_work(self) -> None:
        super().on_kill()

    def _adopt(self) -> Lease | None:
        """The given lease, as it stands now: the lock task's next try may have taken it over. None: it locks nothing."""
        if self.lease == OFF:
            self._unlocked = True
            self.log.warning("NOT LOCKED: the lock task was told to lock nothing, so nothing protects this work either")
            return None
        manager = HiveLockHook(self.hivelock_conn_id).manager()
        given = Lease.from_json(self.lease)
        lease = manager.find(given.id)
        if lease is None:
            raise LockLost(f"{self.task_id}: lease {given.id} of {given.owner} is over; clear the lock task as well")
        manager.renew(lease)
        return lease

    def _standing(self, context: Any) -> Lease | None:
        """The lease that a resumed task still has."""
        if self.lease is not None:
            return self._adopt()
        hook = HiveLockHook(self.hivelock_conn_id)
        if not self._wanted().locks(hook, self.log):
            self._unlocked = True
            return None
        return hook.manager().lease_of(str(self._lock_owner(hook, context)))

    def _start_work(self, manager: LockManager, lease: Lease, name: str, context: Any, resumed: bool) -> Lease:
        """Record that the work starts, once nothing runs any more that an earlier try has started.

        :raises CannotTell: whether something does; the locks stay.
        """
        here, earlier = Processes(submits=resumed or self._submits()), lease.work(name)
        if earlier is not None and resumed:
            return manager.record_work(lease, name, applications.encode(here))
        if earlier is not None:
            try:
                application = applications.of(earlier)
                if (taken_up := self.reconnects(context, application)) is not None:
                    self.log.info("Going on with %s, which an earlier try has started", taken_up)
                    return manager.record_work(lease, name, applications.encode(taken_up))
                if application.running():
                    self.log.warning("Ending %s, which an earlier try has left behind", application)
                    application.stop()
            except CannotTell as error:
                raise CannotTell(
                    f"{lease.owner}: not started, for an earlier try may still write: {error}. Once it has ended, free "
                    f"the lease with HiveForceUnlockOperator(leases=[{lease.id!r}], stale=False), and clear this task"
                ) from error
        return manager.start_work(lease, name, applications.encode(here))

    @contextmanager
    def _under(self, lease: Lease | None, context: Any, resumed: bool = False) -> Iterator[None]:
        """Hold *lease*, if there is one, while the body, the work, runs."""
        if lease is None:
            self._unlocked = True
            yield
            return
        hook = HiveLockHook(self.hivelock_conn_id)
        name = Owner.of(hook.installation, context["ti"]).work
        manager = hook.manager()
        begun = lease.work(name) is not None
        lease = self._start_work(manager, lease, name, context, resumed)
        work = lease.work(name)
        assert work is not None
        held = self._held = _Held(manager, lease, work, self.lease is None, self._stop_work, self.log)
        os.environ |= {URL: hook.url, MARK: held.mark}
        self.use_lease(lease, work)
        over = True
        try:
            with held:
                yield
        except _GOES_ON as pause:
            over = False
            held.pause("" if isinstance(pause, TaskDeferred) else None)
            raise
        except _UNWATCHED:
            over = not begun
            if begun:
                self.log.warning("The work may go on where it was deferred to; its locks stay")
                held.pause("")
            raise
        except Exception as error:
            over = self.is_over(context)
            if held.lost is not None:
                raise held.lost from error
            raise
        except BaseException:  # its time is up, say: the work still runs
            over = False
            self._stop_work()
            over = held.is_over()
            raise
        finally:
            for variable in (MARK, URL):
                os.environ.pop(variable, None)
            if over:
                held.release()
        if held.lost is not None:
            raise held.lost

    def is_over(self, context: Any) -> bool:
        """:meth:`work_is_over`, and nothing that was recorded still runs; False where that cannot be told."""
        try:
            over = self.work_is_over(context) and (self._held is None or self._held.is_over())
        except Exception:
            self.log.exception("Cannot tell whether the work is over; its locks stay")
            return False
        if not over:
            self.log.warning("The work still runs; its locks stay until a retry or a force release finds it over")
        return over


class _Held:
    """A lease in use: while the work runs a thread renews it, and notices its loss.

    :param work: what runs under it, as it was recorded when it started.
    :param ours: whether this task acquired the lease, and so releases it.
    :param stop_work: called, in that thread, when the lease is lost.
    """

    def __init__(
        self, manager: LockManager, lease: Lease, work: Work, ours: bool, stop_work: Callable[[], None], log: Any
    ) -> None:
        self.lost: LockLost | None = None
        self._manager = manager
        self._lease = lease
        self._work = work
        self._application = applications.decode(work.application)
        self._ours = ours
        self._stop_work = stop_work
        self._log = log
        self._changed = threading.Event()
        self._ended = False
        self._released = False
        self._thread = threading.Thread(target=self._keep, name="hivelock-renewal", daemon=True)

    @property
    def mark(self) -> str:
        """What tells the processes of the work from others on this host."""
        return self._application.mark if isinstance(self._application, Processes) else ""

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._end()

    def record(self, application: Application) -> None:
        """Record what the work has become.

        :raises HiveLockError: it could not be; nobody would know what to wait for.
        """
        if application == self._application:
            return
        self._application = application  # first, for it runs whether or not that can be recorded
        self._lease = self._manager.record_work(self._lease, self._work.name, applications.encode(application))

    def submits(self) -> None:
        """Record that the work is about to go on where its processes' end tells nothing of it."""
        if isinstance(self._application, Processes):
            self.record(replace(self._application, submits=True))

    def pause(self, elsewhere: str | None) -> None:
        """Record that nothing of the work runs here, if that is so.

        :param elsewhere: what does while the task is deferred: ``""``, for nobody here knows; None for nothing.
        """
        self._end()
        try:
            if isinstance(self._application, Processes) and not self._application.running():
                self._manager.record_work(self._lease, self._work.name, elsewhere)
        except (HiveLockError, CannotTell) as error:
            self._log.warning("Still recorded as running on this host: %s", error)

    def is_over(self) -> bool:
        """End what the task has started on this host; whether nothing of the work runs, False where nobody can tell."""
        try:
            if isinstance(self._application, Processes):
                self._application.stop(STOP_S)
                return True
            return self._application.ends(STOP_S)
        except CannotTell as error:
            self._log.warning("The locks stay: %s", error)
            return False

    def release(self) -> None:
        """Free the lease if it is ours; else record that the work has ended.

        An outage of the lock store is waited out for a while. What fails then is logged: the work is done, and a later
        release tries again.
        """
        if self._released:
            return
        self._released = True
        self._end()
        try:
            for attempt in Retrying(
                retry=retry_if_exception_type(StoreUnavailable),
                wait=wait_fixed(RETRY_S),
                stop=stop_after_delay(RELEASE_S),
                before_sleep=before_sleep_log(self._log, logging.WARNING),
                reraise=True,
            ):
                with attempt:
                    self._give_back()
        except LockLost as error:
            self._log.info("Nothing to give back: %s", error)
        except HiveLockError:
            self._log.exception(
                "Lease %s could not be released; release_locks or the force release frees it later", self._lease.id
            )

    def _give_back(self) -> None:
        if not self._ours:
            self._manager.record_work(self._lease, self._work.name, None)
        elif self._manager.release(self._lease):
            self._log.info("Released lease %s", self._lease.id)
            metrics.released(self._lease.since)

    def _end(self) -> None:
        self._ended = True
        self._changed.set()

    def _keep(self) -> None:
        every_s = self._lease.lease_s / 3
        renew_at = time.monotonic() + every_s
        while not self._ended:
            self._changed.clear()
            try:
                self._verify()
                if time.monotonic() >= renew_at:
                    self._manager.renew(self._lease)
                    renew_at = time.monotonic() + every_s
                pause_s = min(CHECK_S, renew_at - time.monotonic())
            except LockLost as error:
                if not self._ended:
                    self._lose(error)
                return
            except Exception:  # noqa: BLE001 - a thread that died of it would let the lease lapse
                pause_s = min(RETRY_S, every_s)
                self._log.exception("Lease %s cannot be kept; trying again in %g s", self._lease.id, pause_s)
            if not self._ended:
                self._changed.wait(max(0.0, pause_s))

    def _verify(self) -> None:
        try:
            self._manager.verify(self._lease, self._changed.set)
        except LockLost:
            standing = None if self._ours else self._manager.find(self._lease.id)
            if standing is None or standing.epoch == self._lease.epoch:
                raise
            self._lease = standing  # the lock task's next try has taken it over: it protects the work as before

    def _lose(self, error: LockLost) -> None:
        self.lost = error
        metrics.lost()
        self._log.error("Stopping the work: %s", error)
        try:
            self._stop_work()
        except Exception:  # noqa: BLE001 - the wrapped operator's, and can raise anything
            self._log.exception("The work could not be stopped")
