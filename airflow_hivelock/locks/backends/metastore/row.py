"""Locks as the metastore lists them, this package's and Hive's own, and which of them block a request.

A lock of this package has its metadata in the text columns of the metastore::

    user        prod:flights/2013-01-01         the owner, or its first 128 characters
    hostname    worker-3                        the host that asked; or ~ and the next characters of the owner
    agentInfo   hivelock/1 a=2 s=300 n=5f3a91c2 r=9b1d0e77 insert overwrite …

``a`` is the attempt, ``s`` the lease's seconds, ``n`` the acquisition, ``r`` a digest of the request's text. Then
follows as much of the query as fits. An owner that does not fit ends in ``~`` and a digest. Each column holds 128
bytes. Metastores before 4.0 paste these texts into their SQL, so they must not contain a character that ends a string
there.
"""

from __future__ import annotations

import hashlib
import re
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, unquote

from airflow_hivelock.locks import queueing, rules
from airflow_hivelock.locks.hive import transactional
from airflow_hivelock.locks.hive.transactional import TransactionalLock, TxnInfo
from airflow_hivelock.locks.model import MAX_LEASE_S, Blocker, Holder, Lease, Lock, LockType, owner_key
from airflow_hivelock.locks.queueing import Position
from airflow_hivelock.locks.validate import MOST_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

COLUMN_CHARS = 128
OWNER_CHARS = 2 * COLUMN_CHARS - 1
"""The longest owner that is kept whole, in characters of its percent-encoded form."""

