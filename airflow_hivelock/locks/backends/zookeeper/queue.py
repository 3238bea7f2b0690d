"""The queue: one ticket a table, taken at the start and kept to the release, so that it is place and hold in one.

All tickets of a request are made in one transaction; their common zxid is its place among all other requests,
which makes waiting acyclic. A request waits for the nearest earlier ticket that conflicts with it, and for no other.

An EXCLUSIVE lock on a *database* excludes everybody in it, yet few ask for one: so only such a request (or one for
the database alone) has a ticket in the database's own queue. All others look there without leaving a ticket, and it
looks into the queues of all the database's tables.
"""

from __future__ import annotations

import json
import logging
import re
from bisect import bisect_left
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules, validate
from airflow_hivelock.locks.backends.zookeeper.client import (
    Check,
    Children,
    Client,
    Commit,
    Create,
    Delete,
    Get,
    Listing,
    Names,
    Node,
    Refused,
    SetData,
)
from airflow_hivelock.locks.backends.zookeeper.layout import expected
from airflow_hivelock.locks.errors import StoreCorrupted
from airflow_hivelock.locks.model import Blocker, Lock, LockMode, LockObject, locks_from_json, locks_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from airflow_hivelock.locks.backends.zookeeper.record import Record

log = logging.getLogger(__name__)

CACHED_TICKETS = 20_000
"""How many tickets are remembered, unless one look needs more. What is forgotten is read again."""

MOST_NAMED = 1_000
"""How many requests ahead of another a listing names: all of them for each would grow with the square of the queue."""

_NAME = re.compile(r"([0-9a-f]{16})-([0-9]{1,19})-[0-9]{10}")
"""A ticket's node: the owner's key, the epoch, ZooKeeper's sequence number."""


@dataclass(frozen=True)
class Ticket:
    """A place in one queue.

    :param zxid: its place: that of the transaction which made it, so lower is earlier, across all queues.
    :param locks: what its request asks for in this queue, the lock on the database included.
    :param drains: for a drain, the version of the record whose locks are being removed: void once that has another, or the
        drain has stood for longer than removals take.
    """

    path: str
    key: str
    epoch: int
    owner: str
    zxid: int
    since_ms: int
    locks: tuple[Lock, ...]
    drains: int | None = None


def unit(lock: Lock) -> str:
    """The queue, and guard, that a lock belongs to: its table's, or its database's own."""
    return f"{lock.object.database}.{lock.object.table}" if lock.object.table else lock.object.database


def ticket_units(locks: Iterable[Lock]) -> dict[str, tuple[Lock, ...]]:
    """The queues in which a request for *locks* takes a ticket, with its locks there."""
    databases: dict[str, Lock] = {}
    tables: dict[tuple[str, str], list[Lock]] = {}
    for lock in locks:
        target = lock.object
        if not target.table:
            databases[target.database] = lock
        elif (of_table := tables.get(key := (target.database, target.table))) is not None:
            of_table.append(lock)
        else:
            tables[key] = [lock]
    units = {f"{name}.{table}": (databases[name], *of_table) for (name, table), of_table in tables.items()}
    tables_of = {name for name, _ in tables}
    for name, lock in databases.items():
        if lock.mode is LockMode.EXCLUSIVE or name not in tables_of:
            units[name] = (lock,)
    return units


def _units(locks: Iterable[Lock]) -> list[str]:
    """The queues in which requests ahead of one for *locks* may be."""
    tables = {(lock.object.database, lock.object.table) for lock in locks}
    return sorted(f"{name}.{table}" if table else name for name, table in tables)


def _of_database(name: str) -> bool:
    return "." not in name


def shared_units(locks: Iterable[Lock]) -> tuple[str, ...]:
    """The guards that creating the request's SHARED nodes bumps, and removing them checks."""
    return tuple(_units(lock for lock in locks if lock.mode is LockMode.SHARED))


