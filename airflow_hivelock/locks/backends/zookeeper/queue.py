"""Queues: one ticket per table, created at the start and kept until the release. It is both position and hold.

All tickets of a request are created in one transaction. Its zxid is the request's position in every queue, so waiting
has no cycles. An EXCLUSIVE lock on a *database* excludes every other request in it, but few requests ask for one. So
only such a request (or one for the database alone) has a ticket in the database's own queue. Every other request reads
that queue after its own ticket exists. The EXCLUSIVE request reads the queues of all tables of the database.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_hivelock.locks import formats, queueing, validate
from airflow_hivelock.locks.backends.zookeeper.client import Create, Delete, Get, Names, SetData
from airflow_hivelock.locks.errors import StoreCorrupted
from airflow_hivelock.locks.model import MAX_PRIORITY, Lock, LockMode, in_order, locks_from_json, locks_to_json
from airflow_hivelock.locks.queueing import Position, TimedPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Client, Listing, Node, Op, Stat
    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.model import LockObject

    Decode = Callable[[str, Node], "Ticket | None"]
    Listings = Mapping[str, Listing | None]

log = logging.getLogger(__name__)

CACHED_TICKETS = 20_000
"""How many tickets are cached, unless one look needs more. An evicted ticket is read again."""

_NAME = re.compile(r"([0-9a-f]{16})-([0-9]{1,19})-[0-9]{1,10}-(A|[SX](?:[0-9a-f]{8})?)")
"""A ticket's node: the owner's key, the epoch, the record's entry, the scope. A name is used only once."""

_FIELDS = frozenset({"owner", "locks", "priority", "place", "since_ms"})
_ANY = "A"


class Claim(NamedTuple):
    """The number that a position claims, and when that was first taken, by the store's clock.

    None: it has its own number. It has overtaken requests in the background that reach their limit soon.
    """

    number: int | None
    since_ms: int


@dataclass(frozen=True)
class Ticket:
    """A request's ticket in one queue. Only *locks* can change: a partial release writes the ticket with fewer of them.

    :param zxid: of the transaction that created it: its position, unless it has claimed another.
    :param version: of its node, when it was read.
    :param holds: whether its request is known to have lock nodes.
    :param stamp: of the version that created it.
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
    holds: bool = False
    stamp: formats.Stamp = field(default=formats.WRITES, compare=False)

    @cached_property
    def position(self) -> Position:
        return position(self.zxid, self.priority, self.claim)

    @property
    def timed(self) -> TimedPosition:
        return TimedPosition(self.position, self.claim.since_ms if self.claim else self.since_ms)


def position(zxid: int, priority: int, claim: Claim | None) -> Position:
    """The position of tickets created at *zxid*, the same in all queues."""
    own = Position.unclaimed(zxid, priority, zxid)
    return own._replace(number=claim.number) if claim and claim.number is not None else own


def ticket_units(locks: Iterable[Lock]) -> dict[str, tuple[Lock, ...]]:
    """The queues that a request for *locks* takes a ticket in, with its locks there."""
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


def unit_of(target: LockObject) -> str:
    """The queue of *target*'s table, or of its database."""
    return f"{target.database}.{target.table}" if target.table else target.database


def _units(locks: Iterable[Lock]) -> list[str]:
    """The queues that may contain tickets ahead of a request for *locks*."""
    tables = {(lock.object.database, lock.object.table) for lock in locks}
    return sorted(f"{name}.{table}" if table else name for name, table in tables)


