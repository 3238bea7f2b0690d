"""Listings of holders, waiters, leases, history and audit. An unreadable entry is logged, and hides no other one."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import formats, queueing, rules, validate
from airflow_hivelock.locks.backend import NamespaceUse
from airflow_hivelock.locks.backends.zookeeper import groups, permits
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Get, Names, SetData
from airflow_hivelock.locks.backends.zookeeper.layout import MADE_HERE, LockData, LockNode
from airflow_hivelock.locks.backends.zookeeper.queue import Claim, Ticket
from airflow_hivelock.locks.backends.zookeeper.record import State, instant
from airflow_hivelock.locks.errors import AccessDenied, StoreCorrupted
from airflow_hivelock.locks.model import (
    Blocker,
    ForcedRelease,
    Holder,
    Lease,
    Lock,
    LockMode,
    LockObject,
    Tenure,
    Waiter,
    WaitsFor,
    locks_from_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backends.zookeeper.client import Node
    from airflow_hivelock.locks.backends.zookeeper.groups import GroupListing
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
    from airflow_hivelock.locks.queueing import Position

log = logging.getLogger(__name__)

_BEFORE_ALL = Claim(0, 0)
"""The position of requests that block all others."""

MOST_NAMED = 1_000
"""How many blockers a listing names for one waiter. All of them would grow with the square of the queue."""

MOST_NODES = 1_000
"""How many nodes of a namespace are read."""

MOST_NAMESPACES = 30
"""How many sibling nodes of the namespace are read."""

_AUDITED = ("lease", "owner", "user", "reason")

_HIVES_NAME = "hive_zookeeper_namespace"
"""Hive's default name for its namespace; distributions append the name of the service."""


class _Entry(NamedTuple):
    """A request that locks an object; *waiting*: how many of the requests up to this one wait, itself included."""

    position: Position
    key: str
    blocker: Blocker
    waiting: int


class Lanes:
    """Tickets by their locks. So a waiter's blockers are found without a look at each ticket."""

    def __init__(
        self, tickets: Iterable[Ticket], waits: Mapping[str, datetime | None], wanted: Mapping[LockObject, LockMode]
    ) -> None:
        """:param tickets: in the order of their positions.
        :param waits: the keys of the requests that wait, each with the end of its invitation.
        :param wanted: the locks that will be asked for; all others are left out.
        """
        self._lanes: defaultdict[tuple[LockObject, LockMode], list[_Entry]] = defaultdict(list)  # by the excluded lock
        for ticket in tickets:
            for lock in ticket.locks:
                if lock.object not in wanted:
                    continue
                waiting, until = ticket.key in waits, waits.get(ticket.key)
                blocker = Blocker(ticket.owner, lock.object, lock.mode, waiting, until=until)
                for mode in queueing.excluded_by(lock.mode):
                    lane = self._lanes[lock.object, mode]
                    count = blocker.waiting + (lane[-1].waiting if lane else 0)
                    lane.append(_Entry(ticket.position, ticket.key, blocker, count))

    def ahead(self, locks: Iterable[Lock], position: Position) -> tuple[tuple[Blocker, ...], int]:
        """The requests that conflict with *locks* and come before *position*, and how many of them wait. Each is listed
        once, the nearest :data:`MOST_NAMED` first."""
        lanes = []
        for lock in locks:
            lane = self._lanes.get((lock.object, lock.mode), [])
            if earlier := bisect_left(lane, position, key=attrgetter("position")):
                lanes.append((lane, earlier))
        if len(lanes) == 1 and lanes[0][0][0].blocker.object.table:  # a table's queue contains no request twice
            lane, earlier = lanes[0]
            near = lane[max(0, earlier - MOST_NAMED) : earlier]
            return tuple(entry.blocker for entry in reversed(near)), lane[earlier - 1].waiting
        found: dict[str, _Entry] = {}
        for lane, earlier in lanes:
            for entry in lane[:earlier]:
                found.setdefault(entry.key, entry)
        nearest = [entry.blocker for entry in sorted(found.values(), key=attrgetter("position"), reverse=True)]
        return tuple(nearest[:MOST_NAMED]), sum(blocker.waiting for blocker in nearest)