_SAFE = "_.,:@/=+()[]<>*#|!&$-"
_FORM = re.compile(
    r"hivelock/1 a=(?P<attempt>[0-9]{1,18}) s=(?P<lease_s>[0-9]+(?:\.[0-9]+)?(?:e\+[0-9]{1,2})?) n=(?P<nonce>\w*) r=(?P<named>\w*) "
    r"(?P<query>.*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Metadata:
    """The metadata of a lock of this package.

    :param nonce: distinguishes the acquisitions of one owner.
    :param named: :func:`digest` of the text that the locks were planned from.
    """

    owner: str
    attempt: int
    lease_s: float
    nonce: str
    named: str = ""
    query: str = ""

    @property
    def columns(self) -> dict[str, str]:
        """The text columns of a lock request, by their fields' names."""
        owner = _fitted(self.owner)
        host = f"~{owner[COLUMN_CHARS:]}" if len(owner) > COLUMN_CHARS else quote(socket.gethostname(), safe=_SAFE)
        info = f"hivelock/1 a={self.attempt} s={self.lease_s:g} n={self.nonce} r={self.named} "
        query = _cut(quote(self.query, safe=_SAFE + " "), COLUMN_CHARS - len(info))
        return {"user": owner[:COLUMN_CHARS], "hostname": host[:COLUMN_CHARS], "agentInfo": info + query}

    @classmethod
    def parse(cls, user: str | None, host: str | None, info: str | None) -> Self | None:
        """The inverse of :attr:`columns`; None for a lock of another client."""
        form = _FORM.fullmatch(info or "")
        if form is None or not user:
            return None
        owner = unquote(user + (host[1:] if host and host[0] == "~" else ""))
        lease_s = float(form["lease_s"])
        if not owner.isprintable() or not 1 <= lease_s <= MAX_LEASE_S:
            return None
        return cls(owner, int(form["attempt"]), lease_s, form["nonce"], form["named"], unquote(form["query"]))


def known_as(owner: str) -> str:
    """The owner as it is read back: the same, unless it is too long."""
    return unquote(_fitted(owner))


def digest(text: str) -> str:
    """Eight characters that distinguish texts; ``""`` for an empty text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8] if text else ""


def _fitted(owner: str) -> str:
    encoded = quote(owner, safe=_SAFE)
    if len(encoded) <= OWNER_CHARS:
        return encoded
    mark = f"~{owner_key(owner)}"
    return _cut(encoded, OWNER_CHARS - len(mark)) + mark


def _cut(encoded: str, chars: int) -> str:
    return re.sub(r"%.?$", "", encoded[: max(0, chars)])


ACQUIRED, WAITING = 1, 2
STATES = {ACQUIRED: "ACQUIRED", WAITING: "WAITING", 3: "ABORT", 4: "NOT_ACQUIRED"}
"""``LockState``, hive_metastore.thrift."""

NUMBERS = {LockType.SHARED_READ: 1, LockType.SHARED_WRITE: 2, LockType.EXCLUSIVE: 3, LockType.EXCL_WRITE: 4}
"""``LockType``; the fourth came with Hive 4."""

TYPES = {number: kind.name for kind, number in NUMBERS.items()}


@dataclass(frozen=True)
class Row:
    """One component of a lock request, by the server's clock.

    :param lock: with the mode that its type corresponds to.
    :param transaction: 0 for none.
    :param heartbeat: None for a transaction's lock, which lives as long as its transaction.
    :param metadata: None for a lock of another client.
    """

    id: int
    lock: Lock
    type: str
    waiting: bool
    transaction: int
    heartbeat: datetime | None
    acquired: datetime | None
    user: str
    agent: str
    metadata: Metadata | None

    @property
    def position(self) -> Position:
        """Its position in the server's queue, which has no priorities."""
        return Position(self.id, 0, self.id)

    @property
    def holds(self) -> bool:
        """Whether it blocks even older requests. A lock of Hive's own does, because Hive gives nothing back."""
        return not self.waiting and self.metadata is None

    @property
    def kind(self) -> LockType:
        """Its type. An unknown one counts as EXCLUSIVE."""
        return LockType.__members__.get(self.type, LockType.EXCLUSIVE)

    @property
    def owner(self) -> str:
        """The request's owner; for a lock of Hive, its query id, or the user if there is none."""
        if self.metadata:
            return self.metadata.owner
        return transactional.owner(self.agent, self.user)

    @property
    def blocker(self) -> Blocker:
        """This row as a blocker."""
        return Blocker(self.owner, self.lock.object, self.lock.mode, self.waiting)

    def expires(self, timeout_s: float) -> datetime | None:
        """When it is no longer trusted without a further heartbeat."""
        trusted_s = min(self.metadata.lease_s, timeout_s) if self.metadata else timeout_s
        return self.heartbeat and self.heartbeat + timedelta(seconds=trusted_s)

    def holder(self, timeout_s: float) -> Holder:
        """This row as ``show`` lists it."""
        query = [self.metadata.query] if self.metadata and self.metadata.query else []
        return Holder(
            self.lock.object,
            self.lock.mode,
            self.owner,
            self.acquired or self.heartbeat or _instant(0),
            lease_id(self.id) if self.metadata else None,
            self.id,
            self.expires(timeout_s),
            None,
            ", ".join(query + transactional.notes(self.type, str(self.transaction))),
            hive_id="" if self.metadata or self.transaction else str(self.id),
            heartbeat=self.heartbeat,
        )


def parse(element: Any) -> Row | None:
    """Parse a ``ShowLocksResponseElement``; None if its database could not be locked here."""
    kind = TYPES.get(element.type, f"LockType {element.type}")
    target = transactional.locked(element.dbname or "", element.tablename or "", element.partname or "")
    if target is None or element.lockid is None:
        return None
    return Row(
        element.lockid,
        Lock(target, transactional.mode(kind)),
        kind,
        element.state != ACQUIRED,
        element.txnid or 0,
        _instant(element.lastheartbeat) if element.lastheartbeat else None,
        _instant(element.acquiredat) if element.acquiredat else None,
        element.user or "",
        element.agentInfo or "",
        Metadata.parse(element.user, element.hostname, element.agentInfo),
    )


def listed(element: Any) -> TransactionalLock:
    """A ``ShowLocksResponseElement`` in Hive's own form, of any version."""
    by = (element.blockedByExtId, element.blockedByIntId)
    return TransactionalLock(
        element.lockid,
        element.lockIdInternal,
        element.dbname,
        element.tablename,
        element.partname,
        STATES.get(element.state, f"LockState {element.state}"),
        TYPES.get(element.type, f"LockType {element.type}"),
        element.user or "",
        element.hostname or "",
        None if by[0] is None else by,
        element.txnid or None,
        element.lastheartbeat or 0,
        element.acquiredat,
        element.agentInfo,
    )


def transaction(info: Any) -> TxnInfo:
    """Parse a ``TxnInfo``."""
    state = {2: "ABORTED", 3: "OPEN"}.get(info.state, f"TxnState {info.state}")
    times = (info.startedTime or 0, info.lastHeartbeatTime or 0)
    return TxnInfo(info.id, state, *times, info.user or "", info.hostname or "")


class Conflicts:
    """A filter for the rows that block the locks of one request, *asked*.

    Metastores before Hive 4.0 may grant EXCLUSIVE next to SHARED, and the later of two conflicting requests before the
    earlier one. So a grant counts only while no conflicting lock is held, or was asked for earlier. If two requests of
    this package were both granted, the one with the lower number stays: the other one sees it, held or waiting, and
    gives back. Hive's own requests check nothing, so against those it is always this package's that gives back.
    """

    def __init__(self, asked: Sequence[Row], *, excl_write: bool) -> None:
        self._footprint = rules.Footprint(
            ((rules.folded(row.lock.object), row.kind) for row in asked), excl_write=excl_write
        )
        self._mine = asked[0]

    def __call__(self, row: Row) -> bool:
        before = row.id != self._mine.id and queueing.in_the_way(self._mine.position, [row])
        return bool(before) and self._footprint.excludes(rules.folded(row.lock.object), row.kind)


def requests(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows by lock request, in the order of the requests."""
    by_id = attrgetter("id")
    return [sorted(group, key=lambda row: row.lock.object) for _, group in groupby(sorted(rows, key=by_id), key=by_id)]


def blockers(rows: Iterable[Row]) -> tuple[Blocker, ...]:
    """The rows as blockers, one per request, nearest first."""
    return tuple(asked[0].blocker for asked in reversed(requests(rows)))


def lease(rows: list[Row], timeout_s: float) -> Lease:
    """The lease that consists of the rows of one granted request of this package."""
    first = rows[0]
    assert first.metadata is not None
    since = max(row.acquired or _instant(0) for row in rows)
    return Lease(
        lease_id(first.id),
        first.id,
        first.metadata.attempt,
        0,
        first.metadata.owner,
        tuple(row.lock for row in rows),
        min(first.metadata.lease_s, timeout_s),
        since,
        expires=first.expires(timeout_s),
    )


def lease_id(number: int) -> str:
    """The lease id of a lock request."""
    return f"metastore-{number}"


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(min(max(ms, 0), MOST_MS) / 1000, UTC)