def scope(locks: Iterable[Lock]) -> str:
    """The part of a ticket's name that describes its *locks*. Requests for other partitions then need not read its
    data.

    ``X``: the table EXCLUSIVE. ``S``: the table alone, SHARED. ``S`` or ``X`` and eight hex digits: partitions below
    one first level, by its hash, with the strongest of their modes. ``A``: anything else; its data has to be read.
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


class _Name(NamedTuple):
    queue: str
    path: str
    key: str
    epoch: int
    scope: str


@lru_cache(maxsize=16_384)  # each look parses the same names
def _parts(queue: str, name: str) -> _Name | None:
    return _Name(queue, f"{queue}/{name}", at[1], int(at[2]), at[3]) if (at := _NAME.fullmatch(name)) else None


@lru_cache(maxsize=4_096)
def _same(locks: tuple[Lock, ...]) -> tuple[Lock, ...]:
    """The first tuple that was equal to *locks*, so that tickets share it."""
    return locks


@lru_cache(maxsize=4_096)
def _hash(level: tuple[str, str]) -> str:
    return hashlib.sha256("=".join(level).encode()).hexdigest()[:8]


@lru_cache(maxsize=4_096)  # of a thousand tickets in a queue, few differ in this
def _may_conflict(one: str, other: str) -> bool:
    """Whether tickets of these scopes, in one table's queue, may conflict."""
    if _ANY in (one, other) or "X" in (one, other):
        return True
    return one[1:] == other[1:] and len(one) > 1 and "X" in (one[0], other[0])


def _may_lock(scope: str, target: LockObject) -> bool:
    """Whether a ticket of that scope may lock *target*, in the queue of *target*'s table or another of its database."""
    if not target.partition or scope == _ANY:
        return True
    return scope[1:] == _hash(target.partition[0])