class Listed:
    """The part of the backend that lists the content of the store.

    :ivar namespace: Hive's ``hive.zookeeper.namespace``, without a chroot.
    """

    store: ZooKeeperStore
    namespace: str

    def show(self, target: LockObject | None = None) -> list[Holder]:
        placed = self.store.namespace.read(self.store.namespace.below(target, lenient=True), lenient=True)
        data = [LockData.decode(node.data) for _, node in placed]
        keys = sorted({lock.owner_key for lock in data if lock.owner_key})
        records = dict(zip(keys, self.store.read_all(keys), strict=True))
        ours = {key: (record.holds, record.node_zxids, record.lease()) for key, record in records.items() if record}
        holders = []
        for (lock, node), lock_data in zip(placed, data, strict=True):
            shown = lock_data.explicit, lock_data.query, lock_data.details
            holds, zxids, lease = ours.get(lock_data.owner_key, (False, frozenset(), None))
            if not (lock.node.ours and lease and node.stat.czxid in zxids):
                since = instant(node.stat.ctime_ms)
                hive_id = "" if lock.node.ours else lock_data.query_id
                unleased = lock_data.query_id, since, None, None, None
                holders.append(Holder(lock.object, lock.node.mode, *unleased, *shown, hive_id=hive_id))
            elif holds:  # a placeholder is not shown as a lock
                held = lease.owner, lease.since, lease.id, lease.token, lease.expires
                holders.append(Holder(lock.object, lock.node.mode, *held, *shown))
        return rules.as_shown(holders)

    def leases(self) -> list[Lease]:
        return _leases(_listed(self.store)[1])

    def waiters(self, target: LockObject | None = None) -> list[Waiter]:
        parked = _groups(self.store)
        return _waiters(self.store, *_listed(self.store), parked, target)

    def requests(self) -> tuple[list[Lease], list[Waiter]]:
        """Leases and waiters, of one snapshot."""
        parked = _groups(self.store)  # first: a request that gets its turn after this read is found among the tickets
        tickets, records = _listed(self.store)
        return _leases(records), _waiters(self.store, tickets, records, parked, None)

    def history(self, target: LockObject | None = None, *, most: int | None = None) -> list[Tenure]:
        # A record's name is a hash of its owner. So the first names are a fair sample, but not the newest.
        names = sorted(self.store.names(self.store.layout.records))[:most]
        tenures = (record.tenure() for record in self.store.read_all(names) if record)
        found = [tenure for tenure in tenures if tenure and rules.concern(tenure.locks, target)]
        return sorted(found, key=lambda tenure: tenure.granted)

    def audit(self) -> list[ForcedRelease]:
        paths = [f"{self.store.layout.audit}/{name}" for name in sorted(self.store.names(self.store.layout.audit))]
        nodes = self.store.client.submit(*(Get(path, lenient=True) for path in paths))
        found = [(node, path) for node, path in zip(nodes, paths, strict=True) if node]
        entries = [validate.readable(log, node.stat.mzxid, _audit_entry, node, path) for node, path in found]
        return [entry for entry in entries if entry]

    def namespaces(self) -> list[NamespaceUse]:
        """The use of the store's own namespace, then of the other namespaces that a Hive uses or has used.

        :raises AccessDenied: this client may not read its own namespace. Others are then left out.
        """
        store = self.store
        chroot = store.layout.namespace.removesuffix(self.namespace)
        own = _use(store, store.layout.namespace, chroot)
        found = [_seen_by_hive(store, own, chroot)]
        ours = store.layout.root.split("/")
        with suppress(AccessDenied):
            above = store.layout.above.rstrip("/")
            paths = [f"{above}/{name}" for name in sorted(store.names(above or "/"))]
            others = [path for path in paths if path not in ("/zookeeper", store.layout.namespace)]
            for path in [path for path in others if path.split("/") != ours[: path.count("/") + 1]][:MOST_NAMESPACES]:
                with suppress(AccessDenied):
                    other = _use(store, path, chroot)
                    if other.hives or (_HIVES_NAME in path and other.objects and not other.made_here):
                        found.append(other)
        return found


