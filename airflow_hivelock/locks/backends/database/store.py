"""The statements: what is asked of the tables, and what is written to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    and_,
    bindparam,
    case,
    false,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    union_all,
    update,
)

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.backends.database.record import EVERYBODY, THOSE_BEHIND, Record, State
from airflow_hivelock.locks.backends.database.request import RequestedLocks
from airflow_hivelock.locks.backends.database.sessions import Sessions
from airflow_hivelock.locks.errors import StoreCorrupted
from airflow_hivelock.locks.model import Blocker, LockMode, LockObject
from airflow_hivelock.locks.model.object import unescape_level

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import URL, ColumnElement, Connection, Select, Update

    from airflow_hivelock.locks.backends.database.dialect import DatabaseDialect
    from airflow_hivelock.locks.backends.database.tables import StoreTables
    from airflow_hivelock.locks.model import Lease, Lock

DEAD_US = 30_000_000
"""How long after its last sign of life a waiter's place keeps others waiting."""


EVERY_PLACE = 1 << 62
"""Larger than any."""


@dataclass(frozen=True)
class Ahead:
    """A request that came earlier, and a lock of its that conflicts.

    :param end_us: when its lease ends; None while it waits.
    """

    place: int
    end_us: int | None
    blocker: Blocker


class Outcome(NamedTuple):
    """How an attempt at the grant has left the request.

    :param ahead: what lives and is in the way, the nearest and then the first; nothing of a lease.
    :param void: places of what alone is in the way, for nothing: dead waiters, and expired leases where those are free.
        Until they are taken away, the request is as it was.
    """

    record: Record
    now_us: int
    ahead: Sequence[Ahead] = ()
    void: Sequence[int] = ()