class Queues:
    """Reads tickets, and caches them: a ticket's locks can only become fewer. One per session."""

    def __init__(self, client: Client, layout: Layout) -> None:
        self._client = client
        self._layout = layout
        self._cached: OrderedDict[str, Ticket] = OrderedDict()

    # The tickets of a request.

    def creates(self, record: Record, claim: Claim | None = None) -> list[Create]:
        """The operations that create *record*'s tickets."""
        return [
            Create(path, _ticket_data(record.owner, locks, record.priority, claim))
            for path, locks in self._tickets(record).items()
        ]

    def deletes(self, record: Record) -> list[Delete]:
        """The operations that delete *record*'s tickets."""
        return list(map(Delete, self._tickets(record)))

    def of(self, record: Record) -> list[Ticket]:
        """Read *record*'s tickets."""
        paths = list(self._tickets(record))
        nodes = self._client.submit(*map(Get, paths))
        return [_decode(path, node) for path, node in zip(paths, nodes, strict=True) if node is not None]

    def shrinks(self, record: Record, left: Iterable[Lock]) -> list[Op]:
        """The operations that leave in *record*'s tickets only the locks of *left*."""
        ops: list[Op] = []
        kept = set(left)
        for ticket in self.of(record):
            locks = [lock for lock in ticket.locks if lock in kept]
            if not locks:
                ops.append(Delete(ticket.path))
            elif len(locks) < len(ticket.locks):
                data = _ticket_data(ticket.owner, locks, ticket.priority, ticket.claim, ticket.stamp)
                ops.append(SetData(ticket.path, data, ticket.version))
        return ops

    def _tickets(self, record: Record) -> dict[str, tuple[Lock, ...]]:
        """The locks of each of *record*'s tickets, by its path. A partial release keeps the names."""
        given, kept = record.given, set(record.locks) if record.given else set()
        return {
            f"{self._layout.queue(name)}/{record.lease_id}-{record.entry}-{scope(locks) if '.' in name else _ANY}": locks
            for name, locks in ticket_units(in_order((*record.locks, *given)) if given else record.locks).items()
            if not given or kept & set(locks)
        }

    # The tickets of all requests.

    def reads(self, locks: Sequence[Lock]) -> list[Names]:
        """The reads that list the queues of a request for *locks*, and of its databases."""
        return [Names(self._layout.queue(name)) for name in _units(locks)]

    def named(self, locks: Sequence[Lock], replies: Sequence[Listing | None]) -> Listings:
        """The replies to :meth:`reads`, the first of *replies*, by the name of the queue."""
        return dict(zip(_units(locks), replies, strict=False))

    def changes(self, locks: Iterable[Lock]) -> list[Get]:
        """The reads that show when each queue of a ticket last changed."""
        return [Get(self._layout.queue(name)) for name in ticket_units(locks)]

    def conflicting(self, record: Record, listings: Listings | None = None) -> list[Ticket]:
        """Other requests' tickets that conflict with *record*'s locks, the last one first.

        :param listings: see :meth:`named`. EXCLUSIVE on a database lists every queue of the database instead.
        :raises StoreCorrupted: one cannot be read; to ignore it would be to overtake it.
        """
        locks = record.locks
        if whole := {one.object.database for one in locks if not one.object.table and one.mode is LockMode.EXCLUSIVE}:
            listings = self._list({*_units(locks), *self._every(whole)})
        elif listings is None:
            listings = self._list(_units(locks))
        mine = {self._layout.queue(name): scope(unit) for name, unit in ticket_units(locks).items() if "." in name}
        paths = [
            name.path
            for name in self._names(listings, record.key)
            if name.queue not in mine or _may_conflict(mine[name.queue], name.scope)
        ]
        modes = {lock.object: lock.mode for lock in locks}
        tickets = _with_locks(self._get(paths, _decode), lambda theirs: queueing.excludes(modes, theirs))
        return sorted(tickets, key=attrgetter("position"), reverse=True)

    def others(self, record: Record, listings: Listings) -> dict[str, list[_Name]]:
        """The names of other requests' tickets, by the queue; it has no entry for a queue without them."""
        return {name: named for name in listings if (named := self._names({name: listings[name]}, record.key))}

    def older(
        self, record: Record, targets: Mapping[LockObject, int], others: Mapping[str, Sequence[_Name]]
    ) -> dict[LockObject, dict[str, Ticket | None]]:
        """By target, other requests' tickets that lock it and are older than its node; None: the ticket is gone.

        :param targets: the objects, and the zxids that created their nodes.
        :param others: see :meth:`others`. For a database all of its queues are listed here.
        """
        found: dict[LockObject, dict[str, Ticket | None]] = {}
        for target, czxid in targets.items():
            named = others.get(unit_of(target), ())
            if not target.table:
                named = self._names(self._list(self._every({target.database})), record.key)
            # An epoch is at most the zxid of the transaction that first wrote it, so most names show that they are younger.
            paths = [of.path for of in named if of.epoch < czxid and _may_lock(of.scope, target)]
            if paths:
                found[target] = self._older(target, czxid, paths)
        return found

    def _older(self, target: LockObject, czxid: int, paths: Sequence[str]) -> dict[str, Ticket | None]:
        tickets = self._get(paths, _decode)
        locking = _with_locks(tickets, lambda theirs: any(lock.object == target for lock in theirs))
        gone = {path: None for path in paths if path not in tickets}
        return {**gone, **{ticket.path: ticket for ticket in locking if ticket.zxid < czxid}}

    def listed(self) -> list[Ticket]:
        """The tickets in every queue, for listings. An unreadable ticket is logged, and hides none of the others."""
        paths = [name.path for name in self._names(self._list(self._every(), lenient=True))]
        return sorted(self._get(paths, _readable, lenient=True).values(), key=attrgetter("position"))

    def forget_changed(self, read: Iterable[tuple[Ticket, Stat | None]]) -> bool:
        """Forget the cached tickets that have changed, by the stats at their paths; return whether there were any.

        After a partial release a ticket may conflict no longer, and only its version shows that.
        """
        changed = [ticket.path for ticket, stat in read if stat is None or stat.version != ticket.version]
        for path in changed:
            self._cached.pop(path, None)
        return bool(changed)

    def _every(self, databases: Collection[str] = ()) -> list[str]:
        """The names of all queues, or of those in *databases*."""
        listing = self._client.submit(Names(self._layout.queues))[0]
        every = listing.names if listing else ()
        return [name for name in every if name.partition(".")[0] in databases] if databases else list(every)

    def _list(self, names: Iterable[str], *, lenient: bool = False) -> Listings:
        given = sorted(names)
        reads = (Names(self._layout.queue(name), lenient=lenient) for name in given)
        return dict(zip(given, self._client.submit(*reads), strict=True))

    def _names(self, listings: Listings, but: str = "") -> list[_Name]:
        """The name of each ticket, except those of the owner with the key *but*."""
        return [
            name
            for queue, listing in listings.items()
            for name in map(_parts, repeat(self._layout.queue(queue)), listing.names if listing else ())
            if name and name.key != but
        ]

    def _get(self, paths: Sequence[str], decode: Decode, *, lenient: bool = False) -> dict[str, Ticket]:
        """The tickets at *paths*, from the cache if possible."""
        # A dict of its own: this look or another thread's may evict a ticket from the cache meanwhile.
        found = {path: ticket for path in paths if (ticket := self._cached.get(path))}
        unknown = [path for path in paths if path not in found] if len(found) < len(paths) else []
        nodes = self._client.submit(*(Get(path, lenient=lenient) for path in unknown))
        for path, node in zip(unknown, nodes, strict=True):
            if node is not None and (ticket := decode(path, node)):
                self._cached[path] = found[path] = ticket
        while len(self._cached) > max(CACHED_TICKETS, 2 * len(paths)):
            self._cached.popitem(last=False)
        return found


