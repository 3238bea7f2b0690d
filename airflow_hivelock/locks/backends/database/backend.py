"""The database backend: the Hive lease with a queue and fencing tokens, behind the Protocol of all backends."""

from __future__ import annotations

import logging
import os
from functools import cached_property, partial
from typing import TYPE_CHECKING, NoReturn, Self
from weakref import WeakSet

from sqlalchemy import BigInteger, and_, bindparam, case, delete, or_, select, update

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Backend, Capabilities
from airflow_hivelock.locks.backends.database import changes, migrations
from airflow_hivelock.locks.backends.database.acquisition import DatabaseAcquisition
from airflow_hivelock.locks.backends.database.listings import ListedRows
from airflow_hivelock.locks.backends.database.location import open_store
from airflow_hivelock.locks.backends.database.notifier import Notifier
from airflow_hivelock.locks.backends.database.record import BY_OTHERS, Record, State
from airflow_hivelock.locks.backends.database.request import RequestedLocks, excluded_keys
from airflow_hivelock.locks.backends.database.store import of, place_of
from airflow_hivelock.locks.backends.database.values import instant, later
from airflow_hivelock.locks.errors import ExceedsMaxLeaseTime, LockLost
from airflow_hivelock.locks.model import Lock, LockMode, LockObject, owner_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Update

    from airflow_hivelock.locks.backends.database.candidate import Entered
    from airflow_hivelock.locks.backends.database.store import Store
    from airflow_hivelock.locks.backends.database.transaction import StoreTransaction
    from airflow_hivelock.locks.model import Group, Lease, LockRequest, Work

log = logging.getLogger(__name__)

HISTORY_S = 7 * 86_400.0
"""How long ended leases are kept, in seconds: as history, and longer than any old process of an owner can live."""

WATCH_S = 1.0
"""How often to poll for objects that have no holder, in seconds."""

KEPT_S = 86_400.0
"""How long a sweep keeps the position of a dead waiter, and an expired lease, in seconds. Both may continue while they
block no other request."""


