"""The list of waiters, each with its blockers, by the rules that also decide."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from airflow_hivelock.locks import queueing, rules
from airflow_hivelock.locks.backends.database.record import HAS_LOCKS, State
from airflow_hivelock.locks.backends.database.values import instant
from airflow_hivelock.locks.model import Blocker, Waiter, WaitsFor
from airflow_hivelock.locks.queueing import Other, TimedPosition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_hivelock.locks.backends.database.record import Record
    from airflow_hivelock.locks.model import Group, Lock, LockObject

WAITS_FOR = {
    State.WAITING: WaitsFor.LOCK,
    State.PARKED: WaitsFor.LEASE,
    State.INVITED: WaitsFor.SLOT,
    State.AWAY: WaitsFor.SLOT,
}


def listed(records: Sequence[Record], target: LockObject | None, stored: Mapping[str, Group]) -> list[Waiter]:
    """The waiters for *target* or something below it, in their order.

    :param records: all requests that wait or hold.
    :param stored: the settings of the groups, by name.
    """
    locks: defaultdict[LockObject, list[tuple[Record, Lock]]] = defaultdict(list)
    groups: defaultdict[str, list[Record]] = defaultdict(list)
    by_place = {record.place: record for record in records}
    for record in records:
        if record.state in HAS_LOCKS:
            for lock in record.locked:
                locks[lock.object].append((record, lock))
        if record.state in (State.PARKED, State.INVITED, State.GRANTED):
            groups[record.lease_group].append(record)

    def blockers(record: Record) -> Iterator[Blocker]:
        if record.state in (State.WAITING, State.INVITED):
            met = {
                other.place: (other, theirs)
                for mine in reversed(record.locked)
                for other, theirs in locks[mine.object]
                if other is not record and queueing.conflict(mine.mode, theirs.mode)
            }
            for other in queueing.in_the_way(record.position, (other for other, _ in met.values())):
                lock = met[other.place][1]
                yield Blocker(other.owner, lock.object, lock.mode, not other.holds, until=other.until)
        elif record.state is State.PARKED:
            others = [_in_group(other) for other in groups[record.lease_group] if other is not record]
            most, weight = record.terms(stored.get(record.lease_group))
            for found in queueing.in_the_way_of_permit(record.position, weight, most, others):
                other = by_place[int(found.key)]
                lock = other.locked[-1]
                yield Blocker(other.owner, lock.object, lock.mode, not found.holds, record.lease_group, other.until)

    return [
        _waiter(record, tuple(blockers(record)))
        for record in sorted(records, key=_order)
        if record.state in WAITS_FOR and rules.concern(record.locked, target)
    ]


def _waiter(record: Record, blockers: tuple[Blocker, ...]) -> Waiter:
    what = WAITS_FOR[record.state]
    nth = 0 if record.state is State.AWAY else 1 + sum(blocker.waiting for blocker in blockers)
    asked = instant(record.asked_us)
    return Waiter(
        record.owner, record.locked, nth, asked, blockers, record.priority, what, record.attempt, record.until
    )


def _in_group(record: Record) -> Other:
    """Return it as the requests for a permit of its group see it. An invited request has its permit."""
    has, weight = record.holds or record.invited, record.terms(None)[1]
    return Other(record.place, TimedPosition(record.position, 0), has, weight=weight)


def _order(record: Record) -> tuple[int, int, int]:
    return (record.place, 0, record.place) if record.state is State.AWAY else record.position
