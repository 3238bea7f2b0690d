"""Locks in a Hive metastore, together with those of Hive's ``DbTxnManager``.

A lease is one lock request of the metastore's, and its token is the request's number. The server has the queue, the
hierarchy and the clock. It stores only a few words of text (:mod:`.row`). So the only record is the request itself: who
asked first, the attempt, and the locks; see :class:`Capabilities`.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn, Self

from airflow_hivelock.locks import calls, rules
from airflow_hivelock.locks.backend import Backend, Capabilities
from airflow_hivelock.locks.backends.metastore import row
from airflow_hivelock.locks.backends.metastore.acquisition import MetastoreAcquisition, lockable
from airflow_hivelock.locks.backends.metastore.row import known_as
from airflow_hivelock.locks.backends.metastore.store import MetastoreStore
from airflow_hivelock.locks.calls import Call
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest, LockLost, Unsupported
from airflow_hivelock.locks.hive.thrift import Metastore
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.locks.model import Lease, Lock, Tenure, Waiter, put_work
from airflow_hivelock.locks.url import seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backends.metastore.row import Row
    from airflow_hivelock.locks.backends.metastore.store import LockClient
    from airflow_hivelock.locks.hive.transactional import TransactionalLock, TxnInfo
    from airflow_hivelock.locks.model import Holder, LockObject, LockRequest, Work

log = logging.getLogger(__name__)


class MetastoreBackend(Backend):
    """See :class:`~airflow_hivelock.locks.backend.Backend`.

    :param timeout_s: after how many seconds without a heartbeat the server frees a lock: its ``hive.txn.timeout``;
        None: ask the server.
    :param recheck_s: how often a waiter polls after its first, shorter pauses, in seconds.
    :param catalog: the catalog of all locks, in Hive 4.3 and later: its ``metastore.catalog.default``; None: ask the
        server.
    """

    capabilities = Capabilities(
        seen_by_hive=True,
        parents=False,
        prioritized=False,
        invites=False,
        withdraws=False,
        limits=False,
        watched=False,
        expires=True,
        remembers=False,
        parts=False,
        audits=False,
    )
    settings_of = "the metastore's configuration"

    def __init__(
        self,
        metastore: Metastore,
        *,
        timeout_s: float | None = None,
        recheck_s: float = 10.0,
        catalog: str | None = None,
    ) -> None:
        self.store = MetastoreStore(metastore, timeout_s, recheck_s, catalog)

    @classmethod
    def connect(
        cls,
        hosts: str,
        *,
        timeout_s: str | None = None,
        recheck_s: str = "10",
        catalog: str | None = None,
        answer_s: str = "10",
        **options: str,
    ) -> Self:
        """Connect to a metastore.

        :param options: those of :meth:`.thrift.Metastore.parse`.

        :raises InvalidRequest: before anything is connected.
        :raises StoreUnavailable: the metastore does not answer.
        """
        metastore = Metastore.parse(hosts, timeout_s=seconds("answer_s", answer_s), **options)
        backend = cls(
            metastore,
            timeout_s=None if timeout_s is None else seconds("timeout_s", timeout_s),
            recheck_s=seconds("recheck_s", recheck_s),
            catalog=catalog,
        )
        log.debug("Locks of %s expire after %g s without a heartbeat", metastore, backend.store.timeout_s)
        return backend

    def begin(self, request: LockRequest, wake: Callable[[], None]) -> MetastoreAcquisition:
        return MetastoreAcquisition(self.store, request)

    def takes(self, request: LockRequest) -> dict[Lock, str]:
        """Each lock, and the type and level of its component; see :class:`.Explains`."""
        lockable(rules.leaves(request))
        modes, levels = {lock.object: lock.mode for lock in request.locks}, ("DB", "TABLE", "PARTITION")
        return {
            Lock(target, modes[target]): f"{kind.name} {levels[min(len(target.path), 3) - 1]}"
            for target, kind in self.store.components(request).items()
        }

    def renew(self, lease: Lease) -> None:
        with self.store.client() as client:
            if not client.heartbeat(_number(lease.id)):
                raise _lost(lease)
            self._look(client, lease, fresh=True)

    def verify(self, lease: Lease, wake: Callable[[], None] | None = None) -> None:
        """See :meth:`.Backend.verify`. *wake* is not called, because the metastore notifies no client. Verify again
        every few seconds."""
        with self.store.client() as client:
            self._look(client, lease)

    def start_work(self, lease: Lease, name: str, application: str) -> Lease:
        """Return the lease with the work. The metastore records nothing, and the token is that of the lease."""
        return self.record_work(lease, name, application)

    def record_work(self, lease: Lease, name: str, application: str | None) -> Lease:
        """Return the lease with the work, like :meth:`start_work`."""
        self.verify(lease)
        return replace(lease, works=put_work(lease.works, name, application, lease.token))

    def check_token(self, lease_id: str, name: str, token: int) -> None:
        """Compare the token with that of the lease. It distinguishes leases, and not the starts of work under one
        lease."""
        held = self.find(lease_id)
        if held is None or held.token != token:
            raise LockLost(
                f"lease {lease_id} is no longer held, so {name} with token {token} must not publish. Clear the task"
            )
        self.verify(held)

    def release(self, lease: Lease) -> bool:
        with self.store.client() as client:
            mine = _rows_of(client, lease)
            metadata = mine[0].metadata if mine else None
            if metadata is None or calls.stale(Call(lease.attempt, 0), Call(metadata.attempt, 0)):
                return False
            client.unlock(mine[0].id)
            return True

    def show(self, target: LockObject | None = None) -> list[Holder]:
        rows = [row for row in self.store.rows(target) if not row.waiting and rules.concern([row.lock], target)]
        return rules.as_shown(row.holder(self.store.timeout_s) for row in rows)

    def transactional(self, target: LockObject | None) -> list[TransactionalLock]:
        with self.store.client() as client:
            return client.listed(target)

    def transactions(self) -> list[TxnInfo]:
        with self.store.client() as client:
            return client.transactions()

    def abort(self, ids: Sequence[int], *, reason: str, user: str) -> list[TxnInfo]:
        """Abort transactions. Only the log keeps the reason, because the metastore has no room for it."""
        with self.store.client() as client:
            open_now = {each.id: each for each in client.transactions() if each.state == "OPEN"}
            if wrong := [str(number) for number in ids if number not in open_now]:
                raise HiveLockError(
                    f"transaction {', '.join(wrong)} is not open, so none was aborted. SHOW TRANSACTIONS lists the open ones"
                )
            held = client.rows()
            client.abort(ids)
        for number in ids:
            locks = ", ".join(str(each.lock) for each in held if each.transaction == number) or "no locks"
            log.warning("%s aborted transaction %d of %s (%s): %s", user, number, open_now[number].user, locks, reason)
        return [open_now[number] for number in ids]

    def waiters(self, target: LockObject | None = None) -> list[Waiter]:
        return self._waiters(self.store.rows(target), target)

    def _waiters(self, rows: Sequence[Row], target: LockObject | None) -> list[Waiter]:
        return [
            Waiter(first.owner, locks, 1 + len({r.id for r in ahead if r.waiting}), since, row.blockers(ahead))
            for asked in row.requests(row for row in rows if row.waiting)
            for first, locks in [(asked[0], tuple(r.lock for r in asked))]
            if rules.concern(locks, target)
            for ahead in [list(filter(row.Conflicts(asked, excl_write=self.store.excl_write), rows))]
            for since in [first.heartbeat or self.store.now()]
        ]

    def history(self, target: LockObject | None = None, *, most: int | None = None) -> list[Tenure]:
        """The held leases. The metastore keeps no ended leases, and no times of requests."""
        held = [lease for lease in self.leases() if rules.concern(lease.locks, target)]
        return [Tenure(lease.id, lease.owner, lease.locks, lease.since, lease.since) for lease in held]

    def watch(self, targets: Sequence[LockObject], wake: Callable[[], None]) -> float:
        return self.store.recheck_s

    def leases(self) -> list[Lease]:
        return self._leases(self.store.rows(None))

    def requests(self) -> tuple[list[Lease], list[Waiter]]:
        rows = self.store.rows(None)
        return self._leases(rows), self._waiters(rows, None)

    def _leases(self, rows: Sequence[Row]) -> list[Lease]:
        granted = row.requests(row for row in rows if row.metadata and not row.waiting)
        return sorted((row.lease(asked, self.store.timeout_s) for asked in granted), key=lambda lease: lease.since)

    def lease_of(self, owner: str) -> Lease | None:
        found = super().lease_of(known_as(owner))
        return found and replace(found, owner=owner)

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        """Free a lease; the log is the only audit trail."""
        number = _number(lease_id)
        with self.store.client() as client:
            rows = [row for row in client.rows() if row.id == number and row.metadata]
            if not rows:
                return False
            if seen is not None and not any(lease.unchanged(seen) for lease in self._leases(rows)):
                return False
            client.unlock(number)
        _log_force(rows, reason, user)
        return True

    def force_unlock(self, query_id: str, target: LockObject | None, *, reason: str, user: str) -> list[Lock]:
        """Free the lock with that id, which another client of the metastore has taken; the log is the only audit trail.

        The server refuses to unlock a granted lock of a transaction, but not a waiting one. So this looks first.

        :raises InvalidRequest: *query_id* is no id of a lock, or that of a lease.
        :raises Unsupported: the lock belongs to a transaction, or *target* is only a part of it.
        """
        if not re.fullmatch("[0-9]{1,18}", query_id):
            raise InvalidRequest(
                f"{query_id[:80]!r} is not a lock of a metastore. Give a number: SHOW LOCKS has it in the column Lock ID"
            )
        number = int(query_id)
        with self.store.client() as client:
            rows = [row for row in client.rows() if row.id == number]
            if not rows or (target and not any(row.lock.object == target for row in rows)):
                return []
            if rows[0].metadata:  # without its owner, which the page hides from some users
                raise InvalidRequest(
                    f"lock {number} is not Hive's. If SHOW LOCKS … EXTENDED shows that it is held: DROP FORCE LEASE "
                    f"{row.lease_id(number)} frees it. If it waits: DROP FORCE REQUEST, with its owner"
                )
            if transaction := rows[0].transaction:
                raise Unsupported(
                    f"lock {number} of {rows[0].owner} belongs to transaction {transaction} of Hive, and ends with it. If its "
                    f"session is known to be gone: ABORT TRANSACTIONS {transaction}"
                )
            if target and any(row.lock.object != target for row in rows):
                raise Unsupported(
                    f"lock {number} is on {len(rows)} objects, and a metastore frees it whole. Leave out ON {target}"
                )
            client.unlock(number)
        _log_force(rows, reason, user)
        return [row.lock for row in rows]

    def force_record(self, lease_id: str, seen: Work, application: str, *, reason: str, user: str) -> NoReturn:
        raise Unsupported(
            f"{lease_id}: a metastore does not record the work under a lease. It frees a lease that is not renewed"
        )

    def now(self) -> datetime:
        return self.store.now()

    def settings(self, wanted: Iterable[str]) -> dict[str, str | None]:
        return self.store.metastore.settings(wanted)

    def version(self) -> str:
        return self.store.metastore.version()

    @property
    def excl_write(self) -> bool:
        """Whether the server has EXCL_WRITE, so that readers here keep it away."""
        return self.store.excl_write

    def _look(self, client: LockClient, lease: Lease, *, fresh: bool = False) -> None:
        """Check that a lease is held alone.

        :raises LockLost: it is gone, or the server has granted a conflicting lock next to it.
        """
        rows = client.rows(sorted({lock.object.database for lock in lease.locks}))
        self.store.note_time(rows, fresh=fresh)
        number = _number(lease.id)
        mine = [row for row in rows if row.id == number and row.metadata]
        if not mine:
            raise _lost(lease)
        if intruder := next(filter(row.Conflicts(mine, excl_write=self.store.excl_write), rows), None):
            raise LockLost(
                f"{lease.owner}: {intruder.blocker}, although that conflicts with lease {lease.id}. The metastore has granted both: "
                "stop the work under the lease. Metastores before Hive 4.0 have this fault"
            )


def _log_force(freed: Sequence[Row], reason: str, user: str) -> None:
    """Log a force release of *freed*, the rows of one lock request."""
    first, locks = freed[0], ", ".join(str(row.lock) for row in freed[:6])
    log.warning("%s force-released lock %d of %s (%s): %s", user, first.id, printable(first.owner), locks, reason)


def _number(lease_id: str) -> int:
    kind, _, number = lease_id.partition("-")
    return int(number) if kind == "metastore" and re.fullmatch("[0-9]{1,18}", number) else 0


def _rows_of(client: LockClient, lease: Lease) -> list[Row]:
    number = _number(lease.id)
    databases = sorted({lock.object.database for lock in lease.locks})
    return [row for row in client.rows(databases) if row.id == number and row.metadata]


def _lost(lease: Lease) -> LockLost:
    return LockLost(f"{lease.owner}: lease {lease.id} is no longer held. Stop the work under it")