class DatabaseBackend(ListedRows, Backend):
    """See :class:`~airflow_hivelock.locks.backend.Backend`.

    :param max_lease_s: how long a lease may last in all, renewals included; None: as long as it is renewed.
    """

    capabilities = Capabilities()

    def __init__(self, store: Store, *, max_lease_s: float | None = None) -> None:
        self.store = store
        self.max_lease_s = max_lease_s
        self.capabilities = Capabilities(expires=store.frees)
        self._notifier = Notifier(store)
        if not store.read(store.tables.prepared):  # a write would wait for other clients
            store.make(partial(migrations.make, store=store), store.tables.key)
        _backends.add(self)

    @classmethod
    def connect(cls, url: str) -> Self:
        """Open the store at *url*.

        :raises InvalidRequest: before anything is connected.
        :raises StoreUnavailable: the database does not answer.
        """
        store, max_lease_s = open_store(url)
        try:
            return cls(store, max_lease_s=max_lease_s)
        except BaseException:
            store.close()
            raise

    def warnings(self) -> Sequence[str]:
        return self.store.read(self.store.dialect.warnings)

    def begin(self, request: LockRequest, wake: Callable[[], None]) -> DatabaseAcquisition:
        if self.max_lease_s is not None and request.lease_s > self.max_lease_s:
            raise _exceeds(request.owner, request.lease_s, self.max_lease_s)
        return DatabaseAcquisition(self.store, self._notifier, request, wake)

    def renew(self, lease: Lease) -> None:
        values = {**of(lease), "of_lease_us": later(0, lease.lease_s), "of_lease_s": lease.lease_s}
        if not self.store.transact(lambda transaction: transaction.ask(self._renewed, **values)).count:
            self._record(lease, self.store.held)
            raise _exceeds(lease.owner, lease.lease_s, self.max_lease_s or 0)

    @cached_property
    def _renewed(self) -> Update:
        request = self.store.tables.request
        end_us = self.store.clock_us + bindparam("of_lease_us", type_=BigInteger)
        renewed = update(request).where(self.store.of_lease).values(end_us=end_us, lease_s=bindparam("of_lease_s"))
        if self.max_lease_s is None:
            return renewed
        return renewed.where(end_us <= request.c.granted_us + later(0, self.max_lease_s))

    def verify(self, lease: Lease, wake: Callable[[], None] | None = None) -> None:
        if wake is not None:
            # Before the read: a change after the read then calls *wake*.
            self._notifier.expect(place_of(lease.id), lease.epoch, wake)
        record = self._record(lease, self.store.holding)
        rules.check_all(lease, record.locked)
        if wake is None:
            return
        if record.watched != BY_OTHERS and not self.store.mark_watched(self.store.of_lease, **of(lease)):
            self._record(lease, self.store.holding)
        # Only from here on does a missing mark mean a partial release.
        self._notifier.expect(place_of(lease.id), lease.epoch, wake, marked=True)

    def start_work(self, lease: Lease, name: str, application: str) -> Lease:
        return self._put_work(lease, lambda entered, record: record.starting(name, application, entered.number))

    def record_work(self, lease: Lease, name: str, application: str | None) -> Lease:
        return self._put_work(lease, lambda _, record: record.recording(name, application))

    def release(self, lease: Lease) -> bool:
        return self.store.release(lease)

    def release_part(self, lease: Lease, objects: frozenset[LockObject]) -> Lease | None:
        return changes.release_part(self.store, lease, objects)

    def find(self, lease_id: str) -> Lease | None:
        return _find(self.store, _named(self.store, lease_id))

    def lease_of(self, owner: str) -> Lease | None:
        return _find(self.store, self.store.tables.request.c.owner_key == owner_key(owner))

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        where = _named(self.store, lease_id)
        return changes.end_by_force(self.store, where, "holding", lambda one: one.lease.unchanged(seen), reason, user)

    def force_withdraw(self, owner: str, *, reason: str, user: str) -> bool:
        where = self.store.tables.request.c.owner_key == owner_key(owner)
        return changes.end_by_force(self.store, where, "queued", lambda _: True, reason, user)

    def force_priority(self, owner: str, priority: int, *, reason: str, user: str) -> bool:
        return changes.reprioritize(self.store, owner, priority, reason=reason, user=user)

    def force_record(self, lease_id: str, seen: Work, application: str, *, reason: str, user: str) -> bool:
        store = self.store
        found = store.records(_named(store, lease_id))
        if not found:
            return False

        def allowed(record: Record) -> bool:
            return record.lease_id == lease_id and record.state is State.GRANTED and seen in record.lease.works

        def changed(_: Entered, record: Record) -> Record:
            return record.recording(seen.name, application)

        def audit(transaction: StoreTransaction, record: Record) -> None:
            store.audit(transaction, record, reason, user)

        return changes.change(store, found[0].owner_key, allowed, changed, audit) is not None

    def put_group(self, name: str, group: Group | None, *, reason: str, user: str) -> bool:
        return changes.put_group(self.store, name, group, reason=reason, user=user)

    def forget_deferred(self, owner: str, attempt: int) -> bool:
        store, locks = self.store, RequestedLocks(self.store.tables.name, owner_key(owner), ())

        def forget(transaction: StoreTransaction) -> bool:
            record = store.enter(transaction, locks).record
            if record is None or record.attempt != attempt:
                return False
            return store.end(transaction, State.FREE, "away", of_place=record.place).count > 0

        return store.transact(forget)

    def watch(self, targets: Sequence[LockObject], wake: Callable[[], None]) -> float | None:
        """See :meth:`~airflow_hivelock.locks.backend.Backend.watch`.

        It leaves out SHARED on the parents of other *targets*, because every request takes that. Objects without a
        holder cannot be watched, and are polled.
        """
        request, lock, store = self.store.tables.request, self.store.tables.lock, self.store
        parents = {parent for target in targets for parent in target.parents}
        wanted = [Lock(target, LockMode.EXCLUSIVE) for target in targets if target not in parents]
        wanted += [Lock(target, LockMode.SHARED) for target in parents]
        keys = {"keys": store.dialect.numbers(key for lock in wanted for key in excluded_keys(lock))}
        touched = select(lock.c.place).where(store.dialect.among(lock.c.object_key, "keys"))
        held = select(request.c.place).where(request.c.place.in_(touched), store.holding)
        places = store.read(lambda connection: connection.execute(held, keys).scalars().all())
        if not places:
            return WATCH_S
        for place in places:
            self._notifier.expect(place, None, wake)
        found, values = store.dialect.among(request.c.place, "places"), store.dialect.numbers(places)
        marked = store.mark_watched(found, store.held, places=values)
        for place in places:
            self._notifier.expect(place, None, wake, marked=True)
        return WATCH_S if marked < len(places) else None

    def sweep(self) -> int:
        store, request = self.store, self.store.tables.request
        day_ago, week_ago = (store.clock_us - later(0, age_s) for age_s in (KEPT_S, HISTORY_S))
        old = case((store.held, request.c.end_us), else_=request.c.seen_us) < day_ago
        over = and_(
            store.tables.in_state(State.FREE, State.ENDED),
            request.c.seen_us < week_ago,
            or_(request.c.ended_us.is_(None), request.c.ended_us < week_ago),
        )
        stays_away = (
            update(request)
            .where(store.tables.in_state(State.AWAY), request.c.seen_us < day_ago)
            .values(state=State.FREE.value)
        )

        def sweep(transaction: StoreTransaction) -> int:
            store.admit(transaction)
            left = [transaction.ask(statement) for statement in (stays_away, delete(request).where(over))]
            return store.clear(transaction, old) + sum(answer.count for answer in left)

        return store.transact(sweep)

    def now(self) -> datetime:
        clock_us = self.store.clock_us
        return instant(self.store.read(lambda connection: connection.execute(select(clock_us)).scalar_one()))

    def forked(self) -> None:
        """In a forked process: leave the connections to the parent."""
        self.store.forked()
        self._notifier = Notifier(self.store)

    def close(self) -> None:
        self._notifier.close()
        self.store.close()

    def _put_work(self, lease: Lease, change: Callable[[Entered, Record], Record]) -> Lease:
        changed = changes.change(self.store, owner_key(lease.owner), lambda record: record.is_of(lease), change)
        return changed or _lost(self.store, lease)

    def _record(self, lease: Lease, so: ColumnElement[bool]) -> Record:
        """The lease's record, which must meet the condition *so*."""
        found = self.store.records(self.store.of_lease, so, **of(lease))
        return found[0] if found else _lost(self.store, lease)