class Queues:
    """Reads tickets. One a session: what a ticket says never changes, so it is read once."""

    def __init__(self, client: Client, layout: Layout) -> None:
        self._client = client
        self._layout = layout
        self._known: OrderedDict[str, Ticket] = OrderedDict()

    def creates(self, record: Record) -> dict[str, Create]:
        """The operations that take a ticket in each queue of *record*'s request, by queue."""
        return {
            name: Create(
                f"{self._layout.queue(name)}/{record.lease_id}-",
                _ticket_data(record.owner, locks),
                sequential=True,
            )
            for name, locks in ticket_units(record.locks).items()
        }

    def creates_at_once(self, record: Record, listings: Sequence[Listing | None]) -> list[tuple[Create, Check]] | None:
        """The same where nobody has queued since *listings*, the replies to :meth:`reads`: each ticket has to get the name
        that it is checked for. None: that cannot be told.

        Only requests for a whole database queue in its own queue. They write the root of the queues; the others, which only
        look there, check its version.
        """
        listed = dict(zip(_units(record.locks), listings, strict=True))
        found = []
        for name, create in self.creates(record).items():
            if (listing := listed[name]) is None or _of_database(name):
                return None
            found.append((create, Check(expected(create, listing.created), -1)))
        return found

    def announces(self, names: Iterable[str]) -> list[SetData]:
        """What goes with tickets in the queues *names*, for requests that only look there: see :meth:`creates_at_once`."""
        return [SetData(self._layout.queues, b"", -1)] if any(map(_of_database, names)) else []

    def deletes(self, record: Record) -> list[Delete]:
        """The operations that give them back; looks for them where the record does not name them."""
        if record.tickets:
            return [Delete(f"{self._layout.queue(name)}/{ticket}") for name, ticket in record.tickets]
        prefix = f"{record.lease_id}-"
        names = list(ticket_units(record.locks))
        listings = self._client.submit(*(Names(self._layout.queue(name)) for name in names))
        return [
            Delete(f"{self._layout.queue(name)}/{child}")
            for name, listing in zip(names, listings, strict=True)
            for child in (listing.names if listing else ())
            if child.startswith(prefix)
        ]

    def drain(self, record: Record) -> tuple[Delete, ...]:
        """Take a ticket that excludes everybody, in each queue whose guard the removal of *record*'s locks checks.

        Ephemeral, for nobody else's record names them; what outlives its removal is void, and deleted by the first waiter behind it.

        :return: how to give them back; nothing where a queue has gone.
        """
        names = shared_units(record.locks)
        creates = [
            Create(
                f"{self._layout.queue(name)}/{record.lease_id}-",
                _ticket_data(record.owner, [Lock(LockObject.parse(name), LockMode.EXCLUSIVE)], record.version),
                sequential=True,
                ephemeral=True,
            )
            for name in names
        ]
        made = self._client.submit(Commit((*creates, *self.announces(names))))[0]
        return () if isinstance(made, Refused) else tuple(map(Delete, made[: len(creates)]))

    def made(self, record: Record, paths: Iterable[str]) -> list[Ticket]:
        """The tickets that *record*'s own transaction has made; nobody has to read them."""
        assert record.stat is not None
        key, epoch, stat = record.key, record.ticket_epoch, record.stat
        tickets = [
            Ticket(path, key, epoch, record.owner, stat.mzxid, stat.mtime_ms, locks)
            for path, locks in zip(paths, ticket_units(record.locks).values(), strict=True)
        ]
        self._known |= {ticket.path: ticket for ticket in tickets}
        return tickets

    def of(self, record: Record) -> list[Ticket]:
        """The tickets of *record*'s request."""
        paths = {delete.path for delete in self.deletes(record)}
        return [ticket for ticket in self.tickets(sorted({_queue(path) for path in paths})) if ticket.path in paths]

    def reads(self, locks: tuple[Lock, ...]) -> list[Children]:
        """What to read, behind the transaction that takes the tickets, for the first :meth:`earlier`."""
        return [Children(self._layout.queue(name)) for name in _units(locks)]

    def earlier(
        self, locks: tuple[Lock, ...], zxid: int, listings: Sequence[Listing | None] | None = None
    ) -> list[Ticket]:
        """The tickets that conflict with *locks* and lie before *zxid*, nearest first.

        :param listings: the replies to :meth:`reads`, if they are at hand.
        """
        names = set(_units(locks))
        whole = {lock.object.database for lock in locks if not lock.object.table and lock.mode is LockMode.EXCLUSIVE}
        if whole:
            names |= {name for name in self._every() if name.partition(".")[0] in whole}
            listings = None
        earlier = [ticket for ticket in self.tickets(sorted(names), listings) if ticket.zxid < zxid]
        modes = {lock.object: lock.mode for lock in locks} if earlier else {}
        return [ticket for ticket in reversed(earlier) if rules.excludes(modes, ticket.locks)]

    def tickets(
        self, names: Iterable[str] | None = None, listings: Sequence[Listing | None] | None = None
    ) -> list[Ticket]:
        """All tickets in the queues *names*, or in every queue, earliest first.

        :raises StoreCorrupted: one of them cannot be read; to pass it over would be to overtake it.
        """
        return self._tickets(names, listings, _decode)

    def listed(self) -> list[Ticket]:
        """For listings: as :meth:`tickets`, but one that cannot be read is logged, and hides none of the others."""
        return self._tickets(None, None, _readable)

    def _tickets(
        self,
        names: Iterable[str] | None,
        listings: Sequence[Listing | None] | None,
        decode: Callable[[str, Node], Ticket | None],
    ) -> list[Ticket]:
        queues = [self._layout.queue(name) for name in (self._every() if names is None else names)]
        if listings is None:
            listings = self._client.submit(*map(Names, queues))
        paths = [
            f"{queue}/{child}"
            for queue, listing in zip(queues, listings, strict=True)
            for child in (listing.names if listing else ())
        ]
        # The answer is apart from what is remembered, which this look, or another thread's, may forget meanwhile.
        found = {path: ticket for path in paths if (ticket := self._known.get(path))}
        unknown = [path for path in paths if path not in found]
        for path, node in zip(unknown, self._client.submit(*map(Get, unknown)), strict=True):
            if node is not None and (ticket := decode(path, node)):
                self._known[path] = found[path] = ticket
        while len(self._known) > max(CACHED_TICKETS, 2 * len(paths)):
            self._known.popitem(last=False)
        return sorted(found.values(), key=lambda ticket: ticket.zxid)

    def _every(self) -> tuple[str, ...]:
        listing = self._client.submit(Names(self._layout.queues))[0]
        return listing.names if listing else ()


