"""What one session knows and changes of the store: owners' records, queues, tombstones, the store's time.

The acquisition decides, the listings look, the backend answers its callers; all three do it on this.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakKeyDictionary

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
from airflow_hivelock.locks.backends.zookeeper.groups import Groups
from airflow_hivelock.locks.backends.zookeeper.layout import MADE_HERE
from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace
from airflow_hivelock.locks.backends.zookeeper.queue import Queues, ticket_units
from airflow_hivelock.locks.backends.zookeeper.record import Record, State, instant
from airflow_hivelock.locks.backends.zookeeper.removal import REMEMBERED, Removal
from airflow_hivelock.locks.backends.zookeeper.retry import Retry
from airflow_hivelock.locks.errors import LockLost, StoreCorrupted, StoreUnavailable
from airflow_hivelock.locks.model import owner_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backends.zookeeper.client import Listing, Node, Op, Stat
    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from airflow_hivelock.locks.model import Lease, Lock
    from airflow_hivelock.locks.queueing import Position

log = logging.getLogger(__name__)

_LEASE_ID = re.compile(r"([0-9a-f]{16})-([0-9]{1,19})")

HISTORY_S = 7 * 86_400.0
"""How long tombstones stay: as history, and longer than any old process of an owner can live."""


class Snapshot(NamedTuple):
    """What may be in the way of a request, as it was: queues, and Hive's objects."""

    queues: Sequence[Listing | None]
    objects: Sequence[Listing | None]


class LocalWaiter(Protocol):
    """A waiting request of this process; *path* is that of its owner's record."""

    @property
    def path(self) -> str: ...

    def queue_again(self, free: Record) -> None: ...


