"""Reads the transactions of a database as steps, from the audit of its rows.

A row of the request table is the owner's record. The rows of locks are its tickets, and its lock nodes while it holds. They must
be exactly the locks of the record. A sign of life is a liveness node that ends ``dead_s`` later.

One transaction can change several owners: it ends invitations that are over, then it writes its own request. Its steps are in this
order. Each step has the state after the earlier ones.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.system.histories.trace.reading import read_locks
from tests.system.histories.trace.state import (
    AWAY,
    GRANTED,
    INVITED,
    PARKED,
    TOMBSTONE,
    WAITING,
    Life,
    Locks,
    Node,
    Owner,
    Record,
    State,
    Step,
    Ticket,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Row = Mapping[str, Any]


class Change(NamedTuple):
    """A row of a table before and after. None: it does not exist then."""

    table: str
    old: Row | None
    new: Row | None


@dataclass(frozen=True)
class RowTransaction:
    """The changes of one commit.

    :param zxid: the store's number that it has drawn. Below 0: it has drawn none.
    """

    zxid: int
    time_ms: int
    changes: tuple[Change, ...]


class RowRecord(Record):
    """A record whose request has a row for each lock, and no ticket in each queue."""

    @property
    def queues(self) -> set[str]:
        return set(self.locks) if self.has_tickets else set()


class RowReader:
    """The state after the transactions so far."""

    def __init__(self, passing_s: float, dead_s: float) -> None:
        self.state = State(exact=True, passing_ms=round(1000 * passing_s))
        self._dead_ms = round(1000 * dead_s)
        self._requests: dict[str, Row] = {}
        self._locks: defaultdict[int, Locks] = defaultdict(dict)
        self._places: dict[int, str] = {}
        self._names: dict[str, str] = {}

    def name_of(self, key: str) -> str:
        """The owner's name; its key if no record has told the name."""
        return self._names.get(key, key)

    def lease(self, lease_id: str) -> tuple[str, int]:
        """The owner and the place of a lease."""
        return self._places.get(int(lease_id), ""), int(lease_id)

    def steps(self, transaction: RowTransaction) -> Iterator[Step]:
        """The steps of one transaction. Each one is applied when the next one is asked for."""
        touched: dict[str, bool] = {}  # in their order, each with whether its request was written
        audited = {str(row["lease_id"]) for table, _, row in transaction.changes if table == "audit" and row}
        for change in transaction.changes:
            if change.table == "audit":
                continue
            if change.table == "group":
                yield self._limit(change, transaction, audited)
                continue
            key = self._owner_of(change)
            if change.table == "request" and change.new:
                again = change.new["place"] != self._requests.get(key, change.new)["place"]
                # Its earlier request ends first, unless a person has changed its priority.
                if touched.get(key) and again and str(change.new["place"]) not in audited:
                    yield from self._steps_of(key, transaction, audited)
                self._requests[key] = change.new
                touched[key] = True
            elif change.table == "request":
                self._requests.pop(key, None)
                touched[key] = True
            else:
                self._lock(change)
                touched.setdefault(key, False)
        for key in touched:
            yield from self._steps_of(key, transaction, audited)

    def _limit(self, change: Change, transaction: RowTransaction, audited: set[str]) -> Step:
        """The step that stores or deletes a limit. It is applied at once, as no other step of its transaction depends on it."""
        nothing, row = Owner(), change.new or change.old
        assert row
        self.state.limits.pop(row["name"], None)
        if change.new:
            self.state.limits[row["name"]] = row["leases"], row["weight"]
        zxid, time_ms = transaction.zxid, transaction.time_ms
        return Step("", zxid, time_ms, 0, self.state, nothing, nothing, audited="" in audited, limited=True)

    def _owner_of(self, change: Change) -> str:
        row = change.new or change.old
        assert row
        if change.table == "request":
            self._names[row["owner_key"]] = row["owner"]
            self._places[row["place"]] = row["owner_key"]
            return str(row["owner_key"])
        return self._at(row["place"])

    def _at(self, place: int) -> str:
        return self._places.get(place, f"the request at {place}")

    def _lock(self, change: Change) -> None:
        for row, there in ((change.old, False), (change.new, True)):
            if row is None:
                continue
            locks = self._locks[row["place"]]
            on = "/".join(filter(None, (row["db_name"], row["table_name"], row["partition_name"])))
            if there:
                locks[on] = row["lease_type"].upper()
            else:
                locks.pop(on, None)
            if not locks:
                del self._locks[row["place"]]

    def _steps_of(self, key: str, transaction: RowTransaction, audited: set[str]) -> Iterator[Step]:
        stored, zxid, time_ms = self.state.of(key), transaction.zxid, transaction.time_ms
        after = self._owner(key, stored, zxid)
        if after == stored:
            return  # it was marked as watched, or renewed
        before = stored
        if before.alive and before.alive.until_ms <= time_ms:
            before = replace(before, alive=None)
        for one, other in _steps(before, after):
            force = not audited.isdisjoint((str(one.record.ticket_epoch), str(other.record.ticket_epoch)))
            wrote = one.record != other.record
            yield Step(key, zxid, time_ms, 0, self.state, one, other, audited=force, wrote=wrote)
            self.state.put(key, other, time_ms)
        if after.record.holds:
            for lock in after.record.locks.items():
                self.state.tokens[lock] = max(self.state.tokens.get(lock, 0), after.record.token)

    def _owner(self, key: str, stored: Owner, zxid: int) -> Owner:
        row = self._requests.get(key)
        record = read_row(row, stored.record, zxid) if row else Record()
        mine = self._locks.get(record.ticket_epoch, {}) if record.has_tickets else {}
        ticket = Ticket(record.ticket_epoch, row["turn"] if row else 0, tuple(sorted(mine.items())))
        nodes = {
            Node(on, mode, 0, record.since if record.holds and place == record.ticket_epoch else place)
            for place, locks in self._locks.items()
            if self._at(place) == key and (place != record.ticket_epoch or not record.has_tickets or record.holds)
            for on, mode in locks.items()
        }
        alive = None
        if row and record.state in (WAITING, PARKED) and row["seen_us"]:
            alive = Life(record.process, 0, row["seen_us"] // 1000 + self._dead_ms)
        counts = row is not None and row["group_key"] is not None
        return Owner(
            record,
            tickets=dict.fromkeys(mine, ticket),
            alive=alive,
            nodes=frozenset(nodes),
            permits=frozenset((record.group, number) for number in record.permits if counts),
            parked=frozenset([record.parked] if record.parked and record.state in (WAITING, PARKED) else ()),
            away=record.state == AWAY,
        )


def _steps(before: Owner, after: Owner) -> Iterator[tuple[Owner, Owner]]:
    """A next process that takes an invited request up decides it in the same transaction. That is two steps."""
    old, new = before.record, after.record
    takes_up = old.state == INVITED and new.ticket_epoch == old.ticket_epoch and new.process != old.process
    if not takes_up or new.state not in (PARKED, INVITED, AWAY):
        yield before, after
        return
    waits = replace(
        old,
        state=WAITING,
        process=new.process,
        epoch=new.epoch,
        attempt=new.attempt,
        begin=new.begin,
        permits=(),
        until_ms=0,
    )
    parked = frozenset([waits.parked] if waits.parked else ())
    taken = replace(before, record=waits, alive=Life(new.process), permits=frozenset(), parked=parked)
    yield before, taken
    yield taken, after


def read_row(row: Row, old: Record, zxid: int) -> Record:
    """The record in a row of the request table.

    :param old: the owner's record before *zxid*.
    """
    state, place = row["state"], row["place"]
    since = old.since if old.holds and old.ticket_epoch == place else zxid
    return RowRecord(
        state=TOMBSTONE if state == "ended" else state,
        process=row["process"],
        epoch=row["epoch"],
        ticket_epoch=place,
        begin=row["began"],
        attempt=row["attempt"],
        priority=row["priority"],
        locks=read_locks(json.loads(row["locks"])),
        since=since if state == GRANTED else 0,
        group=row["lease_group"],
        most=row["most_leases"],
        weight=row["weight"] or 0,
        permits=_permits(row),
        parked=str(row["group_turn"]) if row["group_turn"] else "",
        kept=row["turn"] if state == AWAY else row["old_turn"],
        token=row["token"],
        until_ms=row["until_us"] // 1000 if state == INVITED else 0,
        turn_ms=row["turn_us"] // 1000,
    )


def _permits(row: Row) -> tuple[int, ...]:
    """The permits of a row that counts. A database numbers none, so they have the request's place and a number."""
    if not row["lease_group"] or row["state"] not in (GRANTED, INVITED):
        return ()
    return tuple(row["place"] * 1000 + number for number in range(row["weight"] or 1))