def _listed(store: ZooKeeperStore) -> tuple[list[Ticket], dict[str, Record]]:
    """Every ticket, and the records of their owners and of AWAY requests by key: far fewer than all records."""
    tickets = store.queues.listed()
    keys = list(dict.fromkeys([*(ticket.key for ticket in tickets), *store.names(store.layout.aways)]))
    return tickets, {record.key: record for record in store.read_all(keys) if record}


def _leases(records: Mapping[str, Record]) -> list[Lease]:
    return [record.lease() for record in records.values() if record.holds]


def _waiters(
    store: ZooKeeperStore,
    tickets: Sequence[Ticket],
    records: Mapping[str, Record],
    parked: Iterable[GroupListing],
    target: LockObject | None,
) -> list[Waiter]:
    line = [_as_held(ticket, records.get(ticket.key)) for ticket in tickets]
    line.sort(key=attrgetter("position"))
    queued: dict[str, Ticket] = {}
    for ticket in line:
        record = records.get(ticket.key)
        if record and not record.holds and record.has_tickets and record.ticket_epoch == ticket.epoch:
            queued.setdefault(ticket.key, ticket)
    asked = {key: records[key] for key in queued if rules.concern(records[key].locks, target)}
    wanted = _strongest(lock for record in asked.values() for lock in record.locks)
    lanes = Lanes(line, {key: record.until for key, record in records.items() if not record.holds}, wanted)
    found = []
    for key, record in asked.items():
        blockers, ahead = lanes.ahead(record.locks, queued[key].position)
        since = instant(record.first_ms or queued[key].since_ms)
        priority, attempt = queued[key].priority, record.attempt
        what = WaitsFor.SLOT if record.invited else WaitsFor.LOCK
        shown = 1 + ahead, since, blockers, priority, what, attempt, record.until
        found.append(Waiter(record.owner, record.locks, *shown))
    front = [waiter for waiter in found if not waiter.blocked_by]
    foreign = _foreign(store, [lock for waiter in front for lock in waiter.locks])
    queue = [waiter if waiter.blocked_by else _behind_hive(waiter, foreign) for waiter in found]
    return queue + _parked(parked, records, target) + _away(records.values(), target)


def _groups(store: ZooKeeperStore) -> list[GroupListing]:
    """All groups, for listings: an unreadable record is logged, and treated as missing."""
    found = (groups.read(store, key, listing=True) for key in sorted(store.names(store.layout.groups)))
    return [group for group in found if group is not None]


def _audit_entry(node: Node, path: str) -> ForcedRelease:
    """Parse an entry of the audit trail.

    :raises StoreCorrupted: it cannot be read.
    """
    try:
        data = validate.load(node.data)
        formats.take(data, (*_AUDITED, "locks"), path)
        validate.texts(data, _AUDITED)
        locks, at = locks_from_json(data["locks"]), instant(node.stat.ctime_ms)
        return ForcedRelease(data["lease"], data["owner"], locks, data["user"], data["reason"], at)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreCorrupted(f"{path} was not written by a force release: {error}") from error


def _as_held(ticket: Ticket, record: Record | None) -> Ticket:
    """*ticket* before all others if its owner has lock nodes, and without the locks that were released since its read."""
    if record is None:
        return ticket
    if record.has_nodes:
        ticket = replace(ticket, claim=_BEFORE_ALL)
    if record.given:
        held = set(record.locks)
        ticket = replace(ticket, locks=tuple(lock for lock in ticket.locks if lock in held))
    return ticket


