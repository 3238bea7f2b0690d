"""A change of the priority of a request that waits: in one transaction it leaves the queue, and joins it again.

It gets a new number, so that it is the last of the requests with the same turn and priority. The requests that wait for
it are notified as if it had ended. Its own process finds its new number at its next step.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from airflow_hivelock.locks import queueing, rules
from airflow_hivelock.locks.backends.database import audit
from airflow_hivelock.locks.backends.database.record import State
from airflow_hivelock.locks.backends.database.request import RequestedLocks
from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.locks.model import owner_key

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.database.record import Record
    from airflow_hivelock.locks.backends.database.store import Store
    from airflow_hivelock.locks.backends.database.transaction import StoreTransaction

MAX_TRIES = 100
"""How often to try again because the owner asks for other locks meanwhile."""


def change(store: Store, owner: str, priority: int, *, reason: str, user: str) -> bool:
    """See :meth:`.Backend.force_priority`."""
    for _ in range(MAX_TRIES):
        found = store.records(store.tables.request.c.owner_key == owner_key(owner))
        if not found or found[0].state is not State.WAITING:
            return False
        moved = store.transact(partial(_change, store=store, seen=found[0], priority=priority, by=(reason, user)))
        if moved is not None:
            return moved
    raise StoreUnavailable(f"{owner}: its request changed {MAX_TRIES} times while its priority was changed. Try again")


def _change(
    transaction: StoreTransaction, *, store: Store, seen: Record, priority: int, by: tuple[str, str]
) -> bool | None:
    """Change the priority; None: the owner asks for other locks than in the record *seen*."""
    locks = RequestedLocks(store.tables.name, seen.owner_key, seen.locked, seen.group_key)
    store.admit(transaction)
    entered = store.enter(transaction, locks, decides=True)
    mine, now_us, number = entered.record, entered.now_us, entered.number
    if mine is None or mine.state is not State.WAITING:
        return False
    if (mine.locks, mine.group_key) != (seen.locks, seen.group_key):
        return None
    again = mine._replace(priority=priority, place=number, epoch=number, ahead=None, watched=0)
    waiting = queueing.overtakable(one.other(now_us, frees=store.frees) for one in entered.conflicting)
    moved = rules.reprioritized(
        mine.owner, mine.timed(mine.turn, mine.turn_us), again.timed(number, now_us), waiting, now_us - store.passing_us
    )
    if not store.end(transaction, State.FREE, "queued", of_place=mine.place).count:
        return None
    again = again._replace(turn=moved.position.number, turn_us=moved.since)
    store.put(transaction, again, mine._replace(state=State.FREE), locks)
    store.dialect.call(transaction, mine.process)
    audit.write(store, transaction, again, *by)
    return True
