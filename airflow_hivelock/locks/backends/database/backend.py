"""The database backend: the Hive lease, queued and fenced, under the Protocol that all backends have."""

from __future__ import annotations

import logging
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Self
from weakref import WeakSet

from sqlalchemy import BigInteger, and_, bindparam, case, delete, insert, or_, select, update

from airflow_hivelock.locks import rules, validate
from airflow_hivelock.locks.backend import Capabilities, check_newest
from airflow_hivelock.locks.backends.database import parts
from airflow_hivelock.locks.backends.database.acquisition import DatabaseAcquisition
from airflow_hivelock.locks.backends.database.location import open_store
from airflow_hivelock.locks.backends.database.notifier import Notifier
from airflow_hivelock.locks.backends.database.record import EVERYBODY, MOST_US, Record, State, decode, instant, later
from airflow_hivelock.locks.backends.database.request import object_key
from airflow_hivelock.locks.backends.database.store import of, place_of
from airflow_hivelock.locks.backends.database.waiters import listed
from airflow_hivelock.locks.errors import ExceedsMaxLeaseTime, LockLost, StoreCorrupted
from airflow_hivelock.locks.model import ForcedRelease, owner_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row, Update

    from airflow_hivelock.locks.backends.database.store import Store
    from airflow_hivelock.locks.model import Holder, Lease, LockObject, LockRequest, Tenure, Waiter, Work

log = logging.getLogger(__name__)

HISTORY_S = 7 * 86_400.0
"""How long what has ended stays: as history, and longer than any old process of an owner can live."""

WATCH_S = 1.0
"""How often to look at what nobody holds."""

KEPT_S = 86_400.0
"""How long a sweep leaves a dead waiter its place, and an expired lease its chance of a renewal, if nobody wants it."""


