"""Partial release: in one transaction its rows are deleted, and the record gets fewer locks; the rest stays as it was.

Meanwhile no request can start to wait for the lease. The waiters are notified as if the lease had ended, and try again.
Their rows are changed as well, for those that miss the notification.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import delete, update

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backends.database.record import State
from airflow_hivelock.locks.backends.database.request import RequestedLocks
from airflow_hivelock.locks.backends.database.store import of

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.database.record import Record
    from airflow_hivelock.locks.backends.database.store import Store
    from airflow_hivelock.locks.backends.database.transaction import StoreTransaction
    from airflow_hivelock.locks.model import Lease, LockObject


def release(store: Store, lease: Lease, objects: frozenset[LockObject]) -> Lease | None:
    """See :meth:`.Backend.release_part`."""
    found = store.records(store.of_lease, **of(lease))
    if not found:
        return None
    # a lease never gains locks, so these keys suffice
    locks = RequestedLocks(store.tables.name, found[0].owner_key, found[0].locked)
    return store.transact(partial(_release, store=store, lease=lease, locks=locks, objects=objects))


def _release(
    transaction: StoreTransaction, *, store: Store, lease: Lease, locks: RequestedLocks, objects: frozenset[LockObject]
) -> Lease | None:
    entered = store.enter(transaction, locks)
    record = entered.record
    if record is None or not record.is_of(lease) or (store.frees and record.expired(entered.now_us)):
        return None
    left = rules.left(record.lease, objects, lease.locks)
    if not left:
        store.end(transaction, State.ENDED, "of_lease", **of(lease))
        return None
    if left == record.locked:
        return record.lease
    written = record.without(left)
    lock = store.tables.lock
    transaction.ask(delete(lock).where(lock.c.place == record.place))
    kept = RequestedLocks(store.tables.name, record.owner_key, left)
    if not store.put(transaction, written, record, kept).count:
        return None  # another process released it at this moment
    store.dialect.tell(transaction, record.place)
    # After the notification, which finds the waiters by the column that this clears.
    _let_go(transaction, store, record)
    return written.lease


def _let_go(transaction: StoreTransaction, store: Store, record: Record) -> None:
    """Note that no request waits for the lease any more, and no process watches it."""
    request = store.tables.request
    waits = request.c.ahead == record.place, request.c.state == State.WAITING.value
    transaction.ask(update(request).where(*waits).values(ahead=None))
    transaction.ask(update(request).where(request.c.place == record.place).values(watched=0))
