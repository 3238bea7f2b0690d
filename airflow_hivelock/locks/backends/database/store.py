"""The statements: what is asked of the tables, and what is written to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    and_,
    bindparam,
    case,
    false,
    func,
    insert,
    literal,
    literal_column,
    not_,
    or_,
    select,
    true,
    union_all,
    update,
)

from airflow_hivelock.locks import names, validate
from airflow_hivelock.locks.backends.database.dialect import EVERYBODY, THOSE_BEHIND
from airflow_hivelock.locks.backends.database.prepared import PreparedStatements, driver
from airflow_hivelock.locks.backends.database.record import Record, State
from airflow_hivelock.locks.backends.database.sessions import Sessions
from airflow_hivelock.locks.backends.database.wanted import Wanted
from airflow_hivelock.locks.errors import StoreCorrupted
from airflow_hivelock.locks.model import Blocker, LockMode, LockObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import URL, ColumnElement, Connection, Select, Update

    from airflow_hivelock.locks.backends.database.dialect import Dialect
    from airflow_hivelock.locks.backends.database.prepared import Prepared
    from airflow_hivelock.locks.backends.database.tables import Tables
    from airflow_hivelock.locks.model import Lease, Lock

DEAD_US = 30_000_000
"""How long after its last sign of life a waiter's place keeps others waiting."""


@dataclass(frozen=True)
class InTheWay:
    """A request that came earlier, and a lock of its that conflicts.

    :param void: a dead waiter, or an expired lease where those are free: it may be taken away.
    :param end_us: when its lease ends; None while it waits.
    """

    place: int
    void: bool
    end_us: int | None
    blocker: Blocker


