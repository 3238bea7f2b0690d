"""The results of the statements: rows of locks, leases and waiters, calls on Hive leases, and EXPLAIN LOCKS."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_hivelock.locks import expected, past, plan, rules
from airflow_hivelock.locks.backend import Explains, FreesForeign
from airflow_hivelock.locks.durations import span
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest, LockLost, Unsupported
from airflow_hivelock.locks.hive import settings
from airflow_hivelock.locks.hive.transactional import ListsTransactional
from airflow_hivelock.locks.hive_leases import HiveLeases, entry, user_of
from airflow_hivelock.locks.model import LockMode
from airflow_hivelock.locks.statements import render
from airflow_hivelock.locks.statements.statement import Result
from airflow_hivelock.locks.validate import MOST_MS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from airflow_hivelock.locks.expected import WaitRange
    from airflow_hivelock.locks.hive.transactional import TransactionalLock
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Holder, Lease, Lock, LockObject, Waiter, Work
    from airflow_hivelock.locks.plan import Follows
    from airflow_hivelock.locks.plan.text import Plan
    from airflow_hivelock.locks.statements.statement import ShowPast

log = logging.getLogger(__name__)


def locks(found: Iterable[Holder], *, extended: bool) -> Result:
    """The result of SHOW LOCKS."""
    holders = sorted(found, key=render.order)
    columns: tuple[str, ...] = ("object", "mode", "owner", "lease_id", "since_utc")
    rows = [(str(held.object), held.mode.value, held.owner, held.lease_id, held.since) for held in holders]
    text = render.show_locks(holders, extended=extended)
    if not extended:
        return Result(columns, tuple(rows), text)
    more = [(held.token, held.expires, held.explicit, held.query) for held in holders]
    both = tuple((*row, *extra) for row, extra in zip(rows, more, strict=True))
    return Result((*columns, "token", "expires_utc", "explicit", "query"), both, text)


def with_jobs(holders: list[Holder], held: Iterable[Lease]) -> list[Holder]:
    """*holders*, each with the ids of the jobs under its lease appended to its query."""
    jobs_of = {lease.id: " ".join(job for work in lease.works if (job := _job_id(work))) for lease in held}
    return [_with_job(holder, jobs) if (jobs := jobs_of.get(holder.lease_id or "")) else holder for holder in holders]


def leases(held: Iterable[Lease], target: LockObject | None, *, extended: bool) -> Result:
    """The result of SHOW LEASE: a row for each named object that is *target* or below it.

    :param extended: also a row for each SHARED lock on a parent.
    """
    shown = [
        (entry(lease, lock), lease.token)
        for lease in held
        for lock in (lease.locks if extended else rules.named(lease.locks, lease.whole))
        if rules.concern([lock], target)
    ]
    columns = ["lease_id", "user", "db_name", "table_name", "partition_name", "lease_type", "start_utc", "end_utc"]
    rows = ((*(getattr(each, column) for column in columns), token) for each, token in shown)
    return Result((*columns, "token"), tuple(rows))


def waiters(found: Sequence[Waiter], expects: Mapping[str, WaitRange]) -> Result:
    """The result of SHOW WAITERS.

    :param expects: the expected wait of each owner that has one.
    """
    rows = tuple(
        (
            *(waiter.position, waiter.owner, waiter.waits_for.value, waiter.priority),
            *(_joined(rules.named(waiter.locks)), waiter.since, _joined(waiter.blocked_by, "; ")),
            *(map(int, expects[waiter.owner]) if waiter.owner in expects else (None, None)),
        )
        for waiter in found
    )
    text = render.show_waiters((waiter, rules.named(waiter.locks), expects.get(waiter.owner)) for waiter in found)
    columns = "position user waits_for priority wants since_utc in_the_way expected_least_s expected_most_s"
    return Result(tuple(columns.split()), rows, text)


def store_time(manager: LockManager) -> datetime | None:
    """The store's time. None if the user may not ask for it: in ZooKeeper, to ask is to write."""
    try:
        return manager.now()
    except HiveLockError as error:
        log.warning("The time of the lock store is unknown: %s", error)
        return None


def expected_waits(
    manager: LockManager, leases: Sequence[Lease], waiters: Sequence[Waiter], now: datetime
) -> Mapping[str, WaitRange]:
    """The expected wait of each of *waiters*, from one read of the history; none without a history that can be read."""
    try:
        if not manager.capabilities.audits:
            return {}
        past = expected.PastHolds(manager.history(most=expected.MOST_READ))
        return expected.expected_waits(past, leases, waiters, now)
    except HiveLockError as error:
        log.warning("No expected waits: %s", error)
        return {}


