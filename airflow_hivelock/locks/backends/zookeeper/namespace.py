"""Hive's namespace: its object nodes and their lock nodes. Only the two ``make`` methods write."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backends.zookeeper.client import (
    Children,
    Client,
    Commit,
    Create,
    Exists,
    Get,
    Listing,
    Names,
    Node,
)
from airflow_hivelock.locks.backends.zookeeper.layout import LOCK_PREFIXES, MADE_HERE, Layout, LockData, LockNode
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import Blocker, Lock, LockMode, LockObject
from airflow_hivelock.locks.model.object import DEFAULT_PARTITION, unescape

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

_MAX_DEPTH = 64
_READ_FIRST = 500
_READ_BYTES = 64 << 20
_TABLE = 2  # the depth of a table below the namespace


class PlacedLock(NamedTuple):
    """A lock node on an object."""

    object: LockObject
    node: LockNode
    path: str


class Nodes(NamedTuple):
    """The lock nodes of a request.

    :param paths: of the node on each object.
    :param created: the objects that the same transaction created: they contain nothing else.
    """

    paths: Mapping[LockObject, str]
    created: frozenset[LockObject] = frozenset()

    def on(self, locks: Iterable[Lock]) -> Nodes:
        """The nodes for *locks*."""
        paths = {lock.object: self.paths[lock.object] for lock in locks if lock.object in self.paths}
        return Nodes(paths, self.created)


class Namespace:
    """Hive's namespace through one session."""

    def __init__(self, client: Client, layout: Layout) -> None:
        self._client = client
        self._layout = layout

    def reads(self, locks: Sequence[Lock]) -> list[Names]:
        """The reads for the first :meth:`survey`."""
        tops = (lock.object for lock in locks if len(lock.object.path) <= _TABLE)
        return [Names(self._layout.object(target)) for target in tops]

    def survey(self, locks: Sequence[Lock], tops: Sequence[Listing | None] | None = None) -> dict[LockObject, Listing]:
        """The children of each existing object of *locks*, by one round trip per level below the tables.

        An object that its parent does not list is not read.

        :param tops: the replies to :meth:`reads`, if the caller has them.
        """
        listings = self._client.submit(*self.reads(locks)) if tops is None else tops
        seen = self._present([lock.object for lock in locks if len(lock.object.path) <= _TABLE], listings)
        level = seen
        while level:
            listed = {target.path: frozenset(listing.names) for target, listing in level.items()}
            unread = [lock.object for lock in locks if lock.object not in seen]
            below = [target for target in unread if target.path[-1] in listed.get(target.path[:-1], ())]
            level = self._present(below, self._client.submit(*(Names(self._layout.object(t)) for t in below)))
            seen |= level
        return seen

    def listings(self, targets: Sequence[LockObject]) -> list[Children]:
        """The reads of objects that exist."""
        return [Children(self._layout.object(target)) for target in targets]

    def _present(self, targets: Sequence[LockObject], listings: Sequence[Listing | None]) -> dict[LockObject, Listing]:
        return {target: listing for target, listing in zip(targets, listings, strict=True) if listing is not None}

    def make(self) -> None:
        """Create the namespace again, because Hive's clean-up removes it while it is empty."""
        # refused if another client was quicker
        self._client.submit(Commit((Create(self._layout.namespace, MADE_HERE),)))

    def make_partitions(self, targets: Iterable[LockObject]) -> None:
        """Create the partition nodes among *targets* in transactions of their own, parents first."""
        partitions = [self._layout.object(target) for target in targets if target.partition]
        self._client.submit(*(Commit((Create(path),)) for path in partitions))

    def lock_nodes(self, locks: Iterable[Lock], children: Mapping[LockObject, Listing], data: bytes) -> list[Create]:
        """The operations that make a lock node for each of *locks*, and the objects that are not among *children*."""
        creates: list[Create] = []
        for lock in locks:
            path = self._layout.object(lock.object)
            if lock.object not in children:
                creates.append(Create(path))
            creates.append(Create(f"{path}/{LOCK_PREFIXES[lock.mode]}", data, True))
        return creates

    def foreign_conflicts(
        self, locks: Iterable[Lock], children: Mapping[LockObject, Listing | None], own: Mapping[LockObject, LockNode]
    ) -> list[PlacedLock]:
        """Hive's lock nodes among *children* that block *locks*. For this package's own locks the tickets decide.

        :param own: the request's own nodes, if any: by Hive's rule only a lower sequence number blocks them.
        """
        return [
            placed
            for lock in locks
            if lock.object in children
            for placed in self.placed(lock.object, children[lock.object], LockNode.of_hive)
            if queueing.conflict(placed.node.mode, lock.mode)
            if lock.object not in own or placed.node.sequence < own[lock.object].sequence
        ]

    def placed(
        self,
        target: LockObject,
        listing: Listing | None,
        which: Callable[[Iterable[str]], list[LockNode]] = LockNode.among,
        at: str = "",
    ) -> list[PlacedLock]:
        """The lock nodes among an object's children, by sequence number.

        :param which: finds the lock nodes among the children's names.
        :param at: the object's node, if its name is not spelled like Hive's.
        """
        nodes = sorted(which(listing.names if listing else ()), key=attrgetter("sequence"))
        path = (at or self._layout.object(target)) if nodes else ""
        return [PlacedLock(target, node, f"{path}/{node.name}") for node in nodes]

    def below(self, target: LockObject | None, *, lenient: bool = False) -> list[PlacedLock]:
        """Every lock node on *target* and below it, or everywhere; object names that are not Hive's are left out.

        :param lenient: for a listing. It also leaves out nodes that this client may not read.
        """
        level: list[tuple[str, LockObject | None]]
        level = [(self._layout.object(target), target)] if target else [(self._layout.namespace, None)]
        found: list[PlacedLock] = []
        for _ in range(_MAX_DEPTH):
            listings = self._client.submit(*(Names(path, lenient=lenient) for path, _ in level))
            following: list[tuple[str, LockObject | None]] = []
            for (path, parent), listing in zip(level, listings, strict=True):
                if parent is not None:
                    found += self.placed(parent, listing, at=path)
                following += [
                    (f"{path}/{name}", child)
                    for name in (listing.names if listing else ())
                    if LockNode.parse(name) is None and (child := _child(parent, name)) is not None
                ]
            if not following:
                break
            level = following
        return found

    def foreign_below(
        self, locks: Iterable[Lock], children: Mapping[LockObject, Listing | None], before_zxid: int
    ) -> list[PlacedLock]:
        """Hive's locks, made before *before_zxid*, below an object that *locks* takes EXCLUSIVE.

        Hive's ``LOCK TABLE … PARTITION`` leaves the table itself unlocked, so no node on the table shows them.
        """
        foreign = [
            placed
            for lock in locks
            if lock.mode is LockMode.EXCLUSIVE and _has_objects(children.get(lock.object))
            for placed in self.below(lock.object)
            if not placed.node.ours and placed.object != lock.object
        ]
        stats = self._client.submit(*(Exists(placed.path) for placed in foreign))
        return [
            placed for placed, stat in zip(foreign, stats, strict=True) if stat is not None and stat.czxid < before_zxid
        ]

    def own_nodes(self, locks: Sequence[Lock], zxids: Collection[int]) -> dict[LockObject, PlacedLock]:
        """The existing lock nodes for *locks* that the transactions *zxids* created.

        Only the zxid identifies them: after UNLOCK TABLE in Hive, another request's node can have one of these paths.
        """
        if not zxids:
            return {}
        listings = self._client.submit(*(Names(self._layout.object(lock.object)) for lock in locks))
        listed = []
        for lock, listing in zip(locks, listings, strict=True):
            ours = (p for p in self.placed(lock.object, listing) if p.node.ours)
            listed.append([p for p in ours if p.node.name.startswith(LOCK_PREFIXES[lock.mode])])
        made = self._made([nodes for nodes in listed if nodes], zxids)
        return {p.object: p for nodes in listed for p in nodes if p.path in made}

    def _made(self, listed: Sequence[Sequence[PlacedLock]], zxids: Collection[int]) -> set[str]:
        """The paths of the nodes that the transactions *zxids* created; each of *listed* is one object's.

        Their numbers grow with their zxids. So some of a thousand are read first, then those between two of these. All
        are read only if none was found.
        """
        czxids: dict[str, int | None] = {}

        def ask(nodes: Iterable[PlacedLock]) -> None:
            paths = [node.path for node in nodes if node.path not in czxids]
            stats = self._client.submit(*map(Exists, paths))
            czxids.update((path, stat and stat.czxid) for path, stat in zip(paths, stats, strict=True))

        def found(nodes: Iterable[PlacedLock]) -> set[str]:
            return {node.path for node in nodes if czxids.get(node.path) in zxids}

        ask(node for nodes in listed for node in nodes[:: math.isqrt(len(nodes))])
        ask(node for nodes in listed for node in _between(nodes, czxids, zxids))
        ask(node for nodes in listed if not found(nodes) for node in nodes)
        return {path for nodes in listed for path in found(nodes)}

    def missing(
        self, locks: Sequence[Lock], zxids: Collection[int], wake: Callable[[], None] | None
    ) -> list[LockObject]:
        """The objects of *locks* without the lock nodes that the transactions *zxids* made; watches the others."""
        own = self.own_nodes(locks, zxids)
        if wake is not None:
            stats = self._client.submit(*(Exists(placed.path, wake) for placed in own.values()))
            # another request's node may have replaced mine at that path since
            czxids = (stat and stat.czxid for stat in stats)
            own = {target: own[target] for target, czxid in zip(own, czxids, strict=True) if czxid in zxids}
        return [lock.object for lock in locks if lock.object not in own]

    def blockers(self, foreign: Sequence[PlacedLock]) -> list[Blocker]:
        """Hive's locks that block, and still exist."""
        found = self.read(foreign)
        return [Blocker(LockData.decode(node.data).query_id, at.object, at.node.mode) for at, node in found]

    def read(self, placed: Sequence[PlacedLock], *, lenient: bool = False) -> list[tuple[PlacedLock, Node]]:
        """The lock nodes that still exist, with their data; *lenient* as for :meth:`below`.

        The first read takes a few, the next as many as fit if they are like those. Hive 3 keeps up to a megabyte of a
        query in each of its locks, the same text in all.
        """
        found: list[tuple[PlacedLock, Node]] = []
        distinct: dict[bytes, bytes] = {}
        start, together = 0, _READ_FIRST
        while some := placed[start : start + together]:
            start += together
            nodes = self._client.submit(*(Get(lock.path, lenient=lenient) for lock in some))
            for lock, node in zip(some, nodes, strict=True):
                if node is not None:
                    data = distinct.setdefault(node.data, node.data)
                    found.append((lock, node if data is node.data else node._replace(data=data)))
            together = max(_READ_FIRST, _READ_BYTES // (1 + max(map(len, distinct), default=0)))
        return found

    def watch(self, targets: Iterable[LockObject], wake: Callable[[], None]) -> None:
        """Call *wake* when a lock on one of *targets* is created or deleted."""
        paths = [self._layout.object(target) for target in targets]
        listings = self._client.submit(*(Children(path, wake) for path in paths))
        absent = [path for path, listing in zip(paths, listings, strict=True) if listing is None]
        if any(self._client.submit(*(Exists(path, wake) for path in absent))):
            wake()  # created between the two reads


def _between(
    nodes: Sequence[PlacedLock], czxids: Mapping[str, int | None], zxids: Collection[int]
) -> Iterator[PlacedLock]:
    """The part of *nodes*, in the order of their creation, that may contain *zxids*, by the known *czxids*."""
    known = [(at, czxid) for at, node in enumerate(nodes) if (czxid := czxids.get(node.path)) is not None]
    for zxid in zxids:
        above = bisect_right(known, zxid, key=itemgetter(1))
        below = bisect_left(known, zxid, key=itemgetter(1))
        first = known[above - 1][0] if above else 0
        last = known[below][0] if below < len(known) else len(nodes) - 1
        yield from nodes[first : last + 1]


def _has_objects(listing: Listing | None) -> bool:
    return listing is not None and not all(map(LockNode.parse, listing.names))


def hives_order(target: LockObject) -> str:
    """Hive's sort key for a query's objects: their names, joined (``HiveLockObject.getName``), not level by level."""
    return "/".join(target.path)


@lru_cache(maxsize=16_384)  # each look parses the same names
def _child(parent: LockObject | None, name: str) -> LockObject | None:
    try:
        if parent is None:
            return LockObject(name)
        if not parent.table:
            return LockObject(parent.database, name)
        column, _, value = name.partition("=")
        level = (unescape(column), "" if value == DEFAULT_PARTITION else unescape(value))
        return LockObject(parent.database, parent.table, (*parent.partition, level))
    except InvalidRequest:
        return None  # not an object of Hive's