def _with_locks(tickets: Mapping[str, Ticket], wanted: Callable[[tuple[Lock, ...]], bool]) -> list[Ticket]:
    """The tickets with *wanted* locks. Waiters for the same objects share a tuple, so a thousand are compared once."""
    locks = [ticket.locks for ticket in tickets.values()]
    numbers = list(map(id, locks))
    chosen = {number for number, theirs in dict(zip(numbers, locks, strict=True)).items() if wanted(theirs)}
    return [ticket for ticket, number in zip(tickets.values(), numbers, strict=True) if number in chosen]


def _ticket_data(
    owner: str, locks: Iterable[Lock], priority: int, claim: Claim | None, stamp: formats.Stamp = formats.WRITES
) -> bytes:
    data: dict[str, Any] = {**stamp.fields(), "owner": owner, "locks": locks_to_json(locks)}
    data |= {"priority": priority} if priority != 1 else {}
    data |= {"place": claim.number} if claim and claim.number is not None else {}
    data |= {"since_ms": claim.since_ms} if claim else {}
    return formats.dump(data).encode()


def _decode(path: str, node: Node) -> Ticket:
    """Parse a ticket.

    :raises StoreCorrupted: this version cannot read it.
    :raises UpgradeNeeded: it is for readers of a later format.
    """
    try:
        name = path.rpartition("/")[2].split("-")
        data = validate.load(node.data)
        stamp = formats.take(data, _FIELDS, path)
        stat, locks = node.stat, _same(locks_from_json(data["locks"]))
        owner, priority = validate.text(data["owner"], "owner"), data.get("priority", 1)
        validate.number(abs(priority), "priority", MAX_PRIORITY)
        claim = None
        if "since_ms" in data or "place" in data:
            place = validate.number(data["place"], "place") if "place" in data else None
            claim = Claim(place, validate.number(data["since_ms"], "since_ms", validate.MOST_MS))
        made = path, name[0], int(name[1]), owner, stat.czxid, stat.ctime_ms, locks, priority, claim, stat.version
        return Ticket(*made, stamp=stamp)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreCorrupted(
            f"{path} is a ticket that this version cannot read. Upgrade airflow-hivelock here too. If airflow-hivelock did "
            "not create the node, delete it"
        ) from error


def _readable(path: str, node: Node) -> Ticket | None:
    return validate.readable(log, node.stat.mzxid, _decode, path, node)