def history(manager: LockManager, target: LockObject | None, asked: ShowPast) -> Result:
    """The result of SHOW HISTORY of *target*.

    :raises Unsupported: the lock store keeps no history.
    """
    _needs_history(manager)
    found = past.newest(manager.history(target), owner=asked.owner, limit=asked.limit)
    columns = ("lease_id", "user", "locks", "asked_utc", "granted_utc", "ended_utc", "waited_s", "held_s")
    rows = tuple(
        (
            *(each.lease_id, each.owner, _joined(rules.named(each.locks)), each.asked, each.granted, each.ended),
            int((each.granted - each.asked).total_seconds()),
            int((each.ended - each.granted).total_seconds()) if each.ended else None,
        )
        for each in found
    )
    return Result(columns, rows, render.show_history(found))


def audit(manager: LockManager, target: LockObject | None, asked: ShowPast) -> Result:
    """The result of SHOW AUDIT of *target*.

    :raises Unsupported: the lock store keeps no audit trail.
    """
    _needs_history(manager)
    found = past.newest(manager.audit(target), owner=asked.owner, limit=asked.limit)
    columns = ("at_utc", "by", "lease_id", "user", "locks", "reason")
    rows = tuple(
        (each.at, each.user, each.lease_id, each.owner, _joined(rules.named(each.locks)), each.reason) for each in found
    )
    return Result(columns, rows, render.show_audit(found))


def _needs_history(manager: LockManager) -> None:
    if not manager.capabilities.audits:
        raise Unsupported(
            "this lock store keeps no history of leases and no audit trail. SHOW LOCKS lists the locks that are held. "
            "The logs of Airflow and of hivelock contain the force releases"
        )


def not_unlocked(manager: LockManager, user: str, target: LockObject, others: Sequence[Lease]) -> str:
    """The message that *user* has no lock on *target*, with the next step.

    :param others: the leases of other users on *target*.
    """
    kind = "Table" if target.table else "Database"
    if others:
        holders = "; ".join(f"{lease.owner} holds it with lease {lease.id}" for lease in others)
        return (
            f"{kind} {target} is not locked by {user}: {holders}. If you know that the work is over, "
            f"run DROP FORCE LEASE {others[0].id} with a reason"
        )
    holders_on_it = [holder for holder in manager.show(target) if holder.object == target]
    if not holders_on_it:
        return f"{kind} {target} is not locked"
    by = "; ".join(map(str, holders_on_it[:3]))
    return (
        f"{kind} {target} is not locked by {user}: {by}. Free a lease on objects below it with DROP FORCE LEASE, "
        f"and a lock of Hive with DROP FORCE LOCK and the id of its query"
    )


def freed(ended: Iterable[Lease], text: str | None = None) -> Result:
    """The result of a statement that freed the leases *ended*: one row for each."""
    rows = tuple((ls.id, user_of(ls), _joined(lock.object for lock in rules.named(ls.locks, ls.whole))) for ls in ended)
    return Result(("lease_id", "user", "objects"), rows, text)


def locks_of(manager: LockManager, lock_id: str) -> list[TransactionalLock]:
    """The components of the metastore's lock with that id. Empty in another lock store."""
    if not isinstance(manager.backend, FreesForeign) or not isinstance(manager.backend, ListsTransactional):
        return []
    return [row for row in manager.backend.transactional(None) if str(row.lock_id) == lock_id]


def describe_locks(manager: LockManager, lock_id: str) -> list[str]:
    """A line for each component of the metastore's lock: holder, time of the grant, last renewal and transaction."""
    if not (rows := locks_of(manager, lock_id)):
        return []
    now = manager.now()
    return [f"lock {lock_id}: {_described(row, now)}" for row in rows]


def _described(row: TransactionalLock, now: datetime) -> str:
    def since(at_ms: int | None) -> str:
        at = _at(at_ms)
        return f"{at:%Y-%m-%d %H:%M:%S}Z, {span(max(0.0, (now - at).total_seconds()))} ago" if at else "unknown"

    by = f" ({row.agent_info})" if row.agent_info else ""
    return (
        f"{row.user} at {row.hostname}{by}, {_named(row)} {row.type}, {row.state}, acquired: {since(row.acquired_at_ms)}, "
        f"last heartbeat: {since(row.last_heartbeat_ms)}, transaction: {row.txn_id or 'none'}"
    )


def _named(row: TransactionalLock) -> str:
    """The name of the component's object: ``dw.flights/dt=2013-01-01``."""
    return "/".join(filter(None, (f"{row.database}.{row.table}" if row.table else row.database, row.partition)))


def _at(ms: int | None) -> datetime | None:
    """The time from Hive's milliseconds. None if Hive reports no time."""
    return datetime.fromtimestamp(min(max(ms, 0), MOST_MS) / 1000, UTC) if ms else None


def freed_locks(rows: Iterable[TransactionalLock]) -> Result:
    """The result of a statement that freed a lock of the metastore: one row for each of its objects."""
    columns = ("lock_id", "user", "hostname", "agent", "object", "type", "since_utc", "heartbeat_utc")
    found = tuple(
        (
            *(row.lock_id, row.user, row.hostname, row.agent_info or ""),
            *(_named(row), row.type, _at(row.acquired_at_ms), _at(row.last_heartbeat_ms)),
        )
        for row in rows
    )
    return Result(columns, found)


