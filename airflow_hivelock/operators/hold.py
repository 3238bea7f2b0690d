"""``hold()``: locks for a part of a Python task."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from airflow.sdk import get_current_context

from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.links import HELD_WITH
from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import CannotTell, InvalidRequest, LockLost, StoreUnavailable
from airflow_hivelock.locks.model import Lease
from airflow_hivelock.operators.acquiring import GLANCE_S, TaskKilled, stops_work
from airflow_hivelock.operators.arguments import check_span
from airflow_hivelock.operators.passed import work_name
from airflow_hivelock.spec import TERMS, LeaseTerms, LockSpec, Owner
from airflow_hivelock.waiting import Wait, attempts, patiently
from airflow_hivelock.work import applications, facts
from airflow_hivelock.work.lease_holder import LeaseHolder, explained
from airflow_hivelock.work.processes import MARK, Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Blocker

log = structlog.get_logger(__name__)

_held: dict[str, bool] = {}
"""The owners of the leases that this process holds or acquires. False: a kill must not interrupt the present step."""

_killed: set[Any] = set()
"""The ids of task instances that Airflow kills."""

_linked: set[Any] = set()
"""The ids of task instances that have a link to the page."""

_unreleased: list[LeaseHolder] = []
"""The holders of leases whose release was interrupted."""

_users: Counter[str] = Counter()
"""The number of ``hold()``s that use a mark. They can be in several threads. The task's own lease has another mark."""

_marking = threading.Lock()
"""Protects the mark in the environment, and its users."""


class HeldLocks:
    """The value that :func:`hold` yields.

    :ivar lease: the lease. None if locking is turned off.
    """

    def __init__(
        self, lease: Lease | None = None, manager: LockManager | None = None, holder: LeaseHolder | None = None
    ) -> None:
        self.lease = lease
        self._manager = manager
        self._holder = holder

    def check(self) -> None:
        """Check in the lock store that the locks are still held. Do this just before you publish a result.

        :raises LockLost: the locks are not held.
        :raises StoreUnavailable: the store does not answer.
        """
        if self._holder is not None and (loss := self._holder.loss):
            raise loss
        if self._manager is not None and self.lease is not None:
            try:
                self._manager.verify(self.lease)
            except LockLost as error:
                raise explained(error, self._manager, self.lease) from None

    def release(self, objects: Sequence[str]) -> None:
        """Release the locks on *objects* and on objects below them, such as the finished days of a range.

        The other locks are released when the body ends.

        :raises InvalidRequest: this lease does not hold the objects. No lock was released.
        :raises LockLost: the lease is lost.
        """
        named = frozenset(rules.objects("objects", objects))
        if self._manager is None or self.lease is None or not rules.left(self.lease, named):
            return
        left = self._manager.release(self.lease, objects=named)
        if left is None:
            self._manager.verify(self.lease)
        self.lease = left


