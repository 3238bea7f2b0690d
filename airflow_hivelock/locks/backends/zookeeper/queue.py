"""Queues: one ticket per table, created at the start and kept until the release, so that it is both position and hold.

All tickets of a request are created in one transaction. Its zxid is the request's position in every queue, so waiting has
no cycles. A request waits for the nearest earlier ticket that conflicts with it, and for no other. A request of higher
priority can claim an earlier position (:mod:`.positions`).

An EXCLUSIVE lock on a *database* excludes every other request in it, but few requests ask for one. So only such a request
(or one for the database alone) has a ticket in the database's own queue. Every other request reads that queue after its
own ticket exists, and the EXCLUSIVE request reads the queues of all tables of the database.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_hivelock.locks import queueing, validate
from airflow_hivelock.locks.backends.zookeeper.client import (
    Client,
    Create,
    Delete,
    Get,
    Listing,
    Names,
    Node,
    Op,
    SetData,
)
from airflow_hivelock.locks.errors import StoreCorrupted
from airflow_hivelock.locks.model import MAX_PRIORITY, Lock, LockMode, in_order, locks_from_json, locks_to_json
from airflow_hivelock.locks.queueing import Position, QueuePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.model import LockObject

log = logging.getLogger(__name__)

CACHED_TICKETS = 20_000
"""How many tickets are cached, unless one look needs more. An evicted ticket is read again."""

_NAME = re.compile(r"([0-9a-f]{16})-([0-9]{1,19})-[0-9]{1,10}-(A|[SX](?:[0-9a-f]{8})?)")
"""A ticket's node: the owner's key, the epoch, the record's entry, the scope. No name is ever used twice."""

_ANY = "A"


class Claim(NamedTuple):
    """A turn before others, and since when a request has had it, by the store's clock."""

    zxid: int
    since_ms: int


@dataclass(frozen=True)
class Ticket:
    """A request's ticket in one queue. Only *locks* can change: a partial release writes the ticket with fewer of them.

    A process that has seen more of them waits a little longer, and never too short.

    :param zxid: of the transaction that created it: its position, unless it has claimed another.
    :param locks: what its request asks for in this queue, the lock on the database included.
    :param version: of its node, when it was read.
    """

    path: str
    key: str
    epoch: int
    owner: str
    zxid: int
    since_ms: int
    locks: tuple[Lock, ...]
    priority: int = 1
    claim: Claim | None = None
    version: int = 0

    @property
    def position(self) -> Position:
        return position(self.zxid, self.priority, self.claim)

    @property
    def place(self) -> QueuePlace:
        return QueuePlace(self.position, self.claim.since_ms if self.claim else self.since_ms)


def position(zxid: int, priority: int, claim: Claim | None) -> Position:
    """The position of tickets created at *zxid*, the same in all queues."""
    return Position(claim.zxid if claim else zxid, -priority, zxid)


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
    """The queues that may hold tickets in the way of a request for *locks*."""
    tables = {(lock.object.database, lock.object.table) for lock in locks}
    return sorted(f"{name}.{table}" if table else name for name, table in tables)


def scope(locks: Iterable[Lock]) -> str:
    """What a ticket's name tells of its *locks*, so that requests for other partitions need not read its data.

    ``X``: the table EXCLUSIVE. ``S``: the table alone, SHARED. ``S`` or ``X`` and eight hex digits: partitions below one
    first level, by its hash, with the strongest of their modes. ``A``: anything else; its data has to be read.
    """
    exclusive, whole, first_levels = False, False, set()
    for lock in locks:
        target = lock.object
        if not target.table:
            if lock.mode is LockMode.EXCLUSIVE:
                return _ANY
        elif target.partition:
            first_levels.add(target.partition[0])
            exclusive = exclusive or lock.mode is LockMode.EXCLUSIVE
        else:
            whole = lock.mode is LockMode.EXCLUSIVE
    if whole:
        return "X"
    if len(first_levels) > 1:
        return _ANY
    return ("X" if exclusive else "S") + "".join(map(_hash, first_levels))


@lru_cache(maxsize=4_096)
def _hash(level: tuple[str, str]) -> str:
    return hashlib.sha256("=".join(level).encode()).hexdigest()[:8]


def _may_conflict(one: str, other: str) -> bool:
    """Whether tickets of these scopes, in one table's queue, may conflict."""
    if _ANY in (one, other) or "X" in (one, other):
        return True
    return one[1:] == other[1:] and len(one) > 1 and "X" in (one[0], other[0])


def _may_lock(scope: str, target: LockObject) -> bool:
    """Whether a ticket of that scope, in the queue of *target*'s table or in one of its database, may lock *target*."""
    if not target.partition or scope == _ANY:
        return True
    return scope[1:] == _hash(target.partition[0])


