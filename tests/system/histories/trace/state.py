"""The state of the store: the variables of ``spec/Store.tla``, by owner.

A database has no nodes. Its rows of locks are the tickets of a request that waits or is invited. Of a request that holds they are
the tickets and the lock nodes. :mod:`.rows` reads them so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from tests.conformance.priority import unclaimed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FREE, TOMBSTONE, ABSENT = "free", "tombstone", "absent"
WAITING, PARKED, GRANTED, LOST, INVITED, AWAY = "waiting", "parked", "granted", "lost", "invited", "away"

Locks = dict[str, str]
"""Object to mode, ``S`` or ``X``."""


class Node(NamedTuple):
    """A lock node."""

    on: str
    mode: str
    number: int
    made: int


class Ticket(NamedTuple):
    """A ticket in one queue. *place* is its claimed turn, or its own zxid."""

    made: int
    place: int
    locks: tuple[tuple[str, str], ...]


class Life(NamedTuple):
    """A liveness node: its process and its session. In a database, when it ends without another sign of life."""

    process: str
    session: int = 0
    until_ms: float = math.inf


@dataclass(frozen=True)
class Record:
    """The fields of an owner's record that the specification has.

    :param given: what its lease has given back.
    :param since: the zxid that created its lock nodes; 0: it has none, or only placeholders (*places*).
    :param most: its own limit, and *weight*: how many permits it asks for, if it says so.
    :param permits: the numbers of its permits.
    :param parked: its node in the queue of its group.
    :param kept: the turn that it had when its invitation ended.
    :param until_ms: when its invitation ends.
    :param turn_ms: in a database, how old its turn is.
    """

    state: str = ABSENT
    process: str = ""
    epoch: int = 0
    ticket_epoch: int = 0
    begin: int = 0
    attempt: int = 0
    entry: int = 0
    priority: int = 1
    locks: Locks = field(default_factory=dict)
    given: Locks = field(default_factory=dict)
    since: int = 0
    places: Mapping[str, int] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    group: str = ""
    most: int = 0
    weight: int = 0
    permits: tuple[int, ...] = ()
    parked: str = ""
    kept: int = 0
    token: int = 0
    until_ms: int = 0
    turn_ms: int = 0

    @property
    def holds(self) -> bool:
        return self.state in (GRANTED, LOST)

    @property
    def has_tickets(self) -> bool:
        return self.state in (WAITING, INVITED, GRANTED, LOST)

    @property
    def nodes_made(self) -> dict[str, int]:
        """The objects on which it should have lock nodes, and when each was created."""
        if not self.has_tickets:
            return {}
        return {on: self.places.get(on, self.since) for on in (self.locks if self.holds else self.places)}

    @property
    def queues(self) -> set[str]:
        """The queues in which it should have a ticket. A partial release keeps the tickets that still contain a lock."""
        if not self.has_tickets:
            return set()
        kept = {on if "/" not in on else ".".join(on.split("/")[:2]) for on in self.locks}
        return {unit for unit in units(self.locks | self.given) if kept & {unit, unit.partition(".")[0]}}

    @property
    def first(self) -> int:
        """When its first lock node was created; 0: it has none."""
        return min(self.nodes_made.values(), default=0)


@dataclass(frozen=True)
class Owner:
    """All that one owner has: its record, and the nodes that belong to its request."""

    record: Record = Record()
    tickets: Mapping[str, Ticket] = field(default_factory=dict)
    alive: Life | None = None
    nodes: frozenset[Node] = frozenset()
    permits: frozenset[tuple[str, int]] = frozenset()
    parked: frozenset[str] = frozenset()
    away: bool = False

    @property
    def made(self) -> int:
        return min((ticket.made for ticket in self.tickets.values()), default=0)

    @property
    def place(self) -> int:
        return min((ticket.place for ticket in self.tickets.values()), default=0)

    @property
    def position(self) -> tuple[int, int, int]:
        """Its order in every queue: ``Before`` of the specification compares these."""
        return self.place, -self.record.priority, self.made

    @property
    def position_in_group(self) -> tuple[int, int, int]:
        """In a database, its order in the queue of its group. A request that never waited there is as old as its place."""
        place = self.record.ticket_epoch
        return int(self.record.parked or unclaimed(place, self.record.priority)), -self.record.priority, place

    def __str__(self) -> str:
        record = self.record
        has = [f"{record.state.upper()} epoch {record.epoch}, token {record.token:#x}, priority {record.priority}"]
        has += (
            [f"tickets {self.made:#x} at {self.place:#x} in {', '.join(sorted(self.tickets))}"] if self.tickets else []
        )
        has += [f"{node.mode} on {node.on} (number {node.number}, made {node.made:#x})" for node in sorted(self.nodes)]
        has += [f"permit {number} of {group}" for group, number in sorted(self.permits)]
        has += [f"place {name}" for name in sorted(self.parked)]
        has += [f"liveness node of {self.alive.process:.6}"] if self.alive else []
        has += ["mark of AWAY"] if self.away else []
        return "; ".join(has)


NOTHING = Owner()


@dataclass
class State:
    """The store.

    :param objects: the zxid at which each was created.
    :param hives: lock nodes of Hive's clients.
    :param returned: the leases that callers have: owner to ``ticket_epoch``.
    :param last: the zxid of the last node that each session wrote in the whole trace.
    :param turns: each turn that a request had in the queues: who had it, and when it went (0: not yet). That is a zxid, and in a
        database a time in milliseconds: there a request can go while another one is decided.
    :param exact: a database, which reads and writes in one transaction. So a step has read this very state.
    :param passing_ms: in a database, for how long a request that waits may be passed.
    :param limits: the limit and the default weight of each group that has them in the store.
    :param tokens: in a database, the largest token of the leases that an object has had in a mode.
    """

    owners: dict[str, Owner] = field(default_factory=dict)
    objects: dict[str, int] = field(default_factory=dict)
    hives: frozenset[Node] = frozenset()
    returned: dict[str, int] = field(default_factory=dict)
    last: Mapping[int, int] = field(default_factory=dict)
    turns: dict[int, list[tuple[str, Record, int]]] = field(default_factory=dict)
    exact: bool = False
    passing_ms: int = 0
    tokens: dict[tuple[str, str], int] = field(default_factory=dict)
    limits: dict[str, tuple[int, int]] = field(default_factory=dict)

    def of(self, key: str) -> Owner:
        return self.owners.get(key, NOTHING)

    def has_lease(self, key: str, ticket_epoch: int) -> bool:
        record = self.of(key).record
        return record.holds and record.ticket_epoch == ticket_epoch

    def rivals(self, key: str, locks: Locks | None = None) -> Iterator[tuple[str, Owner]]:
        """The other owners with a ticket that conflicts with a request of *key*'s.

        :param locks: what it asks for; None: what its present request asks for.
        """
        mine = self.of(key).record.locks if locks is None else locks
        for other, owner in self.owners.items():
            if other != key and owner.tickets and conflict(mine, owner.record.locks):
                yield other, owner

    def put(self, key: str, owner: Owner, at: int) -> None:
        """Note the owner's state after a step.

        :param at: as in *turns*.
        """
        self.remember_turns(key, self.of(key), owner, at)
        if not owner.record.holds:
            self.returned.pop(key, None)
        if owner == NOTHING:
            self.owners.pop(key, None)
        else:
            self.owners[key] = owner

    def remember_turns(self, key: str, before: Owner, after: Owner, at: int) -> None:
        moves = bool(before.tickets and after.tickets) and before.made != after.made
        if before.tickets and (moves or not after.tickets):
            turns = self.turns[before.place]
            self.turns[before.place] = [entry for entry in turns if entry[0] != key or entry[2]]
            self.turns[before.place].append((key, before.record, at))
        if after.tickets and (moves or not before.tickets):
            self.turns.setdefault(after.place, []).append((key, after.record, 0))


def conflict(mine: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    """Whether two requests exclude each other: ``Conflict``."""
    few, many = (mine, theirs) if len(mine) < len(theirs) else (theirs, mine)
    return any(on in many and "X" in (mode, many[on]) for on, mode in few.items())


def units(locks: Mapping[str, str]) -> set[str]:
    """The names of the queues in which a request takes its tickets: ``UnitsOf``."""
    tables = {".".join(on.split("/")[:2]) for on in locks if "/" in on}
    of_tables = {table.partition(".")[0] for table in tables}
    return tables | {on for on, mode in locks.items() if "/" not in on and (mode == "X" or on not in of_tables)}


@dataclass(frozen=True)
class Step:
    """One update of one owner.

    :param world: the state before it.
    :param made, gone: the objects that the same transaction has created and deleted.
    :param hives_made, hives_gone: whether it has created or deleted lock nodes of Hive's.
    :param audited: whether it has written an entry of the audit trail.
    :param wrote: whether it has written the owner's record.
    :param limited: whether it has stored or deleted the limit of a group.
    """

    key: str
    zxid: int
    time_ms: int
    session: int
    world: State
    before: Owner
    after: Owner
    made: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    hives_made: bool = False
    hives_gone: bool = False
    audited: bool = False
    wrote: bool = True
    limited: bool = False

    @property
    def old(self) -> Record:
        return self.before.record

    @property
    def new(self) -> Record:
        return self.after.record

    @property
    def returned(self) -> bool:
        """Whether a caller has the lease that the owner has before this step."""
        return self.old.holds and self.world.returned.get(self.key) == self.old.ticket_epoch

    @property
    def another_lives(self) -> bool:
        """Whether the process that waits has another session, and still writes in it later. A process that has lost its connection
        can begin a new session before the old one has ended."""
        alive = self.before.alive
        return alive is not None and alive.session != self.session and self.world.last.get(alive.session, 0) > self.zxid

    def keeps(self, **changed: object) -> bool:
        """Whether the record changes in these fields only."""
        return replace(self.old, **changed) == self.new  # type: ignore[arg-type]
