"""Runs lock statements on any lock store, as Hive's shell does on Hive."""

from __future__ import annotations

import logging
import uuid
from dataclasses import astuple
from typing import TYPE_CHECKING, NoReturn

from airflow_hivelock.locks import plan, queueing, rules
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest, LockTimeout, StoreUnavailable, Unsupported
from airflow_hivelock.locks.hive import properties, settings
from airflow_hivelock.locks.hive.transactional import KeepsTransactions, ListsTransactional
from airflow_hivelock.locks.interrupted import no_unseen_lease
from airflow_hivelock.locks.model import MAX_LEASE_S, Lock, LockMode, LockObject
from airflow_hivelock.locks.plan.data import as_kept
from airflow_hivelock.locks.plan.existence import alike
from airflow_hivelock.locks.plan.tables import KnownTables
from airflow_hivelock.locks.reservations import parse_end
from airflow_hivelock.locks.statements import answers, render, requests
from airflow_hivelock.locks.statements import statement as parsed
from airflow_hivelock.locks.statements.parse import parse
from airflow_hivelock.locks.statements.statement import Result

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.hive.settings import Setting
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease, LeaseLimit
    from airflow_hivelock.locks.plan import Follows


log = logging.getLogger(__name__)


class StatementSession:
    """Runs statements for one user, with a default database that ``USE`` changes.

    ``LOCK TABLE`` locks one object for a new owner, ``cli:<user>:<uuid>``. It also locks the parents SHARED, which Hive
    does not. The lock is held until the same user runs ``UNLOCK TABLE``.

    :param catalog: looks up tables. With it, partition columns can be in any order, and are checked.
    :param partition_columns: by table that is not in the catalog, its partition columns: see :func:`.plan`.
    :param unpartitioned: tables without partitions that are not in the catalog.
    :param locks: the table of commands that EXPLAIN LOCKS follows: see :func:`.plan_statements`.
    :param timeout_s: the longest wait of LOCK in the queue, in seconds. 0 means no wait, None means no limit.
    :param lease_s: the duration of LOCK's lease, in seconds. A store with ``expiry=frees`` then ends the lease.
    :param priority: the priority of requests.
    :param limit: the group of LOCK's lease, with the group's limit.
    :param force: whether UNLOCK also frees the leases of other users.
    :param reason: the reason for force releases, for the audit trail.
    :param actor: the user in the audit trail, if it is not *user*.
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
            raise InvalidRequest("a session needs a user, for locks and the audit trail")
        if force and not reason.strip():
            raise InvalidRequest(f"a force release by {user} needs a reason (reason) for the audit trail")
        self.manager = manager
        self.user = user
        self.database = LockObject(database).database
        self.catalog = catalog
        self.unpartitioned = unpartitioned
        self.partition_columns = partition_columns
        KnownTables(None, unpartitioned, partition_columns)  # refuses invalid declarations
        plan.check_follows(locks)
        self.locks = locks
        self.concurrency = True
        self.txn = settings.TxnSettings()
        self._retries: list[Setting] = []
        self._lines: list[str] = []  # the SET lines, for the variables in later statements
        self.timeout_s = timeout_s
        self.lease_s = lease_s
        self.priority = priority
        self.limit = limit
        self.force = force
        self.reason = reason
        self.actor = actor or user

    def run(self, text: str) -> Iterator[Result]:
        """Parse all statements of *text*. Run each statement when the caller asks for its result.

        :raises InvalidRequest: a statement is malformed. No statement has run.
        :raises HiveLockError: a statement failed. Later statements do not run.
        """
        statements = parse(text, self.database)
        by_force = [statement for statement in statements if isinstance(statement, parsed.ByForce)]
        if by_force and not self.reason.strip():
            self._ask_for_reason(by_force)
        return (self._run(statement) for statement in statements)

    def _ask_for_reason(self, by_force: Sequence[parsed.ByForce]) -> NoReturn:
        """Refuse the statements, and describe each lock that one of them would free."""
        keeps = "the audit trail" if self.manager.capabilities.audits else "the log"
        ids = [statement.query_id for statement in by_force if isinstance(statement, parsed.DropForceLock)]
        shown = [line for lock_id in ids for line in answers.describe_locks(self.manager, lock_id)]
        raise InvalidRequest(f"{by_force[0].words} by {self.user} needs a reason (reason) for {keeps}", *shown)

    def _run(self, statement: parsed.Statement) -> Result:
        match statement:
            case parsed.ShowLocks():
                return self._show_locks(statement)
            case parsed.AcquireLock():
                return self._lock(statement)
            case parsed.Unlock():
                return self._unlock(self.placed(statement.target))
            case parsed.ShowLease():
                return self._show_lease(statement)
            case parsed.ShowWaiters():
                return self._show_waiters(statement)
            case parsed.GrabLease() | parsed.Reserve() | parsed.ExtendLease() | parsed.DropLease():
                return self._lease(statement)
            case parsed.DropForceLease():
                return self._drop_force_lease(statement)
            case parsed.ShowHistory():
                return answers.history(self.manager, statement.target and self.placed(statement.target), statement)
            case parsed.ShowAudit():
                return answers.audit(self.manager, statement.target and self.placed(statement.target), statement)
            case parsed.ShowGroups():
                return requests.show_groups(self.manager.groups())
            case parsed.SetGroup():
                return requests.set_group(self.manager, statement.group, statement.kept, self.actor, self.reason)
            case parsed.DropGroup():
                return requests.drop_group(self.manager, statement.name, self.actor, self.reason)
            case parsed.ShowTransactions():
                found = self._transactional().transactions()
                return Result(render.TRANSACTIONS, tuple(map(astuple, found)), render.show_transactions(found))
            case parsed.AbortTransactions():
                ended = self._transactional().abort(statement.ids, reason=self.reason, user=self.actor)
                return Result(
                    ("transaction_id", "user", "hostname"), tuple((e.id, e.user, e.hostname) for e in ended), ""
                )
            case parsed.DropForceRequest():
                return requests.withdraw(self.manager, statement.owner, reason=self.reason, user=self.actor)
            case parsed.AlterForceRequest():
                return requests.change_priority(
                    self.manager, statement.owner, statement.priority, reason=self.reason, user=self.actor
                )
            case parsed.DropForceLock():
                return self._drop_force_lock(statement)
            case parsed.ExplainLocks():
                return self._explain(statement)
            case parsed.SetLine():
                self._lines.append(statement.text)
                return self._set(statement.setting)
            case parsed.Use():
                self.database = statement.database
                return Result(("database",), ((self.database,),), "")

    def _set(self, setting: Setting | None) -> Result:
        """Apply a setting of Hive about locks, and log it. Other settings have no effect."""
        if setting is None:
            return Result((), (), "")
        self.txn = self.txn.after(setting)
        if setting.name == properties.CONCURRENCY:
            self.concurrency = setting.truth
            if not self.concurrency:
                log.warning("NOT LOCKED from here on: %s; %s", settings.OFF, settings.RISK)
        elif setting.name in (properties.NUMRETRIES, properties.SLEEP):
            retries = [*self._retries, setting]
            self.timeout_s, self._retries = settings.patience_s(retries), retries
            log.warning(
                "LOCK waits for up to %g s from here on: SET %s=%s", self.timeout_s, setting.name, setting.value
            )
        else:
            log.warning("%s", setting)
        return Result((), (), "")

    def _refuse_if_off(self) -> None:
        if not self.concurrency:
            raise HiveLockError(
                f"locking is turned off in this session, by {settings.OFF}: as in Hive, nothing is locked or unlocked. "
                f"SET {properties.CONCURRENCY}=true turns it on"
            )

    def _show_locks(self, statement: parsed.ShowLocks) -> Result:
        if isinstance(self.manager.backend, ListsTransactional):
            target = statement.target and self.placed(statement.target)
            found = self.manager.backend.transactional(target)
            return Result(render.HEADER, tuple(map(render.cells, found)), render.render_transactional(found))
        if statement.target is None:
            holders = [holder for holder in self.manager.show() if holder.object.table]
        else:
            target = self.placed(statement.target)
            holders = [holder for holder in self.manager.show(target) if holder.object == target]
        if statement.extended and any(holder.lease_id for holder in holders):
            holders = answers.with_jobs(holders, self.manager.leases())
        return answers.locks(holders, extended=statement.extended)

    def _lock(self, statement: parsed.AcquireLock) -> Result:
        self._refuse_if_off()
        if not self.manager.capabilities.parents:
            raise Unsupported(
                f"{statement.target}: a metastore does not support LOCK: it frees each lease that is not renewed. "
                "Hive refuses it there too. Take the lock with HiveLockOperator, or from a program that renews it"
            )
        target = self.placed(statement.target, to_lock=True)
        owner = f"cli:{self.user}:{uuid.uuid4()}"
        shared = statement.mode is LockMode.SHARED
        if self.timeout_s != 0 and (own := self._own_in_the_way(target, statement.mode)):
            log.warning("%s %s waits for your own lock: %s", target, statement.mode.value, own)
        try:
            with no_unseen_lease(self.manager, owner):
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
        except LockTimeout as error:
            own = self._own_in_the_way(target, statement.mode)
            if not own or not any(by.owner.startswith(f"cli:{self.user}:") for by in error.blocked_by):
                raise
            raise LockTimeout(f"{error}. {own}", error.blocked_by) from error
        row = (lease.id, lease.token, str(target), statement.mode.value, lease.owner)
        return Result(("lease_id", "token", "object", "mode", "owner"), (row,), "")

    def _own_in_the_way(self, target: LockObject, mode: LockMode) -> str:
        """A text with this user's leases that exclude *mode* on *target*, and the statement that frees each."""
        shared = mode is LockMode.SHARED
        wanted = {
            lock.object: lock.mode
            for lock in rules.with_parents([target] if shared else [], [] if shared else [target])
        }
        own = [
            lease for lease in self.manager.leases() if self._is_mine(lease) and queueing.excludes(wanted, lease.locks)
        ]
        return "; ".join(
            f"{self.user} holds it already, with lease {lease.id}: "
            f"UNLOCK {' and '.join(render.sql(lock.object) for lock in rules.named(lease.locks, lease.whole))} frees it"
            for lease in own[: rules.MOST_SHOWN]
        )

    def _is_mine(self, lease: Lease) -> bool:
        return lease.owner.rpartition(":")[0] == f"cli:{self.user}"

    def _transactional(self) -> KeepsTransactions:
        if isinstance(self.manager.backend, KeepsTransactions):
            return self.manager.backend
        raise Unsupported(
            "this lock store has no transactions. Hive keeps them in its metastore. Use it, as in "
            "--url metastore://metastore:9083"
        )

    def _unlock(self, target: LockObject) -> Result:
        self._refuse_if_off()
        on_it = [
            ls for ls in self.manager.leases() if any(lock.object == target for lock in rules.named(ls.locks, ls.whole))
        ]
        mine = [lease for lease in on_it if self._is_mine(lease)]
        others = [lease for lease in on_it if lease not in mine]
        if not mine and not (others and self.force):
            raise HiveLockError(answers.not_unlocked(self.manager, self.user, target, others))
        freed = [lease for lease in mine if self.manager.release(lease)]
        return answers.freed([*freed, *(self._freed_by_force(others) if self.force else ())], text="")

    def _show_lease(self, statement: parsed.ShowLease) -> Result:
        target = statement.target and self.placed(statement.target)
        return answers.leases(self.manager.leases(), target, extended=statement.extended)

    def _lease(self, statement: parsed.GrabLease | parsed.Reserve | parsed.ExtendLease | parsed.DropLease) -> Result:
        self._refuse_if_off()
        match statement:
            case parsed.GrabLease():
                locks = [Lock(self.placed(lock.object, to_lock=True), lock.mode) for lock in statement.locks]
                return answers.grab(self.manager, self.user, locks, self.lease_s, self.timeout_s)
            case parsed.Reserve():
                target = self.placed(statement.target, to_lock=True)
                until = parse_end(statement.until, self.manager.now())
                return requests.reserve(
                    self.manager, target, until, self.user, statement.reason or self.reason, self.priority
                )
            case parsed.ExtendLease():
                return answers.extend(self.manager, self.user, statement.lease_id)
            case parsed.DropLease():
                objects = [self.placed(target) for target in statement.objects]
                return answers.drop(self.manager, self.user, statement.lease_id, objects)

    def _show_waiters(self, statement: parsed.ShowWaiters) -> Result:
        target = statement.target and self.placed(statement.target)
        above = frozenset(target.parents) if target else frozenset()
        leases, everyone = self.manager.requests()
        waiters = [
            waiter
            for waiter in everyone
            if rules.concern(waiter.locks, target)
            or any(lock.mode is LockMode.EXCLUSIVE and lock.object in above for lock in waiter.locks)
        ]
        now = answers.store_time(self.manager) if waiters else None
        if now is None:
            return answers.waiters(waiters, {})
        expects = answers.expected_waits(self.manager, leases, everyone, now)
        return answers.waiters([waiter.as_of(now) for waiter in waiters], expects)

    def _drop_force_lease(self, statement: parsed.DropForceLease) -> Result:
        if isinstance(statement.what, str):
            what, lease = statement.what, self.manager.find(statement.what)
            found = [lease] if lease else []
        else:
            target = statement.what and self.placed(statement.what)
            what = f"on {target}"
            found = [lease for lease in self.manager.leases() if rules.concern(lease.locks, target)]
        freed = self._freed_by_force(found)
        if statement.what is not None and not freed:
            raise HiveLockError(f"no lease {what} is held; SHOW LEASE * lists all leases")
        return answers.freed(freed)

    def _drop_force_lock(self, statement: parsed.DropForceLock) -> Result:
        target = statement.target and self.placed(statement.target)
        shown = answers.locks_of(self.manager, statement.query_id)
        freed = self.manager.force_unlock(statement.query_id, target, reason=self.reason, user=self.actor)
        if freed and shown:
            return answers.freed_locks(shown)
        if not freed:
            on, lock_id = f" on {target}" if target else "", statement.query_id
            none = (
                f"no lock {lock_id}{on} is held" if lock_id.isdecimal() else f"Hive's query {lock_id} holds no lock{on}"
            )
            raise HiveLockError(f"{none}; SHOW LOCKS … EXTENDED lists the locks with their queries")
        found = tuple((statement.query_id, str(lock.object), lock.mode.value) for lock in freed)
        return Result(("query_id", "object", "mode"), found)

    def _explain(self, statement: parsed.ExplainLocks) -> Result:
        before = [*(self._lines if "${" in statement.sql else ()), *(() if self.concurrency else (settings.OFF,))]
        found = plan.plan_sql(
            ";\n".join([*before, statement.sql]),
            self.catalog,
            database=statement.database,
            unpartitioned=self.unpartitioned,
            partition_columns=self.partition_columns,
            locks=self.locks,
            txn=self.txn,
        )
        return answers.explain(found, self.manager, self.user, self.locks, concurrency=self.concurrency)

    def _freed_by_force(self, leases: Iterable[Lease]) -> list[Lease]:
        return [ls for ls in leases if self.manager.force_release(ls.id, reason=self.reason, user=self.actor)]

    def placed(self, target: LockObject, to_lock: bool = False) -> LockObject:
        """*target* with partition columns in the table's order, and values under their standard names.

        :param to_lock: refuse missing tables, because a lock on them protects no data.
        """
        if not (to_lock or target.partition):
            return target  # a silent metastore does not hide or keep the locks
        tables = KnownTables(self.catalog, self.unpartitioned, self.partition_columns)
        try:
            known = tables.table(target) if target.table else None
        except StoreUnavailable as error:
            if to_lock:
                raise
            log.warning("The partition of %s is used as it is written, because %s", target, error)
            return target
        if to_lock and known is None and self.catalog is not None and target.table:
            raise InvalidRequest(f"{target}: there is no such table{alike(target, self.catalog)}")
        columns = known.partition_columns if known else ()
        levels = sorted(target.partition, key=lambda level: (*columns, level[0]).index(level[0]))
        placed = LockObject(target.database, target.table, tuple(levels))
        return as_kept(placed, tables) if known or to_lock else placed
