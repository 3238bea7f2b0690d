"""Renews a lease while its work runs, and releases it afterwards."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_hivelock import metrics
from airflow_hivelock.locks import past
from airflow_hivelock.locks.errors import CannotTell, HiveLockError, LockLost, StoreUnavailable
from airflow_hivelock.locks.pending import Patience
from airflow_hivelock.waiting import patiently
from airflow_hivelock.work import applications, facts
from airflow_hivelock.work.jobs.job import Job
from airflow_hivelock.work.processes import Processes, mark_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease, Work
    from airflow_hivelock.work.applications import Application


STOP_S = 2.0
"""The time that the task's processes have to end by themselves before they are killed, in seconds."""

CHECK_S = 30.0
"""The longest pause between two checks of a running task's lease, in seconds. The store also notifies it of changes."""

RETRY_S = 5.0
"""The pause after a failure, in seconds."""

RELEASE_S = 60.0
"""The time for which the task tries to release its lease if the lock store does not answer, in seconds."""


def explained(error: LockLost, manager: LockManager, lease: Lease) -> LockLost:
    """*error* about the lost *lease*, with the last audit entry on the lease. A force release writes one."""
    return LockLost(f"{error}{past.last_by(manager.audit, lambda entry: entry.lease_id == lease.id)}")


