"""Giving back a part of a lease: in one transaction its rows go, and the record says less; the rest stands as it was.

Whoever may be about to wait for the lease is kept out meanwhile: its word would be left on it after those who wait have been
told. They are told as if the lease had ended, and look again. Their rows say so too, for those who miss it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import delete, update

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backends.database.record import NOBODY, State
from airflow_hivelock.locks.backends.database.store import of

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from airflow_hivelock.locks.backends.database.record import Record
    from airflow_hivelock.locks.backends.database.request import RequestedLocks
    from airflow_hivelock.locks.backends.database.store import Store
    from airflow_hivelock.locks.model import Lease, LockObject


def release(store: Store, lease: Lease, objects: frozenset[LockObject]) -> Lease | None:
    """See :meth:`.Backend.release_part`."""
    found = store.read(lambda connection: store.records(connection, store.of_lease, **of(lease)))
    if not found:
        return None
    locks = store.requested(found[0].owner_key, found[0].locked)  # no grant ever gets more
    return store.transact(partial(_release, store=store, lease=lease, locks=locks, objects=objects))


def _release(
    connection: Connection, *, store: Store, lease: Lease, locks: RequestedLocks, objects: frozenset[LockObject]
) -> Lease | None:
    now_us, _, record = store.enter(connection, locks)
    if record is None or not record.is_of(lease) or (store.frees and record.expired(now_us)):
        return None
    left = rules.left(record.lease, objects, lease.locks)
    if not left:
        store.end(connection, State.ENDED, "of_lease", **of(lease))
        return None
    if left == record.locked:
        return record.lease
    written = record.without(left)
    lock = store.tables.lock
    connection.execute(delete(lock).where(lock.c.place == record.place))
    store.put(connection, written, record, store.requested(record.owner_key, left).rows)
    if record.audience:
        store.dialect.tell(connection, record.place, record.audience)
        _let_go(connection, store, record)
    return written.lease


def _let_go(connection: Connection, store: Store, record: Record) -> None:
    """Nobody waits for it, or has left word, any more."""
    request = store.tables.request
    waits = request.c.ahead == record.place, request.c.state == State.WAITING.value
    connection.execute(update(request).where(*waits).values(ahead=None))
    connection.execute(update(request).where(request.c.place == record.place).values(audience=NOBODY))
