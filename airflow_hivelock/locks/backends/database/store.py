"""The SQL statements that read and write the tables."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, bindparam, case, delete, false, func, insert, literal, not_, or_, select, update

from airflow_hivelock.locks import formats
from airflow_hivelock.locks.backends.database import candidate
from airflow_hivelock.locks.backends.database.candidate import Candidate, Entered, Living
from airflow_hivelock.locks.backends.database.record import BY_OTHERS, BY_WAITERS, HAS_LOCKS, Record, State
from airflow_hivelock.locks.backends.database.sessions import Sessions
from airflow_hivelock.locks.backends.database.values import decode_request, encode, later, parse_group
from airflow_hivelock.locks.errors import StoreCorrupted, UpgradeNeeded
from airflow_hivelock.locks.model import owner_key
from airflow_hivelock.locks.queueing import PASSING_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import URL, ColumnElement, Delete, Select, Table, Update

    from airflow_hivelock.locks.backends.database.dialect import DatabaseDialect
    from airflow_hivelock.locks.backends.database.request import RequestedLocks
    from airflow_hivelock.locks.backends.database.tables import StoreTables
    from airflow_hivelock.locks.backends.database.transaction import Answer, StoreTransaction
    from airflow_hivelock.locks.model import Lease


class Store(Sessions):
    """The tables in one database.

    :param frees: an expired lease blocks no request.
    :param passing_s: how long requests of higher priority may overtake a waiter, in seconds; 0: never.
    """

    def __init__(
        self, url: URL, dialect: DatabaseDialect, tables: StoreTables, *, frees: bool, passing_s: float = PASSING_S
    ) -> None:
        super().__init__(url, dialect, tables.name)
        self.tables, self.frees, self.passing_us = tables, frees, later(0, passing_s)

    # Conditions. Their parameters begin with of_, because SQLAlchemy reserves a column's own name.

    @property
    def clock_us(self) -> ColumnElement[int]:
        return self.dialect.clock_us

    @cached_property
    def held(self) -> ColumnElement[bool]:
        """Whether a request is granted, expired or not."""
        return self.tables.request.c.state == State.GRANTED.value

    @cached_property
    def queued(self) -> ColumnElement[bool]:
        """Whether a request waits, for locks or for a permit of its group."""
        return self.tables.in_state(State.WAITING, State.PARKED)

    @cached_property
    def away(self) -> ColumnElement[bool]:
        """Whether a request waits for a worker slot."""
        return self.tables.in_state(State.AWAY, State.INVITED)

    @cached_property
    def over(self) -> ColumnElement[bool]:
        """Whether a request is invited, and its invitation is over."""
        return and_(self.tables.in_state(State.INVITED), self.tables.request.c.until_us <= self.clock_us)

    @cached_property
    def active(self) -> ColumnElement[bool]:
        """Whether a request is in a queue, or is granted."""
        return self.tables.in_state(State.PARKED, *HAS_LOCKS)

    @cached_property
    def holding(self) -> ColumnElement[bool]:
        """Whether a request holds its locks."""
        return and_(self.held, self.tables.request.c.end_us > self.clock_us) if self.frees else self.held

    @cached_property
    def void(self) -> ColumnElement[bool]:
        """Whether a request has no claim any more; the rule of :meth:`.Candidate.other`."""
        request = self.tables.request.c
        dead = and_(self.queued, request.seen_us < self.clock_us - candidate.DEAD_US)
        expired = and_(self.held, request.end_us <= self.clock_us) if self.frees else false()
        return or_(dead, expired, self.over)

    @cached_property
    def of_lease(self) -> ColumnElement[bool]:
        """Whether a request is exactly one grant, and one process still acts for it; bound by :func:`of`."""
        request = self.tables.request.c
        return and_(
            request.owner_key == bindparam("of_key"),
            request.place == bindparam("of_place"),
            request.epoch == bindparam("of_epoch"),
            self.held,
        )

    # Reading.

    def enter(self, transaction: StoreTransaction, locks: RequestedLocks, *, decides: bool = False) -> Entered:
        """Keep out requests that may conflict, and processes that act for the owner. Then read the owner's record.

        :param decides: also read the requests that conflict, and those of the group.
        :raises UpgradeNeeded: it *decides*, and this version is too old for the tables.
        """
        self.dialect.enter(transaction, locks.keys)
        own = transaction.ask(self._own, of_key=locks.owner_key)
        conflicting = in_group = settings = None
        if decides:
            keys = self.dialect.numbers(locks.excluded)
            conflicting = transaction.ask(self._conflicting, keys=keys)
        if decides and locks.group_key is not None:
            in_group = transaction.ask(self._in_group, of_group=locks.group_key)
            settings = transaction.ask(self.tables.settings, of_group=locks.group_key)
        (first,) = own.rows
        if decides and (first["min_reader"] or 0) > formats.FORMAT:
            self.admit(transaction)
        record = None if first["owner_key"] is None else Record.of(first)
        place = record.place if record else 0

        def others(answer: Answer | None) -> list[Mapping[str, Any]]:
            return [row for row in answer.rows if row["place"] != place] if answer else []

        return Entered(
            first["now_us"],
            first["drawn"],
            record,
            [Candidate.of(row, locks.excluded[row["object_key"]]) for row in others(conflicting)],
            [
                Candidate.of(row, decode_request(row["locks"], row["owner"])[-1], row["lease_group"])
                for row in others(in_group)
            ],
            next(map(parse_group, settings.rows), None) if settings else None,
        )

    def admit(self, transaction: StoreTransaction) -> None:
        """Check the stamp of the tables. A migration waits for the end of this transaction.

        :raises UpgradeNeeded: this version is too old for the tables.
        """
        self.dialect.enter(transaction, {})
        for row in transaction.ask(self.tables.stamp).rows:
            self.tables.admit(row)

    def refusal(self) -> UpgradeNeeded | None:
        try:
            with self.engine.connect() as connection:
                self.tables.prepared(connection)
        except UpgradeNeeded as error:
            return error
        except (*self._errors, StoreCorrupted):
            return None
        return None

    @cached_property
    def _own(self) -> Select[Any]:
        """The owner's row, or a row of nulls."""
        request = self.tables.request
        once = select(literal(1).label("one")).subquery()
        lowest = select(self.tables.store.c.min_reader).scalar_subquery().label("min_reader")
        found = select(self.clock_us.label("now_us"), self.dialect.number.label("drawn"), lowest, *request.columns)
        return found.select_from(once.outerjoin(request, request.c.owner_key == bindparam("of_key")))

    @cached_property
    def _conflicting(self) -> Select[Any]:
        """The requests that wait for or hold locks of the ``keys``, each with its first such lock."""
        request, lock = self.tables.request, self.tables.lock
        place = lock.c.place + 0  # otherwise the whole primary key is read, with all past rows
        nth = func.row_number().over(partition_by=place, order_by=lock.c.position)
        found = (
            select(lock.c.object_key, place.label("place"), nth.label("nth"))
            .where(self.dialect.among(lock.c.object_key, "keys"))
            .subquery("found")
        )
        return (
            select(*(request.c[name] for name in _IN_QUEUE), found.c.object_key)
            .join_from(found, request, request.c.place == found.c.place)
            .where(found.c.nth == 1)
        )

    @cached_property
    def _in_group(self) -> Select[Any]:
        """The requests that wait for or have a lease of the group, in the order of their ends."""
        request = self.tables.request.c
        counted = (
            request.group_key == bindparam("of_group"),
            self.tables.in_state(State.PARKED, State.INVITED, State.GRANTED),
        )
        wanted = (request[name] for name in (*_IN_QUEUE, "locks", "lease_group"))
        return select(*wanted).where(*counted).order_by(request.end_us)

    def rows(self, *where: ColumnElement[bool], most: int | None = None, **values: Any) -> Sequence[Mapping[Any, Any]]:
        """The requests that meet all of *where*, in the order of their places; or the *most* last ones, backwards."""
        place = self.tables.request.c.place
        found = select(self.tables.request).where(*where).order_by(place if most is None else place.desc()).limit(most)
        return self.all(found, values)

    def at_places(self, transaction: StoreTransaction, places: Iterable[int]) -> list[Record]:
        """The requests at *places*."""
        found = select(self.tables.request).where(self.dialect.among(self.tables.request.c.place, "places"))
        return [Record.of(row) for row in transaction.ask(found, places=self.dialect.numbers(places)).rows]

    def records(self, *where: ColumnElement[bool], **values: Any) -> list[Record]:
        """The requests that meet all of *where*, as records."""
        return [Record.of(row) for row in self.rows(*where, **values)]

    def all(self, query: Select[Any], given: Mapping[str, Any] | None = None) -> Sequence[Mapping[Any, Any]]:
        return self.read(lambda connection: connection.execute(query, given).mappings().all())

    def living(self, places: Iterable[int]) -> dict[int, Living]:
        """The requests at *places* that still block others."""
        values = {"places": self.dialect.numbers(places)}
        rows = self.read(lambda connection: connection.execute(self._living, values).all())
        return {
            row.place: Living(row.epoch, candidate.phase(row.state), row.ahead is not None, row.watched == BY_OTHERS)
            for row in rows
        }

    @cached_property
    def _living(self) -> Select[tuple[int, int, str, int | None, int]]:
        request = self.tables.request.c
        alive = (self.dialect.among(request.place, "places"), self.active, not_(self.void))
        return select(request.place, request.epoch, request.state, request.ahead, request.watched).where(*alive)

    # Writing.

    def audit(self, transaction: StoreTransaction, about: Record | str, reason: str, user: str) -> None:
        """Write an entry of the audit trail *about* a request, or about a thing without locks."""
        entry: dict[str, Any] = {"lease_id": "", "owner": about, "locks": encode(())}
        if isinstance(about, Record):
            entry = {"lease_id": about.lease_id, "owner": about.owner, "locks": about.locks}
        entry |= {"reason": reason, "user_name": user, "more": formats.WRITES.text()}
        transaction.ask(insert(self.tables.audit).values(at_us=self.clock_us, **entry))

    def put(
        self,
        transaction: StoreTransaction,
        record: Record,
        existing: Record | None,
        locks: RequestedLocks | None = None,
    ) -> Answer:
        """Write the record over the owner's *existing* one, if that is still the same, with the rows of *locks*.

        If it is not the same any more, the answer counts no row and nothing is written.
        """
        values: dict[str, Any] = record._asdict() | {"state": record.state.value}
        if existing is None:
            written = transaction.ask(self.tables.insert_request, **values)
        else:
            changed = [name for name, value in values.items() if name == "state" or value != getattr(existing, name)]
            was = {"of_key": existing.owner_key, "of_epoch": existing.epoch, "of_state": existing.state.value}
            to = {f"to_{name}": values[name] for name in changed}
            written = transaction.ask(_change(self.tables.request, tuple(changed)), **to, **was)
        if locks is not None:
            self.put_locks(transaction, record.place, locks)
        return written

    def put_locks(self, transaction: StoreTransaction, place: int, locks: RequestedLocks) -> None:
        """Write the rows of *locks* of the request at *place*."""
        transaction.ask(self.dialect.insert_locks, of_place=place, rows=locks.rows)

    @cached_property
    def without_locks(self) -> Delete:
        """Delete the rows of locks of the request at ``of_place``, unless it is in a state with locks."""
        request, lock = self.tables.request.c, self.tables.lock
        has_locks = select(request.place).where(
            request.place == bindparam("of_place"), self.tables.in_state(*HAS_LOCKS)
        )
        return delete(lock).where(lock.c.place == bindparam("of_place"), not_(has_locks.exists()))

    def wait_for(self, transaction: StoreTransaction, places: Iterable[int]) -> Answer:
        """Mark the requests at *places*, to notify the waiter of their ends. The answer counts the unended ones.

        None of them can end before this is committed, so the transaction that ends one sees the waiter.
        """
        return transaction.ask(self._waited_for, places=self.dialect.numbers(places))

    @cached_property
    def _waited_for(self) -> Update:
        request = self.tables.request
        there = (self.dialect.among(request.c.place, "places"), self.active)
        marked = case((request.c.watched < BY_WAITERS, BY_WAITERS), else_=request.c.watched)
        return update(request).where(*there).values(watched=marked)

    def mark_watched(self, *where: ColumnElement[bool], **values: Any) -> int:
        """Mark the requests that meet *where*, to notify all watching processes of their ends; return their number."""
        marked = update(self.tables.request).where(*where).values(watched=BY_OTHERS)
        return self.transact(lambda transaction: transaction.ask(marked, **values)).count

    def end(self, transaction: StoreTransaction, state: State, which: str, *, of_place: int, **values: Any) -> Answer:
        """End a request, as ENDED, FREE or AWAY, and notify its waiters. The answer counts it, if there was one.

        :param which: ``holding``, ``queued``, ``away``, ``over``, ``held``, ``void``; or ``of_lease``.
        """
        ended = self.dialect.end(transaction, self._ends[state, which], self.without_locks, of_place=of_place, **values)
        self.dialect.notify(transaction, of_place)
        return ended

    def release(self, lease: Lease) -> bool:
        """End a grant; False if there is none, or if another process has taken it over."""
        update, values = self._ends[State.ENDED, "of_lease"], of(lease)
        ended = self.transact(lambda one: self.dialect.end(one, update, self.without_locks, **values))
        if any(row["watched"] for row in ended.rows):
            # In a transaction of its own, because few leases have waiters. If it fails, the waiters find out at their
            # next look.
            self.transact(lambda transaction: self.dialect.notify(transaction, values["of_place"]))
        return ended.count > 0

    @cached_property
    def _ends(self) -> Mapping[tuple[State, str], Update]:
        request = self.tables.request
        at_place = request.c.place == bindparam("of_place")
        now_us = self.clock_us
        ended_us = case((request.c.end_us < now_us, request.c.end_us), else_=now_us) if self.frees else now_us
        return {
            (state, which): update(request)
            .where(at_place, getattr(self, which))
            .values(state=state.value, ended_us=ended_us if state is State.ENDED else None)
            for which in ("holding", "queued", "void", "held", "away", "over", "of_lease")
            for state in (State.ENDED, State.FREE, State.AWAY)
        }

    def clear(self, transaction: StoreTransaction, *where: ColumnElement[bool], **values: Any) -> int:
        """End the void requests that meet *where*; return their number. Rows that others have locked are left out."""
        request = self.tables.request
        found = select(request.c.place, request.c.state).where(self.void, *where).order_by(request.c.place)
        rows = transaction.ask(found.with_for_update(skip_locked=True), **values).rows
        states = {State.GRANTED.value: State.ENDED}
        ended = [
            self.end(transaction, states.get(row["state"], State.FREE), "void", of_place=row["place"]) for row in rows
        ]
        return sum(answer.count for answer in ended)

    def take_away(self, void: Iterable[int]) -> None:
        """:meth:`clear` the requests at those places."""
        at_places = self.dialect.among(self.tables.request.c.place, "places")
        places = self.dialect.numbers(void)
        self.transact(lambda transaction: self.clear(transaction, at_places, places=places))

    def sign(self, epochs: Mapping[int, int]) -> None:
        """Give a sign of life for requests, by place and epoch. Rows that others have locked get it the next time."""
        if epochs:
            self.transact(lambda transaction: self._sign(transaction, epochs))

    def declare_dead(self, owner_key: str, process: str) -> None:
        """Remove the sign of life of a waiting request, if that process still acts for its owner."""
        request = self.tables.request
        mine = (request.c.owner_key == owner_key, request.c.process == process, self.queued)
        self.transact(lambda transaction: transaction.ask(update(request).where(*mine).values(seen_us=0)))

    def _sign(self, transaction: StoreTransaction, epochs: Mapping[int, int]) -> None:
        waiting, signed = self._signing
        found = transaction.ask(waiting, places=self.dialect.numbers(epochs)).rows
        living = [row["place"] for row in found if row["epoch"] == epochs[row["place"]]]
        transaction.ask(signed, places=self.dialect.numbers(living))

    @cached_property
    def _signing(self) -> tuple[Select[tuple[int, int]], Update]:
        request = self.tables.request
        among = self.dialect.among(request.c.place, "places")
        # a request that was just handed over has 0, and must not get a new sign
        mine = (among, self.queued, request.c.seen_us > 0)
        waiting = select(request.c.place, request.c.epoch).where(*mine).order_by(request.c.place)
        return waiting.with_for_update(skip_locked=True), update(request).where(among).values(seen_us=self.clock_us)


_IN_QUEUE = (
    *("place", "owner", "state", "priority", "turn", "turn_us", "group_turn", "group_turn_us"),
    *("seen_us", "end_us", "until_us", "weight", "more"),
)
"""The columns that give a request's place in a queue."""


@lru_cache(maxsize=256)
def _change(request: Table, names: tuple[str, ...]) -> Update:
    """Change the columns *names* of an owner's row, if its epoch and state are still the same."""
    same = {f"of_{name}": request.c[name] for name in ("epoch", "state")} | {"of_key": request.c.owner_key}
    changed: dict[str, Any] = {name: bindparam(f"to_{name}") for name in names}
    return update(request).where(*(column == bindparam(name) for name, column in same.items())).values(changed)


def of(lease: Lease) -> dict[str, Any]:
    """The parameters of :attr:`Store.of_lease`."""
    return {"of_key": owner_key(lease.owner), "of_place": place_of(lease.id), "of_epoch": lease.epoch}


def place_of(lease_id: str) -> int:
    """The place of the request of a lease, which is the number in its id; -1 for an id of another backend."""
    return int(lease_id) if lease_id.isascii() and lease_id.isdecimal() and len(lease_id) < 19 else -1
