"""What one session knows and changes of the store: owners' records, queues, tombstones, the store's time.

The acquisition decides, the listings look, the backend answers its callers; all three do it on this.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.backends.zookeeper.client import (
    Client,
    Commit,
    Create,
    Delete,
    Exists,
    Get,
    Names,
    Refused,
    SetData,
    Sync,
)
from airflow_hivelock.locks.backends.zookeeper.layout import MADE_HERE
from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace, Nodes
from airflow_hivelock.locks.backends.zookeeper.queue import LocalWaiters, Queues, ticket_units
from airflow_hivelock.locks.backends.zookeeper.record import ALIVE, ASIDE, PERMIT, TICKETS, Record, State, instant
from airflow_hivelock.locks.errors import LockLost, StoreCorrupted, StoreUnavailable
from airflow_hivelock.locks.model import owner_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backends.zookeeper.client import Listing, Node, Op, Request
    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from airflow_hivelock.locks.backends.zookeeper.queue import Claim, Listings
    from airflow_hivelock.locks.model import Lease, Lock

log = logging.getLogger(__name__)

_LEASE_ID = re.compile(r"([0-9a-f]{16})-([0-9]{1,19})")

HISTORY_S = 7 * 86_400.0
"""How long tombstones stay: as history, and longer than any old process of an owner can live."""


REMEMBERED = 1_000
"""How many leases, and databases, this process remembers."""

AT_ONCE = 5
FIRST_S, LONGEST_S = 0.005, 0.5
GIVE_UP_S = 10.0


def pause_s(tried: int) -> float:
    """How long to pause after so many tries in vain, in seconds. A few tries follow at once, because most need no more. Then
    the pauses grow, so that processes in each other's way do not keep the servers busy."""
    return 0.0 if tried < AT_ONCE else min(LONGEST_S, FIRST_S * 2 ** min(tried - AT_ONCE, 10))


class Retry:
    """The tries of one call; *vain*: what happened each time. A request has no such limit: its manager knows the deadline."""

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], None], vain: str) -> None:
        self._clock = clock
        self._sleep = sleep
        self._vain = vain
        self._until = clock() + GIVE_UP_S
        self._tried = 0

    def again(self) -> None:
        """Pause before the next try; or raise StoreUnavailable, because there have been enough."""
        self._tried += 1
        if self._clock() >= self._until:
            raise StoreUnavailable(f"{self._vain}, {self._tried} times in turn; try again")
        if pause := pause_s(self._tried):
            self._sleep(pause)


class Snapshot(NamedTuple):
    """What may be in the way of a request, as it was: queues by name, and Hive's databases and tables."""

    queues: Listings
    objects: Sequence[Listing | None]


class Done(NamedTuple):
    """A transaction that has happened.

    :param record: as it was written.
    :param results: the replies to the operations that its caller added; *replies*, to the reads behind it.
    """

    record: Record
    results: Sequence[Any]
    replies: list[Any]


class _Known(NamedTuple):
    """A lease as this process wrote it last, over which connection and when, with its lock nodes."""

    record: Record
    connection: int
    at_s: float
    nodes: Nodes | None


