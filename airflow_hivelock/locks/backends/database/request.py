"""What an owner's call asks for: its locks as the statements need them, and the record that it starts with.

The locks are prepared before the transaction, because other requests wait for its end. Indexes, advisory locks and
notifications use a number in place of a name: 64 bits of a hash. Two names with the same number only make requests wait
for each other without need.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import formats, invitations, queueing
from airflow_hivelock.locks.backends.database.record import Record, State
from airflow_hivelock.locks.backends.database.values import compact, encode, later, microseconds
from airflow_hivelock.locks.calls import Call
from airflow_hivelock.locks.model import Lock, LockMode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_hivelock.locks.backends.database.candidate import Entered
    from airflow_hivelock.locks.model import LeaseLimit, LockObject, LockRequest


@lru_cache(maxsize=4_096)
def number(*parts: str) -> int:
    """A signed 64-bit number for the name made of *parts*."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def lock_key(lock: Lock) -> int:
    """The number of a lock's object and mode. The rows of such locks are found by it."""
    return number(lock.mode.value, *lock.object.path)


def excluded_keys(lock: Lock) -> dict[int, Lock]:
    """The keys of the locks that *lock* excludes, each with such a lock: the keys that SQL looks for."""
    excluded = [Lock(lock.object, mode) for mode in queueing.excluded_by(lock.mode)]
    return {lock_key(other): other for other in excluded}


def group_key(limit: LeaseLimit | None) -> int | None:
    """The key of the group's requests: above 0."""
    return None if limit is None else 1 + number("group", limit.group) % (1 << 62)


def group_lock(tables: str, group_key: int | None) -> dict[int, bool]:
    """The key that keeps out all requests of a group.

    :param tables: the name of the set of tables.
    """
    return {} if group_key is None else {number(tables, "group", str(group_key)): True}


def units(locks: Iterable[Lock]) -> dict[int, bool]:
    """The databases and tables of *locks*, each with whether something in it is locked EXCLUSIVE.

    Requests that conflict share a unit, and one of them has it EXCLUSIVE.
    """
    found: dict[tuple[str, ...], bool] = {}
    for lock in locks:
        unit = (lock.object.database, lock.object.table)
        found[unit] = found.get(unit, False) or lock.mode is LockMode.EXCLUSIVE
    return {number(*unit): exclusive for unit, exclusive in found.items()}


class RequestedLocks:
    """The locks that an owner asks for.

    :param tables: the name of the set of tables.
    :ivar locks: as in the owner's record.
    :ivar rows: the rows of the locks, as JSON.
    :ivar keys: these keep out every request that may conflict, all others of its group, and every process that acts for
        the owner. The record alone needs only the owner's key.
    :ivar excluded: by their keys, the locks that these exclude.
    """

    def __init__(self, tables: str, owner_key: str, locked: tuple[Lock, ...], group_key: int | None = None) -> None:
        self.owner_key, self.group_key = owner_key, group_key
        self.locks = encode(locked)
        keys = {number(tables, str(unit)): exclusive for unit, exclusive in units(locked).items()}
        owner = {number(tables, "owner", owner_key): True}
        self.keys: Mapping[int, bool] = keys | group_lock(tables, group_key) | owner
        self.rows = compact([_row(position, lock) for position, lock in enumerate(locked)])
        self.excluded: Mapping[int, Lock] = {
            key: other for lock in locked for key, other in excluded_keys(lock).items()
        }


def _row(position: int, lock: Lock) -> dict[str, Any]:
    return {
        "position": position,
        "object_key": lock_key(lock),
        "db_name": lock.object.database,
        "table_name": lock.object.table,
        "partition_name": "/".join(lock.object.path[2:]),
        "lease_type": "x" if lock.mode is LockMode.EXCLUSIVE else "s",
    }


def start(
    entered: Entered, request: LockRequest, asked: RequestedLocks, process: str, began: int, *, frees: bool
) -> Record:
    """Return the record after *process* has started or taken over the owner's request.

    :param asked: the locks of *request*.
    :param began: the store's number when the call began.
    :param frees: an expired lease may be replaced by a request for other locks.
    :return: for a new request, WAITING, with a number of its own but in no queue; else the existing record, taken over.
        That keeps its priority and its group. Taken over without a worker slot, an invited request waits.
    :raises Superseded: a later call acts for the owner.
    :raises LeaseMismatch: the owner waits for or holds other locks.
    """
    existing, number, now_us = entered.record, entered.number, entered.now_us
    call = Call(request.attempt, began, process)
    if existing is not None and existing.takes_over(request, call, now_us if frees else 0):
        taken = existing._replace(process=process, epoch=number, attempt=request.attempt, began=began)
        end_us = later(now_us, request.lease_s) if existing.state is State.GRANTED else None
        whole = _lines(existing.by_themselves | request.whole)  # the work of an earlier attempt may still run
        if existing.invited and not request.has_slot:
            # It gives its permits back, and may take another number of them the next time.
            weight = request.limit.weight if request.limit else existing.weight
            taken = taken._replace(state=State.WAITING, weight=weight)
        return taken._replace(lease_s=request.lease_s, seen_us=now_us, end_us=end_us, whole=whole)
    fresh = Record(
        owner_key=asked.owner_key,
        owner=request.owner,
        state=State.WAITING,
        process=process,
        epoch=number,
        attempt=request.attempt,
        began=began,
        place=number,
        token=0,
        lease_s=request.lease_s,
        locks=asked.locks,
        works="[]",
        query=request.query,
        named=request.named,
        priority=request.priority,
        lease_group=request.limit.group if request.limit else "",
        most_leases=request.limit.most if request.limit else 0,
        weight=request.limit.weight if request.limit else 0,
        group_key=asked.group_key,
        asked_us=min(now_us, microseconds(request.asked)) if request.asked else now_us,
        seen_us=now_us,
        whole=_lines(request.whole),
        more=formats.WRITES.text(),
    )
    # Without an invitation it had no turn, and its owner is a new arrival.
    if existing is None or existing.state is not State.AWAY or not existing.turn or request.has_slot:
        return fresh
    if not invitations.keeps_position(call, Call(existing.attempt, existing.began), request.locks, existing.locked):
        return fresh
    return fresh._replace(
        priority=existing.priority,  # a person may have changed it
        old_turn=existing.turn,
        old_turn_us=existing.turn_us,
        group_turn=existing.group_turn,
        group_turn_us=existing.group_turn_us,
    )


def _lines(objects: Iterable[LockObject]) -> str:
    return "\n".join(sorted(map(str, objects)))