def _named(store: Store, lease_id: str) -> ColumnElement[bool]:
    return store.tables.request.c.place == place_of(lease_id)


def _find(store: Store, where: ColumnElement[bool]) -> Lease | None:
    found = store.records(where, store.holding)
    return found[0].lease if found else None


def _lost(store: Store, lease: Lease) -> NoReturn:
    """Find out how the lease was lost.

    :raises LockLost: always, with the reason.
    """
    request = store.tables.request.c
    found = next(iter(store.records(request.owner_key == owner_key(lease.owner))), None)
    if found is None or found.lease_id != lease.id or found.state is not State.GRANTED:
        fate = "it was released, force-released, or had expired when another request got its locks"
    elif found.epoch != lease.epoch:
        fate = f"attempt {found.attempt} of its owner has taken over"
    else:
        fate = f"it expired at {instant(found.end_us or 0):%Y-%m-%d %H:%M:%S}Z, but can still be renewed while no other request has its locks"
    raise LockLost(f"{lease.owner}: lease {lease.id} is no longer held: {fate}. Stop the work under it")


def _exceeds(owner: str, lease_s: float, most_s: float) -> ExceedsMaxLeaseTime:
    return ExceedsMaxLeaseTime(
        f"{owner}: with {lease_s:g} s more its lease would last longer than {most_s:g} s, the limit of this lock store "
        "(max_lease_s). Release the lease in time and ask again, or raise the limit"
    )


_backends: WeakSet[DatabaseBackend] = WeakSet()


def _forget_connections() -> None:
    """Connect again in a forked process, which has its parent's sockets but not its threads."""
    for backend in list(_backends):
        backend.forked()


os.register_at_fork(after_in_child=_forget_connections)