@dataclass(frozen=True)
class _Lane:
    """The requests that lock one object, earliest first; *waiting*: how many of them wait, up to and with each."""

    zxids: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    blockers: list[Blocker] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)

    def add(self, ticket: Ticket, blocker: Blocker) -> None:
        self.zxids.append(ticket.zxid)
        self.keys.append(ticket.key)
        self.blockers.append(blocker)
        self.waiting.append(blocker.waiting + (self.waiting[-1] if self.waiting else 0))


class Line:
    """Tickets by what they lock, so that the requests ahead of another are found without a look at everybody."""

    def __init__(
        self, tickets: Iterable[Ticket], waiting: Callable[[Ticket], bool], wanted: Mapping[LockObject, LockMode]
    ) -> None:
        """:param tickets: earliest first.
        :param wanted: what will be asked for; nothing else is looked at.
        """
        self._all: defaultdict[LockObject, _Lane] = defaultdict(_Lane)
        self._exclusive: defaultdict[LockObject, _Lane] = defaultdict(_Lane)
        for ticket in tickets:
            for lock in ticket.locks:
                mode = wanted.get(lock.object)
                if mode is None or not rules.conflict(mode, lock.mode):
                    continue
                blocker = Blocker(ticket.owner, lock.object, lock.mode, waiting(ticket))
                self._all[lock.object].add(ticket, blocker)
                if lock.mode is LockMode.EXCLUSIVE:
                    self._exclusive[lock.object].add(ticket, blocker)

    def ahead(self, locks: Iterable[Lock], zxid: int) -> tuple[tuple[Blocker, ...], int]:
        """The requests that conflict with *locks* and came before *zxid*, each once, the nearest :data:`MOST_NAMED` first;
        and how many of them all wait themselves."""
        lanes = []
        for lock in locks:
            lane = (self._all if lock.mode is LockMode.EXCLUSIVE else self._exclusive).get(lock.object)
            if lane and (earlier := bisect_left(lane.zxids, zxid)):
                lanes.append((lane, earlier))
        if len(lanes) == 1 and lanes[0][0].blockers[0].object.table:  # a table's queue has nobody twice
            lane, earlier = lanes[0]
            return tuple(lane.blockers[max(0, earlier - MOST_NAMED) : earlier][::-1]), lane.waiting[earlier - 1]
        found: dict[str, tuple[int, Blocker]] = {}
        for lane, earlier in lanes:
            for place in range(earlier):
                found.setdefault(lane.keys[place], (lane.zxids[place], lane.blockers[place]))
        nearest = [blocker for _, blocker in sorted(found.values(), key=itemgetter(0), reverse=True)]
        return tuple(nearest[:MOST_NAMED]), sum(blocker.waiting for blocker in nearest)


def _ticket_data(owner: str, locks: Iterable[Lock], drains: int | None = None) -> bytes:
    data = {"owner": owner, "locks": locks_to_json(locks)} | ({} if drains is None else {"drains": drains})
    return json.dumps(data, separators=(",", ":")).encode()


def named(paths: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Tickets as a record names them."""
    return tuple((path[-2], path[-1]) for path in (path.split("/") for path in paths))


def _queue(path: str) -> str:
    return path.split("/")[-2]


def _decode(path: str, node: Node) -> Ticket | None:
    """None for what is no ticket, and so nobody's place.

    :raises StoreCorrupted: a ticket that this version cannot read.
    """
    if not (name := _NAME.fullmatch(path.rpartition("/")[2])):
        return None
    try:
        data = validate.load(node.data)
        stat, locks, drains = node.stat, locks_from_json(data["locks"]), data.get("drains")
        owner = validate.text(data["owner"], "owner")
        if drains is not None:
            validate.number(drains, "drains")
        return Ticket(path, name[1], int(name[2]), owner, stat.czxid, stat.ctime_ms, locks, drains)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreCorrupted(
            f"{path} is a place in the queue that this version cannot read: upgrade airflow-hivelock here too, or delete "
            "that node if it is none of airflow-hivelock's"
        ) from error


def _readable(path: str, node: Node) -> Ticket | None:
    try:
        return _decode(path, node)
    except StoreCorrupted as error:
        validate.complain(log, str(error), node.stat.mzxid)
        return None