def _parked(every: Iterable[GroupListing], records: Mapping[str, Record], target: LockObject | None) -> list[Waiter]:
    """The requests that wait for a permit of their groups."""
    found = []
    for group in every:
        held = {record.key: record for _, record in sorted(group.holders.items()) if record}
        holders = [permits.blocker(record, record.queued) for record in held.values()]
        ahead: list[Blocker] = []
        for parked, record in group.waiters:
            if record is None:
                continue
            moved = record.state is not State.PARKED or (record.key in records and records[record.key].has_tickets)
            if not moved and rules.concern(record.locks, target):
                blockers = (*holders, *ahead[::-1])[:MOST_NAMED]
                since, nth = instant(record.first_ms or record.asked_ms), 1 + len(ahead)
                what, attempt = WaitsFor.LEASE, record.attempt
                found.append(Waiter(record.owner, record.locks, nth, since, blockers, -parked.rank, what, attempt))
            ahead.append(permits.blocker(record, True))
    return found


def _away(records: Iterable[Record], target: LockObject | None) -> list[Waiter]:
    """The requests that could have had their locks, and that their owners will ask for again."""
    away = [(one.first_ms or one.asked_ms, one) for one in records if one.away and rules.concern(one.locks, target)]
    away.sort(key=itemgetter(0))
    return [
        Waiter(one.owner, one.locks, 0, instant(asked_ms), (), one.priority, WaitsFor.SLOT, one.attempt)
        for asked_ms, one in away
    ]


def _foreign(store: ZooKeeperStore, locks: Iterable[Lock]) -> list[tuple[LockObject, Blocker]]:
    """Hive's own locks on the objects of *locks*, and below those that are EXCLUSIVE: one read for all waiters."""
    modes = _strongest(locks)
    if not modes:
        return []
    wanted = [Lock(target, mode) for target, mode in sorted(modes.items())]
    children = store.namespace.survey(wanted)
    placed = store.namespace.foreign_conflicts(wanted, children, {})
    placed += store.namespace.foreign_below(wanted, children, store.client.zxid + 1)
    return [
        (lock.object, Blocker(LockData.decode(node.data).query_id, lock.object, lock.node.mode))
        for lock, node in store.namespace.read(placed)
    ]


def _strongest(locks: Iterable[Lock]) -> dict[LockObject, LockMode]:
    modes: dict[LockObject, LockMode] = {}
    for lock in locks:
        if modes.get(lock.object) is not LockMode.EXCLUSIVE:
            modes[lock.object] = lock.mode
    return modes


def _behind_hive(waiter: Waiter, foreign: Iterable[tuple[LockObject, Blocker]]) -> Waiter:
    """*waiter* with Hive's own locks as blockers, because no request blocks it."""
    modes = {lock.object: lock.mode for lock in waiter.locks}

    def blocks(target: LockObject, mode: LockMode) -> bool:
        if (mine := modes.get(target)) is not None and queueing.conflict(mine, mode):
            return True
        return any(modes.get(parent) is LockMode.EXCLUSIVE for parent in target.parents)

    return replace(waiter, blocked_by=tuple(blocker for target, blocker in foreign if blocks(target, blocker.mode)))


# Namespaces.


def _use(store: ZooKeeperStore, path: str, chroot: str) -> NamespaceUse:
    node = store.client.submit(Get(path))[0]
    below = [LockNode.parse(name) for name in _names(store, path)]
    hives = sum(lock is not None and not lock.ours for lock in below)
    made_here = node is not None and node.data == MADE_HERE
    return NamespaceUse(path.removeprefix(chroot), hives, None in below, made_here)


def _names(store: ZooKeeperStore, path: str) -> Iterator[str]:
    """The names of the nodes below *path*, level by level; the first MOST_NODES of them."""
    level, left = [path], MOST_NODES
    while level and left > 0:
        following = []
        for above, listing in zip(level, store.client.submit(*map(Names, level)), strict=True):
            names = listing.names[: max(0, left)] if listing else ()
            left -= len(names)
            yield from names
            following += [f"{above}/{name}" for name in names if LockNode.parse(name) is None]
        level = following


def _seen_by_hive(store: ZooKeeperStore, own: NamespaceUse, chroot: str) -> NamespaceUse:
    """*own*, after noting a Hive that locks there, because all its locks may be gone at the next look."""
    if own.hives and own.made_here:
        with suppress(AccessDenied):
            store.client.submit(Commit((SetData(f"{chroot}{own.path}", b"", -1),)))
    return own