class LocalWaiters:
    """The last known places of the requests of this process that wait: taken for dead together, they come back in order.

    A process that stands still for longer than its session lasts is taken for dead: where nobody else is in the way, the
    waiter behind breaks its places, one by one. Its requests queue again behind all that stayed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._positions: WeakKeyDictionary[LocalWaiter, Position] = WeakKeyDictionary()

    def stands(self, waiter: LocalWaiter, place: Position) -> None:
        with self._lock:
            self._positions[waiter] = place

    def leaves(self, waiter: LocalWaiter) -> None:
        """It has got its lease, or waits no more."""
        with self._lock:
            self._positions.pop(waiter, None)

    def before(self, place: Position) -> list[LocalWaiter]:
        """The waiters with an earlier place, in their order."""
        with self._lock:
            earlier = [(theirs, waiter) for waiter, theirs in self._positions.items() if theirs < place]
        return [waiter for _, waiter in sorted(earlier, key=lambda entry: entry[0])]

    def is_back(self, waiter: LocalWaiter, place: Position) -> bool:
        """Note the place that it was given again; False if it has left meanwhile."""
        with self._lock:
            if waiter not in self._positions:
                return False
            self._positions[waiter] = place
            return True


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
        self.groups = Groups(client, layout)
        self.removal = Removal(client, layout, self.namespace, self.retry)
        self.settled: OrderedDict[str, int] = OrderedDict()  # databases' nodes, by path: see :mod:`.verification`
        self.waiters = LocalWaiters()
        self._abandoned: list[Callable[[], None]] = []
        self._abandoned_lock = threading.Lock()
        self._known_records: OrderedDict[str, tuple[float, int, Record]] = OrderedDict()
        self._known_lock = threading.Lock()
        self._ahead_ms: int | None = None
        self._read_before: dict[str, Record] = {}
        self._make(layout.directories)

    # The store's time.

    def now(self) -> datetime:
        written = self.client.submit(Commit((SetData(self.layout.root, b"", -1),)))[0]
        if isinstance(written, Refused):
            raise StoreUnavailable(f"{self.layout.root} is gone from ZooKeeper; connect again")
        self.tell_time(written[0])
        return instant(written[0].mtime_ms)

    def now_ms(self) -> int | None:
        """The store's clock, told without a write by that of the last record written here; None before the first."""
        return None if self._ahead_ms is None else self._ahead_ms + int(self.clock() * 1000)

    def time_ms(self) -> int:
        """The same, by a write where there has been none."""
        known = self.now_ms()
        return int(self.now().timestamp() * 1000) if known is None else known

    def tell_time(self, written: Stat) -> None:
        """Something was *written* just now."""
        self._ahead_ms = written.mtime_ms - int(self.clock() * 1000)

    # Records.

    def read(self, key: str, fresh: bool = False) -> Record | None:
        path = self.layout.record(key)
        node = self.client.submit(*([Sync()] if fresh else []), Get(path))[-1]
        return Record.decode(node, path) if node else None

    def read_all(self, keys: Sequence[str]) -> list[Record | None]:
        """For listings: a record that cannot be read is logged, and hides none of the others."""
        paths = [self.layout.record(key) for key in keys]
        nodes = self.client.submit(*map(Get, paths))
        if len(self._read_before) > 2 * max(REMEMBERED, len(paths)):
            self._read_before.clear()
        return [self._decoded(node, path) if node else None for node, path in zip(nodes, paths, strict=True)]

    def _decoded(self, node: Node, path: str) -> Record | None:
        """The record, taken apart once: a write gives its node another zxid."""
        known = self._read_before.get(path)
        if known is None or known.stat is None or known.stat.mzxid != node.stat.mzxid:
            known = _readable(node, path)
            if known is not None:
                self._read_before[path] = known
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

    def writes(self, record: Record, existing: Record | None) -> list[Op]:
        """The operations that write *record* in the place of *existing*; the last one is the write itself.

        A new record is made empty and then written, for only a write's reply tells its zxid and time.
        """
        path, aside = self.layout.record(record.key), self.layout.aside(record.key)
        write = SetData(path, record.encode(), existing.version if existing else 0)
        ops: list[Op] = [] if existing else [Create(path)]
        if record.aside != (existing is not None and existing.aside):
            ops.append(Create(aside) if record.aside else Delete(aside))
        return [*ops, write]

    def remember(self, record: Record) -> None:
        """Keep a lease's record, so that renewing or releasing it here needs no look at it first."""
        assert record.stat is not None
        self.tell_time(record.stat)
        if record.state is not State.GRANTED:
            return
        with self._known_lock:
            self._known_records[record.key] = self.clock(), self.client.connection, record
            while len(self._known_records) > REMEMBERED:
                self._known_records.popitem(last=False)

    def known(self, lease: Lease) -> Record | None:
        """The record as this process wrote it last, once: whether it still stands, its version tells at the next write.

        Not after so long that the record may have been swept, nor over another connection, before which the store may
        have lost its data: its versions may have begun again."""
        with self._known_lock:
            at, connection, record = self._known_records.pop(owner_key(lease.owner), (0.0, 0, None))
        if record is None or connection != self.client.connection or self.clock() - at > HISTORY_S / 2:
            return None
        return record if _is_of(record, lease) else None

    def rewrite(self, record: Record, changed: Record, *also: Op) -> Record | None:
        """Compare and set, with *also* in the same transaction; None if the record is no longer as it was read, or *also* fails."""
        write = SetData(self.layout.record(record.key), changed.encode(), record.version)
        outcome = self.client.submit(Commit((write, *also)))[0]
        if isinstance(outcome, Refused):
            return None
        written = changed.at(outcome[0])
        self.remember(written)
        return written

    def change(self, lease: Lease, change: Callable[[Record], Record]) -> Lease:
        """Rewrite the lease's record, read again as often as somebody else was quicker."""
        record = self.known(lease) or self.held(lease)
        writing = self.retry(f"{lease.owner}: its record changed while it was written")
        while (written := self.rewrite(record, change(record))) is None:
            writing.again()
            record = self.held(lease)
        return written.lease()

    def look_for_losses(
        self, lease: Lease, record: Record, locks: Sequence[Lock], wake: Callable[[], None] | None = None
    ) -> Record:
        """:return: *record*, or what it is after something was given back meanwhile.

        :raises LockLost: a lock node of *record*'s for *locks* is gone; everybody else is told by the record.
        """
        if missing := self.namespace.missing(locks, record.node_zxids, wake):
            record = self.held(
                lease
            )  # read again: a release takes the record and the nodes together, also that of a part
            if not (missing := [lock.object for lock in record.locks if lock.object in missing]):
                return record
            self.rewrite(record, replace(record, state=State.LOST))  # refused: somebody else wrote; still lost
            raise LockLost(
                f"{lease.owner}: lease {lease.id} has lost its lock on {', '.join(map(str, missing[:3]))}, "
                "most likely to UNLOCK TABLE in Hive; stop the work under it"
            )
        return record

    def entomb(self, record: Record, *also: Op) -> Record | None:
        """Free a lease: nodes and tickets gone, a tombstone left. None: the record has changed, read again."""
        tombstone = replace(record.outside(), state=State.TOMBSTONE)
        return self.removal.commit(record, tombstone, (*self.queues.deletes(record), *also))

    def shrink(self, record: Record, left: tuple[Lock, ...]) -> Record | None:
        """Give back all but *left* in one transaction. The tickets stay where they are, with fewer locks, so that no request
        overtakes it; those that wait behind them watch them. None: the record has changed, read again."""
        written = self.removal.commit(record, record.without(left), self.queues.shrinks(record, left), part=True)
        if written:
            self.remember(written)
        return written

    def break_dead(self, record: Record) -> Record | None:
        """Take a dead waiter's nodes and tickets away; its owner queues again. Compares the record as it was read."""
        return self.removal.commit(record, record.freed(), self.queues.deletes(record))

    def forget_aside(self, record: Record) -> Record | None:
        """Let go of a request that has stepped aside. Compares the record as it was read."""
        return self.rewrite(record, record.freed(), Delete(self.layout.aside(record.key)))

    # What requests leave to one another.

    def reads(self, locks: tuple[Lock, ...]) -> list[Names]:
        """What to read for :meth:`looked`."""
        return [*self.queues.reads(locks), *self.namespace.reads(locks)]

    def looked(self, locks: tuple[Lock, ...], replies: Sequence[Listing | None]) -> Snapshot:
        """The replies to :meth:`reads`."""
        queues = len(self.queues.reads(locks))
        return Snapshot(replies[:queues], replies[queues:])

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
        """End what could not be withdrawn or handed over before.

        :raises StoreUnavailable: what is left stays remembered.
        """
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


def _readable(node: Node, path: str) -> Record | None:
    try:
        return Record.decode(node, path)
    except StoreCorrupted as error:
        validate.complain(log, str(error), node.stat.mzxid)
        return None
