"""Taking lock nodes away, for release, roll-back and breaking: never a successor's, and never half.

Hive's UNLOCK TABLE removes our nodes too, its clean-up then removes the object node, and the sequence numbers of
the next ones start at 0 again: a path that was mine may be another's now, and a delete in ZooKeeper cannot tell.
So nodes are known by the zxid that made them, and between that look and the delete nobody can have made another:

* an EXCLUSIVE node of ours on the same object needs my ticket gone, or without that object, which this very transaction
  makes it; the maker
  of such a node therefore knows its path for as long as the ticket stands;
* a SHARED one bumps its queue's guard, whose version this transaction checks; its maker knows its path for as
  long as the guard has the version that it left there.

Readers that come without a break would bump a guard for ever. A removal that they outrun takes a *drain* ticket, which
excludes everybody, in the queues concerned: the guards stand still once the earlier requests have had their turn.
It is given back whatever becomes of the removal. Where that fails too, it is void with the record's next write, or soon.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backends.zookeeper.client import (
    Check,
    Client,
    Commit,
    Create,
    Delete,
    Exists,
    Names,
    Op,
    Refused,
    SetData,
)
from airflow_hivelock.locks.backends.zookeeper.groups import gives_back
from airflow_hivelock.locks.backends.zookeeper.layout import LockNode
from airflow_hivelock.locks.backends.zookeeper.queue import shared_units
from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.locks.model import LockMode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace
    from airflow_hivelock.locks.backends.zookeeper.queue import Queues
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.backends.zookeeper.retry import Retry
    from airflow_hivelock.locks.model import Lock

TRIES_BEFORE_DRAIN = 5
REMEMBERED = 1_000


@dataclass(frozen=True)
class _Doomed:
    """What a removal deletes, and the guards under which that is known to be mine."""

    guards: tuple[Check, ...]
    nodes: tuple[str, ...]
    emptied: tuple[str, ...]

    def on(self, objects: Collection[str], guards: Collection[str]) -> _Doomed:
        """What of it lies on the objects at those paths."""
        return _Doomed(
            tuple(guard for guard in self.guards if guard.path in guards),
            tuple(node for node in self.nodes if node.rpartition("/")[0] in objects),
            tuple(path for path in self.emptied if path in objects),
        )


class Removal:
    """Removes what a record's request has in Hive's namespace, together with the record's next state."""

    def __init__(
        self, client: Client, layout: Layout, namespace: Namespace, queues: Queues, retry: Callable[[str], Retry]
    ) -> None:
        self._client = client
        self._layout = layout
        self._namespace = namespace
        self._queues = queues
        self._retry = retry
        self._remembered: OrderedDict[tuple[str, int], _Doomed] = OrderedDict()

    def remember(
        self,
        record: Record,
        guards: Sequence[SetData],
        creates: Sequence[Create],
        replies: Sequence[Any],
        *,
        complete: bool = True,
    ) -> set[str]:
        """The lock nodes that a try has made, by the *replies* to its *guards* and *creates*.

        :param complete: these are all that *record* has: keep what was said, so that their removal needs no reads while
            nobody else was there.
        """
        stats, made = replies[: len(guards)], replies[len(guards) : len(guards) + len(creates)]
        nodes = tuple(path for path, create in zip(made, creates, strict=True) if create.sequential)
        if complete:
            checks = tuple(Check(guard.path, stat.version) for guard, stat in zip(guards, stats, strict=True))
            self._remembered[record.owner, record.written] = _Doomed(checks, nodes, self._partitions(nodes))
            while len(self._remembered) > REMEMBERED:
                self._remembered.popitem(last=False)
        return set(nodes)

    def exclusive_nodes(self, record: Record) -> list[str]:
        """The EXCLUSIVE lock nodes of *record*'s, if this process made them: their paths are nobody else's."""
        known = self._known(record, record.locks)
        return [node for node in known.nodes if _mode(node) is LockMode.EXCLUSIVE] if known else []

    def commit(self, current: Record, final: Record, also: Sequence[Op] = ()) -> Record | None:
        """One transaction: *final* in place of *current*, its lock nodes and empty partition nodes gone, and *also*.

        What the request has in its group goes with them.

        :return: *final* with its stat; None if the record, or what *also* names, is no longer as it was read: read again.
        """
        known = self._known(current, current.locks)
        self._remembered.pop((current.owner, current.written), None)
        return self._remove(current, final, current.locks, known, (*also, *gives_back(self._layout, current)))

    def commit_part(self, current: Record, final: Record, also: Sequence[Op]) -> Record | None:
        """The same for the locks that *final* no longer has, and for nothing else."""
        left = set(final.locks)
        locks = [lock for lock in current.locks if lock not in left]
        known = self._known(current, locks)
        remembered = self._remembered.pop((current.owner, current.written), None)
        written = self._remove(current, final, locks, known, also)
        if written and remembered:  # what is left is where it was
            self._remembered[current.owner, current.written] = remembered
        return written

    def _known(self, record: Record, locks: Collection[Lock]) -> _Doomed | None:
        """What is remembered of the nodes for *locks*: those on what *record* has given back may be another's by now."""
        known = self._remembered.get((record.owner, record.written))
        if known is None or (len(locks) == len(record.locks) and not record.given):
            return known
        objects = {self._layout.object(lock.object) for lock in locks}
        return known.on(objects, {self._layout.queue(name) for name in shared_units(locks)})

    def _remove(
        self, current: Record, final: Record, locks: Sequence[Lock], known: _Doomed | None, also: Sequence[Op]
    ) -> Record | None:
        drains: list[Op] = []
        try:
            return self._commit(current, final, locks, known, also, drains)
        finally:
            self._give_back(drains)

    def _commit(
        self,
        current: Record,
        final: Record,
        locks: Sequence[Lock],
        known: _Doomed | None,
        also: Sequence[Op],
        drains: list[Op],
    ) -> Record | None:
        """:param drains: gets what gives back the drains that stand."""
        path = self._layout.record(current.key)
        doomed = known or self._look(current, locks, None)
        outrun = 0
        removing = self._retry(f"the locks of {current.owner} changed while they were removed")
        while True:
            deletes = [*map(Delete, (*doomed.nodes, *doomed.emptied)), *drains, *also]
            record = SetData(path, final.encode(), current.version)
            outcome = self._client.submit(Commit((record, *doomed.guards, *deletes)))[0]
            if not isinstance(outcome, Refused):
                drains.clear()
                return replace(final, stat=outcome[0])
            if outcome.op in also and isinstance(outcome.op, Delete):
                also = [op for op in also if op != outcome.op]  # gone already
                continue
            if outcome.op.path == path or outcome.op in also:
                return None
            if outcome.op in drains:
                self._give_back(drains)
                drains.clear()
                continue
            if outcome.op in doomed.guards:
                outrun += 1
                if outrun % TRIES_BEFORE_DRAIN == 0:
                    self._drain(current, drains)
            if outcome.reason == Refused.NO_NODE:
                known = None  # Hive unlocked behind my back
            removing.again()
            doomed = self._look(current, locks, known)

    def _drain(self, current: Record, drains: list[Op]) -> None:
        """Let drains stand: if one has gone, with its session or by a waiter that it kept back for long, all are taken anew."""
        standing = self._client.submit(*(Exists(op.path) for op in drains))
        if not standing or None in standing:
            self._give_back(drains)
            drains[:] = self._queues.drain(current)

    def _give_back(self, drains: Iterable[Op]) -> None:
        """One by one: a waiter may have deleted one of them."""
        with suppress(StoreUnavailable):  # void with the next write of its record, and soon in any case
            self._client.submit(*(Commit((op,)) for op in drains))

    def _look(self, record: Record, locks: Sequence[Lock], known: _Doomed | None) -> _Doomed:
        """Read the guards first, then where my nodes for *locks* are; EXCLUSIVE nodes whose paths are known need no look."""
        if not record.node_zxids:
            return _Doomed((), (), ())
        guards = self.guards(locks)
        exclusive = [node for node in known.nodes if _mode(node) is LockMode.EXCLUSIVE] if known else []
        unknown = [lock for lock in locks if not (known and lock.mode is LockMode.EXCLUSIVE)]
        own = self._namespace.own_nodes(unknown, record.node_zxids)
        nodes = (*exclusive, *(placed.path for placed in own.values()))
        return _Doomed(guards, nodes, self._emptied(nodes))

    def guards(self, locks: Iterable[Lock]) -> tuple[Check, ...]:
        """To be read before the nodes: what a transaction checks that removes the SHARED nodes of *locks*."""
        queues = [self._layout.queue(name) for name in shared_units(locks)]
        stats = self._client.submit(*map(Exists, queues))
        return tuple(Check(queue, stat.version) for queue, stat in zip(queues, stats, strict=True) if stat is not None)

    def _emptied(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """The partition nodes that are left empty once *nodes* are gone, each before the one that it lies in."""
        partitions = self._partitions(nodes)
        listings = self._client.submit(*map(Names, partitions))
        gone = set(nodes)
        for path, listing in zip(partitions, listings, strict=True):
            if listing is not None and all(f"{path}/{name}" in gone for name in listing.names):
                gone.add(path)
        return tuple(path for path in partitions if path in gone)

    def _partitions(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """The partition nodes that *nodes* lie on, each before the one that it lies in. Databases and tables stay: they are few."""
        depth_of_table = self._layout.namespace.count("/") + 2
        parents = {node.rpartition("/")[0] for node in nodes}
        return tuple(sorted((path for path in parents if path.count("/") > depth_of_table), reverse=True))


def _mode(path: str) -> LockMode | None:
    node = LockNode.parse(path.rpartition("/")[2])
    return node.mode if node else None
