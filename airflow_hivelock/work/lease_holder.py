"""A lease in use: renewed while the work under it runs, released when that is over."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_delay, wait_fixed

from airflow_hivelock import metrics
from airflow_hivelock.locks.errors import CannotTell, HiveLockError, LockLost, StoreUnavailable
from airflow_hivelock.work import applications
from airflow_hivelock.work.jobs.job import Job
from airflow_hivelock.work.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease, Work
    from airflow_hivelock.work.applications import Application


STOP_S = 2.0
"""How long what the task has started may take to end by itself, before it is killed."""

CHECK_S = 30.0
"""How often at least a running task looks whether its lease still stands; it is also told of changes."""

RETRY_S = 5.0
"""How long after a failure it tries again."""

RELEASE_S = 60.0
"""For how long it tries to release while the lock store does not answer."""


class LeaseHolder:
    """A lease in use: while the work runs a thread renews it, and notices its loss.

    :param work: what runs under it, as it was recorded when it started.
    :param ours: whether this task acquired the lease, and so releases it.
    :param stop_work: called, in that thread, when the lease is lost.
    :param idle_s: how long the lease was held for this work before it began, in seconds.
    """

    def __init__(
        self,
        manager: LockManager,
        lease: Lease,
        work: Work,
        ours: bool,
        stop_work: Callable[[], None],
        log: Any,
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
        self._thread = threading.Thread(target=self._keep, name="hivelock-renewal", daemon=True)

    @property
    def mark(self) -> str:
        """What tells the processes of the work from others on this host."""
        return self._application.mark if isinstance(self._application, Processes) else ""

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._over_at = time.monotonic()
        self._end()

    def record(self, application: Application) -> None:
        """Record what the work has become. A job runs whether or not that can be recorded: if not, it is tried again.

        :raises HiveLockError: it could not be, and no job runs as yet; or the lease is lost, and the work has been stopped.
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
                "%s is not recorded yet; until then nobody but this task can tell of it: %s", self.job, error
            )
            self._unwritten = True
            self._changed.set()

    def submits(self) -> None:
        """Record that the work is about to go on where its processes' end tells nothing of it."""
        if isinstance(self._application, Processes):
            self.record(replace(self._application, submits=True))

    def pause(self, elsewhere: str | None) -> None:
        """Record that nothing of the work runs here, if that is so.

        :param elsewhere: what does while the task is deferred: ``""``, for nobody here knows; None for nothing.
        """
        self._end()
        if self._ours:
            metrics.idle(self._idle_s)
        try:
            if self._unwritten:
                self._write()
            if isinstance(self._application, Processes) and not self._application.running():
                self._manager.record_work(self._lease, self._work.name, elsewhere)
        except HiveLockError as error:
            self._log.warning("Still recorded as running on this host: %s", error)

    @property
    def job(self) -> Job | None:
        """The job that the work has become, as far as that is known."""
        return self._application if isinstance(self._application, Job) else None

    @property
    def may_submit(self) -> bool:
        """Whether what runs here hands work on, or may do so."""
        return isinstance(self._application, Processes) and self._application.submits

    def is_over(self, cancelled: bool = False) -> bool:
        """End what the task has started on this host; whether nothing of the work runs, False where nobody can tell.

        :param cancelled: whether its operator has told a cluster to end the job, or has seen it end.
        """
        try:
            if isinstance(self._application, Processes):
                self._application.stop(STOP_S)
                return True
            return self._application.ends(STOP_S, cancelled=cancelled)
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
        over_at = self._over_at or time.monotonic()
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
                    self._give_back(over_at)
        except LockLost as error:
            self._log.info("Nothing to give back: %s", error)
        except HiveLockError:
            self._log.exception(
                "Lease %s could not be released; release_locks or the force release frees it later", self._lease.id
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
                if self._unwritten:
                    self._write()
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
            standing = self._manager.find(self._lease.id)
            if standing is None or (self._ours and standing.epoch != self._lease.epoch):
                raise
            if (standing.epoch, standing.locks) == (self._lease.epoch, self._lease.locks):
                raise
            # A part of it was given back; or the lock task's next try has taken it over: it protects the work as before.
            self._lease = standing

    def _lose(self, error: LockLost) -> None:
        self.lost = error
        metrics.lost()
        self._log.error("Stopping the work: %s", error)
        try:
            self._stop_work()
        except Exception:  # noqa: BLE001 - the wrapped operator's, and can raise anything
            self._log.exception("The work could not be stopped")