@contextmanager
def hold(
    *,
    reads: Sequence[str] = (),
    writes: Sequence[str] = (),
    timeout: timedelta | None = None,
    lease_duration: timedelta = timedelta(hours=1),
    hivelock_conn_id: str = HiveLockHook.default_conn_name,
    **terms: Any,
) -> Iterator[HeldLocks]:
    """In a Python task: ``with hold(writes=[f"dw.delays/dt={day}"]) as held:``. The body runs under those locks.

    The task waits for the locks in its worker slot. It renews the lease while the body runs, and releases it at the
    end, even after an error. If Airflow kills the task, the body ends with ``TaskKilled``, or ``CancelledError`` in an
    event loop. Airflow cannot end a body in another thread. If the process dies, the task's next try takes over the
    lease with the same names; otherwise the keeper frees the lease. A task can have this lease in addition to the lease
    for its own work. ``held.check()`` checks whether the lease is still held.

    :param timeout: as for the operators.
    :param terms: other arguments about the locks and the grant: ``lock_sql``, ``max_leases``, ….
    :raises InvalidRequest: this is not a task; or the task itself already holds the locks, and would wait for itself.
    :raises CannotTell: it is unknown whether an earlier try still works under the locks.
    :raises LockLost: the locks were lost while the body ran.
    """
    try:
        context = get_current_context()
    except RuntimeError as error:
        raise InvalidRequest(
            "hold() works only in a task of Airflow, which owns the lease. In a script write "
            "airflow_hivelock.locks.connect(url).acquire(owner=…, writes=[…])"
        ) from error
    ti: Any = context["ti"]
    lease_terms = LeaseTerms(**{name: terms.pop(name) for name in TERMS if terms.get(name) is not None})
    spec = LockSpec(reads=reads, writes=writes, **terms)
    _check_names(spec, ti.task_id)
    span = {"task_id": ti.task_id, "timeout": timeout, "lease_duration": lease_duration}
    check_span(span, "lease_duration", least=timedelta(seconds=1))
    timeout_s = check_span(span, "timeout", or_none=True)
    hook = HiveLockHook(hivelock_conn_id)
    if not spec.takes_locks(hook, log):
        yield HeldLocks()
        return
    if ti.id not in _linked:
        ti.xcom_push(HELD_WITH, hivelock_conn_id)
        _linked.add(ti.id)
    owner = replace(Owner.of(hook.installation, ti), hold=_key(spec))
    if str(owner) in _held:
        raise InvalidRequest(f"{ti.task_id}: the task already holds these locks")
    lease_s, wait = lease_duration.total_seconds(), timeout_s != 0
    changed = threading.Event()
    most_s = spec.timeout_s(hook) if timeout is None else timeout_s
    check = partial(_check_not_killed, ti)
    if not stops_work(ti.task.on_kill):
        ti.task.on_kill = _on_kill
    _held[str(owner)] = threading.current_thread() is not threading.main_thread()
    try:
        manager = patiently(hook.manager, log, check)

        def ask() -> Lease:
            attempt = attempts.of(ti, ti.try_number)
            patiently(lambda: _release_rest(manager, owner, attempt), log, check)
            request = spec.request(hook, owner, attempt, lease_terms, lease_s=lease_s, wait=wait)
            return _acquire(Wait(lambda: (manager, request), most_s, changed.set, log), owner, changed, check)

        lease = attempts.as_current_try(ti, ask, log)
        with _under(manager, lease, owner.work) as held, _ends_at_kill(str(owner), check):
            yield held
        check()
    finally:
        _held.pop(str(owner))


def _on_kill() -> None:
    """The ``on_kill()`` of an operator that has none, from its first ``hold()`` on. It runs in a signal handler."""
    ti: Any = get_current_context()["ti"]
    _killed.add(ti.id)
    while _unreleased:
        _unreleased.pop().release()
    if not _held or not all(_held.values()):
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        _check_not_killed(ti)
    else:  # an error here would leave the loop, and no coroutine would end
        loop.call_soon_threadsafe(lambda: [each.cancel() for each in asyncio.all_tasks(loop)])


def _check_not_killed(ti: Any) -> None:
    if ti.id in _killed:
        raise TaskKilled(f"{ti.task_id} was killed")


@contextmanager
def _ends_at_kill(owner: str, check: Callable[[], None]) -> Iterator[None]:
    """Let a kill interrupt the block."""
    before, _held[owner] = _held[owner], True
    try:
        check()
        yield
    finally:
        _held[owner] = before


def _check_names(spec: LockSpec, task_id: str) -> None:
    """:raises InvalidRequest: *spec* names nothing, or a template, or an invalid object."""
    spec.check()
    if not (spec.reads or spec.writes or spec.lock_sql):
        raise InvalidRequest(f"{task_id}: hold() asks for no locks. Name at least one object in reads or writes")
    if left := [name for name in (*spec.reads, *spec.writes) if "{{" in name]:
        raise InvalidRequest(f"{task_id}: the template {left[0]!r} is not rendered inside a task. Write its value")


def _key(spec: LockSpec) -> str:
    """A key of one ``hold()`` in a task. It is the same in all tries."""
    wanted = repr((sorted(spec.reads), sorted(spec.writes), spec.lock_sql))
    return hashlib.sha256(wanted.encode()).hexdigest()[:8]


def _acquire(wait: Wait, owner: Owner, changed: threading.Event, check: Callable[[], None]) -> Lease:
    looked_at: Sequence[Blocker] = ()
    try:
        while not isinstance(lease := wait.poll(), Lease):
            if wait.blockers != looked_at:
                with suppress(StoreUnavailable):  # the next round asks again
                    _check_ahead(wait.manager, wait.blockers, owner)
                    looked_at = wait.blockers
            changed.wait(min(GLANCE_S, wait.wait_s() or GLANCE_S))
            changed.clear()
            check()
    except BaseException:
        with suppress(StoreUnavailable):  # the caller needs the first error
            wait.give_up()
        raise
    facts.granted(lease, wait.round())
    return lease


