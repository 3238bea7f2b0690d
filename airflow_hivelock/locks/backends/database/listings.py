"""Listings of holders, waiters, leases, groups, history and audit. An unreadable row is logged, and hides no other one.

The blockers of waiters come from the rules that also decide.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import or_, select

from airflow_hivelock.locks import queueing, rules, validate
from airflow_hivelock.locks.backends.database.record import HAS_LOCKS, Record, State
from airflow_hivelock.locks.backends.database.request import excluded_keys
from airflow_hivelock.locks.backends.database.values import instant, parse_audit, parse_group
from airflow_hivelock.locks.model import Blocker, GroupUse, Member, Waiter, WaitsFor
from airflow_hivelock.locks.queueing import Other, TimedPosition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement

    from airflow_hivelock.locks.backends.database.store import Store
    from airflow_hivelock.locks.model import ForcedRelease, Group, Holder, Lease, Lock, LockObject, Tenure

log = logging.getLogger(__name__)

WAITS_FOR = {
    State.WAITING: WaitsFor.LOCK,
    State.PARKED: WaitsFor.LEASE,
    State.INVITED: WaitsFor.SLOT,
    State.AWAY: WaitsFor.SLOT,
}

IN_GROUP = (State.PARKED, State.INVITED, State.GRANTED)
"""The states of a request that waits for permits of its group, or has them."""


class ListedRows:
    """The part of the backend that lists the content of the store."""

    store: Store

    def show(self, target: LockObject | None = None) -> list[Holder]:
        held = self._listed(self.store.holding)
        return rules.holders(((record.lease, record.query) for record in held), target)

    def leases(self) -> list[Lease]:
        return [record.lease for record in self._listed(self.store.holding)]

    def waiters(self, target: LockObject | None = None) -> list[Waiter]:
        return self._waiters(self._present(), target)

    def requests(self) -> tuple[list[Lease], list[Waiter]]:
        records = self._present()
        return [record.lease for record in records if record.state is State.GRANTED], self._waiters(records, None)

    def history(self, target: LockObject | None = None, *, most: int | None = None) -> list[Tenure]:
        records = self._listed(self.store.tables.in_state(State.GRANTED, State.ENDED), most=most)
        leases = [record for record in records if not record.withdrawn]
        tenures = [tenure for record in leases if rules.concern((tenure := record.tenure).locks, target)]
        return sorted(tenures, key=lambda tenure: tenure.granted)

    def audit(self) -> list[ForcedRelease]:
        table = self.store.tables.audit
        rows = self.store.all(select(table).order_by(table.c.number))
        return [entry for row in rows if (entry := validate.readable(log, 0, parse_audit, row))]

    def groups(self) -> list[GroupUse]:
        stored = self._group_settings()
        members: defaultdict[str, list[Record]] = defaultdict(list)
        for record in self._present():
            if record.group_key is not None and record.state in IN_GROUP:
                members[record.lease_group].append(record)
        return [_use(name, stored.get(name), members[name]) for name in sorted({*stored, *members})]

    def _present(self) -> list[Record]:
        """The requests that wait or hold."""
        return self._listed(or_(self.store.queued, self.store.away, self.store.holding))

    def _listed(self, *where: ColumnElement[bool], most: int | None = None) -> list[Record]:
        """The readable records of the requests that meet all of *where*; see :meth:`.Store.rows`."""
        rows = self.store.rows(*where, most=most)
        return [record for row in rows if (record := validate.readable(log, 0, _whole, row))]

    def _group_settings(self) -> dict[str, Group]:
        """The settings of all groups, by name."""
        rows = self.store.all(select(self.store.tables.group))
        found = (validate.readable(log, 0, parse_group, row) for row in rows)
        return {group.name: group for group in found if group}

    def _waiters(self, records: Sequence[Record], target: LockObject | None) -> list[Waiter]:
        grouped = any(record.state is State.PARKED for record in records)
        return _waiters(records, target, self._group_settings() if grouped else {})


def _whole(row: Mapping[Any, Any]) -> Record:
    record = Record.of(row)
    assert record.lease  # its locks and its work can be read
    return record


def _waiters(records: Sequence[Record], target: LockObject | None, stored: Mapping[str, Group]) -> list[Waiter]:
    """The waiters for *target* or something below it, in their order.

    :param records: all requests that wait or hold.
    :param stored: the settings of the groups, by name.
    """
    locks: defaultdict[Lock, list[Record]] = defaultdict(list)
    groups: defaultdict[str, list[Record]] = defaultdict(list)
    by_place = {record.place: record for record in records}
    for record in records:
        if record.state in HAS_LOCKS:
            for lock in record.locked:
                locks[lock].append(record)
        if record.state in IN_GROUP:
            groups[record.lease_group].append(record)

    def blockers(record: Record) -> Iterator[Blocker]:
        if record.state in (State.WAITING, State.INVITED):
            met = {
                other.place: (other, theirs)
                for mine in reversed(record.locked)
                for theirs in excluded_keys(mine).values()
                for other in locks.get(theirs, ())
                if other is not record
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


def _use(name: str, stored: Group | None, records: Sequence[Record]) -> GroupUse:
    def members(*, waiting: bool) -> tuple[Member, ...]:
        found = [record for record in records if (record.state is State.PARKED) is waiting]
        found.sort(key=lambda record: record.position if waiting else (record.place,))
        return tuple(Member(record.owner, record.terms(stored)[1]) for record in found)

    return GroupUse(name, stored, members(waiting=False), members(waiting=True))
