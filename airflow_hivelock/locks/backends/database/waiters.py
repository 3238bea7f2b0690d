"""The list of waiters: what each one waits for, by the rules that also decide."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from airflow_hivelock.locks import queueing, rules
from airflow_hivelock.locks.backends.database.record import State, instant
from airflow_hivelock.locks.model import Blocker, Waiter, WaitsFor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_hivelock.locks.backends.database.record import Record
    from airflow_hivelock.locks.model import Lock, LockObject

WAITS_FOR = {State.WAITING: WaitsFor.LOCK, State.PARKED: WaitsFor.LEASE, State.AWAY: WaitsFor.SLOT}


def listed(records: Sequence[Record], target: LockObject | None) -> list[Waiter]:
    """Those of *records* that wait for *target* or something below it, in their order. *records* are all that wait or hold."""
    locks: defaultdict[LockObject, list[tuple[Record, Lock]]] = defaultdict(list)
    groups: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.state in (State.WAITING, State.GRANTED):
            for lock in record.locked:
                locks[lock.object].append((record, lock))
        if record.state in (State.PARKED, State.GRANTED):
            groups[record.lease_group].append(record)

    def blockers(record: Record) -> Iterator[Blocker]:
        if record.state is State.WAITING:
            met = {
                other.place: (other, theirs)
                for mine in reversed(record.locked)
                for other, theirs in locks[mine.object]
                if other is not record and queueing.conflict(mine.mode, theirs.mode)
            }
            for other in queueing.in_the_way(record.position, (other for other, _ in met.values())):
                lock = met[other.place][1]
                yield Blocker(other.owner, lock.object, lock.mode, not other.holds)
        elif record.state is State.PARKED:
            others = [other for other in groups[record.lease_group] if other is not record]
            for other in queueing.in_the_way_of_permit(record.position, record.most_leases, others):
                lock = other.locked[-1]
                yield Blocker(other.owner, lock.object, lock.mode, not other.holds, record.lease_group)

    return [
        _waiter(record, tuple(blockers(record)))
        for record in sorted(records, key=_order)
        if record.state in WAITS_FOR and rules.concern(record.locked, target)
    ]


def _waiter(record: Record, blockers: tuple[Blocker, ...]) -> Waiter:
    what = WAITS_FOR[record.state]
    place = 0 if what is WaitsFor.SLOT else 1 + sum(blocker.waiting for blocker in blockers)
    asked = instant(record.asked_us)
    return Waiter(record.owner, record.locked, place, asked, blockers, record.priority, what, record.attempt)


def _order(record: Record) -> tuple[int, int, int]:
    return (record.place, 0, record.place) if record.state is State.AWAY else record.position