def _check_ahead(manager: LockManager, blockers: Sequence[Blocker], owner: Owner) -> None:
    """Refuse to wait for a lease under which the task itself works, or for requests that wait for that lease.

    :raises InvalidRequest: the task would wait for itself.
    """
    holds_more = MARK in os.environ or len(_held) > 1
    waiters = manager.waiters() if holds_more and any(each.waiting for each in blockers) else ()
    blocked_by = {waiter.owner: waiter.blocked_by for waiter in waiters}
    ahead = {each.owner: each for each in blockers}
    unchecked = list(ahead.values())
    while unchecked:
        each = unchecked.pop()
        if not each.waiting and _is_own(manager, each.owner, owner):
            raise InvalidRequest(
                f"{owner.work} would wait for itself: {each}. Name everything in one hold(), or in the task's own locks. "
                "If an earlier try has left that lease, free it with HiveForceUnlockOperator"
            )
        further = [one for one in blocked_by.get(each.owner, ()) if one.owner not in ahead]
        ahead |= {one.owner: one for one in further}
        unchecked += further


def _is_own(manager: LockManager, holder: str, owner: Owner) -> bool:
    """Whether the task of *owner* has acquired the lease of *holder*, or works under it."""
    other = Owner.parse(holder)
    if other is not None and replace(other, hold="") == replace(owner, hold=""):
        return True
    lease = manager.lease_of(holder) if MARK in os.environ else None
    return lease is not None and lease.work(work_name(lease, owner)) is not None


def _release_rest(manager: LockManager, owner: Owner, attempt: int) -> None:
    """Release the rest of a partly released lease of an earlier try. This try requests all locks again."""
    lease = manager.lease_of(str(owner))
    if lease is None or not lease.released or lease.attempt > attempt:
        return
    if (earlier := lease.work(owner.work)) is not None:
        applications.end(earlier, log)
    log.info(
        "Releasing the rest of lease %s, which an earlier try has left, to ask for all of its locks again", lease.id
    )
    manager.release(lease)


@contextmanager
def _under(manager: LockManager, lease: Lease, name: str) -> Iterator[HeldLocks]:
    if (earlier := lease.work(name)) is not None:
        applications.end(earlier, log)
    here, holder, failed = _use_mark(), None, True
    try:
        granted, what = lease, applications.encode(here)
        lease = patiently(lambda: manager.start_work(granted, name, what), log)
        work = lease.work(name)
        assert work is not None
        holder = LeaseHolder(manager, lease, work, lambda: None, log)
        with holder:
            held = HeldLocks(lease, manager, holder)
            yield held
            with suppress(StoreUnavailable):
                held.check()
        failed = False
    finally:
        # Before the end of the processes, because they must not include processes of a hold() that begins now.
        last = _leave_mark(here.mark)
        if holder is not None and (not failed or (holder.end_work() if last else _nothing_runs(here))):
            try:
                holder.release()
            except BaseException:  # a time-out of the task; Airflow calls on_kill() after it
                _unreleased.append(holder)
                raise


def _use_mark() -> Processes:
    """Mark new processes of this task as work of this ``hold()``.

    They keep the mark of the task's own lease or of another ``hold()``, because they are work of all these leases.
    """
    with _marking:
        mark = os.environ.get(MARK)
        here = Processes(mark=mark) if mark else Processes()
        if not mark or mark in _users:
            _users[here.mark] += 1
            os.environ[MARK] = here.mark
    return here


def _leave_mark(mark: str) -> bool:
    """End this use of *mark*. Return whether no other lease of the task uses it; then it is removed."""
    with _marking:
        if mark not in _users:  # the mark of the task's own lease
            return False
        _users[mark] -= 1
        if _users[mark]:
            return False
        del _users[mark]
        if os.environ.get(MARK) == mark:
            del os.environ[MARK]
        return True


def _nothing_runs(here: Processes) -> bool:
    try:
        return not here.running()
    except CannotTell:
        return False
