"""The statements, and the transactions that they run in."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import and_, bindparam, case, delete, exc, func, insert, literal, not_, or_, select, union_all, update

from airflow_hivelock.locks import names
from airflow_hivelock.locks.backends.database.keys import number, object_key, units
from airflow_hivelock.locks.backends.database.record import Record, State
from airflow_hivelock.locks.errors import StoreCorrupted, StoreUnavailable
from airflow_hivelock.locks.model import Blocker, LockMode, LockObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sqlalchemy import URL, ColumnElement, Connection, Row, Select

    from airflow_hivelock.locks.backends.database.dialect import Dialect, Ears
    from airflow_hivelock.locks.backends.database.tables import Tables
    from airflow_hivelock.locks.model import Lock

    Result = TypeVar("Result")

log = logging.getLogger(__name__)

DEAD_US = 30_000_000
"""How long after its last sign of life a waiter's place keeps others waiting."""

MAX_TRIES = 10
"""How often a transaction that another one has made to fail is tried again."""


@dataclass(frozen=True)
class InTheWay:
    """A request that came earlier, and a lock of its that conflicts.

    :param void: a dead waiter, or an expired lease where those are free: it may be taken away.
    """

    owner_key: str
    place: int
    void: bool
    end_us: int | None
    blocker: Blocker