class Store(Sessions):
    """The tables behind one engine.

    :param frees: an expired lease blocks nobody.
    """

    def __init__(self, url: URL, dialect: Dialect, tables: Tables, *, frees: bool, timeout_s: float) -> None:
        super().__init__(url, dialect, tables.name, timeout_s)
        self.tables, self.frees = tables, frees
        self._prepared = PreparedStatements(self.engine)
        self._changes: dict[tuple[str, ...], Update] = {}

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

    def wanted(self, owner_key: str, locks: tuple[Lock, ...] = ()) -> Wanted:
        """What an owner's request for *locks* is to the statements."""
        return Wanted(self.tables.name, self.dialect, owner_key, locks)

    def enter(self, connection: Connection, wanted: Wanted) -> tuple[int, int, Record | None, list[InTheWay]]:
        """Keep out everybody whose request may conflict, or who acts for the owner.

        :return: the time, a number larger than any before, the owner's record, and who is :meth:`in_the_way` of it;
            if it neither waits nor holds, of a new request.
        """
        given = {"of_key": wanted.owner_key, **wanted.objects}
        self.dialect.enter(connection, wanted)
        rows = self._prepared[self._enter].all(driver(connection), given)
        record = Record.of(rows[0]) if rows[0].owner_key is not None else None
        ahead = [_in_the_way(row) for row in rows if row.ahead_place is not None]
        return rows[0].now_us, rows[0].drawn, record, ahead

    def in_the_way(self, connection: Connection, wanted: Wanted, place: int) -> list[InTheWay]:
        """Who came before *place* and conflicts: of those that live the nearest and then the first, and all that are void."""
        given = {"of_place": place, **wanted.objects}
        return [_in_the_way(row) for row in self._prepared[self._in_the_way].all(driver(connection), given)]

    def records(self, connection: Connection, *where: ColumnElement[bool], **values: Any) -> list[Record]:
        """The records of which all of *where* is so, in the order of their places."""
        request = self.tables.request
        rows = connection.execute(select(request).where(*where).order_by(request.c.place), values)
        return [Record.of(row) for row in rows]

    def epochs(self, places: Iterable[int]) -> dict[int, int]:
        """The epoch of each request, among those at *places*, that still keeps others waiting."""
        given = {"places": self.dialect.numbers(places)}
        return dict(self.drive(lambda session: self._prepared[self._epochs].all(session, given)))

    @cached_property
    def _epochs(self) -> Select[tuple[int, int]]:
        request = self.tables.request.c
        alive = (self.dialect.among(request.place, "places"), or_(self.queued, self.held), not_(self.void))
        return select(request.place, request.epoch).where(*alive)

    @cached_property
    def _enter(self) -> Select[Any]:
        request = self.tables.request
        own = request.c.owner_key == bindparam("of_key")
        mine = select(request.c.place).where(own, or_(self.queued, self.held)).scalar_subquery()
        ahead = self._conflicts(func.coalesce(mine, literal_column(str(1 << 62)))).subquery("ahead")
        once = select(literal(1).label("one")).subquery()
        return (
            select(self.clock_us.label("now_us"), self.dialect.number.label("drawn"), request, ahead)
            .select_from(once.outerjoin(request, own).outerjoin(ahead, true()))
            .order_by(ahead.c.ahead_void, ahead.c.ahead_place.desc())
        )

    @cached_property
    def _in_the_way(self) -> Select[Any]:
        found = self._conflicts(bindparam("of_place")).subquery()
        return select(found).order_by(found.c.ahead_void, found.c.ahead_place.desc())

    def _conflicts(self, mine: ColumnElement[Any]) -> Select[Any]:
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
            .where(excluded, place < mine)
            .subquery("found")
        )
        held = (
            select(
                request.c.owner.label("ahead_owner"),
                request.c.state.label("ahead_state"),
                request.c.end_us.label("ahead_end_us"),
                found.c.place.label("ahead_place"),
                case((self.void, 1), else_=0).label("ahead_void"),
                found.c.db_name,
                found.c.table_name,
                found.c.partition_name,
                found.c.lease_type,
            )
            .join_from(found, request, request.c.place == found.c.place)
            .where(found.c.nth == 1)
            .cte("held")
        )
        ends = (select(end(held.c.ahead_place)).where(held.c.ahead_void == 0) for end in (func.max, func.min))
        return select(held).where(or_(held.c.ahead_void == 1, held.c.ahead_place.in_(union_all(*ends))))

    # Writing.

    def take_turn(self, record: Record, wanted: Wanted, waits: bool) -> tuple[int, int, list[InTheWay]] | None:
        """Grant a request that has no place yet, or that waits, or have it wait; None if there is more to it.

        :return: as :meth:`enter`, without the record.
        """
        taken = self.drive(
            lambda session: self.dialect.take_turn(
                session, record, wanted, waits=waits, frees=self.frees, dead_us=DEAD_US
            )
        )
        if taken is None:
            return None
        now_us, number, ahead = taken
        return now_us, number, [_in_the_way(row) for row in ahead]

    def release(self, lease: Lease) -> bool:
        """End a grant; False if there is none, or if it is another process's now."""
        key, place = parse_id(lease.id)
        return self.drive(lambda session: self.dialect.release(session, key, place, lease.epoch, frees=self.frees))

    def put(
        self, connection: Connection, record: Record, existing: Record | None, locks: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Write the record over the owner's *existing* one, and the rows of *locks* that it has got."""
        request = self.tables.request
        if existing is not None and (changed := record.changes(existing)):
            names = tuple(changed)
            if names not in self._changes:
                one = update(request).where(request.c.owner_key == bindparam("of_key"))
                self._changes[names] = one.values({name: bindparam(name) for name in names})
            given = {**changed, "of_key": record.owner_key}
            self._prepared[self._changes[names]].count(driver(connection), given)
        values = record._asdict() if existing is None else None
        if locks:
            self.dialect.add(connection, values, [{**row, "place": record.place} for row in locks])
        elif values:
            connection.execute(insert(request), values)

    def queue_behind(self, connection: Connection, place: int) -> bool:
        """Have the end of the request at *place* be told to those who wait for it; False if it has ended."""
        return self._prepared[self._behind].count(driver(connection), {"of_place": place}) > 0

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

        :param which: at the place ``of_place``, ``standing``, ``queued``, ``held`` or ``void``.
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

    def sign(self, waiting: Sequence[tuple[int, int]]) -> None:
        """Give a sign of life for requests by place and epoch; for those that another transaction is at, the next time."""
        if waiting:
            signing = [self._prepared[statement] for statement in self._signing]  # before the transaction
            self.transact(lambda connection: self._sign(driver(connection), dict(waiting), *signing))

    def declare_dead(self, owner_key: str, process: str) -> None:
        """Take the sign of life from a request that waits, if that process still acts for its owner."""
        request = self.tables.request
        mine = (request.c.owner_key == owner_key, request.c.process == process, self.queued)
        self.write(lambda connection: connection.execute(update(request).where(*mine).values(seen_us=0)).rowcount)

    def _sign(self, session: Any, epochs: Mapping[int, int], waiting: Prepared, signed: Prepared) -> None:
        found = waiting.all(session, {"places": self.dialect.numbers(epochs)})
        living = [row.place for row in found if row.epoch == epochs[row.place]]
        signed.count(session, {"places": self.dialect.numbers(living)})

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


def _in_the_way(row: Any) -> InTheWay:
    try:
        validate.texts(row._asdict(), ("db_name", "table_name", "partition_name", "ahead_owner"))
        levels = tuple(names.unescape_level(level) for level in row.partition_name.split("/") if level)
        target = LockObject(row.db_name, row.table_name, levels)
    except (TypeError, ValueError) as error:
        raise StoreCorrupted(
            f"{row!r:.200} is no lock of airflow-hivelock's ({error}); somebody else wrote it"
        ) from error
    mode = LockMode.EXCLUSIVE if row.lease_type == "x" else LockMode.SHARED
    waiting = row.ahead_state == State.WAITING.value
    blocker = Blocker(row.ahead_owner, target, mode, waiting)
    return InTheWay(row.ahead_place, bool(row.ahead_void), None if waiting else row.ahead_end_us, blocker)
