"""The store through one session: owners' records and the transactions that write them, the store's time, retries."""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.backends.zookeeper.abandoned import AbandonedRequests
from airflow_hivelock.locks.backends.zookeeper.client import (
    Check,
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
from airflow_hivelock.locks.backends.zookeeper.layout import MADE_HERE, audit_entry
from airflow_hivelock.locks.backends.zookeeper.local_waiters import LocalWaiters
from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace, Nodes
from airflow_hivelock.locks.backends.zookeeper.queue import Queues, ticket_units
from airflow_hivelock.locks.backends.zookeeper.record import ALIVE, AWAY, ENDED, PERMIT, TICKETS, Record, State, instant
from airflow_hivelock.locks.backends.zookeeper.start import HISTORY_S, unswept
from airflow_hivelock.locks.backends.zookeeper.store_format import StoreFormat
from airflow_hivelock.locks.errors import AccessDenied, LockLost, StoreUnavailable
from airflow_hivelock.locks.model import owner_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backends.zookeeper.abandoned import Later
    from airflow_hivelock.locks.backends.zookeeper.client import Listing, Op, Request
    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from airflow_hivelock.locks.backends.zookeeper.queue import Claim, Listings
    from airflow_hivelock.locks.model import Lease, Lock

log = logging.getLogger(__name__)

_LEASE_ID = re.compile(r"([0-9a-f]{16})-([0-9]{1,19})")

REMEMBERED = 1_000
"""How many leases, and objects, this process remembers."""

AT_ONCE = 5
"""How many tries in vain follow each other at once."""

FIRST_S, LONGEST_S = 0.005, 0.5
GIVE_UP_S = 10.0


def pause_s(tried: int) -> float:
    """How long to pause after so many tries in vain, because another client was quicker each time, in seconds.

    Most need only a few, so these follow at once. Then the pauses grow, so that rivals do not keep the servers busy.
    """
    return 0.0 if tried < AT_ONCE else min(LONGEST_S, FIRST_S * 2 ** min(tried - AT_ONCE, 10))


class Retry:
    """The tries of one call; *reason* is in the error when all have failed. A request has no such limit: its manager
    has the deadline."""

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], None], reason: str) -> None:
        self._clock = clock
        self._sleep = sleep
        self._reason = reason
        self._until = clock() + GIVE_UP_S
        self._tried = 0

    def again(self) -> None:
        """Pause before the next try; or raise StoreUnavailable, because there have been enough."""
        self._tried += 1
        if self._clock() >= self._until:
            raise StoreUnavailable(f"{self._reason}, {self._tried} times in a row. Try again")
        if pause := pause_s(self._tried):
            self._sleep(pause)


class Snapshot(NamedTuple):
    """The possible blockers of a request at one moment: queues by name, and Hive's databases and tables."""

    queues: Listings
    objects: Sequence[Listing | None]


class Done(NamedTuple):
    """A transaction that was applied.

    :param record: as it was written.
    :param results: the replies to the operations that its caller added; *replies*, to the reads after it.
    """

    record: Record
    results: Sequence[Any]
    replies: list[Any]


class _Known(NamedTuple):
    """A lease as this process last wrote it, over which connection and when, with its lock nodes."""

    record: Record
    connection: int
    at_s: float
    nodes: Nodes | None


