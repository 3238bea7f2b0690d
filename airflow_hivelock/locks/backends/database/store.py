"""The statements: what is asked of the tables, and what is written to them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    and_,
    bindparam,
    case,
    delete,
    false,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    update,
)

from airflow_hivelock.locks.backends.database.order import Attempt, Other, Outcome, decide
from airflow_hivelock.locks.backends.database.record import EVERYBODY, THOSE_BEHIND, Record, State, later
from airflow_hivelock.locks.backends.database.request import RequestedLocks
from airflow_hivelock.locks.backends.database.sessions import Sessions
from airflow_hivelock.locks.model import owner_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sqlalchemy import URL, ColumnElement, Connection, Select, Update

    from airflow_hivelock.locks.backends.database.dialect import DatabaseDialect
    from airflow_hivelock.locks.backends.database.tables import StoreTables
    from airflow_hivelock.locks.model import Lease, Lock

DEAD_US = 30_000_000
"""How long after its last sign of life a waiter's place keeps others waiting."""

PASSING_S = 3600.0
"""How long a request that waits is passed by more urgent ones, unless the URL says otherwise."""


class Living(NamedTuple):
    """A request that keeps others waiting.

    :param parked: it waits for a lease of its group.
    :param behind: it waits for another, which has not let it go.
    :param audience: what is told of its end.
    """

    epoch: int
    parked: bool
    behind: bool
    audience: int