class Store:
    """The tables behind one engine.

    :param frees: an expired lease blocks nobody.
    """

    def __init__(self, url: URL, dialect: Dialect, tables: Tables, *, frees: bool, timeout_s: float) -> None:
        self.url, self.dialect, self.tables, self.frees = url, dialect, tables, frees
        self.engine = dialect.engine(url, timeout_s)
        self._reading, self._writing = dialect.reading(self.engine), dialect.writing(self.engine)

    def __repr__(self) -> str:
        return f"{self.url.render_as_string(hide_password=True)} {self.tables.name}*"

    # Transactions.

    def transact(self, work: Callable[[Connection], Result]) -> Result:
        """What *work* returns, once it is committed.

        :raises StoreUnavailable: whether it was committed is not known.
        """
        for tries in range(MAX_TRIES):
            try:
                with self._translated(), self.engine.begin() as connection:
                    return work(connection)
            except _Passing:
                log.debug("transaction %d of %s was the victim of another", tries + 1, self)
        raise StoreUnavailable(f"{self}: {MAX_TRIES} transactions in turn were the victims of others; try again")

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """What *work* finds."""
        with self._translated(), self._reading.connect() as connection:
            return work(connection)

    def write(self, statement: Any, values: dict[str, Any] | None = None) -> int:
        """Run one statement in a transaction of its own; how many rows it has changed."""
        with self._translated(), self._writing.begin() as connection:
            return int(connection.execute(statement, values).rowcount)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except exc.DBAPIError as error:
            cause = str(error.orig).strip().partition("\n")[0]
            if self.dialect.passing(error.orig):
                raise _Passing(f"{self}: {cause}") from error
            if isinstance(error, exc.OperationalError | exc.InterfaceError | exc.InternalError):
                raise StoreUnavailable(f"{self} does not answer: {cause}") from error
            raise StoreCorrupted(f"{self} is not as this version of airflow-hivelock made it: {cause}") from error
        except exc.TimeoutError as error:
            raise StoreUnavailable(f"{self}: all connections of the pool are busy; try again") from error

    # Reading.

    @property
    def clock_us(self) -> ColumnElement[int]:
        return self.dialect.clock_us

    @cached_property
    def standing(self) -> ColumnElement[bool]:
        """Whether a request holds its locks."""
        request = self.tables.request.c
        held = request.state == State.GRANTED.value
        return and_(held, request.end_us > self.clock_us) if self.frees else held

    @cached_property
    def void(self) -> ColumnElement[bool]:
        """Whether a request keeps others waiting for nothing."""
        request = self.tables.request.c
        dead = and_(request.state == State.WAITING.value, request.seen_us < self.clock_us - DEAD_US)
        expired = and_(request.state == State.GRANTED.value, request.end_us <= self.clock_us)
        return or_(dead, expired) if self.frees else dead

    def enter(self, connection: Connection, owner_key: str, locks: Iterable[Lock]) -> tuple[int, int, Record | None]:
        """Keep out everybody whose request may conflict, or who acts for the owner.

        :return: the time, a number larger than any before, and the owner's record.
        """
        keys = {number(self.tables.name, str(unit)): exclusive for unit, exclusive in units(locks).items()}
        keys[number(self.tables.name, "owner", owner_key)] = True
        self.dialect.lock(connection, keys)
        request, once = self.tables.request, select(literal(1).label("one")).subquery()
        drawn = self.dialect.number(connection, self.tables).label("drawn")
        row = connection.execute(
            select(self.clock_us.label("now_us"), drawn, request).select_from(
                once.outerjoin(request, request.c.owner_key == bindparam("key"))
            ),
            {"key": owner_key},
        ).one()
        return row.now_us, row.drawn, Record.of(row) if row.owner_key is not None else None

    def records(self, connection: Connection, *where: ColumnElement[bool]) -> list[Record]:
        """The records of which all of *where* is so, in the order of their places."""
        request = self.tables.request
        rows = connection.execute(select(request).where(*where).order_by(request.c.place))
        return [Record.of(row) for row in rows]

    def in_the_way(self, connection: Connection, locks: Iterable[Lock], place: int) -> list[InTheWay]:
        """Who came before *place* and conflicts: of those that live the nearest and then the first, and all that are void."""
        keys: dict[LockMode, list[int]] = {mode: [] for mode in LockMode}
        for lock in locks:
            keys[lock.mode].append(object_key(lock.object))
        given = {
            "shared": self.dialect.numbers(keys[LockMode.SHARED]),
            "exclusive": self.dialect.numbers(keys[LockMode.EXCLUSIVE]),
            "mine": place,
        }
        return [_in_the_way(row) for row in connection.execute(self._conflicts, given)]

    @cached_property
    def _conflicts(self) -> Select[Any]:
        request, lock = self.tables.request, self.tables.lock
        excluded = or_(
            self.dialect.among(lock.c.object_key, "exclusive"),
            and_(self.dialect.among(lock.c.object_key, "shared"), lock.c.lease_type == "x"),
        )
        found = (
            select(lock.c.place, func.min(lock.c.position).label("position"))
            .where(excluded, lock.c.place < bindparam("mine"))
            .group_by(lock.c.place)
            .cte("found")
        )
        void = case((self.void, 1), else_=0).label("void")
        held = (
            select(request.c.owner_key, request.c.owner, request.c.state, request.c.end_us, found, void)
            .join_from(found, request, request.c.place == found.c.place)
            .cte("held")
        )
        ends = (select(end(held.c.place)).where(held.c.void == 0) for end in (func.max, func.min))
        return (
            select(held, lock.c.db_name, lock.c.table_name, lock.c.partition_name, lock.c.lease_type)
            .join_from(held, lock, and_(lock.c.place == held.c.place, lock.c.position == held.c.position))
            .where(or_(held.c.void == 1, held.c.place.in_(union_all(*ends))))
            .order_by(held.c.void, held.c.place.desc())
        )

    def epochs(self, places: Iterable[int]) -> dict[int, int]:
        """The epoch of each request, among those at *places*, that still keeps others waiting."""
        request = self.tables.request.c
        found = select(request.place, request.epoch).where(
            self.dialect.among(request.place, "places"),
            request.state.in_((State.WAITING.value, State.GRANTED.value)),
            not_(self.void),
        )
        given = {"places": self.dialect.numbers(places)}
        return self.read(lambda connection: {row.place: row.epoch for row in connection.execute(found, given)})

    def ears(self) -> Ears:
        """A connection that hears of changes."""
        with self._translated():
            return self.dialect.ears(self.engine, self.tables)

    # Writing.

    def sign(self, waiting: Sequence[tuple[int, int]]) -> None:
        """Give a sign of life for requests by place and epoch; for those that another transaction is at, the next time."""
        if not waiting:
            return
        request, epochs = self.tables.request.c, dict(waiting)

        def sign(connection: Connection) -> None:
            mine = select(request.place, request.epoch).where(
                self.dialect.among(request.place, "places"), request.state == State.WAITING.value
            )
            found = connection.execute(
                mine.order_by(request.place).with_for_update(skip_locked=True),
                {"places": self.dialect.numbers(epochs)},
            )
            living = [row.place for row in found if row.epoch == epochs[row.place]]
            connection.execute(
                update(self.tables.request)
                .where(self.dialect.among(request.place, "places"))
                .values(seen_us=self.clock_us),
                {"places": self.dialect.numbers(living)},
            )

        self.transact(sign)

    def put(self, connection: Connection, record: Record, existing: Record | None) -> None:
        """Write the record over the owner's *existing* one."""
        request = self.tables.request
        if existing is None:
            connection.execute(insert(request), record.values())
        elif changed := record.changes(existing):
            connection.execute(update(request).where(request.c.owner_key == record.owner_key).values(**changed))

    def add_locks(self, connection: Connection, record: Record, locks: Iterable[Lock]) -> None:
        """What the request of *record* waits for or holds."""
        rows = [
            {
                "place": record.place,
                "position": position,
                "object_key": object_key(lock.object),
                "db_name": lock.object.database,
                "table_name": lock.object.table,
                "partition_name": "/".join(lock.object.path[2:]),
                "lease_type": "x" if lock.mode is LockMode.EXCLUSIVE else "s",
            }
            for position, lock in enumerate(locks)
        ]
        connection.execute(insert(self.tables.lock), rows)

    def end(
        self, connection: Connection, place: int, touched: Iterable[int], state: State, *where: ColumnElement[bool]
    ) -> bool:
        """Take the request at *place* away, if *where* is so, and tell those who wait for that.

        :param touched: the units of its locks.
        :param state: ENDED for a lease, FREE for a place in the queue.
        """
        request, lock = self.tables.request, self.tables.lock
        now = self.clock_us
        ended = case((request.c.end_us < now, request.c.end_us), else_=now) if self.frees else now
        values = {"state": state.value, "ended_us": ended if state is State.ENDED else None}
        gone = connection.execute(update(request).where(request.c.place == place, *where).values(**values))
        if not gone.rowcount:
            return False
        connection.execute(delete(lock).where(lock.c.place == place))
        self.dialect.tell(connection, self.tables, place, touched)
        return True

    def clear(self, connection: Connection, where: ColumnElement[bool]) -> int:
        """Take away the requests of which *where* is so, but for those that another transaction is at; how many there were."""
        request = self.tables.request
        found = select(request).where(where).order_by(request.c.place).with_for_update(skip_locked=True)
        cleared = 0
        for row in connection.execute(found).all():
            record = Record.of(row)
            state = State.ENDED if record.state is State.GRANTED else State.FREE
            cleared += self.end(connection, record.place, units(record.locked), state, where)
        return cleared


class _Passing(StoreUnavailable):
    """Another transaction was in the way; try again."""


def _in_the_way(row: Row[Any]) -> InTheWay:
    waiting = row.state == State.WAITING.value
    levels = tuple(names.unescape_level(level) for level in row.partition_name.split("/") if level)
    target = LockObject(row.db_name, row.table_name, levels)
    mode = LockMode.EXCLUSIVE if row.lease_type == "x" else LockMode.SHARED
    blocker = Blocker(row.owner, target, mode, waiting)
    return InTheWay(row.owner_key, row.place, bool(row.void), None if waiting else row.end_us, blocker)
