"""The ZooKeeper backend: Hive's own locks, with a queue and leases next to Hive's namespace."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from kazoo.hosts import collect_hosts

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Capabilities, check_newest
from airflow_hivelock.locks.backends.zookeeper import groups, nodes, start, waiting
from airflow_hivelock.locks.backends.zookeeper.abandoned import in_thread
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import Check, Client, Create, Exists, Refused
from airflow_hivelock.locks.backends.zookeeper.groups import GroupNodes
from airflow_hivelock.locks.backends.zookeeper.layout import LOCK_PREFIXES, MAX_QUERY_LENGTH, Layout, fitting
from airflow_hivelock.locks.backends.zookeeper.listings import Listed
from airflow_hivelock.locks.backends.zookeeper.record import ENDED, State
from airflow_hivelock.locks.backends.zookeeper.security import ANYBODY, Security
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import Lease, Lock, LockObject, LockRequest, Work, owner_key
from airflow_hivelock.locks.queueing import PASSING_S
from airflow_hivelock.locks.url import DAY_S, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backends.zookeeper.abandoned import Later
    from airflow_hivelock.locks.backends.zookeeper.record import Record

log = logging.getLogger(__name__)

_COUNT = re.compile("[0-9]{1,12}")

MOST_PASSING_S = 366 * DAY_S

WAITER_KEPT_S = 86_400.0
"""How long a sweep keeps the position of a dead waiter that no other has removed, and the entry of an AWAY request, in
seconds."""


class ZooKeeperBackend(GroupNodes, Listed):
    """See :class:`~airflow_hivelock.locks.backend.Backend`.

    :param client: a session of its own; :meth:`close` ends it.
    :param acl_bytes: how many bytes the ACL of a node takes in a request.
    :param patience_s: how long a request at its turn lets Hive's clients go first, before it creates a placeholder.
    :param passing_s: how long requests of higher priority may overtake a waiter.
    :param clock: monotonic seconds; *sleep* and *later* wait by it.
    """

    capabilities = Capabilities(seen_by_hive=True)

    def __init__(
        self,
        client: Client,
        layout: Layout | None = None,
        *,
        acl_bytes: int = ANYBODY.acl_bytes,
        patience_s: float = 30.0,
        passing_s: float = PASSING_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        later: Later = in_thread,
    ) -> None:
        layout = layout or Layout()
        self.store = ZooKeeperStore(client, layout, acl_bytes=acl_bytes, clock=clock, sleep=sleep, later=later)
        self.namespace = self.store.layout.namespace
        self.patience_s = patience_s
        self.passing_s = passing_s

    @classmethod
    def connect(
        cls,
        servers: str,
        namespace: str = "",
        root: str = "/airflow_hivelock",
        chroot: str = "",
        timeout_s: str | float = 10.0,
        patience_s: str | float = 30.0,
        passing_s: str | float = PASSING_S,
        query_chars: str = str(MAX_QUERY_LENGTH),
        **security: str,
    ) -> Self:
        """Connect to ZooKeeper.

        :param servers: ``[user:password@]host:port[,host:port…]``
        :param chroot: the path above *namespace* and *root*, like that after the servers in Hive's
            ``hive.zookeeper.quorum``.
        :param query_chars: Hive's ``hive.lock.query.string.max.length``; at most 500 are used.
        :param security: see :meth:`.Security.of`.
        :raises InvalidRequest: before anything is connected.
        :raises StoreUnavailable: no server answers.
        """
        login, _, hosts = servers.rpartition("@")
        try:
            for host, _ in collect_hosts(hosts)[0]:
                host.encode("idna")  # otherwise the look-up would raise in kazoo's thread, and end it
        except ValueError as error:
            raise InvalidRequest(
                f"{hosts!r} ({error}): a ZooKeeper URL needs hosts, as in zookeeper://host:2181/hive_zookeeper_namespace"
            ) from error
        top = f"/{chroot.strip('/')}" if chroot.strip("/") else ""
        path = f"/{namespace.strip('/')}" if namespace.strip("/") else Layout.namespace
        if not _COUNT.fullmatch(query_chars):
            raise InvalidRequest(
                f"query_chars={query_chars!r:.80} is not a whole number. Give the value of hive.lock.query.string.max.length"
            )
        layout = Layout(f"{top}{path}", f"{top}{root}", min(int(query_chars), MAX_QUERY_LENGTH))
        session_s = seconds("timeout_s", timeout_s, most_s=DAY_S)
        patience = seconds("patience_s", patience_s, most_s=DAY_S, or_none=True)
        passing = seconds("passing_s", passing_s, most_s=MOST_PASSING_S, or_none=True)
        secured = Security.of(login, **security)
        session = KazooSession(hosts, session_s, secured, layout.root)
        try:
            backend = cls(session, layout, acl_bytes=secured.acl_bytes, patience_s=patience, passing_s=passing)
            backend.namespace = path
            if secured.closed:
                backend.now()  # a session accepts a wrong password for DIGEST; only its first write fails
                if not session.guarded(layout.root):
                    log.warning(
                        "%s in ZooKeeper was created without an ACL, so all clients may still write there. Give it that of new "
                        "nodes in zkCli.sh, as in setAcl -R %s world:anyone:r,sasl:airflow:cdrwa",
                        layout.root,
                        layout.root,
                    )
        except BaseException:
            session.close()
            raise
        return backend

    def sweep(self) -> int:
        self.store.format.read()
        now_ms = self.now().timestamp() * 1000
        keys = self.store.names(self.store.layout.records)
        swept = 0
        for key, record in zip(keys, self.store.read_all(keys), strict=True):
            if record is None or record.stat is None:
                continue
            age_s = (now_ms - record.stat.mtime_ms) / 1000
            if record.waits or record.invited or record.away:
                dead = not record.waits or self.store.client.submit(Exists(self.store.layout.alive(key)))[0] is None
                # A dead waiter keeps its position for its owner's next process, but no lock nodes that would block
                # Hive.
                if dead and (record.node_zxids or age_s > WAITER_KEPT_S):
                    swept += nodes.free(self.store, record) is not None
            elif record.state in ENDED and age_s > start.HISTORY_S:
                gone = self.store.client.submit(start.sweeping(self.store.layout, key, record.version))[0]
                swept += not isinstance(gone, Refused)
        return swept + groups.sweep(self.store)

    def now(self) -> datetime:
        return self.store.now()

    def close(self) -> None:
        self.store.abandoned.close()
        self.store.client.close()

    def begin(self, request: LockRequest, wake: Callable[[], None]) -> ZooKeeperAcquisition:
        return ZooKeeperAcquisition(self.store, request, wake, self.patience_s, self.passing_s)

    def takes(self, request: LockRequest) -> dict[Lock, str]:
        """Each lock and its node. ZooKeeper appends ten digits to the node's name; see :class:`.Explains`."""
        fits = fitting(request, self.store.layout, self.store.acl_bytes)
        return {lock: f"{self.store.layout.object(lock.object)}/{LOCK_PREFIXES[lock.mode]}" for lock in fits.locks}

    def renew(self, lease: Lease) -> None:
        def renewed(record: Record) -> Record:
            found = nodes.look_for_losses(self.store, lease, record, record.locks)
            return replace(found, lease_s=lease.lease_s)

        self.store.change(lease, renewed)

    def verify(self, lease: Lease, wake: Callable[[], None] | None = None) -> None:
        path = self.store.layout.record(owner_key(lease.owner))
        # The watch comes before the read, so that no change in between is missed.
        if wake is not None:
            self.store.client.submit(Exists(path, wake))
        record = self.store.held(lease)
        record = nodes.look_for_losses(self.store, lease, record, record.locks, wake)
        rules.check_all(lease, record.locks)

    def start_work(self, lease: Lease, name: str, application: str) -> Lease:
        return self.store.change(lease, lambda record: record.starting(name, application))

    def record_work(self, lease: Lease, name: str, application: str | None) -> Lease:
        return self.store.change(lease, lambda record: record.recording(name, application))

    def check_token(self, lease_id: str, name: str, token: int) -> None:
        looking = self.store.retry(f"lease {lease_id} changed while it was read")
        while True:
            record = self.store.read_lease(lease_id)
            lease = check_newest(record.lease() if record else None, lease_id, name, token)
            assert record is not None
            nodes.look_for_losses(self.store, lease, record, record.locks)
            # Read it again: meanwhile the nodes may have become another request's, and its grant would have changed the
            # record.
            again = self.store.read(record.key, fresh=True)
            if again is not None and again.version == record.version:
                return
            looking.again()

    def release(self, lease: Lease) -> bool:
        record = self.store.known(lease) or self.store.record_of(lease)
        releasing = self.store.retry(f"{lease.owner}: its record changed while it was released")
        while record is not None:
            if nodes.entomb(self.store, record):
                return True
            releasing.again()
            record = self.store.record_of(lease)
        return False

    def release_part(self, lease: Lease, objects: frozenset[LockObject]) -> Lease | None:
        releasing = self.store.retry(f"{lease.owner}: its record changed while a part of its lease was released")
        while (record := self.store.record_of(lease)) is not None:
            if record.state is State.LOST:
                record = self.store.held(lease)  # raises LockLost with the reason
            left = rules.left(record.lease(), objects, lease.locks)
            if left == record.locks:
                return record.lease()
            if not left:
                if nodes.entomb(self.store, record):
                    return None
            elif written := nodes.shrink(self.store, record, left):
                return written.lease()
            releasing.again()
        return None

    def find(self, lease_id: str) -> Lease | None:
        record = self.store.read_lease(lease_id)
        return record.lease() if record else None

    def lease_of(self, owner: str) -> Lease | None:
        record = self.store.read(owner_key(owner))
        return record.lease() if record and record.holds else None

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        def found() -> Record | None:
            record = self.store.read_lease(lease_id)
            return record if record and record.lease().unchanged(seen) else None

        return self._force(f"lease {lease_id} changed while it was released by force", found, self._ends(reason, user))

    def force_record(self, lease_id: str, seen: Work, application: str, *, reason: str, user: str) -> bool:
        def found() -> Record | None:
            record = self.store.read_lease(lease_id)
            return record if record and seen in record.works else None

        def write(record: Record) -> Record | None:
            changed = record.recording(seen.name, application)
            return self.store.rewrite(record, changed, *self._audited(record, reason, user))

        return self._force(f"lease {lease_id} changed while its work was changed by force", found, write)

    def force_withdraw(self, owner: str, *, reason: str, user: str) -> bool:
        def found() -> Record | None:
            record = self.store.read(owner_key(owner), fresh=True)
            return record if record and record.waits else None

        failure = f"the request of {owner} changed while it was withdrawn by force"
        return self._force(failure, found, self._ends(reason, user))

    def force_priority(self, owner: str, priority: int, *, reason: str, user: str) -> bool:
        def found() -> Record | None:
            record = self.store.read(owner_key(owner), fresh=True)
            return record if record and record.queued else None

        def move(record: Record) -> Record | None:
            if not (moved := waiting.reprioritized(self.store, record, priority, self.passing_s)):
                return None
            changed, claim = moved
            return nodes.remove(self.store, record, changed, *self._audited(record, reason, user), claim=claim)

        return self._force(f"the request of {owner} changed while its priority was changed", found, move)

    def _force(
        self, failure: str, found: Callable[[], Record | None], write: Callable[[Record], Record | None]
    ) -> bool:
        """Read and write a record by force, until that is not refused; False: it is not *found*.

        :param failure: the error after too many tries.
        """
        forcing = self.store.retry(failure)
        while record := found():
            if write(record):
                return True
            self.store.format.read()  # a stamp that has changed refuses each try
            forcing.again()
        return False

    def _ends(self, reason: str, user: str) -> Callable[[Record], Record | None]:
        return lambda record: nodes.entomb(self.store, record, *self._audited(record, reason, user))

    def _audited(self, record: Record, reason: str, user: str) -> tuple[Check, Create]:
        return self.store.audited(record.lease_id, record.owner, record.locks, reason, user)

    def forget_deferred(self, owner: str, attempt: int) -> bool:
        record = self.store.read(owner_key(owner), fresh=True)
        # Refused if another call has acted for the owner since.
        waits = record and (record.away or record.invited) and record.attempt == attempt
        return bool(record and waits and nodes.free(self.store, record))

    def force_unlock(self, query_id: str, target: LockObject | None, *, reason: str, user: str) -> list[Lock]:
        return nodes.free_hives(self.store, query_id, target, reason=reason, user=user)

    def watch(self, targets: Sequence[LockObject], wake: Callable[[], None]) -> None:
        self.store.namespace.watch(targets, wake)
