"""The queue: one ticket a table, taken at the start and kept to the release, so that it is place and hold in one.

All tickets of a request are made in one transaction; their common zxid is its place among all other requests,
which makes waiting acyclic. A request waits for the nearest earlier ticket that conflicts with it, and for no other.
One of higher priority may claim an earlier place (:mod:`.places`).

An EXCLUSIVE lock on a *database* excludes everybody in it, yet few ask for one: so only such a request (or one for
the database alone) has a ticket in the database's own queue. All others look there without leaving a ticket, and it
looks into the queues of all the database's tables.
"""

from __future__ import annotations

import json
import logging
import re
from collections import OrderedDict
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

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
    Op,
    Refused,
    SetData,
)
from airflow_hivelock.locks.backends.zookeeper.layout import expected
from airflow_hivelock.locks.errors import StoreCorrupted
from airflow_hivelock.locks.model import (
    MAX_PRIORITY,
    Lock,
    LockMode,
    LockObject,
    locks_from_json,
    locks_to_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from airflow_hivelock.locks.backends.zookeeper.record import Record

log = logging.getLogger(__name__)

CACHED_TICKETS = 20_000
"""How many tickets are remembered, unless one look needs more. What is forgotten is read again."""

_NAME = re.compile(r"([0-9a-f]{16})-([0-9]{1,19})-[0-9]{10}")
"""A ticket's node: the owner's key, the epoch, ZooKeeper's sequence number."""


Place = tuple[int, int, int]
"""Orders the waiting, across all queues: the place's zxid, the priority with its sign changed, the ticket's own zxid."""


class Claim(NamedTuple):
    """A place before others, and since when somebody has had it, by the store's clock."""

    zxid: int
    since_ms: int


@dataclass(frozen=True)
class Ticket:
    """A place in one queue. Nothing of it ever changes, but that its owner may give back some of *locks*: who has seen more
    of them is kept waiting a little longer, and by nobody that it should not wait for.

    :param zxid: that of the transaction which made it: its place, unless it has claimed another.
    :param locks: what its request asks for in this queue, the lock on the database included.
    :param drains: for a drain, the version of the record whose locks are being removed: void once that has another, or the
        drain has stood for longer than removals take.
    :param version: its node's, when it was read.
    """

    path: str
    key: str
    epoch: int
    owner: str
    zxid: int
    since_ms: int
    locks: tuple[Lock, ...]
    drains: int | None = None
    priority: int = 1
    claim: Claim | None = None
    version: int = 0

    @property
    def place(self) -> Place:
        return place(self.zxid, self.priority, self.claim)

    @property
    def placed_ms(self) -> int:
        """Since when somebody has had its place."""
        return self.claim.since_ms if self.claim else self.since_ms


def place(zxid: int, priority: int, claim: Claim | None) -> Place:
    """That of tickets made at *zxid*."""
    return (claim.zxid if claim else zxid), -priority, zxid


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
    """Reads tickets. One a session: what a ticket says only ever becomes less, so it is read once, and again by who waits."""

    def __init__(self, client: Client, layout: Layout) -> None:
        self._client = client
        self._layout = layout
        self._known: OrderedDict[str, Ticket] = OrderedDict()

    def creates(self, record: Record, claim: Claim | None = None) -> dict[str, Create]:
        """The operations that take a ticket in each queue of *record*'s request, by queue."""
        return {
            name: Create(
                f"{self._layout.queue(name)}/{record.lease_id}-",
                _ticket_data(record.owner, locks, priority=record.priority, claim=claim),
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

    def urgents(self, locks: Iterable[Lock]) -> list[Get]:
        """What to read before the queues, for :meth:`unpassed`."""
        return [Get(self._layout.urgent(name)) for name in _units(locks)]

    def unpassed(self, locks: Iterable[Lock], urgents: Iterable[Node | None]) -> list[Check]:
        """What fails where somebody has claimed a place since *urgents*, the replies to :meth:`urgents`."""
        checked = zip(_units(locks), urgents, strict=True)
        return [Check(self._layout.urgent(name), node.stat.version) for name, node in checked if node]

    def claims(self, locks: Iterable[Lock]) -> list[SetData]:
        """What goes with tickets that claim a place, for those who are passed: in all units where they may look."""
        return [SetData(self._layout.urgent(name), b"", -1) for name in _units(locks)]

    def guards(self, locks: Iterable[Lock]) -> list[SetData]:
        """What goes with new SHARED nodes for *locks*."""
        return [SetData(self._layout.queue(name), b"", -1) for name in shared_units(locks)]

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

    def shrinks(self, record: Record, left: Iterable[Lock]) -> tuple[list[Op], tuple[tuple[str, str], ...]]:
        """The operations by which *record*'s tickets ask for no more than what is *left* of its locks; and those that stay."""
        paths = {f"{self._layout.queue(name)}/{ticket}": (name, ticket) for name, ticket in record.tickets}
        nodes = self._client.submit(*map(Get, paths))
        ops: list[Op] = []
        stay, kept = [], set(left)
        for (path, names), node in zip(paths.items(), nodes, strict=True):
            if node is None or (ticket := _decode(path, node)) is None:
                continue
            locks = [lock for lock in ticket.locks if lock in kept]
            if not locks:
                ops.append(Delete(path))
                continue
            stay.append(names)
            if len(locks) < len(ticket.locks):
                data = _ticket_data(ticket.owner, locks, priority=ticket.priority, claim=ticket.claim)
                ops.append(SetData(path, data, ticket.version))
        return ops, tuple(stay)

    def forget(self, ticket: Ticket) -> None:
        """Read it again the next time: it says something else by now."""
        self._known.pop(ticket.path, None)

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

    def made(self, record: Record, paths: Iterable[str], claim: Claim | None) -> list[Ticket]:
        """The tickets that *record*'s own transaction has made; nobody has to read them."""
        assert record.stat is not None
        key, epoch, stat = record.key, record.ticket_epoch, record.stat
        tickets = [
            Ticket(path, key, epoch, record.owner, stat.mzxid, stat.mtime_ms, locks, None, record.priority, claim)
            for path, locks in zip(paths, ticket_units(record.locks).values(), strict=True)
        ]
        self._known |= {ticket.path: ticket for ticket in tickets}
        return tickets

    def of(self, record: Record) -> list[Ticket]:
        """The tickets of *record*'s request."""
        paths = {delete.path for delete in self.deletes(record)}
        return [ticket for ticket in self.tickets(sorted({_queue(path) for path in paths})) if ticket.path in paths]

    def reads(self, locks: tuple[Lock, ...]) -> list[Children]:
        """What to read, behind the transaction that takes the tickets, for the first :meth:`conflicting`."""
        return [Children(self._layout.queue(name)) for name in _units(locks)]

    def conflicting(self, locks: tuple[Lock, ...], listings: Sequence[Listing | None] | None = None) -> list[Ticket]:
        """The tickets that conflict with *locks*, last first: one's own as well.

        :param listings: the replies to :meth:`reads`, if they are at hand.
        """
        names = set(_units(locks))
        whole = {lock.object.database for lock in locks if not lock.object.table and lock.mode is LockMode.EXCLUSIVE}
        if whole:
            names |= {name for name in self._every() if name.partition(".")[0] in whole}
            listings = None
        modes = {lock.object: lock.mode for lock in locks}
        tickets = self.tickets(sorted(names), listings)
        return [ticket for ticket in reversed(tickets) if rules.excludes(modes, ticket.locks)]

    def listed(self) -> list[Ticket]:
        """Those in every queue, for listings: one that cannot be read is logged, and hides none of the others."""
        return self.tickets(self._every(), None, _readable)

    def tickets(
        self,
        names: Iterable[str],
        listings: Sequence[Listing | None] | None = None,
        decode: Callable[[str, Node], Ticket | None] | None = None,
    ) -> list[Ticket]:
        """All tickets in the queues *names*, in the order of their places.

        :raises StoreCorrupted: one of them cannot be read; to pass it over would be to overtake it.
        """
        decode = decode or _decode
        queues = [self._layout.queue(name) for name in names]
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
        return sorted(found.values(), key=attrgetter("place"))

    def _every(self) -> tuple[str, ...]:
        listing = self._client.submit(Names(self._layout.queues))[0]
        return listing.names if listing else ()


def _ticket_data(
    owner: str, locks: Iterable[Lock], drains: int | None = None, priority: int = 1, claim: Claim | None = None
) -> bytes:
    data: dict[str, Any] = {"owner": owner, "locks": locks_to_json(locks)}
    data |= {"drains": drains} if drains is not None else {}
    data |= {"priority": priority} if priority != 1 else {}
    data |= {"place": claim.zxid, "since_ms": claim.since_ms} if claim else {}
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
        owner, priority = validate.text(data["owner"], "owner"), data.get("priority", 1)
        if drains is not None:
            validate.number(drains, "drains")
        validate.number(abs(priority), "priority", MAX_PRIORITY)
        claim = None
        if "place" in data:
            since_ms = validate.number(data["since_ms"], "since_ms", validate.MOST_MS)
            claim = Claim(validate.number(data["place"], "place", stat.czxid - 1), since_ms)
        key, epoch = name[1], int(name[2])
        return Ticket(path, key, epoch, owner, stat.czxid, stat.ctime_ms, locks, drains, priority, claim, stat.version)
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