class ZooKeeperStore:
    """The store through one session, which several threads share.

    :param acl_bytes: what the ACL of a node takes in a request.
    :param clock: monotonic seconds; *sleep* waits by it.
    """

    def __init__(
        self,
        client: Client,
        layout: Layout,
        *,
        acl_bytes: int,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self.client = client
        self.layout = layout
        self.acl_bytes = acl_bytes
        self.clock = clock
        self.retry = partial(Retry, clock, sleep)
        self.namespace = Namespace(client, layout)
        self.queues = Queues(client, layout)
        self.settled: OrderedDict[str, int] = OrderedDict()  # databases' nodes, by path: see :mod:`.nodes`
        self.waiters = LocalWaiters()
        self._abandoned: list[Callable[[], None]] = []
        self._abandoned_lock = threading.Lock()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._known_lock = threading.Lock()
        self._ahead_ms: int | None = None
        self._read_before: dict[str, Record] = {}
        self._make(layout.directories)

    # The store's time.

    def now(self) -> datetime:
        written = self.client.submit(Commit((SetData(self.layout.root, b"", -1),)))[0]
        if isinstance(written, Refused):
            raise StoreUnavailable(f"{self.layout.root} is gone from ZooKeeper; connect again")
        self._ahead_ms = written[0].mtime_ms - int(self.clock() * 1000)
        return instant(written[0].mtime_ms)

    def time_ms(self) -> int:
        """The same without a write, by the time of the last record written here, if there is one."""
        if self._ahead_ms is None:
            self.now()
        assert self._ahead_ms is not None
        return self._ahead_ms + int(self.clock() * 1000)

    # Records.

    def read(self, key: str, fresh: bool = False) -> Record | None:
        path = self.layout.record(key)
        node = self.client.submit(*([Sync()] if fresh else []), Get(path))[-1]
        return Record.decode(node, path) if node else None

    def read_all(self, keys: Sequence[str], *, listing: bool = True) -> list[Record | None]:
        """The records of these owners.

        :param listing: a record that cannot be read is logged, and hides none of the others.
        :raises StoreCorrupted: one cannot be read, and this is no *listing*.
        """
        paths = [self.layout.record(key) for key in keys]
        nodes = self.client.submit(*map(Get, paths))
        if len(self._read_before) > 2 * max(REMEMBERED, len(paths)):
            self._read_before.clear()
        return [self._decoded(node, path, listing) if node else None for node, path in zip(nodes, paths, strict=True)]

    def _decoded(self, node: Node, path: str, listing: bool) -> Record | None:
        """The record, taken apart once: a write gives its node another zxid."""
        known = self._read_before.get(path)
        if known is None or known.stat is None or known.stat.mzxid != node.stat.mzxid:
            try:
                known = self._read_before[path] = Record.decode(node, path)
            except StoreCorrupted as error:
                if not listing:
                    raise
                validate.complain(log, str(error), node.stat.mzxid)
                return None
        return known

    def read_lease(self, id_: str) -> Record | None:
        """The record of the lease of that id while it stands."""
        if not (found := _LEASE_ID.fullmatch(id_)):
            return None
        record = self.read(found[1], fresh=True)
        return record if record and record.holds and str(record.ticket_epoch) == found[2] else None

    def standing(self, lease: Lease) -> Record | None:
        """The record while it is this very grant's; None once it is over, or a later attempt has taken over."""
        key = owner_key(lease.owner)
        for fresh in (False, True):  # only a read after a sync may conclude that it is gone
            record = self.read(key, fresh)
            if record and _is_of(record, lease):
                return record
        return None

    def held(self, lease: Lease) -> Record:
        """:raises LockLost: it no longer stands, or is known to have lost a lock."""
        record = self.standing(lease)
        if record is None or record.state is State.LOST:
            raise LockLost(
                f"{lease.owner}: lease {lease.id} no longer stands ({self._fate(lease)}); stop the work under it"
            )
        return record

    def _fate(self, lease: Lease) -> str:
        record = self.read(owner_key(lease.owner))
        if record is None:
            return "the store knows nothing of it: it ended long ago, or the store has lost its data"
        if record.state is State.TOMBSTONE:
            return "it was released or force-released"
        if record.state is State.LOST:
            return "one of its locks was removed behind its back"
        return f"attempt {record.attempt} of its owner has taken over"

    def names(self, path: str) -> tuple[str, ...]:
        """The names of the nodes below *path*, if there is one."""
        listing = self.client.submit(Names(path))[0]
        return listing.names if listing else ()

    # Transactions.

    def transact(
        self, old: Record | None, new: Record, *more: Op, claim: Claim | None = None, reads: Sequence[Request] = ()
    ) -> Done | Refused:
        """One transaction: *new* in place of *old*, the belongings that follow from that, and *more*; *reads* behind it.

        A belonging that is gone already is left out: a liveness node goes with its session.

        :param claim: of the tickets, if *new* gets some.
        """
        path = self.layout.record(new.key)
        # A new record is created empty and then written, because only a write's reply tells its zxid and time.
        start: list[Op] = [] if old else [Create(path)]
        start.append(SetData(path, new.encode(), old.version if old else 0))
        follows = self._follows(old, new, claim)
        while True:
            commit = Commit((*start, *more, *follows))
            outcome, *replies = self.client.submit(commit, *reads)
            if not isinstance(outcome, Refused):
                break
            if outcome.reason != Refused.NO_NODE or not isinstance(outcome.op, Delete) or outcome.op not in follows:
                with self._known_lock:
                    self._known.pop(new.key, None)
                return outcome
            follows.remove(outcome.op)
        stat = outcome[len(start) - 1]
        self._ahead_ms = stat.mtime_ms - int(self.clock() * 1000)
        record = new.at(stat)
        self.remember(record)
        return Done(record, outcome[len(start) : len(start) + len(more)], replies)

    def _follows(self, old: Record | None, new: Record, claim: Claim | None) -> list[Op]:
        """The operations after which *new*'s request has what its record tells: see :attr:`.Record.belongings`."""
        before = old.belongings if old else frozenset()
        ops: list[Op] = []
        if old:
            for what in sorted(before - new.belongings, key=str):
                ops += [Delete(create.path) for create in self._belonging(old, what, None)]
        for what in sorted(new.belongings - before, key=str):
            ops += self._belonging(new, what, claim)
        return ops

    def _belonging(self, record: Record, what: tuple[str, object], claim: Claim | None) -> list[Create]:
        """The operations that create one of *record*'s belongings."""
        kind, name = what
        layout, share = self.layout, record.share
        if kind == ALIVE:
            return [Create(layout.alive(record.key), record.process.encode(), ephemeral=True)]
        if kind == ASIDE:
            return [Create(layout.aside(record.key))]
        if kind == TICKETS:
            return self.queues.creates(record, claim)
        assert share is not None
        key = owner_key(share.group)
        if kind == PERMIT:
            return [Create(f"{layout.permits(key)}/{name}", record.lease_id.encode())]
        return [Create(f"{layout.parked(key)}/{name}")]

    def rewrite(self, record: Record, changed: Record, *also: Op) -> Record | None:
        """Compare and set, with *also* in the same transaction; None if the record is no longer as it was read, or *also* fails."""
        done = self.transact(record, changed, *also)
        return None if isinstance(done, Refused) else done.record

    def remember(self, record: Record, nodes: Nodes | None = None) -> None:
        """Keep a lease as it was written, so that a renewal or a release here needs no look at it first.

        :param nodes: its lock nodes; None: the same as before, for the locks that it still has.
        """
        with self._known_lock:
            known = self._known.pop(record.key, None)
            if record.state is not State.GRANTED:
                return
            if nodes is None and known and known.nodes and known.record.written == record.written:
                nodes = known.nodes.on(record.locks)
            self._known[record.key] = _Known(record, self.client.connection, self.clock(), nodes)
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)

    def known(self, lease: Lease) -> Record | None:
        """The record as this process wrote it last: whether it is still so, its version tells at the next write.

        Not after so long that the record may have been swept, nor over another connection: before that the store may
        have lost its data, and its versions may have begun again."""
        known = self._known.get(owner_key(lease.owner))
        if known is None or known.connection != self.client.connection or self.clock() - known.at_s > HISTORY_S / 2:
            return None
        return known.record if _is_of(known.record, lease) else None

    def known_nodes(self, record: Record) -> Nodes | None:
        """The lock nodes of a lease that this process was granted. None after a loss: a path of its own may be another
        request's by now, which need not mark it again."""
        known = self._known.get(record.key)
        if known is None or known.record.written != record.written or record.state is State.LOST:
            return None
        return known.nodes

    def change(self, lease: Lease, change: Callable[[Record], Record]) -> Lease:
        """Rewrite the lease's record, read again as often as another client was quicker."""
        record = self.known(lease) or self.held(lease)
        writing = self.retry(f"{lease.owner}: its record changed while it was written")
        while (written := self.rewrite(record, change(record))) is None:
            writing.again()
            record = self.held(lease)
        return written.lease()

    # What requests leave to one another.

    def reads(self, locks: tuple[Lock, ...]) -> list[Names]:
        """What to read for :meth:`looked`."""
        return [*self.queues.reads(locks), *self.namespace.reads(locks)]

    def looked(self, locks: tuple[Lock, ...], replies: Sequence[Listing | None]) -> Snapshot:
        """The replies to :meth:`reads`."""
        queues = len(self.queues.reads(locks))
        return Snapshot(self.queues.named(locks, replies[:queues]), replies[queues:])

    def settle(self, path: str, czxid: int) -> None:
        """Every request that had a lock node on what was at *path* before *czxid* has been marked."""
        with self._known_lock:
            self.settled[path] = czxid
            while len(self.settled) > REMEMBERED:
                self.settled.popitem(last=False)

    def make_queues(self, locks: Iterable[Lock]) -> None:
        """Create the queues of a request's tickets."""
        self._make(map(self.layout.queue, sorted(ticket_units(locks))))

    def abandon(self, end: Callable[[], None]) -> None:
        """Remember how to end what could not be withdrawn or handed over; it is ended with the next step of any request."""
        with self._abandoned_lock:
            self._abandoned.append(end)

    def end_abandoned(self) -> None:
        """End what could not be withdrawn or handed over before. What fails again stays remembered."""
        while self._abandoned:
            with self._abandoned_lock:
                end = self._abandoned.pop() if self._abandoned else None
            if end:
                end()

    def _make(self, paths: Iterable[str]) -> None:
        given = list(paths)
        for path, stat in zip(given, self.client.submit(*map(Exists, given)), strict=True):
            if stat is None:
                data = MADE_HERE if path == self.layout.namespace else b""
                made = self.client.submit(Commit((Create(path, data),)))[0]  # refused where another client was quicker
                if isinstance(made, Refused) and made.reason == Refused.NO_NODE:
                    raise StoreUnavailable(f"{path.rpartition('/')[0]} is gone from ZooKeeper; connect again")


def _is_of(record: Record, lease: Lease) -> bool:
    return record.holds and record.lease_id == lease.id and record.epoch == lease.epoch