class Store(Sessions):
    """The tables behind one engine.

    :param frees: an expired lease blocks nobody.
    :param passing_s: how long a request that waits is passed by more urgent ones, in seconds; 0: never.
    """

    def __init__(
        self,
        url: URL,
        dialect: DatabaseDialect,
        tables: StoreTables,
        *,
        frees: bool,
        timeout_s: float,
        passing_s: float = PASSING_S,
    ) -> None:
        super().__init__(url, dialect, tables.name, timeout_s)
        self.tables, self.frees, self.passing_us = tables, frees, later(0, passing_s)

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
        """Whether a request waits, for locks or for a lease of its group."""
        return self.tables.request.c.state.in_((State.WAITING.value, State.PARKED.value))

    @cached_property
    def aside(self) -> ColumnElement[bool]:
        """Whether a request has stepped aside."""
        return self.tables.request.c.state == State.AWAY.value

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

    def requested(self, key: str, locks: tuple[Lock, ...] = (), group_key: int | None = None) -> RequestedLocks:
        """What an owner's request for *locks* is to the statements."""
        return RequestedLocks(self.tables.name, key, locks, group_key)

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

    def living(self, places: Iterable[int]) -> dict[int, Living]:
        """Of the requests at *places*, those that still keep others waiting."""
        given = {"places": self.dialect.numbers(places)}
        rows = self.read(lambda connection: connection.execute(self._living, given).all())
        return {
            row.place: Living(row.epoch, row.state == State.PARKED.value, row.ahead is not None, row.audience)
            for row in rows
        }

    @cached_property
    def _living(self) -> Select[tuple[int, int, str, int | None, int]]:
        request = self.tables.request.c
        alive = (self.dialect.among(request.place, "places"), or_(self.queued, self.held), not_(self.void))
        return select(request.place, request.epoch, request.state, request.ahead, request.audience).where(*alive)

    @cached_property
    def _enter(self) -> Select[Any]:
        request = self.tables.request
        own = request.c.owner_key == bindparam("of_key")
        once = select(literal(1).label("one")).subquery()
        return select(self.clock_us.label("now_us"), self.dialect.number.label("drawn"), request).select_from(
            once.outerjoin(request, own)
        )

    @cached_property
    def _conflicting(self) -> Select[Any]:
        """The requests other than ``of_place`` that wait for or hold what conflicts, each with its first such lock."""
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
            .where(excluded, place != bindparam("of_place"))
            .subquery("found")
        )
        return (
            select(found.c.place, found.c.db_name, found.c.table_name, found.c.partition_name, found.c.lease_type)
            .add_columns(request.c.owner, request.c.state, request.c.priority, request.c.end_us)
            .add_columns(request.c.turn, request.c.turn_us, case((self.void, 1), else_=0).label("void"))
            .join_from(found, request, request.c.place == found.c.place)
            .where(found.c.nth == 1)
        )

    @cached_property
    def _in_group(self) -> Select[Any]:
        """The requests other than ``of_place`` that wait for or have a lease of the group ``of_group``."""
        request = self.tables.request.c
        return (
            select(request.place, request.owner, request.state, request.priority, request.end_us, request.locks)
            .add_columns(request.group_turn.label("turn"), request.group_turn_us.label("turn_us"))
            .add_columns(case((self.void, 1), else_=0).label("void"))
            .where(request.group_key == bindparam("of_group"), request.place != bindparam("of_place"))
            .where(request.state.in_((State.PARKED.value, State.GRANTED.value)))
        )

    # Granting.

    def grant(self, mine: Record, locks: RequestedLocks, *, waits: bool, late: bool = False) -> Outcome | None:
        """In one transaction, keep out every request that may conflict, and grant *mine* or have it wait.

        :param mine: WAITING or PARKED in its place, or without one: then a new place is drawn, and what is over is
            replaced.
        :param waits: it takes a place, or keeps its own, where it does not get its locks.
        :param late: it steps aside where it could have them.
        :return: None where its row is not, or no longer, what *mine* says, or what is in the way ends at this moment; at
            most, word was left then for a request that does not wait.
        """
        functions = self.dialect.functions
        if functions is None:
            return self.transact(lambda connection: self._grant(connection, mine, locks, waits, late))
        bounds = (self.frees, DEAD_US, self.passing_us)
        return self.drive(lambda session: functions.grant(session, mine, locks, *bounds, waits=waits, late=late))

    def _grant(
        self, connection: Connection, mine: Record, locks: RequestedLocks, waits: bool, late: bool = False
    ) -> Outcome | None:
        now_us, number, existing = self.enter(connection, locks)
        known = existing is None or existing.epoch == mine.epoch
        over = existing is None or existing.state in (State.FREE, State.AWAY, State.ENDED)
        queued = existing is not None and existing.queued and existing.state is mine.state
        if not known or not (queued if mine.place else over):
            return None
        given: dict[str, Any] = {name: self.dialect.numbers(keys) for name, keys in locks.objects.items()}
        found = self._others(connection, self._conflicting, {**given, "of_place": mine.place})
        in_group = {"of_group": mine.group_key, "of_place": mine.place}
        group = [] if mine.group_key is None else self._others(connection, self._in_group, in_group)
        outcome = decide(mine, Attempt(now_us, number, waits, late, self.passing_us), found, group)
        if outcome.void:
            return outcome
        if waits and not self._queue_behind(connection, outcome.behind):
            return None
        self._move(connection, mine, outcome.record, existing, locks)
        return outcome

    def _others(self, connection: Connection, what: Select[Any], given: Mapping[str, Any]) -> list[Other]:
        return [Other.of(row._asdict()) for row in connection.execute(what, given)]

    def _move(
        self, connection: Connection, mine: Record, record: Record, existing: Record | None, locks: RequestedLocks
    ) -> None:
        """Write what has become of *mine*, with its locks where it is in their queue, and tell whom it was in the way of."""
        queued = (State.WAITING, State.GRANTED)
        had, has = bool(mine.place) and mine.state in queued, record.state in queued
        self.put(connection, record, existing, locks.rows if has and not had else ())
        if had and not has:
            connection.execute(delete(self.tables.lock).where(self.tables.lock.c.place == record.place))
        if mine.place and (had, mine.state is State.PARKED) != (has, record.state is State.PARKED):
            self.dialect.tell(connection, record.place, THOSE_BEHIND)

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
        if existing is None:
            connection.execute(insert(request), record._asdict())
        elif changed := record.changes(existing):
            connection.execute(update(request).where(request.c.owner_key == record.owner_key).values(changed))
        if locks:
            connection.execute(insert(self.tables.lock), [{**row, "place": record.place} for row in locks])

    def _queue_behind(self, connection: Connection, places: Collection[int]) -> bool:
        """Have the ends of the requests at *places* be told to their waiters; False if one of them has ended."""
        given = {"places": self.dialect.numbers(places)}
        return not places or connection.execute(self._behind, given).rowcount == len(places)

    @cached_property
    def _behind(self) -> Update:
        request = self.tables.request
        there = (self.dialect.among(request.c.place, "places"), or_(self.queued, self.held))
        heard = case((request.c.audience < THOSE_BEHIND, THOSE_BEHIND), else_=request.c.audience)
        return update(request).where(*there).values(audience=heard)

    def leave_word(self, connection: Connection, *where: ColumnElement[bool], **values: Any) -> int:
        """Have the end of the requests of which *where* is so be told to everybody; how many there are."""
        told = update(self.tables.request).where(*where).values(audience=EVERYBODY)
        return int(connection.execute(told, values).rowcount)

    def end(self, connection: Connection, state: State, which: str, **values: Any) -> bool:
        """End a request, to be ENDED or FREE, and tell its audience. False if there is none.

        :param which: at the place ``of_place``, ``standing``, ``queued``, ``aside``, ``held`` or ``void``; or ``of_lease``.
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
            "aside": and_(at_place, self.aside),
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
        mine = (among, self.queued, request.c.seen_us > 0)  # or one that was just handed over would live on
        waiting = select(request.c.place, request.c.epoch).where(*mine).order_by(request.c.place)
        return waiting.with_for_update(skip_locked=True), update(request).where(among).values(seen_us=self.clock_us)


def of(lease: Lease) -> dict[str, Any]:
    """What :attr:`Store.of_lease` is bound to."""
    return {"of_key": owner_key(lease.owner), "of_place": place_of(lease.id), "of_epoch": lease.epoch}


def place_of(lease_id: str) -> int:
    """The place of the request, whose lease has that number; -1 for what is not an id of this backend's."""
    return int(lease_id) if lease_id.isascii() and lease_id.isdecimal() and len(lease_id) < 19 else -1
