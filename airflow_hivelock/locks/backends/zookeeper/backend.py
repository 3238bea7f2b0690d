"""The ZooKeeper backend: Hive's own locks, queued and leased beside Hive's namespace."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

from kazoo.hosts import collect_hosts

from airflow_hivelock.locks import rules, validate
from airflow_hivelock.locks.backend import Capabilities
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import (
    Check,
    Children,
    Client,
    Commit,
    Create,
    Delete,
    Exists,
    Get,
    Node,
    Refused,
    SetData,
    Sync,
)
from airflow_hivelock.locks.backends.zookeeper.layout import Layout, LockData, owner_key
from airflow_hivelock.locks.backends.zookeeper.lineup import Lineup
from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace
from airflow_hivelock.locks.backends.zookeeper.queue import Line, Queues, Ticket, ticket_units, unit
from airflow_hivelock.locks.backends.zookeeper.record import Record, State, instant, lease_id
from airflow_hivelock.locks.backends.zookeeper.removal import REMEMBERED, Removal
from airflow_hivelock.locks.backends.zookeeper.security import ANYBODY, Security
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from airflow_hivelock.locks.backends.zookeeper.turns import Turns
from airflow_hivelock.locks.errors import InvalidRequest, LockLost, StoreCorrupted, StoreUnavailable
from airflow_hivelock.locks.model import (
    Blocker,
    ForcedRelease,
    Holder,
    Lease,
    Lock,
    LockMode,
    LockObject,
    LockRequest,
    Tenure,
    Waiter,
    locks_from_json,
    locks_to_json,
)
from airflow_hivelock.locks.url import DAY_S, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backends.zookeeper.client import Op, Stat

log = logging.getLogger(__name__)

_LEASE_ID = re.compile(r"([0-9a-f]{16})-([0-9]{1,19})")

MAX_AUDITED_LENGTH = 30_000

HISTORY_S = 7 * 86_400.0
"""How long tombstones stay: as history, and longer than any old process of an owner can live."""

WAITER_KEPT_S = 86_400.0
"""How long a sweep leaves a dead waiter its place, where nobody behind has broken it."""


class ZooKeeperBackend:
    """See :class:`~airflow_hivelock.locks.backend.Backend`.

    :param client: a session of its own; :meth:`close` ends it.
    :param acl_bytes: what the ACL of a node takes in a request.
    :param patience_s: how long a request, whose turn it is, lets Hive's clients pass before it holds its place among them.
    :param clock: monotonic seconds; *sleep* waits by it.
    """

    capabilities = Capabilities(seen_by_hive=True)

    def __init__(
        self,
        client: Client,
        layout: Layout | None = None,
        *,
        acl_bytes: int = ANYBODY.acl_bytes,
        patience_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.client = client
        self.acl_bytes = acl_bytes
        self.layout = layout or Layout()
        self.patience_s = patience_s
        self.clock = clock
        self.turns = partial(Turns, clock, sleep)
        self.namespace = Namespace(client, self.layout)
        self.queues = Queues(client, self.layout)
        self.removal = Removal(client, self.layout, self.namespace, self.queues, self.turns)
        self.lineup = Lineup()
        self._abandoned: list[Callable[[], None]] = []
        self._abandoned_lock = threading.Lock()
        self._known_records: OrderedDict[str, tuple[float, int, Record]] = OrderedDict()
        self._known_lock = threading.Lock()
        self._ahead_ms: int | None = None
        self._read_before: dict[str, Record] = {}
        self._make(self.layout.directories)
        self.namespace.ready()

    @classmethod
    def connect(
        cls,
        servers: str,
        namespace: str = "",
        root: str = "/airflow_hivelock",
        chroot: str = "",
        timeout_s: str | float = 10.0,
        patience_s: str | float = 30.0,
        **security: str,
    ) -> Self:
        """:raises InvalidRequest: before anything is connected; :raises StoreUnavailable: nothing answers.

        :param servers: ``[user:password@]host:port[,host:port…]``
        :param chroot: what *namespace* and *root* lie below, as behind the servers in Hive's ``hive.zookeeper.quorum``.
        :param security: see :meth:`.Security.of`.
        """
        login, _, hosts = servers.rpartition("@")
        try:
            for host, _ in collect_hosts(hosts)[0]:
                host.encode("idna")  # or looking it up would end kazoo's thread
        except ValueError as error:
            raise InvalidRequest(
                f"{hosts!r} ({error}): a ZooKeeper URL needs hosts, as in zookeeper://host:2181/hive_zookeeper_namespace"
            ) from error
        top = f"/{chroot.strip('/')}" if chroot.strip("/") else ""
        path = f"/{namespace.strip('/')}" if namespace.strip("/") else Layout.namespace
        layout = Layout(f"{top}{path}", f"{top}{root}")
        session_s = seconds("timeout_s", timeout_s, most_s=DAY_S)
        patience = seconds("patience_s", patience_s, most_s=DAY_S, or_none=True)
        secured = Security.of(login, **security)
        session = KazooSession(hosts, session_s, secured, layout.root)
        try:
            backend = cls(session, layout, acl_bytes=secured.acl_bytes, patience_s=patience)
            if secured.closed:
                backend._prove(session)
        except BaseException:
            session.close()
            raise
        return backend

    def _prove(self, session: KazooSession) -> None:
        """A wrong password for DIGEST is no error of a session's, only of its first write."""
        self.now()
        if not session.guarded(self.layout.root):
            log.warning(
                "%s in ZooKeeper was made without an ACL, so that everybody may still write there: zkCli.sh setAcl -R",
                self.layout.root,
            )

    def sweep(self) -> int:
        now_ms = self.now().timestamp() * 1000
        listing = self.client.submit(Children(self.layout.records))[0]
        keys = listing.names if listing else ()
        swept = 0
        for key, record in zip(keys, self._read_all(keys), strict=True):
            if record is None or record.stat is None:
                continue
            age_s = (now_ms - record.stat.mtime_ms) / 1000
            if record.queued and self.client.submit(Exists(self.layout.alive(key)))[0] is None:
                # A dead waiter keeps its place for the one who takes it up, but no lock nodes that would block Hive.
                if record.node_zxids or age_s > WAITER_KEPT_S:
                    swept += self.break_dead(key, record) is not None
            elif record.state in (State.FREE, State.TOMBSTONE) and age_s > HISTORY_S:
                path = self.layout.record(key)
                gone = self.client.submit(Commit((Check(path, record.version), Delete(path))))[0]
                swept += not isinstance(gone, Refused)
        return swept

    def now(self) -> datetime:
        written = self.client.submit(Commit((SetData(self.layout.root, b"", -1),)))[0]
        if isinstance(written, Refused):
            raise StoreUnavailable(f"{self.layout.root} is gone from ZooKeeper; connect again")
        return instant(written[0].mtime_ms)

    def now_ms(self) -> int | None:
        """The store's clock, told without a write by that of the last record written here; None before the first."""
        return None if self._ahead_ms is None else self._ahead_ms + int(self.clock() * 1000)

    def tell_time(self, written: Stat) -> None:
        """Something was *written* just now."""
        self._ahead_ms = written.mtime_ms - int(self.clock() * 1000)

    def close(self) -> None:
        self.client.close()

    def begin(self, request: LockRequest, wake: Callable[[], None]) -> ZooKeeperAcquisition:
        return ZooKeeperAcquisition(self, request, wake)

    def renew(self, lease: Lease) -> None:
        record = self._known(lease) or self._held(lease)
        known = self.removal.exclusive_nodes(record)  # need no look: the write checks that they stand
        renewing = self.turns(f"{lease.owner}: its record changed while it was renewed")
        while True:
            unknown = [lock for lock in record.locks if lock.mode is LockMode.SHARED or not known]
            self._look_for_losses(lease, record, unknown)
            if self._rewrite(record, replace(record, lease_s=lease.lease_s), *(Check(path, -1) for path in known)):
                return
            renewing.again()
            record, known = self._held(lease), []

    def verify(self, lease: Lease, wake: Callable[[], None] | None = None) -> None:
        path = self.layout.record(owner_key(lease.owner))
        if wake is not None:
            self.client.submit(Exists(path, wake))
        record = self._held(lease)
        self._look_for_losses(lease, record, record.locks, wake)

    def _look_for_losses(
        self, lease: Lease, record: Record, locks: Sequence[Lock], wake: Callable[[], None] | None = None
    ) -> None:
        """:raises LockLost: a lock node of *record*'s for *locks* is gone; everybody else is told by the record."""
        if missing := self.namespace.missing(locks, record.node_zxids, wake):
            record = self._held(lease)  # read again: a release takes the record and the nodes together
            self._rewrite(record, replace(record, state=State.LOST))  # refused: somebody else wrote; still lost
            raise LockLost(
                f"{lease.owner}: lease {lease.id} has lost its lock on {', '.join(map(str, missing[:3]))}, "
                "most likely to UNLOCK TABLE in Hive; stop the work under it"
            )

    def start_work(self, lease: Lease, name: str, application: str) -> Lease:
        return self._change(lease, lambda record: record.starting(name, application))

    def record_work(self, lease: Lease, name: str, application: str | None) -> Lease:
        return self._change(lease, lambda record: record.recording(name, application))

    def check_token(self, lease_id: str, name: str, token: int) -> None:
        looking = self.turns(f"lease {lease_id} changed while it was looked at")
        while True:
            record = self._record_of(lease_id)
            if record is None:
                raise LockLost(f"lease {lease_id} no longer stands: {name} with token {token} must not publish")
            lease = record.lease(owner_key(record.owner))
            newest = work.token if (work := lease.work(name)) else None
            if newest != token:
                raise LockLost(
                    f"{lease.owner}: {name} with token {token} must not publish under lease {lease_id}: "
                    + (f"it was started again, with token {newest}" if newest else "it was ended")
                )
            self._look_for_losses(lease, record, record.locks)
            # Once more, for the nodes may have been another's by then: its grant changed the record.
            again = self._read(owner_key(record.owner), fresh=True)
            if again is not None and again.version == record.version:
                return
            looking.again()

    def release(self, lease: Lease) -> bool:
        key = owner_key(lease.owner)
        record = self._known(lease) or self._standing(lease)
        releasing = self.turns(f"{lease.owner}: its record changed while it was released")
        while record is not None:
            if self.bury(key, record):
                return True
            releasing.again()
            record = self._standing(lease)
        return False

    def find(self, lease_id: str) -> Lease | None:
        record = self._record_of(lease_id)
        return record.lease(owner_key(record.owner)) if record else None

    def leases(self) -> list[Lease]:
        return _leases(self._listed()[1])

    def requests(self) -> tuple[list[Lease], list[Waiter]]:
        tickets, records = self._listed()
        return _leases(records), self._waiters(tickets, records, None)

    def lease_of(self, owner: str) -> Lease | None:
        key = owner_key(owner)
        record = self._read(key)
        return record.lease(key) if record and record.holds else None

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        releasing = self.turns(f"lease {lease_id} changed while it was released")
        while (record := self._record_of(lease_id)) is not None:
            if not record.lease(owner_key(record.owner)).unchanged(seen):
                return False
            entry = {
                "lease": lease_id,
                "owner": record.owner,
                "locks": locks_to_json(_audible(record.locks)),
                "reason": reason,
                "user": user,
            }
            audit = Create(f"{self.layout.audit}/", json.dumps(entry, ensure_ascii=False).encode(), sequential=True)
            if self.bury(owner_key(record.owner), record, audit):
                return True
            releasing.again()
        return False

    def show(self, target: LockObject | None = None) -> list[Holder]:
        placed = self.namespace.read(self.namespace.below(target))
        data = [LockData.decode(node.data) for _, node in placed]
        keys = sorted({lock.owner_key for lock in data if lock.owner_key})
        records = dict(zip(keys, self._read_all(keys), strict=True))
        leases = {key: record.lease(key) for key, record in records.items() if record}
        made = {key: record.node_zxids for key, record in records.items() if record}
        holders = []
        for (lock, node), said in zip(placed, data, strict=True):
            key, target, mode = said.owner_key, lock.object, lock.node.mode
            if lock.node.ours and key in leases and node.stat.czxid in made[key]:
                if (record := records[key]) is None or not record.holds:
                    continue  # still to be verified: granted to nobody
                lease = leases[key]
                ours = lease.id, lease.token, lease.expires, said.explicit, said.query, said.details
                holders.append(Holder(target, mode, lease.owner, lease.since, *ours))
            else:
                since = instant(node.stat.ctime_ms)
                theirs = None, None, None, said.explicit, said.query, said.details
                holders.append(Holder(target, mode, said.query_id, since, *theirs))
        return sorted(holders, key=lambda held: (*rules.order(held.object), held.since, held.owner))

    def waiters(self, target: LockObject | None = None) -> list[Waiter]:
        return self._waiters(*self._listed(), target)

    def _listed(self) -> tuple[list[Ticket], dict[str, Record]]:
        """Every ticket, and the records by key of those whose they are: far fewer than there are records."""
        tickets = self.queues.listed()
        keys = list(dict.fromkeys(ticket.key for ticket in tickets))
        records = zip(keys, self._read_all(keys), strict=True)
        return tickets, {key: record for key, record in records if record}

    def _waiters(
        self, tickets: Sequence[Ticket], records: Mapping[str, Record], target: LockObject | None
    ) -> list[Waiter]:
        queued: dict[str, Ticket] = {}
        for ticket in tickets:
            record = records.get(ticket.key)
            if record and record.queued and record.ticket_epoch == ticket.epoch:
                queued.setdefault(ticket.key, ticket)
        asked = {key: records[key] for key in queued if rules.concern(records[key].locks, target)}
        wanted = _strongest(lock for record in asked.values() for lock in record.locks)
        waiting = {key for key, record in records.items() if record.queued}
        line = Line(tickets, lambda ticket: ticket.key in waiting, wanted)
        found = []
        for key, record in asked.items():
            blockers, ahead = line.ahead(record.locks, queued[key].zxid)
            found.append(Waiter(record.owner, record.locks, 1 + ahead, instant(queued[key].since_ms), blockers))
        front = [waiter for waiter in found if not waiter.blocked_by]
        foreign = self._foreign([lock for waiter in front for lock in waiter.locks])
        return [waiter if waiter.blocked_by else _behind_hive(waiter, foreign) for waiter in found]

    def _foreign(self, locks: Iterable[Lock]) -> list[tuple[LockObject, Blocker]]:
        """Hive's own locks on the objects of *locks*, and below those that are to be EXCLUSIVE: of all waiters at once."""
        modes = _strongest(locks)
        if not modes:
            return []
        wanted = [Lock(target, mode) for target, mode in sorted(modes.items())]
        children = self.namespace.survey(wanted).children
        placed = self.namespace.foreign_conflicts(wanted, children, {})
        placed += self.namespace.foreign_below(wanted, children, self.client.zxid + 1)
        return [
            (lock.object, Blocker(LockData.decode(node.data).query_id, lock.object, lock.node.mode))
            for lock, node in self.namespace.read(placed)
        ]

    def history(self, target: LockObject | None = None) -> list[Tenure]:
        listing = self.client.submit(Children(self.layout.records))[0]
        keys = listing.names if listing else ()
        records = zip(keys, self._read_all(keys), strict=True)
        tenures = (record.tenure(key) for key, record in records if record)
        found = [tenure for tenure in tenures if tenure and rules.concern(tenure.locks, target)]
        return sorted(found, key=lambda tenure: tenure.granted)

    def audit(self) -> list[ForcedRelease]:
        listing = self.client.submit(Children(self.layout.audit))[0]
        paths = [f"{self.layout.audit}/{name}" for name in sorted(listing.names if listing else ())]
        nodes = self.client.submit(*map(Get, paths))
        return [entry for path, node in zip(paths, nodes, strict=True) if node and (entry := _audited(node, path))]

    def watch(self, targets: Sequence[LockObject], wake: Callable[[], None]) -> None:
        self.namespace.watch(targets, wake)

    # What the acquisitions share.

    def make_queues(self, locks: Iterable[Lock]) -> None:
        """Make the queues that a request needs: those of its tickets, and those whose version guards its locks."""
        given = tuple(locks)
        self._make(self.layout.queue(name) for name in sorted({*ticket_units(given), *map(unit, given)}))

    def bury(self, key: str, record: Record, *also: Op) -> Record | None:
        """Free a lease: nodes and tickets gone, a tombstone left. None: the record has changed, read again."""
        tombstone = replace(record, state=State.TOMBSTONE)
        return self.removal.commit(key, record, tombstone, (*self.queues.deletes(record, key), *also))

    def break_dead(self, key: str, record: Record) -> Record | None:
        """Take a dead waiter's nodes and tickets away; its owner queues again. Compares the record as it was read."""
        return self.removal.commit(key, record, record.freed(), self.queues.deletes(record, key))

    def remember(self, key: str, record: Record) -> None:
        """Keep a lease's record, so that renewing or releasing it here needs no look at it first."""
        assert record.stat is not None
        self.tell_time(record.stat)
        if record.state is not State.GRANTED:
            return
        with self._known_lock:
            self._known_records[key] = self.clock(), self.client.connection, record
            while len(self._known_records) > REMEMBERED:
                self._known_records.popitem(last=False)

    def abandon(self, end: Callable[[], None]) -> None:
        """Remember how to end what could not be withdrawn or handed over; it is ended with the next step of any request."""
        with self._abandoned_lock:
            self._abandoned.append(end)

    def sweep_abandoned(self) -> None:
        """End what could not be withdrawn or handed over before.

        :raises StoreUnavailable: what is left stays remembered.
        """
        while self._abandoned:
            with self._abandoned_lock:
                end = self._abandoned.pop() if self._abandoned else None
            if end:
                end()

    def _change(self, lease: Lease, change: Callable[[Record], Record]) -> Lease:
        """Rewrite the lease's record, read again as often as somebody else was quicker."""
        record = self._known(lease) or self._held(lease)
        writing = self.turns(f"{lease.owner}: its record changed while it was written")
        while (written := self._rewrite(record, change(record))) is None:
            writing.again()
            record = self._held(lease)
        return written.lease(owner_key(lease.owner))

    def _held(self, lease: Lease) -> Record:
        record = self._standing(lease)
        if record is None or record.state is State.LOST:
            raise LockLost(
                f"{lease.owner}: lease {lease.id} no longer stands ({self._fate(lease)}); stop the work under it"
            )
        return record

    def _rewrite(self, record: Record, changed: Record, *checks: Check) -> Record | None:
        """Compare and set; None if the record is no longer as it was read, or one of *checks* fails."""
        key = owner_key(record.owner)
        write = SetData(self.layout.record(key), changed.encode(), record.version)
        outcome = self.client.submit(Commit((write, *checks)))[0]
        if isinstance(outcome, Refused):
            return None
        written = changed.at(outcome[0])
        self.remember(key, written)
        return written

    def _known(self, lease: Lease) -> Record | None:
        """The record as this process wrote it last, once: whether it still stands, its version tells at the next write.

        Not after so long that the record may have been swept, nor over another connection, before which the store may
        have lost its data: its versions may have begun again."""
        with self._known_lock:
            at, connection, record = self._known_records.pop(owner_key(lease.owner), (0.0, 0, None))
        if record is None or connection != self.client.connection or self.clock() - at > HISTORY_S / 2:
            return None
        return record if self._is_of(record, lease) else None

    def _standing(self, lease: Lease) -> Record | None:
        """The record while it is this very grant's; None once it is over, or a later attempt has taken over."""
        key = owner_key(lease.owner)
        for fresh in (False, True):  # only a read after a sync may conclude that it is gone
            record = self._read(key, fresh)
            if record and self._is_of(record, lease):
                return record
        return None

    def _is_of(self, record: Record, lease: Lease) -> bool:
        key = owner_key(lease.owner)
        return record.holds and lease_id(key, record.ticket_epoch) == lease.id and record.epoch == lease.epoch

    def _fate(self, lease: Lease) -> str:
        record = self._read(owner_key(lease.owner))
        if record is None:
            return "the store knows nothing of it: it ended long ago, or the store has lost its data"
        if record.state is State.TOMBSTONE:
            return "it was released or force-released"
        if record.state is State.LOST:
            return "one of its locks was removed behind its back"
        return f"attempt {record.attempt} of its owner has taken over"

    def _record_of(self, lease_id: str) -> Record | None:
        if not (found := _LEASE_ID.fullmatch(lease_id)):
            return None
        record = self._read(found[1], fresh=True)
        return record if record and record.holds and str(record.ticket_epoch) == found[2] else None

    def _read(self, key: str, fresh: bool = False) -> Record | None:
        path = self.layout.record(key)
        node = self.client.submit(*([Sync()] if fresh else []), Get(path))[-1]
        return Record.decode(node, path) if node else None

    def _read_all(self, keys: Sequence[str]) -> list[Record | None]:
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

    def _make(self, paths: Iterable[str]) -> None:
        given = list(paths)
        for path, stat in zip(given, self.client.submit(*map(Exists, given)), strict=True):
            if stat is None:
                made = self.client.submit(Commit((Create(path),)))[0]  # refused where somebody else was quicker
                if isinstance(made, Refused) and made.reason == Refused.NO_NODE:
                    raise StoreUnavailable(f"{path.rpartition('/')[0]} is gone from ZooKeeper; connect again")


