"""The statements, parsed, with all names in them complete; and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_hivelock.locks.hive.settings import Setting
    from airflow_hivelock.locks.model import Lock, LockMode, LockObject

SYNTAX = """\
SHOW LOCKS [t [PARTITION (dt='2013-01-01')] | DATABASE d] [EXTENDED]
LOCK TABLE t [PARTITION (dt='2013-01-01')] {SHARED | EXCLUSIVE}
LOCK DATABASE d {SHARED | EXCLUSIVE}
UNLOCK {TABLE t [PARTITION (dt='2013-01-01')] | DATABASE d}
SHOW LEASE {* | t [PARTITION (dt='2013-01-01')]} [EXTENDED]
GRAB LEASE t [PARTITION (dt='2013-01-01')] {SHARED | EXCLUSIVE} [, ...]
RESERVE {t [PARTITION (dt='2013-01-01')] | DATABASE d} UNTIL '06:00' [REASON 'why']
EXTEND LEASE lease_id
DROP LEASE lease_id [ON t [PARTITION (dt='2013-01-01')] [, ...]]
SHOW WAITERS [t [PARTITION (dt='2013-01-01')] | DATABASE d]
DROP FORCE LEASE {* | t [PARTITION (dt='2013-01-01')] | lease_id}
DROP FORCE REQUEST owner
SHOW HISTORY [t [PARTITION (dt='2013-01-01')] | DATABASE d] [OWNER 'text'] [LIMIT n]
SHOW AUDIT [t [PARTITION (dt='2013-01-01')] | DATABASE d] [OWNER 'text'] [LIMIT n]
SHOW TRANSACTIONS
ABORT TRANSACTIONS id …
DROP FORCE LOCK {query_id | lock_id} [ON {TABLE t [PARTITION (dt='2013-01-01')] | DATABASE d}]
EXPLAIN LOCKS statement
USE d
SET name=value"""


@dataclass(frozen=True)
class ShowLocks:
    """:param target: only the locks on exactly this object; None for those on all tables and partitions."""

    target: LockObject | None
    extended: bool


@dataclass(frozen=True)
class AcquireLock:
    """``LOCK TABLE`` or ``LOCK DATABASE``.

    :param text: as it was written; SHOW LOCKS EXTENDED shows it.
    """

    target: LockObject
    mode: LockMode
    text: str


@dataclass(frozen=True)
class Unlock:
    """``UNLOCK TABLE`` or ``UNLOCK DATABASE``: what is held on exactly this object."""

    target: LockObject


@dataclass(frozen=True)
class ShowLease:
    """:param target: the leases on this object and below it; None for all.
    :param extended: with what is only SHARED since others lie in it.
    """

    target: LockObject | None
    extended: bool = False


@dataclass(frozen=True)
class GrabLease:
    """A lease on all of *locks*, or none."""

    locks: tuple[Lock, ...]


@dataclass(frozen=True)
class Reserve:
    """:param until: as :func:`airflow_hivelock.locks.reservations.parse_end` reads it.
    :param reason: "": the session's.
    """

    target: LockObject
    until: str
    reason: str = ""


@dataclass(frozen=True)
class ExtendLease:
    """:param lease_id: it lasts as long from now on as it was grabbed for."""

    lease_id: str


@dataclass(frozen=True)
class DropLease:
    """:param objects: what is given back of the lease; all of it if there are none."""

    lease_id: str
    objects: tuple[LockObject, ...]


@dataclass(frozen=True)
class ShowWaiters:
    """:param target: only the requests for this object, for one in it, or EXCLUSIVE for one of its parents."""

    target: LockObject | None


@dataclass(frozen=True)
class DropForceLease:
    """:param what: the lease of that id, the leases on an object and below it, or None for all."""

    what: LockObject | str | None


@dataclass(frozen=True)
class DropForceRequest:
    """Withdraw the request of *owner*, which waits."""

    owner: str


@dataclass(frozen=True)
class ShowHistory:
    """The leases of the last days, held or ended, the newest first.

    :param target: only those on this object and below it.
    :param owner: only those of owners that contain this text.
    :param limit: how many at most.
    """

    target: LockObject | None = None
    owner: str = ""
    limit: int | None = None


@dataclass(frozen=True)
class ShowAudit:
    """The audit trail, the newest first. The parameters are those of :class:`ShowHistory`."""

    target: LockObject | None = None
    owner: str = ""
    limit: int | None = None


@dataclass(frozen=True)
class ShowTransactions:
    """Hive's own, where the lock store keeps them."""


@dataclass(frozen=True)
class AbortTransactions:
    """:param ids: of the transactions; all of them end, or none."""

    ids: tuple[int, ...]


@dataclass(frozen=True)
class DropForceLock:
    """Free what Hive's own session has left.

    :param query_id: in a metastore, the id of the lock.
    :param target: only its lock on exactly this object; None for all locks of that query.
    """

    query_id: str
    target: LockObject | None


@dataclass(frozen=True)
class ExplainLocks:
    """:param sql: the statement to explain, which is not run."""

    sql: str
    database: str


@dataclass(frozen=True)
class Use:
    """:param database: where names without one lie from now on."""

    database: str


@dataclass(frozen=True)
class SetLine:
    """:param setting: None for a SET that only shows settings."""

    setting: Setting | None


LeaseStatement = ShowLease | GrabLease | Reserve | ExtendLease | DropLease | DropForceLease
Statement = (
    ShowLocks
    | AcquireLock
    | Unlock
    | LeaseStatement
    | ShowWaiters
    | ShowHistory
    | ShowAudit
    | ShowTransactions
    | AbortTransactions
    | DropForceLock
    | DropForceRequest
    | ExplainLocks
    | Use
    | SetLine
)


Value = str | int | bool | datetime | None


@dataclass(frozen=True)
class Result:
    """A table, and how Hive prints it.

    :param rows: a value a column; times have a zone.
    :param text: the lines that Hive prints, without the last line's end; None where Hive has no such statement.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...] = ()
    text: str | None = None

    def records(self) -> list[dict[str, str | int | bool | None]]:
        """The rows by column, in plain values: times in ISO 8601."""
        return [
            {
                column: value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value
                for column, value in zip(self.columns, row, strict=True)
            }
            for row in self.rows
        ]