def _job_id(work: Work) -> str:
    """The cluster's id of the job in *work*. Empty if there is none."""
    try:
        job_id = json.loads(work.application)["job_id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return job_id if isinstance(job_id, str) else ""


def _with_job(holder: Holder, jobs: str) -> Holder:
    runs_as = f" (runs as {jobs})"
    details = holder.details and (*holder.details[:3], f"{holder.details[3]}{runs_as}")
    return replace(holder, query=f"{holder.query}{runs_as}", details=details)


def _joined(items: Iterable[object], between: str = ", ") -> str:
    return between.join(map(str, items))


def grab(manager: LockManager, user: str, locks: Collection[Lock], lease_s: float, timeout_s: float | None) -> Result:
    """The result of GRAB LEASE: one lease on all of *locks*."""
    if len({lock.object for lock in locks}) < len(locks):
        raise InvalidRequest("GRAB LEASE names an object twice; name each object once")
    types = {LockMode.SHARED: "s", LockMode.EXCLUSIVE: "x"}
    pairs = [(str(lock.object), types[lock.mode]) for lock in locks]
    leases = HiveLeases(manager, user)
    return _row(manager, leases.grab_lease(pairs, lease_s, timeout_s))


def extend(manager: LockManager, user: str, lease_id: str) -> Result:
    """The result of EXTEND LEASE, which renews the lease with its remaining locks."""
    if (lease := _own(manager, user, lease_id)) is None:
        raise LockLost(f"lease {lease_id} is no longer held: it was dropped or has expired; grab a new one")
    manager.renew(lease)
    return _row(manager, lease_id)


def drop(manager: LockManager, user: str, lease_id: str, objects: Collection[LockObject]) -> Result:
    """The result of DROP LEASE. It releases *objects*, or the whole lease if there are none.

    :raises LockLost: there is no such lease: it ended before the work did, or the id is wrong.
    """
    if (lease := _own(manager, user, lease_id)) is None:
        raise LockLost(
            f"no lease {lease_id} is held: it was dropped, expired or was freed by force; SHOW LEASE * lists all leases"
        )
    kept: set[Lock] = set()
    if not objects:
        manager.release(lease)
    elif (left := manager.release(lease, objects=objects)) is not None:
        kept = set(left.locks)
    released = [lock.object for lock in rules.named(lease.locks, lease.whole) if lock not in kept]
    rows = ((lease.id, user_of(lease), _joined(released)),) if released else ()
    return Result(("lease_id", "user", "objects"), rows)


def _own(manager: LockManager, user: str, lease_id: str) -> Lease | None:
    lease = manager.find(lease_id)
    if lease is not None and lease.owner.rpartition(":")[0] not in (user, f"cli:{user}"):
        raise HiveLockError(
            f"lease {lease_id} is not {user}'s, but {lease.owner}'s. If you know that the work is over, run DROP FORCE "
            f"LEASE {lease_id} with a reason"
        )
    return lease


def _row(manager: LockManager, lease_id: str) -> Result:
    lease = manager.find(lease_id)
    return leases([lease] if lease else [], None, extended=False)


def explain(found: Plan, manager: LockManager, user: str, follows: Follows, *, concurrency: bool) -> Result:
    """The result of EXPLAIN LOCKS for the plan *found* of *user*.

    :param follows: the table of commands that the plan follows.
    :param concurrency: whether the session locks at all.
    """
    planned = rules.with_parents(found.reads, found.writes)
    taken = _taken(manager, user, found, planned)
    stored = {lock.object: kept for lock, kept in taken.items()}
    rows = [(str(each.object), each.mode.value, follows, stored.get(each.object)) for each in planned]
    if not concurrency:
        text = f"{plan.explain_locks(())}\n-- NOT LOCKED: {settings.OFF}"
        return Result(("object", "mode", "follows", "store"), (), text)
    text = f"{plan.explain_locks(taken)}\n-- {plan.FOLLOWED[follows]}{_instead(manager, planned, taken)}"
    return Result(("object", "mode", "follows", "store"), tuple(rows), text)


def _taken(manager: LockManager, user: str, found: Plan, planned: Sequence[Lock]) -> Mapping[Lock, str | None]:
    """By lock that the lock store would take, the store's own form of the lock."""
    if not manager.capabilities.acquires or not planned:
        return dict.fromkeys(planned)
    if isinstance(manager.backend, Explains):
        wanted = rules.request(f"cli:{user}", found.reads, found.writes, query="EXPLAIN LOCKS", types=found.types)
        return manager.backend.takes(wanted)
    return {lock: lock.mode.value for lock in planned}


def _instead(manager: LockManager, planned: Sequence[Lock], taken: Mapping[Lock, str | None]) -> str:
    """The end of the message: why the locks in *taken* differ from the planned ones. Empty if they do not."""
    if not manager.capabilities.acquires:
        return "; this lock store takes none"
    if not manager.capabilities.parents:
        return "; this lock store has its own hierarchy, and takes no locks on parents"
    return "" if len(taken) == len(planned) else "; too many for one transaction of this lock store, so it locks tables"
