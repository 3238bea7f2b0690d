"""Deleting lock nodes: for a release, a give-back, and when a dead request is broken. Never a successor's, and never half.

UNLOCK TABLE in Hive deletes our nodes too. Its clean-up then deletes the object node, and the numbers of the next lock nodes
start at 0 again: a path that was this request's can be another request's now. Two rules make a delete by path safe all the same:

* The transaction compares and sets this request's record. A request whose node took over the path has marked that record
  LOST before its lease was returned (:mod:`.verification`), so the transaction fails, and the nodes are found by their zxid.
* If this transaction comes first, the other request misses its node in its verification, and gives back.

So a release needs no read before it, and no other request's writes can refuse it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backends.zookeeper.client import Client, Commit, Delete, Names, Op, Refused, SetData
from airflow_hivelock.locks.backends.zookeeper.groups import gives_back
from airflow_hivelock.locks.backends.zookeeper.record import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.backends.zookeeper.retry import Retry
    from airflow_hivelock.locks.model import Lock, LockObject

REMEMBERED = 1_000

OUTRUN = 3
"""How often other requests may come to a partition that is about to be deleted as empty, before it is left to them."""


class Nodes(NamedTuple):
    """The lock nodes of a request.

    :param paths: of the node on each object.
    :param created: the objects that the same transaction created: nothing else need lie on them.
    """

    paths: Mapping[LockObject, str]
    created: frozenset[LockObject] = frozenset()

    def on(self, locks: Iterable[Lock]) -> Nodes:
        """Those for *locks*."""
        return Nodes(
            {lock.object: self.paths[lock.object] for lock in locks if lock.object in self.paths}, self.created
        )


class Removal:
    """Deletes what a record's request has in Hive's namespace, together with the record's next state."""

    def __init__(self, client: Client, layout: Layout, namespace: Namespace, retry: Callable[[str], Retry]) -> None:
        self._client = client
        self._layout = layout
        self._namespace = namespace
        self._retry = retry
        self._remembered: OrderedDict[tuple[str, int], Nodes] = OrderedDict()

    def remember(self, record: Record, nodes: Nodes) -> None:
        """Keep what *record*'s own transaction has created, so that the release needs no read."""
        self._remembered[record.owner, record.written] = nodes
        while len(self._remembered) > REMEMBERED:
            self._remembered.popitem(last=False)

    def commit(
        self,
        current: Record,
        final: Record,
        also: Sequence[Op] = (),
        *,
        part: bool = False,
        nodes: Nodes | None = None,
    ) -> Record | None:
        """One transaction: *final* in place of *current*, the lock nodes and empty partition nodes gone, and *also*.

        What the request has in its group goes with them.

        :param part: delete only the nodes for locks that *final* no longer has, and leave the group alone.
        :param nodes: those of *current*, if they have just been found.
        :return: *final* with its stat; None if the record, or what *also* names, is no longer as it was read: read again.
        """
        kept = set(final.locks) if part else set()
        locks = [lock for lock in current.locks if lock not in kept]
        remembered = self._remembered.pop((current.owner, current.written), None)
        if (
            current.state is State.LOST
        ):  # a path of its own may be another request's by now, which need not mark it again
            remembered = None
        also = [*also, *([] if part else gives_back(self._layout, current))]
        known = nodes or (remembered and remembered.on(locks))
        written = self._remove(current, final, locks, known, also)
        if written and part and remembered:  # the rest is where it was
            self._remembered[current.owner, current.written] = remembered.on(final.locks)
        return written

    def _remove(
        self, current: Record, final: Record, locks: Sequence[Lock], nodes: Nodes | None, also: list[Op]
    ) -> Record | None:
        path = self._layout.record(current.key)
        nodes = self._find(current, locks) if nodes is None else nodes
        emptied, outrun = self._emptied(nodes), 0
        removing = self._retry(f"the locks of {current.owner} changed while they were removed")
        while True:
            deletes = [Delete(gone) for gone in (*nodes.paths.values(), *emptied)]
            outcome = self._client.submit(Commit((SetData(path, final.encode(), current.version), *deletes, *also)))[0]
            if not isinstance(outcome, Refused):
                return final.at(outcome[0])
            if outcome.op in also and isinstance(outcome.op, Delete) and outcome.reason == Refused.NO_NODE:
                also = [op for op in also if op != outcome.op]  # gone already
                continue
            if outcome.op.path == path or outcome.op in also:
                return None
            removing.again()
            if outcome.reason == Refused.NOT_EMPTY:  # other requests have come since; the last one deletes it
                nodes, outrun = nodes._replace(created=frozenset()), outrun + 1
            else:
                nodes = self._find(current, locks)
            emptied = self._emptied(nodes) if outrun < OUTRUN else []

    def _find(self, record: Record, locks: Sequence[Lock]) -> Nodes:
        own = self._namespace.own_nodes(locks, record.node_zxids)
        return Nodes({target: placed.path for target, placed in own.items()})

    def _emptied(self, nodes: Nodes) -> list[str]:
        """The partition nodes that are left empty, each before the one that contains it. Databases and tables stay."""
        partitions = [target for target in sorted(nodes.paths, key=rules.order, reverse=True) if target.partition]
        paths = {target: self._layout.object(target) for target in partitions}
        unknown = [target for target in partitions if target not in nodes.created]
        listings = self._client.submit(*(Names(paths[target]) for target in unknown))
        gone, emptied = set(nodes.paths.values()), []
        names = dict(zip(unknown, listings, strict=True))
        for target in partitions:
            path = paths[target]
            listing = names.get(target)
            others = listing is not None and any(f"{path}/{name}" not in gone for name in listing.names)
            if target in nodes.created or (listing is not None and not others):
                gone.add(path)
                emptied.append(path)
        return emptied