class DatabaseBackend:
    """See :class:`~airflow_hivelock.locks.backend.Backend`.

    :param max_lease_s: how long a lease may last in all, renewals included; None: as long as it is renewed.
    """

    def __init__(self, store: Store, *, max_lease_s: float | None = None) -> None:
        self.store = store
        self.max_lease_s = max_lease_s
        self.capabilities = Capabilities(expires=store.frees)
        self._notifier = Notifier(store)
        if not store.read(store.tables.prepared):  # to write is to wait for others
            store.transact(lambda connection: store.tables.prepare(connection, store.dialect))
        _backends.add(self)

    @classmethod
    def connect(cls, url: str) -> Self:
        """:raises InvalidRequest: before anything is connected; :raises StoreUnavailable: nothing answers."""
        store, max_lease_s = open_store(url)
        try:
            return cls(store, max_lease_s=max_lease_s)
        except BaseException:
            store.close()
            raise

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store!r})"

    def warnings(self) -> Sequence[str]:
        return self.store.read(self.store.dialect.warnings)

    def begin(self, request: LockRequest, wake: Callable[[], None]) -> DatabaseAcquisition:
        if self.max_lease_s is not None and request.lease_s > self.max_lease_s:
            raise self._exceeds(request.owner, request.lease_s)
        return DatabaseAcquisition(self.store, self._notifier, request, wake)

    def renew(self, lease: Lease) -> None:
        given = {**of(lease), "of_lease_us": later(0, lease.lease_s), "of_lease_s": lease.lease_s}
        if not self.store.write(lambda connection: connection.execute(self._renewed, given).rowcount):
            self._stands(lease, self.store.held)
            raise self._exceeds(lease.owner, lease.lease_s)

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
            self._notifier.expect(place_of(lease.id), lease.epoch, wake)
        record = self._stands(lease, self.store.standing)
        rules.check_all(lease, record.locked)
        if wake is not None and record.audience != EVERYBODY:
            where, given = self.store.of_lease, of(lease)
            if not self.store.write(lambda connection: self.store.leave_word(connection, where, **given)):
                self._stands(lease, self.store.standing)
        if wake is not None:
            self._notifier.expect(place_of(lease.id), lease.epoch, wake, word_left=True)

    def start_work(self, lease: Lease, name: str, application: str) -> Lease:
        return self._put_work(lease, name, application, new=True)

    def record_work(self, lease: Lease, name: str, application: str | None) -> Lease:
        return self._put_work(lease, name, application, new=False)

    def check_token(self, lease_id: str, name: str, token: int) -> None:
        check_newest(self.find(lease_id), lease_id, name, token)

    def release(self, lease: Lease) -> bool:
        return self.store.release(lease)

    def release_part(self, lease: Lease, objects: frozenset[LockObject]) -> Lease | None:
        return parts.release(self.store, lease, objects)

    def find(self, lease_id: str) -> Lease | None:
        return self._lease(self._named(lease_id))

    def leases(self) -> list[Lease]:
        return [record.lease for record in self._listed(self.store.standing)]

    def requests(self) -> tuple[list[Lease], list[Waiter]]:
        records = self._standing()
        return [record.lease for record in records if record.state is State.GRANTED], listed(records, None)

    def lease_of(self, owner: str) -> Lease | None:
        return self._lease(self.store.tables.request.c.owner_key == owner_key(owner))

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        store = self.store

        def release(connection: Connection) -> bool:
            found = store.records(connection, self._named(lease_id), store.standing)
            if not found or not (record := found[0]).lease.unchanged(seen):
                return False
            if not store.end(connection, State.ENDED, "standing", of_place=record.place):
                return False
            self._write_audit(connection, record, reason, user)
            return True

        return store.transact(release)

    def force_record(self, lease_id: str, seen: Work, application: str, *, reason: str, user: str) -> bool:
        found = self._records(self._named(lease_id))
        if not found:
            return False
        owner = self.store.requested(found[0].owner_key)

        def record_by_force(connection: Connection) -> bool:
            now_us, _, record = self.store.enter(connection, owner)
            if record is None or record.lease_id != lease_id or record.state is not State.GRANTED:
                return False
            if (self.store.frees and record.expired(now_us)) or seen not in record.lease.works:
                return False
            self.store.put(connection, record.recording(seen.name, application), record)
            self._write_audit(connection, record, reason, user)
            return True

        return self.store.transact(record_by_force)

    def _write_audit(self, connection: Connection, record: Record, reason: str, user: str) -> None:
        entry = {"lease_id": record.lease_id, "owner": record.owner, "locks": record.locks, "reason": reason}
        at_us = self.store.clock_us
        connection.execute(insert(self.store.tables.audit).values(**entry, user_name=user, at_us=at_us))

    def audit(self) -> list[ForcedRelease]:
        table = self.store.tables.audit
        rows = self.store.read(lambda connection: connection.execute(select(table).order_by(table.c.number)).all())
        return [entry for row in rows if (entry := _audited(row))]

    def forget_aside(self, owner: str, attempt: int) -> bool:
        request = self.store.tables.request
        it = and_(request.c.owner_key == owner_key(owner), request.c.attempt == attempt, self.store.aside)
        forgotten = update(request).where(it).values(state=State.FREE.value)
        return self.store.transact(lambda connection: connection.execute(forgotten).rowcount > 0)

    def show(self, target: LockObject | None = None) -> list[Holder]:
        held = self._listed(self.store.standing)
        return rules.holders(((record.lease, record.query) for record in held), target)

    def waiters(self, target: LockObject | None = None) -> list[Waiter]:
        return listed(self._standing(), target)

    def history(self, target: LockObject | None = None) -> list[Tenure]:
        request = self.store.tables.request.c
        records = self._listed(request.state.in_((State.GRANTED.value, State.ENDED.value)))
        tenures = [tenure for record in records if rules.concern((tenure := record.tenure).locks, target)]
        return sorted(tenures, key=lambda tenure: tenure.granted)

    def watch(self, targets: Sequence[LockObject], wake: Callable[[], None]) -> float | None:
        """See :meth:`~airflow_hivelock.locks.backend.Backend.watch`. SHARED on what others of *targets* lie in is left
        out, for everybody takes it. Where nothing is held nothing can go: then it is looked at again."""
        request, lock, store = self.store.tables.request, self.store.tables.lock, self.store
        parents = {parent for target in targets for parent in target.parents}
        keys = {
            "any": store.dialect.numbers(object_key(target) for target in targets if target not in parents),
            "parents": store.dialect.numbers(map(object_key, parents)),
        }
        touched = select(lock.c.place).where(
            or_(
                store.dialect.among(lock.c.object_key, "any"),
                and_(store.dialect.among(lock.c.object_key, "parents"), lock.c.lease_type == "x"),
            )
        )
        held = select(request.c.place).where(request.c.place.in_(touched), store.standing)
        places = store.read(lambda connection: connection.execute(held, keys).scalars().all())
        if not places:
            return WATCH_S
        for place in places:
            self._notifier.expect(place, None, wake)
        found, given = store.dialect.among(request.c.place, "places"), store.dialect.numbers(places)
        told = store.write(lambda connection: store.leave_word(connection, found, store.held, places=given))
        for place in places:
            self._notifier.expect(place, None, wake, word_left=True)
        return WATCH_S if told < len(places) else None

    def sweep(self) -> int:
        store, request = self.store, self.store.tables.request
        day_ago, week_ago = (store.clock_us - later(0, age_s) for age_s in (KEPT_S, HISTORY_S))
        late = case((store.held, request.c.end_us), else_=request.c.seen_us) < day_ago
        over = and_(
            request.c.state.in_((State.FREE.value, State.ENDED.value)),
            request.c.seen_us < week_ago,
            or_(request.c.ended_us.is_(None), request.c.ended_us < week_ago),
        )
        stays_away = update(request).where(store.aside, request.c.seen_us < day_ago).values(state=State.FREE.value)

        def sweep(connection: Connection) -> int:
            statements = (stays_away, delete(request).where(over))
            left = sum(connection.execute(statement).rowcount for statement in statements)
            return store.clear(connection, late) + left

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

    def _put_work(self, lease: Lease, name: str, application: str | None, *, new: bool) -> Lease:
        owner = self.store.requested(owner_key(lease.owner))

        def put(connection: Connection) -> Lease | None:
            now_us, number, record = self.store.enter(connection, owner)
            if record is None or not record.is_of(lease) or (self.store.frees and record.expired(now_us)):
                return None
            written = record.starting(name, application or "", number) if new else record.recording(name, application)
            self.store.put(connection, written, record)
            return written.lease

        return self.store.transact(put) or self._lost(lease)

    def _stands(self, lease: Lease, so: ColumnElement[bool]) -> Record:
        """The lease's record, of which *so* must be true."""
        found = self.store.read(lambda connection: self.store.records(connection, self.store.of_lease, so, **of(lease)))
        return found[0] if found else self._lost(lease)

    def _lost(self, lease: Lease) -> NoReturn:
        """:raises LockLost: saying what became of it."""
        request = self.store.tables.request.c
        found = next(iter(self._records(request.owner_key == owner_key(lease.owner))), None)
        if found is None or found.lease_id != lease.id or found.state is not State.GRANTED:
            fate = "it was released, force-released or, once it had expired, taken by another"
        elif found.epoch != lease.epoch:
            fate = f"attempt {found.attempt} of its owner has taken over"
        else:
            fate = f"it expired at {instant(found.end_us or 0):%Y-%m-%d %H:%M:%S}Z; renewing it helps while nobody has taken it"
        raise LockLost(f"{lease.owner}: lease {lease.id} no longer stands ({fate}); stop the work under it")

    def _exceeds(self, owner: str, lease_s: float) -> ExceedsMaxLeaseTime:
        return ExceedsMaxLeaseTime(
            f"{owner}: {lease_s:g} s more would make its lease longer than {self.max_lease_s:g} s, the most that a lease may "
            "last here (max_lease_s); release it in time and ask again, or have the limit raised"
        )

    def _lease(self, *where: ColumnElement[bool]) -> Lease | None:
        found = self._records(*where, self.store.standing)
        return found[0].lease if found else None

    def _records(self, *where: ColumnElement[bool]) -> list[Record]:
        return self.store.read(lambda connection: self.store.records(connection, *where))

    def _standing(self) -> list[Record]:
        """Of holders, and of whoever waits or has stepped aside."""
        return self._listed(or_(self.store.queued, self.store.aside, self.store.standing))

    def _listed(self, *where: ColumnElement[bool]) -> list[Record]:
        """For listings: a row that cannot be read is logged, and hides none of the others."""
        request = self.store.tables.request
        found = select(request).where(*where).order_by(request.c.place)
        rows = self.store.read(lambda connection: connection.execute(found).all())
        return [record for row in rows if (record := _readable(row))]

    def _named(self, lease_id: str) -> ColumnElement[bool]:
        return self.store.tables.request.c.place == place_of(lease_id)


def _readable(row: Row[Any]) -> Record | None:
    try:
        record = Record.of(row)
        assert record.locked is not None
        assert record.worked is not None
        assert record.gave is not None
        assert record.by_themselves is not None
    except StoreCorrupted as error:
        validate.complain(log, str(error), 0)
        return None
    return record


def _audited(row: Row[Any]) -> ForcedRelease | None:
    try:
        validate.texts(dict(row._mapping), ("lease_id", "owner", "locks", "user_name", "reason"))
        at = instant(validate.number(row.at_us, "at_us", MOST_US))
        return ForcedRelease(row.lease_id, row.owner, decode(row.locks, row.owner), row.user_name, row.reason, at)
    except (TypeError, ValueError, StoreCorrupted) as error:
        validate.complain(log, f"entry {row.number} of the audit trail was not written by a force release: {error}", 0)
        return None


_backends: WeakSet[DatabaseBackend] = WeakSet()


def _forget_connections() -> None:
    """A forked process has its parent's sockets but not its threads: it connects anew."""
    for backend in list(_backends):
        backend.forked()


os.register_at_fork(after_in_child=_forget_connections)