def _leases(records: Mapping[str, Record]) -> list[Lease]:
    return [record.lease(key) for key, record in records.items() if record.holds]


def _strongest(locks: Iterable[Lock]) -> dict[LockObject, LockMode]:
    modes: dict[LockObject, LockMode] = {}
    for lock in locks:
        if modes.get(lock.object) is not LockMode.EXCLUSIVE:
            modes[lock.object] = lock.mode
    return modes


def _behind_hive(waiter: Waiter, foreign: Iterable[tuple[LockObject, Blocker]]) -> Waiter:
    """The waiter with those of Hive's own locks that are in its way, since none of ours are."""
    modes = {lock.object: lock.mode for lock in waiter.locks}

    def blocks(target: LockObject, mode: LockMode) -> bool:
        if (mine := modes.get(target)) is not None:
            return rules.conflict(mine, mode)
        return any(modes.get(parent) is LockMode.EXCLUSIVE for parent in target.parents)

    return replace(waiter, blocked_by=tuple(blocker for target, blocker in foreign if blocks(target, blocker.mode)))


def _readable(node: Node, path: str) -> Record | None:
    try:
        return Record.decode(node, path)
    except StoreCorrupted as error:
        validate.complain(log, str(error), node.stat.mzxid)
        return None


def _audited(node: Node, path: str) -> ForcedRelease | None:
    try:
        data = validate.load(node.data)
        validate.texts(data, ("lease", "owner", "user", "reason"))
        locks = locks_from_json(data["locks"])
        at = instant(node.stat.ctime_ms)
        return ForcedRelease(data["lease"], data["owner"], locks, data["user"], data["reason"], at)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        validate.complain(log, f"{path} was not written by a force release: {error}", node.stat.mzxid)
        return None


def _audible(locks: tuple[Lock, ...]) -> tuple[Lock, ...]:
    """*locks* as an entry of the audit trail has room for: it goes into the release's own transaction, which the nodes of a
    request as large as requests may be nearly fill. Of more partitions than that, their tables."""
    if sum(len(str(lock.object)) for lock in locks) < MAX_AUDITED_LENGTH:
        return locks
    return tuple(lock for lock in locks if not lock.object.partition)