class ZooKeeperStore:
    """The store through one session, which several threads share.

    :param acl_bytes: how many bytes the ACL of a node takes in a request.
    :param clock: monotonic seconds; *sleep* and *later* wait by it.
    """

    def __init__(
        self,
        client: Client,
        layout: Layout,
        *,
        acl_bytes: int,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        later: Later,
    ) -> None:
        self.client = client
        self.layout = layout
        self.acl_bytes = acl_bytes
        self.clock = clock
        self.retry = partial(Retry, clock, sleep)
        self.namespace = Namespace(client, layout)
        self.queues = Queues(client, layout)
        self.settled: OrderedDict[str, tuple[int, int]] = OrderedDict()  # objects' nodes, by path: see :meth:`settle`
        self.waiters = LocalWaiters()
        self.abandoned = AbandonedRequests(later)
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._known_lock = threading.Lock()
        self._ahead_ms: int | None = None
        self._make(layout.directories)
        self.format = StoreFormat(client, layout.format)
        with suppress(AccessDenied):  # a client that only looks
            self.format.read()

    # The store's time.

    def now(self) -> datetime:
        written = self.client.submit(Commit((SetData(self.layout.root, b"", -1),)))[0]
        if isinstance(written, Refused):
            raise StoreUnavailable(f"{self.layout.root} is missing in ZooKeeper. Connect again")
        self._ahead_ms = written[0].mtime_ms - int(self.clock() * 1000)
        return instant(written[0].mtime_ms)

    def time_ms(self) -> int:
        """The store's time without a write: computed from the last record written here, if there is one."""
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

        :param listing: an unreadable record is logged, and hides none of the others.
        :raises StoreCorrupted: one cannot be read, and this is no *listing*.
        """
        paths = [self.layout.record(key) for key in keys]
        nodes = self.client.submit(*(Get(path, lenient=listing) for path in paths))
        found = zip(nodes, paths, strict=True)
        if not listing:
            return [Record.decode(node, path) if node else None for node, path in found]
        return [
            validate.readable(log, node.stat.mzxid, Record.decode, node, path) if node else None for node, path in found
        ]

    def read_lease(self, id_: str) -> Record | None:
        """The record of the lease with that id while it is held."""
        if not (found := _LEASE_ID.fullmatch(id_)):
            return None
        record = self.read(found[1], fresh=True)
        return record if record and record.holds and str(record.ticket_epoch) == found[2] else None

    def record_of(self, lease: Lease) -> Record | None:
        """The record of a lease while this grant is held; None after its end, or after a take-over."""
        key = owner_key(lease.owner)
        for fresh in (False, True):  # only a read after a sync may conclude that it is gone
            record = self.read(key, fresh)
            if record and _is_of(record, lease):
                return record
        return None

    def held(self, lease: Lease) -> Record:
        """The record of a held lease.

        :raises LockLost: it is no longer held, or is known to have lost a lock.
        """
        record = self.record_of(lease)
        if record is None or record.state is State.LOST:
            raise LockLost(
                f"{lease.owner}: lease {lease.id} is no longer held: {self._fate(lease)}. Stop the work under it"
            )
        return record

    def _fate(self, lease: Lease) -> str:
        record = self.read(owner_key(lease.owner))
        if record is None:
            return "the store does not know it, because it ended long ago, or because the store has lost data"
        if record.state is State.TOMBSTONE:
            return "it was released or force-released"
        if record.state is State.LOST:
            return "another client removed one of its locks"
        return f"attempt {record.attempt} of its owner has taken over"

    def names(self, path: str) -> tuple[str, ...]:
        """The names of the nodes below *path*, if there is one."""
        listing = self.client.submit(Names(path))[0]
        return listing.names if listing else ()

    # Transactions.

    def transact(
        self,
        old: Record | None,
        new: Record,
        *more: Op,
        claim: Claim | None = None,
        reads: Sequence[Request] = (),
        acquires: bool = False,
    ) -> Done | Refused:
        """Write *new* over *old* with the belongings that follow and *more* in one transaction; then do *reads*.

        A belonging that is already gone is left out: a liveness node goes with its session.

        :param claim: of the tickets, if *new* gets some.
        :param acquires: *new* asks for locks, or gets them: refused if this version is too old for the store.
        :raises UpgradeNeeded: this version is too old for the store.
        """
        path = self.layout.record(new.key)
        # A new record is created empty and then written, because only a write's reply contains its zxid and time.
        write: list[Op] = [] if old else [Create(path)]
        if old and old.state in ENDED:
            if (check := unswept(self.client, self.layout, old)) is None:
                return Refused(Check(path, old.version), Refused.BAD_VERSION)
            write = [check]
        write.append(SetData(path, new.encode(), old.version if old else 0))
        follows = self._follows(old, new, claim)
        while True:
            start = [self.format.check(), *write] if acquires else write
            commit = Commit((*start, *more, *follows))
            outcome, *replies = self.client.submit(commit, *reads)
            if not isinstance(outcome, Refused):
                break
            if outcome.op.path == self.layout.format:  # a later version has raised the stamp, as no release does twice
                self.format.read()
                continue
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
        """The operations that give *new*'s request the nodes of its state: see :attr:`.Record.belongings`."""
        before = old.belongings if old else frozenset()
        ops: list[Op] = []
        if old:
            for what in sorted(before - new.belongings, key=str):
                tickets = what[0] == TICKETS
                ops += self.queues.deletes(old) if tickets else [Delete(op.path) for op in self._belonging(old, what)]
        for what in sorted(new.belongings - before, key=str):
            ops += self._belonging(new, what, claim)
        return ops

    def _belonging(self, record: Record, what: tuple[str, object], claim: Claim | None = None) -> list[Create]:
        """The operations that create one of *record*'s belongings."""
        kind, name = what
        layout, share = self.layout, record.share
        if kind == ALIVE:
            return [Create(layout.alive(record.key), record.process.encode(), ephemeral=True)]
        if kind == AWAY:
            return [Create(layout.away(record.key))]
        if kind == TICKETS:
            return self.queues.creates(record, claim)
        assert share is not None
        key = owner_key(share.group)
        if kind == PERMIT:
            return [Create(f"{layout.permits(key)}/{name}", record.lease_id.encode())]
        return [Create(f"{layout.parked(key)}/{name}")]

    def audited(
        self, lease_id: str, owner: str, locks: tuple[Lock, ...], reason: str, user: str
    ) -> tuple[Check, Create]:
        """The operations that a change by a person adds: a check that this version is not too old, and the audit entry."""
        return self.format.check(), audit_entry(self.layout, lease_id, owner, locks, reason, user)

    def rewrite(self, record: Record, changed: Record, *also: Op) -> Record | None:
        """Compare and set, with *also* in the same transaction; None if the record has changed since it was read, or
        *also* fails."""
        done = self.transact(record, changed, *also)
        return None if isinstance(done, Refused) else done.record

    def remember(self, record: Record, nodes: Nodes | None = None) -> None:
        """Keep a lease as it was written, so that a renewal or a release here needs no read before.

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
        """The record as this process last wrote it. Its version shows at the next write whether it is still the same.

        None after so long that it may have been swept. None over another connection: the store may have lost its data,
        and its versions may have begun again.
        """
        known = self._known.get(owner_key(lease.owner))
        if known is None or known.connection != self.client.connection or self.clock() - known.at_s > HISTORY_S / 2:
            return None
        return known.record if _is_of(known.record, lease) else None

    def known_nodes(self, record: Record) -> Nodes | None:
        """The lock nodes of a lease that this process was granted.

        None after a loss: another request, which need not mark it again, may have one of its paths.
        """
        known = self._known.get(record.key)
        if known is None or known.record.written != record.written or record.state is State.LOST:
            return None
        return known.nodes

    def change(self, lease: Lease, change: Callable[[Record], Record]) -> Lease:
        """Rewrite the lease's record; read it again whenever another client was quicker."""
        record = self.known(lease) or self.held(lease)
        writing = self.retry(f"{lease.owner}: its record changed while it was written")
        while (written := self.rewrite(record, change(record))) is None:
            writing.again()
            record = self.held(lease)
        return written.lease()

    # Looks, marks and queues.

    def reads(self, locks: tuple[Lock, ...]) -> list[Names]:
        """The reads for :meth:`snapshot`."""
        return [*self.queues.reads(locks), *self.namespace.reads(locks)]

    def snapshot(self, locks: tuple[Lock, ...], replies: Sequence[Listing | None]) -> Snapshot:
        """The replies to :meth:`reads`."""
        queues = len(self.queues.reads(locks))
        return Snapshot(self.queues.named(locks, replies[:queues]), replies[queues:])

    def settle(self, path: str, czxid: int) -> None:
        """Note that all requests are marked that had lock nodes on the node of *path* before *czxid*, and when that was."""
        with self._known_lock:
            self.settled[path] = czxid, self.client.zxid
            while len(self.settled) > REMEMBERED:
                self.settled.popitem(last=False)

    def make_queues(self, locks: Iterable[Lock]) -> None:
        """Create the queues of a request's tickets."""
        self._make(map(self.layout.queue, sorted(ticket_units(locks))))

    def _make(self, paths: Iterable[str]) -> None:
        given = list(paths)
        for path, stat in zip(given, self.client.submit(*map(Exists, given)), strict=True):
            if stat is None:
                data = MADE_HERE if path == self.layout.namespace else b""
                made = self.client.submit(Commit((Create(path, data),)))[0]  # refused if another client was quicker
                if isinstance(made, Refused) and made.reason == Refused.NO_NODE:
                    raise StoreUnavailable(f"{path.rpartition('/')[0]} is missing in ZooKeeper. Connect again")


def _is_of(record: Record, lease: Lease) -> bool:
    return record.holds and record.lease_id == lease.id and record.epoch == lease.epoch
