"""A session of statements: what Hive's shell is to Hive, over any backend."""

from __future__ import annotations

import json
import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks import plan, rules
from airflow_hivelock.locks.backend import Explains
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest, Unsupported
from airflow_hivelock.locks.hive import settings
from airflow_hivelock.locks.hive.settings import Setting
from airflow_hivelock.locks.hive.transactional import ListsTransactional
from airflow_hivelock.locks.model import MAX_LEASE_S, LockMode, LockObject
from airflow_hivelock.locks.plan.data import as_kept
from airflow_hivelock.locks.plan.existence import alike
from airflow_hivelock.locks.plan.tables import KnownTables
from airflow_hivelock.locks.statements import render
from airflow_hivelock.locks.statements.parse import parse
from airflow_hivelock.locks.statements.statement import (
    AcquireLock,
    DropForceLease,
    ExplainLocks,
    Result,
    SetLine,
    ShowLease,
    ShowLocks,
    ShowWaiters,
    Statement,
    Unlock,
    Use,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Holder, Lease, LeaseLimit, Lock, Work
    from airflow_hivelock.locks.plan import Follows


log = logging.getLogger(__name__)


class StatementSession:
    """Runs statements for one user, with a default database that ``USE`` changes.

    ``LOCK TABLE`` locks one object for an owner of its own, ``cli:<user>:<uuid>``, with SHARED on what it lies in (Hive's
    own locks the object alone); the lock stands until ``UNLOCK TABLE``, which frees what the same user has locked so.

    :param catalog: where tables are looked up: partition columns may then be named in any order, and are checked.
    :param partition_columns: of tables that no catalog knows, as :func:`.plan` takes them.
    :param unpartitioned: of those, the tables that have no partitions.
    :param locks: whose table of commands EXPLAIN LOCKS follows, as :func:`.plan_statements` has it.
    :param timeout_s: how long LOCK waits in the queue, in seconds; 0: not at all; None: without end.
    :param lease_s: how long what LOCK takes is trusted, in seconds; it ends then where the store frees by time.
    :param priority: of those that wait for what LOCK takes, the larger goes first.
    :param limit: how many leases of a group may stand with the one that LOCK takes.
    :param force: UNLOCK frees the leases of others, too.
    :param reason: why something is freed by force; the audit trail keeps it.
    :param actor: who is on record for that, where *user* is only who was named.
    """

    def __init__(
        self,
        manager: LockManager,
        *,
        user: str,
        database: str = "default",
        catalog: Catalog | None = None,
        unpartitioned: Collection[str] = (),
        partition_columns: Mapping[str, Sequence[str]] | None = None,
        locks: Follows = "stricter",
        timeout_s: float | None = 0.0,
        lease_s: float = MAX_LEASE_S,
        priority: int = 1,
        limit: LeaseLimit | None = None,
        force: bool = False,
        reason: str = "",
        actor: str = "",
    ) -> None:
        if not user.strip():
            raise InvalidRequest("a session has a user; locks and the audit trail name it")
        if force and not reason.strip():
            raise InvalidRequest(f"{user} frees by force and must say why (reason); the audit trail keeps it")
        self.manager = manager
        self.user = user
        self.database = LockObject(database).database
        self.catalog = catalog
        self.unpartitioned = unpartitioned
        self.partition_columns = partition_columns
        KnownTables(None, unpartitioned, partition_columns)  # refuses what cannot be meant
        plan.check_follows(locks)
        self.locks = locks
        self.concurrency = True
        self._retries = (settings.DEFAULT_NUMRETRIES, 60.0)
        self.timeout_s = timeout_s
        self.lease_s = lease_s
        self.priority = priority
        self.limit = limit
        self.force = force
        self.reason = reason
        self.actor = actor or user

    def run(self, text: str) -> Iterator[Result]:
        """Run the statements of *text*, each when its result is asked for; all of them are parsed before.

        :raises InvalidRequest: for a malformed statement; none of them has run then.
        :raises HiveLockError: from the one that fails, which is the last to run.
        """
        statements = parse(text, self.database)
        if any(isinstance(statement, DropForceLease) for statement in statements) and not self.reason.strip():
            raise InvalidRequest(f"DROP FORCE LEASE: {self.user} must say why (reason); the audit trail keeps it")
        return (self._run(statement) for statement in statements)

    def _run(self, statement: Statement) -> Result:
        match statement:
            case ShowLocks():
                return self._show_locks(statement)
            case AcquireLock():
                return self._lock(statement)
            case Unlock():
                return self._unlock(self._placed(statement.target))
            case ShowLease():
                return self._show_lease(statement)
            case ShowWaiters():
                return self._show_waiters(statement)
            case DropForceLease():
                return self._drop_force_lease(statement)
            case ExplainLocks():
                return self._explain(statement)
            case SetLine():
                return self._set(statement.setting)
            case Use():
                self.database = statement.database
                return Result(("database",), ((self.database,),), "")

    def _set(self, setting: Setting | None) -> Result:
        """What of Hive's settings bears on locks; the rest is passed over."""
        match setting:
            case Setting(name=settings.CONCURRENCY):
                self.concurrency = setting.truth
                if not self.concurrency:
                    log.warning("NOT LOCKED from here on: %s; %s", settings.OFF, settings.RISK)
            case Setting(name=settings.NUMRETRIES):
                self._retries = setting.count, self._retries[1]
            case Setting(name=settings.SLEEP):
                self._retries = self._retries[0], setting.time_s
        if setting and setting.name in (settings.NUMRETRIES, settings.SLEEP):
            self.timeout_s = self._retries[0] * self._retries[1]
            log.warning(
                "LOCK waits for up to %g s from here on: SET %s=%s", self.timeout_s, setting.name, setting.value
            )
        elif setting and setting.name != settings.CONCURRENCY:
            what = setting.meaning or "has nothing to do with locks"
            log.log(
                logging.WARNING if setting.meaning else logging.DEBUG, "SET %s=%s %s", setting.name, setting.value, what
            )
        return Result((), (), "")

    def _refuse_if_off(self) -> None:
        if not self.concurrency:
            raise HiveLockError(
                f"locking is turned off in this session, by {settings.OFF}: as in Hive, nothing is locked or unlocked. "
                f"SET {settings.CONCURRENCY}=true turns it on"
            )

    def _show_locks(self, statement: ShowLocks) -> Result:
        if isinstance(self.manager.backend, ListsTransactional):
            target = statement.target and self._placed(statement.target)
            rows = self.manager.backend.transactional(target)
            return Result(render.HEADER, tuple(map(render.cells, rows)), render.render_transactional(rows))
        if statement.target is None:
            holders = [holder for holder in self.manager.show() if holder.object.table]
        else:
            target = self._placed(statement.target)
            holders = [holder for holder in self.manager.show(target) if holder.object == target]
        return _locks(self._with_jobs(holders) if statement.extended else holders, extended=statement.extended)

    def _with_jobs(self, holders: list[Holder]) -> list[Holder]:
        """*holders*, their query with the job that runs under their lease once its cluster has given it an id."""
        if not any(holder.lease_id for holder in holders):
            return holders
        ran = {
            lease.id: " ".join(job for work in lease.works if (job := _job_id(work))) for lease in self.manager.leases()
        }
        return [_running(holder, jobs) if (jobs := ran.get(holder.lease_id or "")) else holder for holder in holders]

    def _lock(self, statement: AcquireLock) -> Result:
        self._refuse_if_off()
        if not self.manager.capabilities.parents:
            raise Unsupported(
                f"{statement.target}: LOCK has no meaning in a metastore, which frees what nobody renews; Hive refuses "
                "it there, too. Take the lock with HiveLockOperator, or from a program that renews it"
            )
        target = self._placed(statement.target, to_lock=True)
        owner = f"cli:{self.user}:{uuid.uuid4()}"
        shared = statement.mode is LockMode.SHARED
        try:
            lease = self.manager.acquire(
                owner=owner,
                reads=[target] if shared else [],
                writes=[] if shared else [target],
                lease_s=self.lease_s,
                timeout_s=self.timeout_s,
                query=statement.text,
                priority=self.priority,
                limit=self.limit,
            )
        except KeyboardInterrupt:
            if granted := self.manager.lease_of(owner):  # at the last moment; nobody would know of it
                self.manager.release(granted)
            raise
        row = (lease.id, lease.token, str(target), statement.mode.value, lease.owner)
        return Result(("lease_id", "token", "object", "mode", "owner"), (row,), "")

    def _unlock(self, target: LockObject) -> Result:
        self._refuse_if_off()
        on_it = [ls for ls in self.manager.leases() if any(lock.object == target for lock in _named(ls.locks))]
        mine = [lease for lease in on_it if lease.owner.rpartition(":")[0] == f"cli:{self.user}"]
        others = [lease for lease in on_it if lease not in mine]
        if not mine and not (others and self.force):
            raise HiveLockError(self._not_unlocked(target, others))
        freed = [lease for lease in mine if self.manager.release(lease)]
        return _freed([*freed, *(self._freed_by_force(others) if self.force else ())], text="")

    def _not_unlocked(self, target: LockObject, others: list[Lease]) -> str:
        kind = "Table" if target.table else "Database"
        if others:
            holders = "; ".join(f"{lease.owner} holds it with lease {lease.id}" for lease in others)
            return (
                f"{kind} {target} is not locked by {self.user}: {holders}. If that work is known to be over, "
                f"DROP FORCE LEASE {others[0].id} frees it, with a reason"
            )
        holders_on_it = [holder for holder in self.manager.show(target) if holder.object == target]
        if not holders_on_it:
            return f"{kind} {target} is not locked"
        by = "; ".join(map(str, holders_on_it[:3]))
        return (
            f"{kind} {target} is not locked by {self.user}: {by}. A lease that only passes through it is freed as a "
            f"whole, with DROP FORCE LEASE; a lock of Hive's own with Hive's UNLOCK {kind.upper()}"
        )

    def _show_lease(self, statement: ShowLease) -> Result:
        target = statement.target and self._placed(statement.target)
        rows = [
            (
                lease.id,
                lease.owner,
                lock.object.database,
                lock.object.table,
                "/".join(lock.object.path[2:]),
                "x" if lock.mode is LockMode.EXCLUSIVE else "s",
                lease.since,
                lease.expires,
                lease.token,
            )
            for lease in self.manager.leases()
            for lock in lease.locks
            if rules.concern([lock], target)
        ]
        columns = "lease_id user db_name table_name partition_name lease_type start_utc end_utc token"
        return Result(tuple(columns.split()), tuple(rows))

    def _show_waiters(self, statement: ShowWaiters) -> Result:
        target = statement.target and self._placed(statement.target)
        above = frozenset(target.parents) if target else frozenset()
        waiters = [
            waiter
            for waiter in self.manager.waiters()
            if rules.concern(waiter.locks, target)
            or any(lock.mode is LockMode.EXCLUSIVE and lock.object in above for lock in waiter.locks)
        ]
        rows = tuple(
            (
                *(waiter.place, waiter.owner, waiter.waits_for.value, waiter.priority),
                *(_joined(_named(waiter.locks)), waiter.since, _joined(waiter.blocked_by, "; ")),
            )
            for waiter in waiters
        )
        text = render.show_waiters((waiter, _named(waiter.locks)) for waiter in waiters)
        return Result(("place", "user", "waits_for", "priority", "wants", "since_utc", "in_the_way"), rows, text)

    def _drop_force_lease(self, statement: DropForceLease) -> Result:
        if isinstance(statement.what, str):
            lease = self.manager.find(statement.what)
            freed = self._freed_by_force([lease] if lease else [])
            if not freed:
                raise HiveLockError(f"no lease {statement.what} stands; SHOW LEASE * lists those that do")
            return _freed(freed)
        target = statement.what and self._placed(statement.what)
        return _freed(self._freed_by_force(ls for ls in self.manager.leases() if rules.concern(ls.locks, target)))

    def _freed_by_force(self, leases: Iterable[Lease]) -> list[Lease]:
        return [ls for ls in leases if self.manager.force_release(ls.id, reason=self.reason, user=self.actor)]

    def _explain(self, statement: ExplainLocks) -> Result:
        sql = statement.sql if self.concurrency else f"{settings.OFF};\n{statement.sql}"
        reads, writes = plan.plan_statements(
            sql,
            self.catalog,
            database=statement.database,
            unpartitioned=self.unpartitioned,
            partition_columns=self.partition_columns,
            locks=self.locks,
        )
        planned = rules.with_parents(reads, writes)
        taken = self._taken(reads, writes, planned)
        stored = {lock.object: said for lock, said in taken.items()}
        rows = [(str(each.object), each.mode.value, self.locks, stored.get(each.object)) for each in planned]
        if not self.concurrency:
            text = f"{plan.explain_locks(())}\n-- NOT LOCKED: {settings.OFF}"
            return Result(("object", "mode", "follows", "store"), (), text)
        text = f"{plan.explain_locks(taken)}\n-- {plan.FOLLOWED[self.locks]}{self._instead(planned, taken)}"
        return Result(("object", "mode", "follows", "store"), tuple(rows), text)

    def _taken(
        self, reads: list[LockObject], writes: list[LockObject], planned: Sequence[Lock]
    ) -> Mapping[Lock, str | None]:
        """What the lock store takes for that, and how it keeps it."""
        if not self.manager.capabilities.acquires or not planned:
            return dict.fromkeys(planned)
        if isinstance(self.manager.backend, Explains):
            return self.manager.backend.takes(rules.request(f"cli:{self.user}", reads, writes, query="EXPLAIN LOCKS"))
        return {lock: lock.mode.value for lock in planned}

    def _instead(self, planned: Sequence[Lock], taken: Mapping[Lock, str | None]) -> str:
        """Why what is taken is not what is planned."""
        if not self.manager.capabilities.acquires:
            return "; this lock store takes none"
        if not self.manager.capabilities.parents:
            return "; this lock store has a hierarchy of its own, and takes nothing on what lies above"
        return (
            ""
            if len(taken) == len(planned)
            else "; too many for one transaction of this lock store, which takes tables"
        )

    def _placed(self, target: LockObject, to_lock: bool = False) -> LockObject:
        """*target* with its partition's columns in the table's order, and their values, as Hive has them.

        :param to_lock: whether it is for a lock: one on what is kept under another name, or nowhere, meets nobody.
        """
        tables = KnownTables(self.catalog, self.unpartitioned, self.partition_columns)
        known = tables.table(target) if target.table else None
        if to_lock and known is None and self.catalog is not None and target.table:
            raise InvalidRequest(f"{target}: there is no such table{alike(target, self.catalog)}")
        columns = known.partition_columns if known else ()
        levels = sorted(target.partition, key=lambda level: (*columns, level[0]).index(level[0]))
        placed = LockObject(target.database, target.table, tuple(levels))
        return as_kept(placed, tables) if known or to_lock else placed


def _job_id(work: Work) -> str:
    """What a cluster calls the job that runs as *work*; empty where none has it, or its starter does not say."""
    try:
        job_id = json.loads(work.application)["job_id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return job_id if isinstance(job_id, str) else ""


def _running(holder: Holder, jobs: str) -> Holder:
    query = f"{holder.query} (runs as {jobs})"
    return replace(
        holder, query=query, details=holder.details and (*holder.details[:3], f"{holder.details[3]} (runs as {jobs})")
    )


def _locks(found: Iterable[Holder], *, extended: bool) -> Result:
    holders = sorted(found, key=render.order)
    columns: tuple[str, ...] = ("object", "mode", "owner", "lease_id", "since_utc")
    rows = [(str(held.object), held.mode.value, held.owner, held.lease_id, held.since) for held in holders]
    text = render.show_locks(holders, extended=extended)
    if not extended:
        return Result(columns, tuple(rows), text)
    more = [(held.token, held.expires, held.explicit, held.query) for held in holders]
    both = tuple((*row, *extra) for row, extra in zip(rows, more, strict=True))
    return Result((*columns, "token", "expires_utc", "explicit", "query"), both, text)


def _freed(leases: Iterable[Lease], text: str | None = None) -> Result:
    rows = tuple((ls.id, ls.owner, _joined(lock.object for lock in _named(ls.locks))) for ls in leases)
    return Result(("lease_id", "user", "objects"), rows, text)


def _joined(items: Iterable[object], between: str = ", ") -> str:
    return between.join(map(str, items))


def _named(locks: Iterable[Lock]) -> list[Lock]:
    """What a request named, as far as can be told: not what is only locked SHARED since others lie in it."""
    passed = {parent for lock in locks for parent in lock.object.parents}
    return [lock for lock in locks if lock.mode is LockMode.EXCLUSIVE or lock.object not in passed]