class LeaseHolder:
    """A lease in use. While the work runs, a thread renews the lease and notices its loss.

    :param work: the work under the lease, as it was recorded at its start.
    :param stop_work: the function that the thread calls if the lease is lost.
    :param ours: whether this task acquired the lease. Then the task also releases it.
    :param idle_s: the time between the grant of our lease and the start of the work, in seconds.
    """

    def __init__(
        self,
        manager: LockManager,
        lease: Lease,
        work: Work,
        stop_work: Callable[[], None],
        log: Any,
        *,
        ours: bool = True,
        idle_s: float = 0.0,
    ) -> None:
        self.lost: LockLost | None = None
        self._idle_s = idle_s
        self._over_at: float | None = None
        self._manager = manager
        self._lease = lease
        self._work = work
        self._application = applications.decode(work.application)
        self._ours = ours
        self._stop_work = stop_work
        self._log = log
        self._changed = threading.Event()
        self._ended = False
        self._unwritten = False
        self._writing = threading.RLock()
        self._released = False
        self._mark_file = mark_file(self.mark)
        facts.works(lease, work)
        self._thread = threading.Thread(target=self._keep, name="hivelock-renewal", daemon=True)

    @property
    def mark(self) -> str:
        """The text that distinguishes the processes of the work from others on this host."""
        return self._application.mark if isinstance(self._application, Processes) else ""

    def __enter__(self) -> None:
        self._mark_file.__enter__()
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._mark_file.__exit__(None, None, None)
        self._over_at = time.monotonic()
        self._end_renewal()

    @property
    def loss(self) -> LockLost | None:
        """The error about the lost lease, for the task. None while the lease is held."""
        return None if self.lost is None else explained(self.lost, self._manager, self._lease)

    def record(self, application: Application) -> None:
        """Record that the work is now *application*. If that fails while a job runs, the thread tries again later.

        :raises HiveLockError: the record failed before a job runs; or the lease is lost, and the work was stopped.
        """
        if application == self._application:
            return
        self._application = application
        try:
            self._write()
        except LockLost as error:
            self._lose(error)
            raise
        except StoreUnavailable as error:
            if self.job is None:
                raise
            self._log.warning(
                "%s is not recorded yet, so other processes do not know it. Trying again: %s", self.job, error
            )
            self._unwritten = True
            self._changed.set()

    def record_submission(self) -> None:
        """Record that the work can continue after its processes have ended."""
        if isinstance(self._application, Processes):
            self.record(replace(self._application, submits=True))

    def pause(self, elsewhere: str | None) -> None:
        """Record that the work has no process on this host, if that is true.

        :param elsewhere: the work that runs while the task is deferred. Empty if it is unknown, None if there is none.
        """
        self._end_renewal()
        if self._ours:
            metrics.idle(self._idle_s)
        try:
            if self._unwritten:
                self._write()
            if isinstance(self._application, Processes) and not self._application.running():
                if elsewhere is None and self._ours:  # a lease without work would be kept until the run is over
                    elsewhere = applications.encode(Processes.none())
                self._manager.record_work(self._lease, self._work.name, elsewhere)
        except HiveLockError as error:
            self._log.warning(
                "The record of the work cannot be changed, and still says that it runs on this host: %s", error
            )

    @property
    def job(self) -> Job | None:
        """The cluster's job that does the work. None if there is none, or if it is unknown."""
        return self._application if isinstance(self._application, Job) else None

    @property
    def works_here(self) -> bool:
        """Whether the task's own process does the work, and has not ended it."""
        return self.job is None and self._over_at is None

    @property
    def entered(self) -> bool:
        """Whether the block that holds the lease has begun."""
        return self._thread.ident is not None

    @property
    def may_submit(self) -> bool:
        """Whether the processes can submit work to a cluster."""
        return isinstance(self._application, Processes) and self._application.submits

    def end_work(self, cancelled: bool = False) -> bool:
        """Kill the task's processes on this host. Return whether all work has ended; False also if that is unknown.

        :param cancelled: whether the operator has cancelled the job in its cluster, or has seen the job's end.
        """
        try:
            if isinstance(self._application, Processes):
                self._application.stop(STOP_S)
                return True
            return self._application.ends(STOP_S, cancelled=cancelled)
        except CannotTell as error:
            self._log.warning("The lease is kept: %s", error)
            return False

    def release(self) -> None:
        """Release the lease if this task acquired it. Otherwise record that the work has ended.

        The call waits for a while if the lock store does not answer. A failure after that is only logged, because the work
        is done. If a time-out of the task interrupts the call, the next call tries again.
        """
        if self._released:
            return
        try:
            # Set this first: on_kill() can interrupt this call in a signal handler, and must not release a second time.
            self._released = True
            self._release()
        except BaseException:  # a time-out of the task; Airflow calls on_kill() after it
            self._released = False
            raise

    def _release(self) -> None:
        over_at = self._over_at or time.monotonic()
        self._end_renewal()
        try:
            patiently(lambda: self._give_back(over_at), self._log, patience=Patience(None, RELEASE_S, time.monotonic))
        except LockLost as error:
            self._log.info("There is nothing to release: %s", error)
        except HiveLockError:
            self._log.exception(
                "Lease %s could not be released. The keeper frees it later, or you free it with DROP FORCE LEASE",
                self._lease.id,
            )

    def _give_back(self, over_at: float) -> None:
        if not self._ours:
            self._manager.record_work(self._lease, self._work.name, None)
        elif self._manager.release(self._lease):
            self._log.info("Released lease %s", self._lease.id)
            metrics.released(self._lease.since)
            metrics.idle(self._idle_s + (time.monotonic() - over_at))

    def _write(self) -> None:
        with self._writing:
            text = applications.encode(self._application)
            self._lease = self._manager.record_work(self._lease, self._work.name, text)
            self._unwritten = False

    def _end_renewal(self) -> None:
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
                if self._unwritten:
                    self._write()
                pause_s = min(CHECK_S, renew_at - time.monotonic())
            except LockLost as error:
                if not self._ended:
                    self._lose(error)
                return
            except Exception:  # noqa: BLE001 - otherwise the thread would end, and the lease expire
                pause_s = min(RETRY_S, every_s)
                self._log.exception(
                    "Lease %s cannot be renewed or checked. Trying again in %g s", self._lease.id, pause_s
                )
            if not self._ended:
                self._changed.wait(max(0.0, pause_s))

    def _verify(self) -> None:
        try:
            self._manager.verify(self._lease, self._changed.set)
        except LockLost:
            current = self._manager.find(self._lease.id)
            if current is None or (self._ours and current.epoch != self._lease.epoch):
                raise
            if (current.epoch, current.locks) == (self._lease.epoch, self._lease.locks):
                raise
            # A partial release, or a take-over by the lock task's next try. The lease protects the work as before.
            self._lease = current

    def _lose(self, error: LockLost) -> None:
        self.lost = error
        metrics.lost()
        self._log.error("Stopping the work: %s", error)
        try:
            self._stop_work()
        except Exception:  # noqa: BLE001 - the wrapped operator can raise any exception
            self._log.exception("The work could not be stopped, and runs without its lock. Stop it yourself")
