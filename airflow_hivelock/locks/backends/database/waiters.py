"""Who waits for what, as it is listed."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from airflow_hivelock.locks import queueing, rules
from airflow_hivelock.locks.backends.database.record import State, instant
from airflow_hivelock.locks.model import Blocker, Waiter, WaitsFor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.backends.database.record import Record
    from airflow_hivelock.locks.model import Lock, LockObject

WAITS_FOR = {State.WAITING: WaitsFor.LOCK, State.PARKED: WaitsFor.LEASE, State.AWAY: WaitsFor.SLOT}


def listed(records: Sequence[Record], target: LockObject | None) -> list[Waiter]:
    """Those of *records* that wait for *target*, or something below it, in their order; of all that hold and wait."""
    before = _Before([record for record in records if record.state is State.GRANTED])
    found = []
    for record in sorted((record for record in records if record.state in WAITS_FOR), key=_order):
        if rules.concern(record.locked, target):
            blockers = before.blockers(record)
            place = 0 if record.state is State.AWAY else 1 + sum(blocker.waiting for blocker in blockers)
            asked = instant(record.asked_us)
            what = WAITS_FOR[record.state]
            priority, attempt = record.priority, record.attempt
            found.append(Waiter(record.owner, record.locked, place, asked, blockers, priority, what, attempt))
        before.add(record)
    return found


class _Before:
    """The requests that hold, and those that wait and go before the next."""

    def __init__(self, holding: Sequence[Record]) -> None:
        self._locks: defaultdict[LockObject, list[tuple[Record, Lock]]] = defaultdict(list)
        self._parked: defaultdict[str, list[Record]] = defaultdict(list)
        self._holding: defaultdict[str, list[Record]] = defaultdict(list)
        for record in holding:
            self._holding[record.lease_group].append(record)
            self._add_locks(record)

    def add(self, record: Record) -> None:
        if record.state is State.WAITING:
            self._add_locks(record)
        elif record.state is State.PARKED:
            self._parked[record.lease_group].insert(0, record)

    def _add_locks(self, record: Record) -> None:
        for lock in record.locked:
            self._locks[lock.object].append((record, lock))

    def blockers(self, record: Record) -> tuple[Blocker, ...]:
        match record.state:
            case State.WAITING:
                return self._on_locks(record)
            case State.PARKED:
                return self._in_group(record)
        return ()

    def _on_locks(self, record: Record) -> tuple[Blocker, ...]:
        met = {
            other.position: Blocker(other.owner, theirs.object, theirs.mode, other.state is State.WAITING)
            for mine in reversed(record.locked)
            for other, theirs in self._locks[mine.object]
            if queueing.conflict(mine.mode, theirs.mode)
        }
        return tuple(met[position] for position in sorted(met, reverse=True))

    def _in_group(self, record: Record) -> tuple[Blocker, ...]:
        group = record.lease_group
        holding = self._holding[group]
        full = not queueing.permit_free(record.position, record.most_leases, len(holding), ())
        return tuple(
            Blocker(other.owner, other.locked[-1].object, other.locked[-1].mode, other.state is State.PARKED, group)
            for other in (*(holding if full else ()), *self._parked[group])
        )


def _order(record: Record) -> tuple[int, int, int]:
    return (record.place, 0, record.place) if record.state is State.AWAY else record.position
