"""Changes in the store, each in one transaction: of a request's work, locks, priority and end; of a group's settings.

A *partial release* deletes the rows of locks and leaves fewer locks in the record; the rest stays as it was. Meanwhile
no request can start to wait for the lease. The waiters are notified as if the lease had ended, and try again. Their rows
are changed as well, for those that miss the notification.

A waiter with a new *priority* leaves the queue, and joins it again with a new number. So it is the last of the requests
with the same turn and priority. The requests that wait for it are notified as if it had ended. Its own process finds its
new number at its next step.

A change of a *group* keeps out the requests of the group as a grant does, so none of them decides by the earlier
settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select, update

from airflow_hivelock.locks import formats, groups, queueing, rules
from airflow_hivelock.locks.backends.database.record import Record, State
from airflow_hivelock.locks.backends.database.request import RequestedLocks, group_key, group_lock
from airflow_hivelock.locks.backends.database.store import of
from airflow_hivelock.locks.backends.database.values import parse_group
from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.locks.model import LeaseLimit, owner_key
from airflow_hivelock.locks.pauses import tries
from airflow_hivelock.locks.queueing import OvertakingLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnElement

    from airflow_hivelock.locks.backends.database.candidate import Entered
    from airflow_hivelock.locks.backends.database.store import Store
    from airflow_hivelock.locks.backends.database.transaction import StoreTransaction
    from airflow_hivelock.locks.model import Group, Lease, LockObject

MAX_TRIES = 100
"""How often a change of the priority is tried again because the owner asks for other locks meanwhile."""


def change(
    store: Store,
    owner_key: str,
    allowed: Callable[[Record], bool],
    changed: Callable[[Entered, Record], Record],
    forced: Callable[[StoreTransaction, Record], None] | None = None,
) -> Lease | None:
    """Change the owner's lease; return None if *allowed* is false for it, or it has expired.

    :param forced: writes the audit entry, if another user changes it. Then this version must not be too old.
    """
    owner = RequestedLocks(store.tables.name, owner_key, ())

    def put(transaction: StoreTransaction) -> Lease | None:
        if forced:
            store.admit(transaction)
        entered = store.enter(transaction, owner)
        record = entered.record
        if record is None or not allowed(record) or (store.frees and record.expired(entered.now_us)):
            return None
        written = changed(entered, record)
        if not store.put(transaction, written, record).count:
            return None
        if forced:
            forced(transaction, record)
        return written.lease

    return store.transact(put)


def end_by_force(
    store: Store, where: ColumnElement[bool], which: str, allowed: Callable[[Record], bool], reason: str, user: str
) -> bool:
    """End the request that meets *where*, if it is *allowed*; False: there is none.

    :param which: see :meth:`.Store.end`.
    """
    # Locked, so that no work starts and no process takes over after the check.
    wanted = select(store.tables.request).where(where, getattr(store, which)).with_for_update()

    def end(transaction: StoreTransaction) -> bool:
        store.admit(transaction)
        for record in map(Record.of, transaction.ask(wanted).rows):
            if allowed(record) and store.end(transaction, State.ENDED, which, of_place=record.place).count:
                if record.queued:
                    store.dialect.notify_process(transaction, record.process)
                store.audit(transaction, record, reason, user)
                return True
        return False

    return store.transact(end)


def release_part(store: Store, lease: Lease, objects: frozenset[LockObject]) -> Lease | None:
    """See :meth:`.Backend.release_part`."""
    found = store.records(store.of_lease, **of(lease))
    if not found:
        return None
    # a lease never gains locks, so these keys suffice
    locks = RequestedLocks(store.tables.name, found[0].owner_key, found[0].locked)

    def release(transaction: StoreTransaction) -> Lease | None:
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
        written, lock, request = record.without(left), store.tables.lock, store.tables.request
        # The request's row first, as a release does. In another order, the two could wait for each other.
        if not store.put(transaction, written, record).count:
            return None  # another process released it at this moment
        transaction.ask(delete(lock).where(lock.c.place == record.place))
        store.put_locks(transaction, record.place, RequestedLocks(store.tables.name, record.owner_key, left))
        store.dialect.notify(transaction, record.place)
        # After the notification, which finds the waiters by the column that this clears.
        waits = request.c.ahead == record.place, request.c.state == State.WAITING.value
        transaction.ask(update(request).where(*waits).values(ahead=None))
        transaction.ask(update(request).where(request.c.place == record.place).values(watched=0))
        return written.lease

    return store.transact(release)


def reprioritize(store: Store, owner: str, priority: int, *, reason: str, user: str) -> bool:
    """See :meth:`.Backend.force_priority`."""
    for _ in tries(MAX_TRIES):
        found = store.records(store.tables.request.c.owner_key == owner_key(owner))
        if not found or found[0].state is not State.WAITING:
            return False
        seen = found[0]
        locks = RequestedLocks(store.tables.name, seen.owner_key, seen.locked, seen.group_key)

        def move(transaction: StoreTransaction, locks: RequestedLocks = locks) -> bool | None:
            """None: the owner asks for other locks by now."""
            store.admit(transaction)
            entered = store.enter(transaction, locks, decides=True)
            mine, now_us, number = entered.record, entered.now_us, entered.number
            if mine is None or mine.state is not State.WAITING:
                return False
            if (mine.locks, mine.group_key) != (locks.locks, locks.group_key):
                return None
            again = mine._replace(priority=priority, place=number, epoch=number, ahead=None, watched=0)
            before, own = mine.timed(mine.turn, mine.turn_us), again.joining(number, now_us)
            waiting = queueing.overtakable(one.other(now_us, frees=store.frees) for one in entered.conflicting)
            moved = rules.reprioritized(owner, before, own, waiting, OvertakingLimit(now_us, store.passing_us))
            if not store.end(transaction, State.FREE, "queued", of_place=mine.place).count:
                return None
            kept = mine.timed(mine.group_turn, 0).position.reranked(priority).number if mine.group_turn else 0
            again = again._replace(turn=moved.position.number, turn_us=moved.since, group_turn=kept)
            store.put(transaction, again, mine._replace(state=State.FREE), locks)
            store.dialect.notify_process(transaction, mine.process)
            store.audit(transaction, again, reason, user)
            return True

        if (done := store.transact(move)) is not None:
            return done
    raise StoreUnavailable(f"{owner}: its request changed {MAX_TRIES} times while its priority was changed. Try again")


def put_group(store: Store, name: str, group: Group | None, *, reason: str, user: str) -> bool:
    """See :meth:`.KeepsGroups.put_group`."""
    table, request = store.tables.group, store.tables.request
    key = group_key(LeaseLimit(name))
    assert key is not None

    def put(transaction: StoreTransaction) -> bool:
        store.admit(transaction)
        store.dialect.enter(transaction, group_lock(store.tables.name, key))
        before = next(map(parse_group, transaction.ask(store.tables.settings, of_group=key).rows), None)
        if group is None:
            if before is None:
                return False
            transaction.ask(delete(table).where(table.c.group_key == key))
        else:
            values = {"name": group.name, "leases": group.leases, "weight": group.weight, "comment": group.comment}
            values["more"] = formats.WRITES.text()
            if before is None:
                transaction.ask(insert(table).values(group_key=key, **values))
            else:
                transaction.ask(update(table).where(table.c.group_key == key).values(**values))
        store.audit(transaction, *groups.entry(name, before, group, reason), user)
        store.dialect.notify_group(transaction, key)
        # For the parked requests that poll: their rows have changed.
        parked = request.c.group_key == key, request.c.state == State.PARKED.value
        transaction.ask(update(request).where(*parked).values(ahead=None))
        return True

    return store.transact(put)
