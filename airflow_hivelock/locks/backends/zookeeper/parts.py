"""Giving back a part of a lease: what is named goes, in one transaction, and the rest stands as it was.

The transaction takes the lock nodes of what is given back, and those on parents that nothing left needs; it writes the
record with fewer locks, and the tickets with fewer. The lease keeps its id, its place, its tokens and what runs under it.

A ticket stays where it is, so that nobody overtakes it, and who waits behind it watches it: the write wakes them. What
others remember of it is too much, never too little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backends.zookeeper.record import State

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
    from airflow_hivelock.locks.model import Lease, Lock, LockObject


def release(store: ZooKeeperStore, lease: Lease, objects: frozenset[LockObject]) -> Lease | None:
    """See :meth:`.Backend.release_part`."""
    releasing = store.retry(f"{lease.owner}: its record changed while a part of its lease was released")
    while (record := store.standing(lease)) is not None:
        if record.state is State.LOST:
            record = store.held(lease)  # which says so
        left = rules.left(record.lease(), objects, lease.locks)
        if left == record.locks:
            return record.lease()
        if not left:
            if store.entomb(record):
                return None
        elif written := _shrink(store, record, left):
            return written.lease()
        releasing.again()
    return None


def _shrink(store: ZooKeeperStore, record: Record, left: tuple[Lock, ...]) -> Record | None:
    """None: the record has changed, read again."""
    tickets, stay = store.queues.shrinks(record, left)
    written = store.removal.commit_part(record, record.without(left, stay), tickets)
    if written:
        store.remember(written)
    return written
