"""The classes of parsed statements, and of their results. Names in statements include the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from airflow_hivelock.locks.hive.settings import Setting
    from airflow_hivelock.locks.model import Group, Lock, LockMode, LockObject

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
ALTER FORCE REQUEST owner PRIORITY n
SHOW HISTORY [t [PARTITION (dt='2013-01-01')] | DATABASE d] [OWNER 'text'] [LIMIT n]
SHOW AUDIT [t [PARTITION (dt='2013-01-01')] | DATABASE d] [OWNER 'text'] [LIMIT n]
SHOW GROUPS
SET GROUP group LEASES n [WEIGHT n] [COMMENT 'text']
DROP GROUP group
SHOW TRANSACTIONS
ABORT TRANSACTIONS id …
DROP FORCE LOCK {query_id | lock_id} [ON {TABLE t [PARTITION (dt='2013-01-01')] | DATABASE d}]
EXPLAIN LOCKS statement
USE d
SET name=value"""


@dataclass(frozen=True)
class ShowLocks:
    """:param target: show only the locks on exactly this object. None shows the locks on all tables and partitions."""

    target: LockObject | None
    extended: bool


@dataclass(frozen=True)
class AcquireLock:
    """``LOCK TABLE`` or ``LOCK DATABASE``.

    :param text: the text of the statement, for SHOW LOCKS EXTENDED.
    """

    target: LockObject
    mode: LockMode
    text: str


@dataclass(frozen=True)
class Unlock:
    """``UNLOCK TABLE`` or ``UNLOCK DATABASE``. It frees the locks on exactly this object."""

    target: LockObject


@dataclass(frozen=True)
class ShowLease:
    """:param target: show the leases on this object and on objects below it. None shows all.
    :param extended: also show the SHARED locks on parents.
    """

    target: LockObject | None
    extended: bool = False


@dataclass(frozen=True)
class GrabLease:
    """``GRAB LEASE``. The lease has all of *locks*; otherwise no lease is granted."""

    locks: tuple[Lock, ...]


@dataclass(frozen=True)
class Reserve:
    """:param until: the end as text: see :func:`airflow_hivelock.locks.reservations.parse_end`.
    :param reason: empty for the session's reason.
    """

    target: LockObject
    until: str
    reason: str = ""


@dataclass(frozen=True)
class ExtendLease:
    """:param lease_id: the lease to renew. Its original duration starts again now."""

    lease_id: str


@dataclass(frozen=True)
class DropLease:
    """:param objects: the objects to release. Empty releases the whole lease."""

    lease_id: str
    objects: tuple[LockObject, ...]


@dataclass(frozen=True)
class ShowWaiters:
    """:param target: show only requests for this object, for objects below it, or EXCLUSIVE for its parents."""

    target: LockObject | None


class ByForce:
    """A statement about locks or requests of other users. It needs a reason, for the audit trail or the log.

    ``words`` are its first words.
    """

    words: ClassVar[str]


@dataclass(frozen=True)
class DropForceLease(ByForce):
    """:param what: a lease's id, or an object for all leases on it and below it, or None for all leases."""

    words: ClassVar = "DROP FORCE LEASE"

    what: LockObject | str | None


@dataclass(frozen=True)
class DropForceRequest(ByForce):
    """Withdraw the waiting request of *owner*."""

    words: ClassVar = "DROP FORCE REQUEST"

    owner: str


@dataclass(frozen=True)
class AlterForceRequest(ByForce):
    """Change the priority of the request of *owner*, which waits."""

    words: ClassVar = "ALTER FORCE REQUEST"

    owner: str
    priority: int


@dataclass(frozen=True)
class ShowPast:
    """What SHOW HISTORY and SHOW AUDIT show, the newest first.

    :param target: show only leases on this object and below it.
    :param owner: show only leases whose owner contains this text.
    :param limit: the largest number of leases to show. None means no limit.
    """

    target: LockObject | None = None
    owner: str = ""
    limit: int | None = None


class ShowHistory(ShowPast):
    """The leases of the last days, held or ended."""


class ShowAudit(ShowPast):
    """The audit trail."""


@dataclass(frozen=True)
class ShowGroups:
    """The groups of leases, each with its limit, its holders and its waiters."""


@dataclass(frozen=True)
class SetGroup:
    """Store the settings of a group.

    :param kept: the fields of *group* that the statement does not name. They stay as they are stored.
    """

    group: Group
    kept: tuple[str, ...]


@dataclass(frozen=True)
class DropGroup:
    """Delete the settings of the group *name*."""

    name: str


@dataclass(frozen=True)
class ShowTransactions:
    """``SHOW TRANSACTIONS``. It needs a lock store with Hive's transactions."""


@dataclass(frozen=True)
class AbortTransactions(ByForce):
    """:param ids: the transactions to abort. If one of them cannot be aborted, none is."""

    words: ClassVar = "ABORT TRANSACTIONS"

    ids: tuple[int, ...]


@dataclass(frozen=True)
class DropForceLock(ByForce):
    """Free locks of one of Hive's own sessions.

    :param query_id: the id of Hive's query, or of the lock in a metastore.
    :param target: free only the lock on exactly this object. None frees all locks of the query.
    """

    words: ClassVar = "DROP FORCE LOCK"

    query_id: str
    target: LockObject | None


@dataclass(frozen=True)
class ExplainLocks:
    """:param sql: the statement to explain. It does not run."""

    sql: str
    database: str


@dataclass(frozen=True)
class Use:
    """:param database: the database of later names without one."""

    database: str


@dataclass(frozen=True)
class SetLine:
    """:param setting: the setting to apply. None for a SET that only shows settings, or that sets a variable.
    :param text: the statement.
    """

    setting: Setting | None
    text: str


LeaseStatement = ShowLease | GrabLease | Reserve | ExtendLease | DropLease | DropForceLease
Statement = (
    ShowLocks
    | AcquireLock
    | Unlock
    | LeaseStatement
    | ShowWaiters
    | ShowHistory
    | ShowAudit
    | ShowGroups
    | SetGroup
    | DropGroup
    | ShowTransactions
    | AbortTransactions
    | DropForceLock
    | DropForceRequest
    | AlterForceRequest
    | ExplainLocks
    | Use
    | SetLine
)


Value = str | int | bool | datetime | None


@dataclass(frozen=True)
class Result:
    """A result as a table, and as Hive prints it.

    :param rows: each has one value for each column. Times have a zone.
    :param text: the lines that Hive prints, without a final line break. None if Hive has no such statement.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...] = ()
    text: str | None = None

    def records(self) -> list[dict[str, str | int | bool | None]]:
        """The rows as dictionaries by column. Times are texts in ISO 8601."""
        return [
            {
                column: value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value
                for column, value in zip(self.columns, row, strict=True)
            }
            for row in self.rows
        ]