class Queues:
    """Reads tickets, and caches them: what a ticket locks can only become less. One per session."""

    def __init__(self, client: Client, layout: Layout) -> None:
        self._client = client
        self._layout = layout
        self._cached: OrderedDict[str, Ticket] = OrderedDict()

    # The tickets of a request.

    def creates(self, record: Record, claim: Claim | None = None) -> list[Create]:
        """The operations that take a ticket in each queue of *record*'s request."""
        return [
            Create(self._path(record, name, locks), _ticket_data(record.owner, locks, record.priority, claim))
            for name, locks in ticket_units(record.locks).items()
        ]

    def created(self, record: Record, claim: Claim | None = None) -> list[Ticket]:
        """The tickets that *record*'s own transaction has created: nothing has to read them."""
        assert record.stat is not None
        key, epoch, stat = record.key, record.ticket_epoch, record.stat
        tickets = [
            Ticket(path, key, epoch, record.owner, stat.mzxid, stat.mtime_ms, locks, record.priority, claim)
            for name, locks in ticket_units(record.locks).items()
            for path in (self._path(record, name, locks),)
        ]
        self._cached |= {ticket.path: ticket for ticket in tickets}
        return tickets

    def deletes(self, record: Record) -> list[Delete]:
        """The operations that delete the tickets of *record*'s request."""
        return [Delete(path) for path, _ in self._tickets(record)]

    def of(self, record: Record) -> list[Ticket]:
        """The tickets of *record*'s request."""
        paths = [path for path, _ in self._tickets(record)]
        nodes = self._client.submit(*map(Get, paths))
        found = (_decode(path, node) for path, node in zip(paths, nodes, strict=True) if node is not None)
        return [ticket for ticket in found if ticket]

    def shrinks(self, record: Record, left: Iterable[Lock]) -> list[Op]:
        """The operations after which *record*'s tickets ask for no more than what is *left* of its locks."""
        ops: list[Op] = []
        kept = set(left)
        for ticket in self.of(record):
            locks = [lock for lock in ticket.locks if lock in kept]
            if not locks:
                ops.append(Delete(ticket.path))
            elif len(locks) < len(ticket.locks):
                data = _ticket_data(ticket.owner, locks, ticket.priority, ticket.claim)
                ops.append(SetData(ticket.path, data, ticket.version))
        return ops

    def _tickets(self, record: Record) -> list[tuple[str, tuple[Lock, ...]]]:
        """The paths of the tickets that *record*'s request has: a partial release keeps their names."""
        kept = set(record.locks)
        units = ticket_units(in_order((*record.locks, *record.given)))
        return [(self._path(record, name, locks), locks) for name, locks in units.items() if kept & set(locks)]

    def _path(self, record: Record, name: str, locks: Iterable[Lock]) -> str:
        return f"{self._layout.queue(name)}/{record.lease_id}-{record.entry}-{scope(locks) if '.' in name else _ANY}"

    # The tickets of all requests.

    def reads(self, locks: Sequence[Lock]) -> list[Names]:
        """What to read for :meth:`conflicting`."""
        return [Names(self._layout.queue(name)) for name in _units(locks)]

    def changes(self, locks: Iterable[Lock]) -> list[Get]:
        """What to read behind that: when each queue of a ticket changed last."""
        return [Get(self._layout.queue(name)) for name in ticket_units(locks)]

    def conflicting(self, locks: Sequence[Lock], listings: Sequence[Listing | None] | None = None) -> list[Ticket]:
        """The tickets that conflict with *locks*, last first: those of the same request as well.

        :param listings: the replies to :meth:`reads`, if they are at hand.
        """
        names = _units(locks)
        whole = {lock.object.database for lock in locks if not lock.object.table and lock.mode is LockMode.EXCLUSIVE}
        if whole:
            names = sorted({*names, *(name for name in self._every() if name.partition(".")[0] in whole)})
            listings = None
        mine = {name: scope(of_unit) for name, of_unit in ticket_units(locks).items() if "." in name}

        def wanted(name: str, ticket: str, epoch: int) -> bool:
            return name not in mine or _may_conflict(mine[name], ticket)

        modes = {lock.object: lock.mode for lock in locks}
        tickets = self._read(names, listings, wanted)
        return [ticket for ticket in reversed(tickets) if queueing.excludes(modes, ticket.locks)]

    def older(self, target: LockObject, czxid: int, listings: Mapping[str, Listing | None]) -> dict[str, Ticket | None]:
        """The tickets that lock *target* and are older than its node, created at *czxid*; None for one that has gone since.

        An epoch is no larger than the zxid of the transaction that first wrote it, so most names tell that they are younger.

        :param listings: of the queues of its table, by name; of a database, all of its queues are listed here.
        """
        name = f"{target.database}.{target.table}"
        if target.table:
            listed = {name: listings.get(name)}
        else:
            names = [one for one in self._every() if one.partition(".")[0] == target.database]
            listed = dict(
                zip(names, self._client.submit(*(Names(self._layout.queue(one)) for one in names)), strict=True)
            )

        def wanted(name: str, scope: str, epoch: int) -> bool:
            return epoch < czxid and _may_lock(scope, target)

        paths = self._paths(list(listed), list(listed.values()), wanted)
        tickets = self._get(paths, _decode)
        return {
            path: ticket
            for path in paths
            if (ticket := tickets.get(path)) is None
            or (ticket.zxid < czxid and any(lock.object == target for lock in ticket.locks))
        }

    def named(self, locks: Sequence[Lock], listings: Sequence[Listing | None]) -> dict[str, Listing | None]:
        """The replies to :meth:`reads`, by the queue's name."""
        return dict(zip(_units(locks), listings, strict=True))

    def listed(self) -> list[Ticket]:
        """The tickets in every queue, for listings: one that cannot be read is logged, and hides none of the others."""
        return self._read(self._every(), decode=_readable)

    def forget(self, ticket: Ticket) -> None:
        """Read it again the next time: its data has changed."""
        self._cached.pop(ticket.path, None)

    def _read(
        self,
        names: Sequence[str],
        listings: Sequence[Listing | None] | None = None,
        wanted: Callable[[str, str, int], bool] | None = None,
        decode: Callable[[str, Node], Ticket | None] | None = None,
    ) -> list[Ticket]:
        """The tickets in the queues *names*, in the order of their positions.

        :param wanted: whether to read the ticket of that queue, scope and epoch.
        :raises StoreCorrupted: one of them cannot be read; to pass over it would be to overtake it.
        """
        if listings is None:
            listings = self._client.submit(*(Names(self._layout.queue(name)) for name in names))
        found = self._get(self._paths(names, listings, wanted), decode or _decode)
        return sorted(found.values(), key=attrgetter("position"))

    def _paths(
        self,
        names: Sequence[str],
        listings: Sequence[Listing | None],
        wanted: Callable[[str, str, int], bool] | None = None,
    ) -> list[str]:
        return [
            f"{self._layout.queue(name)}/{child}"
            for name, listing in zip(names, listings, strict=True)
            for child in (listing.names if listing else ())
            if (match := _NAME.fullmatch(child)) and (wanted is None or wanted(name, match[3], int(match[2])))
        ]

    def _get(self, paths: Sequence[str], decode: Callable[[str, Node], Ticket | None]) -> dict[str, Ticket]:
        """The tickets at *paths*, from the cache where they are in it."""
        # The answer is apart from the cache, from which this look, or another thread's, may evict it meanwhile.
        found = {path: ticket for path in paths if (ticket := self._cached.get(path))}
        unknown = [path for path in paths if path not in found]
        for path, node in zip(unknown, self._client.submit(*map(Get, unknown)), strict=True):
            if node is not None and (ticket := decode(path, node)):
                self._cached[path] = found[path] = ticket
        while len(self._cached) > max(CACHED_TICKETS, 2 * len(paths)):
            self._cached.popitem(last=False)
        return found

    def _every(self) -> tuple[str, ...]:
        listing = self._client.submit(Names(self._layout.queues))[0]
        return listing.names if listing else ()


