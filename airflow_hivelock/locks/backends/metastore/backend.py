"""Locks in a Hive metastore, where Hive with ``DbTxnManager`` keeps its own.

A lease is one lock request of the metastore's, and its token is the request's number. The server has the queue, the
hierarchy and the clock; it has no room for more than a few words (:mod:`.label`). So what a backend may keep on record
is here what the request itself tells: who asked first, at which attempt, for what; see :class:`Capabilities`.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Capabilities
from airflow_hivelock.locks.backends.metastore import row
from airflow_hivelock.locks.backends.metastore.acquisition import MetastoreAcquisition
from airflow_hivelock.locks.backends.metastore.label import Label, known_as
from airflow_hivelock.locks.backends.metastore.session import Session
from airflow_hivelock.locks.errors import InvalidRequest, LockLost
from airflow_hivelock.locks.hive.thrift import Metastore
from airflow_hivelock.locks.model import Lease, Lock, LockMode, LockObject, Tenure, Waiter, Work
from airflow_hivelock.locks.url import seconds, truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from airflow_hivelock.locks.backends.metastore.row import Row
    from airflow_hivelock.locks.hive.transactional import TransactionalLock
    from airflow_hivelock.locks.model import ForcedRelease, Holder, LockRequest

log = logging.getLogger(__name__)

TIMEOUT_S = 300.0
"""``hive.txn.timeout``, as Hive has it by default."""

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PROBE = Lock(LockObject("airflow_hivelock", "clock"), LockMode.SHARED)


class MetastoreBackend:
    """See :class:`~airflow_hivelock.locks.backend.Backend`.

    :param timeout_s: after how long without a heartbeat the server frees a lock: its ``hive.txn.timeout``; None to ask
        the server.
    :param recheck_s: how often a waiter asks again, once it has waited for a while.
    """

    capabilities = Capabilities(
        seen_by_hive=True, parents=False, watched=False, expires=True, remembers=False, audits=False
    )
    settings_of = "the metastore's configuration"

    def __init__(self, metastore: Metastore, *, timeout_s: float | None = None, recheck_s: float = 10.0) -> None:
        self.metastore = metastore
        self._recheck_s = recheck_s
        self._timeout_s = timeout_s
        self._offset_s = -math.inf
        self._clock_set = False
        self._lock = threading.Lock()

    @classmethod
    def connect(
        cls,
        hosts: str,
        *,
        timeout_s: str | None = None,
        recheck_s: str = "10",
        answer_s: str = "10",
        auth: str = "NONE",
        kerberos_service_name: str = "hive",
        ssl: str = "false",
        ca: str | None = None,
    ) -> Self:
        """:raises InvalidRequest: before anything is connected; :raises StoreUnavailable: nothing answers."""
        backend = cls(
            Metastore.parse(
                hosts,
                timeout_s=seconds("answer_s", answer_s),
                auth=auth.upper(),
                kerberos_service_name=kerberos_service_name,
                tls=truth("ssl", ssl),
                ca=ca,
            ),
            timeout_s=None if timeout_s is None else seconds("timeout_s", timeout_s),
            recheck_s=seconds("recheck_s", recheck_s),
        )
        log.debug("Locks of %s expire after %g s without a heartbeat", backend.metastore, backend.timeout_s)
        return backend

    @property
    def timeout_s(self) -> float:
        """After how long without a heartbeat the server frees a lock."""
        if self._timeout_s is None:
            with self.session() as session:
                given = session.setting("metastore.txn.timeout") or session.setting("hive.txn.timeout")
            self._timeout_s = duration_s(given) if given else TIMEOUT_S
        return self._timeout_s

    @property
    def recheck_s(self) -> float:
        """How often a waiter asks again: in time for its own request not to expire."""
        return min(self._recheck_s, self.timeout_s / 3)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """One connection for one task."""
        with self.metastore.client() as client:
            yield Session(client)

    def begin(self, request: LockRequest, wake: Callable[[], None]) -> MetastoreAcquisition:
        return MetastoreAcquisition(self, request)

    def renew(self, lease: Lease) -> None:
        with self.session() as session:
            if not session.heartbeat(_number(lease.id)):
                raise _lost(lease)
            self._look(session, lease, fresh=True)

    def verify(self, lease: Lease, wake: Callable[[], None] | None = None) -> None:
        """*wake* is not called: the metastore tells nobody of a loss. Verify again every few seconds."""
        with self.session() as session:
            self._look(session, lease)

    def start_work(self, lease: Lease, name: str, application: str) -> Lease:
        """Recorded nowhere but in what is returned: the token is that of the lease."""
        return self._noted(lease, name, application)

    def record_work(self, lease: Lease, name: str, application: str | None) -> Lease:
        """As :meth:`start_work`."""
        return self._noted(lease, name, application)

    def check_token(self, lease_id: str, name: str, token: int) -> None:
        """The token is that of the lease: it tells one lease from the next, not the starts under one lease."""
        held = self.find(lease_id)
        if held is None or held.token != token:
            raise LockLost(f"lease {lease_id} no longer stands for {name} with token {token}, which must not publish")
        self.verify(held)

    def release(self, lease: Lease) -> bool:
        with self.session() as session:
            mine = _rows_of(session, lease)
            label = mine[0].label if mine else None
            if label is None or label.attempt > lease.attempt:
                return False
            session.unlock(mine[0].id)
            return True

    def show(self, target: LockObject | None = None) -> list[Holder]:
        rows = [row for row in self._rows(target) if not row.waiting and rules.concern([row.lock], target)]
        holders = [row.holder(self.timeout_s) for row in rows]
        return sorted(holders, key=lambda holder: (holder.object, holder.since, holder.owner))

    def transactional(self, target: LockObject | None) -> list[TransactionalLock]:
        with self.session() as session:
            return session.listed(target)

    def waiters(self, target: LockObject | None = None) -> list[Waiter]:
        return self._waiters(self._rows(target), target)

    def _waiters(self, rows: Sequence[Row], target: LockObject | None) -> list[Waiter]:
        return [
            Waiter(first.owner, locks, 1 + len({r.id for r in ahead if r.waiting}), since, row.blockers(ahead))
            for asked in row.requests(row for row in rows if row.waiting)
            for first, locks in [(asked[0], tuple(r.lock for r in asked))]
            if rules.concern(locks, target)
            for ahead in [list(filter(row.InTheWay(locks, first.id), rows))]
            for since in [first.heartbeat or self.now()]
        ]

    def history(self, target: LockObject | None = None) -> list[Tenure]:
        """What is held: of what has ended, and of how long it had waited, the metastore keeps nothing."""
        held = [lease for lease in self.leases() if rules.concern(lease.locks, target)]
        return [Tenure(lease.id, lease.owner, lease.locks, lease.since, lease.since) for lease in held]

    def watch(self, targets: Sequence[LockObject], wake: Callable[[], None]) -> float:
        return self.recheck_s

    def leases(self) -> list[Lease]:
        return self._leases(self._rows(None))

    def requests(self) -> tuple[list[Lease], list[Waiter]]:
        rows = self._rows(None)
        return self._leases(rows), self._waiters(rows, None)

    def _leases(self, rows: Sequence[Row]) -> list[Lease]:
        granted = row.requests(row for row in rows if row.label and not row.waiting)
        return sorted((row.lease(asked, self.timeout_s) for asked in granted), key=lambda lease: lease.since)

    def find(self, lease_id: str) -> Lease | None:
        return next((lease for lease in self.leases() if lease.id == lease_id), None)

    def lease_of(self, owner: str) -> Lease | None:
        known = known_as(owner)
        return next((replace(lease, owner=owner) for lease in self.leases() if lease.owner == known), None)

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        """Free a lease, or a lock of Hive's own by its number, ``metastore-17``; the log is the only audit trail.

        :raises Unsupported: the lock belongs to a transaction.
        """
        number = _number(lease_id)
        with self.session() as session:
            standing = [row for row in session.rows() if row.id == number]
            if not standing:
                return False
            if seen is not None and not any(lease.unchanged(seen) for lease in self._leases(standing)):
                return False
            session.unlock(number)
        locks = ", ".join(str(row.lock) for row in standing[:6])
        log.warning("%s force-released lock %d of %s (%s): %s", user, number, standing[0].owner, locks, reason)
        return True

    def audit(self) -> list[ForcedRelease]:
        return []

    def sweep(self) -> int:
        return 0  # the server frees what gets no heartbeats

    def now(self) -> datetime:
        """The server's clock: no call tells it, so that the first time a lock is made, read and given back."""
        if not self._clock_set:
            with self.session() as session:
                number, _ = session.lock([_PROBE], Label("clock", 0, 1, ""))
                try:
                    self.note_time(session.rows([_PROBE.object.database]), fresh=True)
                finally:
                    session.unlock(number)
        return datetime.fromtimestamp(self._offset_s + time.monotonic(), UTC)

    def settings(self, wanted: Iterable[str]) -> dict[str, str | None]:
        """Settings of the metastore's own; None for those that are not set, or not told."""
        with self.session() as session:
            return {name: session.setting(name) for name in wanted}

    def note_time(self, rows: Iterable[Row], *, fresh: bool = False) -> None:
        """Set the clock by the newest heartbeat: it is no later than now, and, where one is *fresh*, as good as now."""
        read = time.monotonic()
        stamps = [row.heartbeat.timestamp() - read for row in rows if row.heartbeat]
        with self._lock:
            self._offset_s = max(self._offset_s, *stamps, -math.inf)
            self._clock_set = self._clock_set or (fresh and bool(stamps))

    def close(self) -> None:
        """Nothing to give back: each task has had a connection of its own."""

    def _rows(self, target: LockObject | None) -> list[Row]:
        with self.session() as session:
            rows = session.rows([target.database if target else None])
        self.note_time(rows)
        return rows

    def _look(self, session: Session, lease: Lease, *, fresh: bool = False) -> None:
        """:raises LockLost: it is gone; or the server has let somebody in beside it."""
        rows = session.rows(sorted({lock.object.database for lock in lease.locks}))
        self.note_time(rows, fresh=fresh)
        number = _number(lease.id)
        if not any(row.id == number and row.label for row in rows):
            raise _lost(lease)
        if intruder := next(filter(row.InTheWay(lease.locks, number), rows), None):
            raise LockLost(
                f"{lease.owner}: the metastore has let in {intruder.blocker} beside lease {lease.id}; stop the work "
                "under it. Metastores before Hive 4.0 do so"
            )

    def _noted(self, lease: Lease, name: str, application: str | None) -> Lease:
        self.verify(lease)
        others = tuple(work for work in lease.works if work.name != name)
        if application is None:
            return replace(lease, works=others)
        return replace(lease, works=(*others, Work(name, application, lease.token)))


def duration_s(text: str) -> float:
    """A time in Hive's configuration, ``300s``, ``5m`` or ``300``, in seconds.

    :raises InvalidRequest: for another form.
    """
    form = re.fullmatch(r"([0-9]+)(ms|msec|s|sec|m|min|h|hour|d|day)?", text.strip().lower())
    if form is None:
        raise InvalidRequest(f"hive.txn.timeout is {text!r}, which cannot be read; give its seconds as timeout_s")
    return float(form[1]) * _UNITS_S[(form[2] or "s")[0] if form[2] not in ("ms", "msec") else "ms"]


def _number(lease_id: str) -> int:
    kind, _, number = lease_id.partition("-")
    return int(number) if kind == "metastore" and re.fullmatch("[0-9]{1,18}", number) else 0


def _rows_of(session: Session, lease: Lease) -> list[Row]:
    number = _number(lease.id)
    databases = sorted({lock.object.database for lock in lease.locks})
    return [row for row in session.rows(databases) if row.id == number and row.label]


def _lost(lease: Lease) -> LockLost:
    return LockLost(f"{lease.owner}: lease {lease.id} no longer stands; stop the work under it")
