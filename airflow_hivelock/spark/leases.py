"""Takes and releases the leases of one Spark driver: one for each statement, or one for several."""

from __future__ import annotations

import itertools
import logging
import os
import socket
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from airflow_hivelock.locks import queueing, rules
from airflow_hivelock.locks.errors import InvalidRequest, LockLost
from airflow_hivelock.locks.hive_leases import process_user
from airflow_hivelock.locks.interrupted import no_unseen_lease
from airflow_hivelock.locks.model import Lock, LockMode
from airflow_hivelock.spark.renewal import HeldLease, OpenRows, Renewal
from airflow_hivelock.spark.waiting import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import ExitStack

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease
    from airflow_hivelock.locks.plan.text import Plan
    from airflow_hivelock.spark.guard import TaskLease

Outside = Literal["ask", "fail"]
"""What a statement does if it needs more than its lease holds: ask for the rest, or fail."""

_numbers = itertools.count(1)
"""The numbers of this process's statements. Each statement is a separate owner."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DriverName:
    """The driver of a Spark application, as the owner of a lease names it. A user can then check whether it still runs.

    :param application: the id of the application in its cluster.
    :param cluster: the master, as in ``yarn`` or ``spark://host:7077``.
    """

    application: str
    cluster: str

    def __str__(self) -> str:
        where = f"{socket.gethostname()}, process {os.getpid()}"
        return f"{process_user()}: Spark {self.application} of {self.cluster} on {where}"


class DriverLeases:
    """Takes, renews and releases the leases of one driver. Several threads can use it.

    :param work: the name and the record of the driver's work. A keeper checks by it whether the driver has ended.
    :param task_lease: the lease of the Airflow task that started the driver, if there is one.
    :param outside: what a statement does if it needs more than its lease holds.
    :param lease_s: how long a lease is trusted without renewal, in seconds. A thread renews it after each third of it.
    :param timeout_s: how long a statement waits for its locks, in seconds. None: without a limit.
    :param stop: called once for each lease that is lost while its statement may run.
    :param ended: called with the error of a statement. Returns whether the statement has ended in Spark. After an
        interruption, as by Ctrl-C, it waits for that end.
    """

    def __init__(
        self,
        manager: LockManager,
        driver: DriverName,
        *,
        work: tuple[str, str] | None = None,
        task_lease: TaskLease | None = None,
        outside: Outside = "ask",
        lease_s: float = 3600.0,
        timeout_s: float | None = 3600.0,
        progress: bool | None = None,
        stop: Callable[[Lease], None] = lambda lease: None,
        ended: Callable[[BaseException], bool] = lambda error: True,
    ) -> None:
        if outside not in ("ask", "fail"):
            raise InvalidRequest(f"outside={outside!r}: use 'ask' or 'fail'")
        self._manager = manager
        self._driver = str(driver)
        self._work = work if manager.capabilities.remembers else None
        self._task_lease = task_lease
        self._outside = outside
        self._lease_s = lease_s
        self._timeout_s = timeout_s
        self._progress = progress
        self._ended_in_spark = ended
        self._renewal = Renewal(manager, lease_s, stop)
        self._held: ContextVar[tuple[HeldLease, ...]] = ContextVar("held", default=())

    def covered(self, plan: Plan) -> bool:
        """Whether the leases of this thread contain all locks of the plan."""
        wanted = rules.with_parents(plan.reads, plan.writes)
        return not rules.beyond(self._present(self.held()), wanted)

    def held(self) -> tuple[HeldLease, ...]:
        """The leases of this thread. Another thread can end one: it closes an iterator, or this thread copied its context."""
        return tuple(each for each in self._held.get() if not each.ended)

    def keep(self, rows: ExitStack, outer: tuple[HeldLease, ...]) -> OpenRows:
        """Keep the locks of rows that are read one by one.

        :param rows: holds the locks until it is closed.
        :param outer: the leases of this thread before it took them.
        """
        return self._renewal.keep(rows, [each for each in self.held() if each not in outer])

    @property
    def has_named_lease(self) -> bool:
        """Whether this thread has a lease whose data a user has named."""
        return any(each.named for each in self.held())

    @contextmanager
    def locked(self, plan: Plan, query: str, *, named: bool = False) -> Iterator[None]:
        """Hold the plan's locks for the time of the body. Take only the locks that this thread does not hold yet.

        :param query: the statement, as listings show it.
        :param named: a user has named the data, for several statements.
        :raises LockTimeout: other owners hold the locks.
        :raises LockLost: a lease has ended too early. The work under it must stop.
        :raises StoreUnavailable: a lease has expired, and the lock store does not answer.
        :raises InvalidRequest: the statement would wait for a lease of its own thread, or needs more than its lease holds.
        """
        with _in_use(self.held()) as outer:
            yield from self._locked(plan, query, named, outer)

    def _locked(self, plan: Plan, query: str, named: bool, outer: tuple[HeldLease, ...]) -> Iterator[None]:
        wanted = rules.with_parents(plan.reads, plan.writes)
        present = self._present(outer) if wanted else []
        needed, writes = rules.beyond(present, wanted), bool(plan.writes)
        if not needed:
            if writes:
                self._check(outer)
            yield
            return
        if present:
            self._check_outside(needed, present)
            plan = replace(
                plan,
                reads=[each for each in plan.reads if Lock(each, LockMode.SHARED) in needed],
                writes=[each for each in plan.writes if Lock(each, LockMode.EXCLUSIVE) in needed],
            )
        lease = self._acquire(plan, query)
        held = self._renewal.begin(lease, named)
        self._held.set((*outer, held))
        try:
            if writes:
                self._check(outer)  # after the wait for the other locks
            yield
        except BaseException as error:
            ended = False  # stays False if a second Ctrl-C interrupts the wait
            try:
                ended = self._ended_in_spark(error)
            finally:
                self._release(held) if ended else self._abandon(held)
            raise
        if not self._release(held):
            raise LockLost(
                f"the lease of {lease.owner} ended while {query[:80]!r} ran: another job may have changed its data, so do "
                "not trust its result"
            )

    def check(self) -> None:
        """Check in the lock store that this thread may write: its leases are held, and its task's token is the newest.

        :raises LockLost: it must not write.
        :raises StoreUnavailable: as :meth:`locked`.
        """
        self._check(self.held())

    def close(self) -> None:
        """Release all leases and stop the renewals."""
        self._renewal.close()
        self._manager.close()

    def _check(self, leases: Iterable[HeldLease]) -> None:
        if self._task_lease is not None:
            self._manager.check_token(self._task_lease.lease_id, self._task_lease.work, self._task_lease.token)
        for each in leases:
            self._renewal.check(each)

    def _present(self, leases: Iterable[HeldLease]) -> list[Lock]:
        """The locks of the leases and of this thread's task."""
        held: list[Lock] = []
        for each in leases:
            each.refuse_if_lost()
            held += each.lease.locks
        if self._task_lease is not None:
            lease = self._manager.find(self._task_lease.lease_id)
            if lease is None:
                raise LockLost(
                    f"lease {self._task_lease.lease_id} is no longer held: {self._task_lease.work} must stop"
                )
            held += lease.locks
        return held

    def _check_outside(self, needed: list[Lock], present: list[Lock]) -> None:
        parents = {parent for lock in needed for parent in lock.object.parents}
        named = ", ".join(str(lock) for lock in needed if lock.object not in parents)
        modes = {lock.object: lock.mode for lock in needed}
        if queueing.excludes(modes, present):
            raise InvalidRequest(
                f"this statement needs {named}, and would wait for its own lease, which holds that data in another mode; "
                "end that lease first (close the iterator, or leave HiveLocks.lease), or name the data in its writes"
            )
        if self._task_lease is None and not self.has_named_lease:
            return  # the lease is that of an open iterator, so the statement takes its own locks
        if self._outside == "fail":
            raise InvalidRequest(
                f"this statement needs {named}, and its lease does not hold that; name the data in reads or writes of the "
                "task or of HiveLocks.lease, or let the statement ask for it: outside='ask'"
            )
        log.warning("The lease of this statement does not hold %s; asking for it", named)

    def _acquire(self, plan: Plan, query: str) -> Lease:
        progress = Progress(rules.named(rules.with_parents(plan.reads, plan.writes)), self._progress)
        owner = f"{self._driver}, statement {next(_numbers)}"
        try:
            with no_unseen_lease(self._manager, owner):
                lease = self._manager.acquire(
                    owner=owner,
                    reads=plan.reads,
                    writes=plan.writes,
                    lease_s=self._lease_s,
                    timeout_s=self._timeout_s,
                    query=query,
                    tell=progress.tell,
                )
        finally:
            progress.end()
        return self._record(lease, *self._work) if self._work is not None else lease

    def _record(self, lease: Lease, name: str, application: str) -> Lease:
        try:
            return self._manager.start_work(lease, name, application)
        except BaseException:
            self._renewal.release(lease)
            raise

    def _release(self, held: HeldLease) -> bool:
        """Release the lease. Return whether it was held until now."""
        self._forget(held)
        return self._renewal.release(held.lease) and held.lost is None

    def _abandon(self, held: HeldLease) -> None:
        """Keep the lease in the lock store, because its statement may still run. A user frees it."""
        self._forget(held)
        log.error(
            "The interrupted statement of %s may still run, so its locks stay. After its Spark jobs have ended, free them "
            "with DROP FORCE LEASE '%s'",
            held.lease.owner,
            held.lease.id,
        )

    def _forget(self, held: HeldLease) -> None:
        """Remove the lease from this thread, and stop renewing it."""
        self._held.set(tuple(each for each in self._held.get() if each is not held))
        self._renewal.end(held)


@contextmanager
def _in_use(leases: tuple[HeldLease, ...]) -> Iterator[tuple[HeldLease, ...]]:
    """Keep leases while a statement runs under them, although the rows of one are abandoned meanwhile.

    Yield those that are kept. The others were abandoned before.
    """
    kept: list[HeldLease] = []
    try:
        for each in leases:
            each.users += 1  # before the look at its end, because that can come at any moment
            kept.append(each)
            if each.ended:
                kept.pop().users -= 1
        yield tuple(kept)
    finally:
        for each in kept:
            each.users -= 1
            if each.ended:
                each.look_again()  # the thread has waited for this statement