class Store(Sessions):
    """The tables behind one engine.

    :param frees: an expired lease blocks nobody.
    """

    def __init__(
        self, url: URL, dialect: DatabaseDialect, tables: StoreTables, *, frees: bool, timeout_s: float
    ) -> None:
        super().__init__(url, dialect, tables.name, timeout_s)
        self.tables, self.frees = tables, frees

    # Conditions. Their parameters are named of_…, for SQLAlchemy keeps a column's own name to itself.

    @property
    def clock_us(self) -> ColumnElement[int]:
        return self.dialect.clock_us

    @cached_property
    def held(self) -> ColumnElement[bool]:
        """Whether a request is granted, be it expired or not."""
        return self.tables.request.c.state == State.GRANTED.value

    @cached_property
    def queued(self) -> ColumnElement[bool]:
        return self.tables.request.c.state == State.WAITING.value

    @cached_property
    def expired(self) -> ColumnElement[bool]:
        """Whether a request holds what nobody has to respect any more."""
        return and_(self.held, self.tables.request.c.end_us <= self.clock_us) if self.frees else false()

    @cached_property
    def standing(self) -> ColumnElement[bool]:
        """Whether a request holds its locks."""
        return and_(self.held, self.tables.request.c.end_us > self.clock_us) if self.frees else self.held

    @cached_property
    def void(self) -> ColumnElement[bool]:
        """Whether a request keeps others waiting for nothing."""
        dead = and_(self.queued, self.tables.request.c.seen_us < self.clock_us - DEAD_US)
        return or_(dead, self.expired) if self.frees else dead

    @cached_property
    def of_lease(self) -> ColumnElement[bool]:
        """Whether a request is a very grant, in the hands of a very process; bound by :func:`of`."""
        request = self.tables.request.c
        return and_(
            request.owner_key == bindparam("of_key"),
            request.place == bindparam("of_place"),
            request.epoch == bindparam("of_epoch"),
            self.held,
        )

    # Reading.

    def requested(self, owner_key: str, locks: tuple[Lock, ...] = ()) -> RequestedLocks:
        """What an owner's request for *locks* is to the statements."""
        return RequestedLocks(self.tables.name, owner_key, locks)

    def enter(self, connection: Connection, locks: RequestedLocks) -> tuple[int, int, Record | None]:
        """Keep out every request that may conflict, and every process that acts for the owner.

        :return: the time, a number larger than any before, and the owner's record.
        """
        self.dialect.enter(connection, locks.keys)
        row = connection.execute(self._enter, {"of_key": locks.owner_key}).one()
        return row.now_us, row.drawn, None if row.owner_key is None else Record.of(row)

    def records(self, connection: Connection, *where: ColumnElement[bool], **values: Any) -> list[Record]:
        """The records of which all of *where* is so, in the order of their places."""
        request = self.tables.request
        rows = connection.execute(select(request).where(*where).order_by(request.c.place), values)
        return [Record.of(row) for row in rows]

    def epochs(self, places: Iterable[int]) -> dict[int, int]:
        """The epoch of each request, among those at *places*, that still keeps others waiting."""
        given = {"places": self.dialect.numbers(places)}
        rows = self.read(lambda connection: connection.execute(self._epochs, given).all())
        return {row.place: row.epoch for row in rows}

    @cached_property
    def _epochs(self) -> Select[tuple[int, int]]:
        request = self.tables.request.c
        alive = (self.dialect.among(request.place, "places"), or_(self.queued, self.held), not_(self.void))
        return select(request.place, request.epoch).where(*alive)

    @cached_property
    def _enter(self) -> Select[Any]:
        request = self.tables.request
        own = request.c.owner_key == bindparam("of_key")
        once = select(literal(1).label("one")).subquery()
        return select(self.clock_us.label("now_us"), self.dialect.number.label("drawn"), request).select_from(
            once.outerjoin(request, own)
        )

    @cached_property
    def _in_the_way(self) -> Select[Any]:
        """Requests that came before ``of_place`` and conflict: of the living the nearest and the first, and all void."""
        request, lock = self.tables.request, self.tables.lock
        excluded = or_(
            self.dialect.among(lock.c.object_key, "exclusive"),
            and_(self.dialect.among(lock.c.object_key, "shared"), lock.c.lease_type == "x"),
        )
        place = lock.c.place + 0  # or the primary key is read from end to end, with all the rows that were
        nth = func.row_number().over(partition_by=place, order_by=lock.c.position)
        found = (
            select(lock.c.db_name, lock.c.table_name, lock.c.partition_name, lock.c.lease_type)
            .add_columns(place.label("place"), nth.label("nth"))
            .where(excluded, place < bindparam("of_place"))
            .subquery("found")
        )
        met = (
            select(request.c.owner, request.c.state, request.c.end_us, case((self.void, 1), else_=0).label("void"))
            .add_columns(found.c.place, found.c.db_name, found.c.table_name, found.c.partition_name, found.c.lease_type)
            .join_from(found, request, request.c.place == found.c.place)
            .where(found.c.nth == 1)
            .cte("met")
        )
        ends = (select(end(met.c.place)).where(met.c.void == 0) for end in (func.max, func.min))
        return (
            select(met)
            .where(or_(met.c.void == 1, met.c.place.in_(union_all(*ends))))
            .order_by(met.c.void, met.c.place.desc())
        )

    # Granting.

    def grant(self, mine: Record, locks: RequestedLocks, *, waits: bool) -> Outcome | None:
        """In one transaction, keep out every request that may conflict, and grant *mine* or have it wait.

        :param mine: WAITING in its place, or without one: then a new place is drawn, and what is over is replaced.
        :param waits: it takes a place, or keeps its own, where it does not get its locks.
        :return: None where its row is not, or no longer, what *mine* says, or what is in the way ends at this moment; at
            most, word was left then for a request that does not wait.
        """
        functions = self.dialect.functions
        if functions is None:
            return self.transact(lambda connection: self._grant(connection, mine, locks, waits))
        tried = self.drive(
            lambda session: functions.grant(session, mine, locks, waits=waits, frees=self.frees, dead_us=DEAD_US)
        )
        if tried is None:
            return None
        now_us, ahead, void = tried["now_us"], tried.get("ahead", ()), tried.get("void", ())
        return _outcome(mine, tried["number"], now_us, ahead, void, waits)

    def _grant(self, connection: Connection, mine: Record, locks: RequestedLocks, waits: bool) -> Outcome | None:
        now_us, number, existing = self.enter(connection, locks)
        known = existing is None or existing.epoch == mine.epoch
        over = existing is None or existing.state in (State.FREE, State.ENDED)
        waiting = existing is not None and existing.state is State.WAITING
        if not known or not (waiting if mine.place else over):
            return None
        given = {name: self.dialect.numbers(keys) for name, keys in locks.objects.items()}
        found = connection.execute(self._in_the_way, {**given, "of_place": mine.place or EVERY_PLACE}).all()
        ahead, void = [row._asdict() for row in found if not row.void], [row.place for row in found if row.void]
        outcome = _outcome(mine, number, now_us, ahead, void, waits)
        if ahead and waits and not self.queue_behind(connection, ahead[0]["place"]):
            return None
        if not outcome.void:
            record = outcome.record
            fresh = record.place != mine.place and record.state is not State.FREE
            self.put(connection, record, existing, locks.rows if fresh else ())
        return outcome

    def release(self, lease: Lease) -> bool:
        """End a grant; False if there is none, or if it is another process's now."""
        functions, given = self.dialect.functions, of(lease)
        if functions is None:
            return self.transact(lambda connection: self.end(connection, State.ENDED, "of_lease", **given))
        return self.drive(lambda session: functions.release(session, *given.values(), frees=self.frees))

    # Writing.

    def put(
        self, connection: Connection, record: Record, existing: Record | None, locks: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Write the record over the owner's *existing* one, and the rows of *locks* that it has got."""
        request = self.tables.request
        if existing is not None and (changed := record.changes(existing)):
            connection.execute(update(request).where(request.c.owner_key == record.owner_key).values(changed))
        values = record._asdict() if existing is None else None
        if locks:
            self.dialect.add(connection, values, [{**row, "place": record.place} for row in locks])
        elif values:
            connection.execute(insert(request), values)

    def queue_behind(self, connection: Connection, place: int) -> bool:
        """Have the end of the request at *place* be told to its waiters; False if it has ended."""
        return connection.execute(self._behind, {"of_place": place}).rowcount > 0

    @cached_property
    def _behind(self) -> Update:
        request = self.tables.request
        there = (request.c.place == bindparam("of_place"), or_(self.queued, self.held))
        heard = case((request.c.audience < THOSE_BEHIND, THOSE_BEHIND), else_=request.c.audience)
        return update(request).where(*there).values(audience=heard)

    def leave_word(self, connection: Connection, *where: ColumnElement[bool], **values: Any) -> int:
        """Have the end of the requests of which *where* is so be told to everybody; how many there are."""
        told = update(self.tables.request).where(*where).values(audience=EVERYBODY)
        return int(connection.execute(told, values).rowcount)

    def end(self, connection: Connection, state: State, which: str, **values: Any) -> bool:
        """End a request, to be ENDED or FREE, and tell its audience. False if there is none.

        :param which: at the place ``of_place``, ``standing``, ``queued``, ``held`` or ``void``; or ``of_lease``.
        """
        gone = self.dialect.end(connection, self._ends[state, which], values)
        if gone is None:
            return False
        place, audience = gone
        if audience:
            self.dialect.tell(connection, place, audience)
        return True

    @cached_property
    def _ends(self) -> Mapping[tuple[State, str], Update]:
        request = self.tables.request
        at_place = request.c.place == bindparam("of_place")
        conditions = {
            "standing": and_(at_place, self.standing),
            "queued": and_(at_place, self.queued),
            "void": and_(at_place, self.void),
            "held": and_(at_place, self.held),
            "of_lease": self.of_lease,
        }
        now_us = self.clock_us
        ended_us = case((request.c.end_us < now_us, request.c.end_us), else_=now_us) if self.frees else now_us
        return {
            (state, which): update(request)
            .where(condition)
            .values(state=state.value, ended_us=ended_us if state is State.ENDED else None)
            for which, condition in conditions.items()
            for state in (State.ENDED, State.FREE)
        }

    def clear(self, connection: Connection, *where: ColumnElement[bool]) -> int:
        """Take away the void requests of which *where* is so, but for those that another transaction is at; how many."""
        request = self.tables.request
        found = select(request.c.place, request.c.state).where(self.void, *where).order_by(request.c.place)
        rows = connection.execute(found.with_for_update(skip_locked=True)).all()
        states = {State.GRANTED.value: State.ENDED}
        return sum(self.end(connection, states.get(row.state, State.FREE), "void", of_place=row.place) for row in rows)

    def take_away(self, void: Iterable[int]) -> None:
        """:meth:`clear` what is at those places."""
        at_places = self.tables.request.c.place.in_(void)
        self.transact(lambda connection: self.clear(connection, at_places))

    def sign(self, waiting: Sequence[tuple[int, int]]) -> None:
        """Give a sign of life for requests by place and epoch; for those that another transaction is at, the next time."""
        if waiting:
            self.transact(lambda connection: self._sign(connection, dict(waiting)))

    def declare_dead(self, owner_key: str, process: str) -> None:
        """Take the sign of life from a request that waits, if that process still acts for its owner."""
        request = self.tables.request
        mine = (request.c.owner_key == owner_key, request.c.process == process, self.queued)
        self.write(lambda connection: connection.execute(update(request).where(*mine).values(seen_us=0)).rowcount)

    def _sign(self, connection: Connection, epochs: Mapping[int, int]) -> None:
        waiting, signed = self._signing
        found = connection.execute(waiting, {"places": self.dialect.numbers(epochs)})
        living = [row.place for row in found if row.epoch == epochs[row.place]]
        connection.execute(signed, {"places": self.dialect.numbers(living)})

    @cached_property
    def _signing(self) -> tuple[Select[tuple[int, int]], Update]:
        request = self.tables.request
        among = self.dialect.among(request.c.place, "places")
        waiting = select(request.c.place, request.c.epoch).where(among, self.queued).order_by(request.c.place)
        return waiting.with_for_update(skip_locked=True), update(request).where(among).values(seen_us=self.clock_us)


def of(lease: Lease) -> dict[str, Any]:
    """What :attr:`Store.of_lease` is bound to."""
    key, place = parse_id(lease.id)
    return {"of_key": key, "of_place": place, "of_epoch": lease.epoch}


def parse_id(lease_id: str) -> tuple[str, int]:
    """The owner's key, and the place; -1 for what is not an id of this backend's."""
    key, _, place = lease_id.rpartition("-")
    return key, int(place) if place.isascii() and place.isdecimal() and len(place) < 19 else -1


def _outcome(
    mine: Record, number: int, now_us: int, ahead: Sequence[Mapping[str, Any]], void: Sequence[int], waits: bool
) -> Outcome:
    if void and not ahead:
        return Outcome(mine, now_us, void=void)
    record = mine.tried(number, now_us, ahead[0]["place"] if ahead else None, waits=waits)
    return Outcome(record, now_us, [_ahead(row) for row in ahead])


def _ahead(row: Mapping[str, Any]) -> Ahead:
    try:
        validate.texts(row, ("db_name", "table_name", "partition_name", "owner"))
        levels = tuple(unescape_level(level) for level in row["partition_name"].split("/") if level)
        target = LockObject(row["db_name"], row["table_name"], levels)
    except (TypeError, ValueError) as error:
        raise StoreCorrupted(
            f"{dict(row)!r:.200} is no lock of airflow-hivelock's ({error}); somebody else wrote it"
        ) from error
    mode = LockMode.EXCLUSIVE if row["lease_type"] == "x" else LockMode.SHARED
    waiting = row["state"] == State.WAITING.value
    return Ahead(row["place"], None if waiting else row["end_us"], Blocker(row["owner"], target, mode, waiting))