def _ticket_data(owner: str, locks: Iterable[Lock], priority: int = 1, claim: Claim | None = None) -> bytes:
    data: dict[str, Any] = {"owner": owner, "locks": locks_to_json(locks)}
    data |= {"priority": priority} if priority != 1 else {}
    data |= {"place": claim.zxid, "since_ms": claim.since_ms} if claim else {}
    return json.dumps(data, separators=(",", ":")).encode()


def _decode(path: str, node: Node) -> Ticket | None:
    """None for a node that is no ticket.

    :raises StoreCorrupted: a ticket that this version cannot read.
    """
    if not (name := _NAME.fullmatch(path.rpartition("/")[2])):
        return None
    try:
        data = validate.load(node.data)
        stat, locks = node.stat, locks_from_json(data["locks"])
        owner, priority = validate.text(data["owner"], "owner"), data.get("priority", 1)
        validate.number(abs(priority), "priority", MAX_PRIORITY)
        claim = None
        if "place" in data:
            since_ms = validate.number(data["since_ms"], "since_ms", validate.MOST_MS)
            claim = Claim(validate.number(data["place"], "place", stat.czxid - 1), since_ms)
        return Ticket(
            path, name[1], int(name[2]), owner, stat.czxid, stat.ctime_ms, locks, priority, claim, stat.version
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreCorrupted(
            f"{path} is a ticket that this version cannot read: upgrade airflow-hivelock here too, or delete that node if "
            "airflow-hivelock did not create it"
        ) from error


def _readable(path: str, node: Node) -> Ticket | None:
    try:
        return _decode(path, node)
    except StoreCorrupted as error:
        validate.complain(log, str(error), node.stat.mzxid)
        return None
