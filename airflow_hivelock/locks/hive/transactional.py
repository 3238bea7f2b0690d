"""Locks and transactions of a Hive that locks in its metastore."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.catalog import ICEBERG
from airflow_hivelock.locks.model import LockMode, LockObject, LockType
from airflow_hivelock.locks.model.object import unescape_level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.hive.catalog import Table
    from airflow_hivelock.locks.hive.settings import TxnSettings


@dataclass(frozen=True)
class TransactionalLock:
    """A row of Hive's SHOW LOCKS. The fields are those of ``ShowLocksResponseElement``.

    :param internal_id: the id of the lock's component. None: the metastore does not report it.
    :param partition: Hive's name of the partition, ``dt=2013-01-01/hr=04``. None for a lock on a table or a database.
    :param state: ``ACQUIRED``, ``WAITING``, ``ABORT`` or ``NOT_ACQUIRED``.
    :param blocked_by: the lock id and the internal id of the blocker.
    :param type: ``SHARED_READ``, ``SHARED_WRITE``, ``EXCLUSIVE`` or ``EXCL_WRITE``.
    :param txn_id: None for a lock without a transaction, such as every lock of this package.
    """

    lock_id: int
    internal_id: int | None
    database: str
    table: str | None
    partition: str | None
    state: str
    type: str
    user: str
    hostname: str
    blocked_by: tuple[int, int] | None = None
    txn_id: int | None = None
    last_heartbeat_ms: int = 0
    acquired_at_ms: int | None = None
    agent_info: str | None = None


@dataclass(frozen=True)
class TxnInfo:
    """A row of Hive's SHOW TRANSACTIONS. The fields are those of ``TxnInfo``.

    :param state: ``OPEN`` or ``ABORTED``.
    """

    id: int
    state: str
    started_ms: int
    last_heartbeat_ms: int
    user: str
    hostname: str


@runtime_checkable
class KeepsTransactions(Protocol):
    """A backend of a store that contains Hive's transactions."""

    def transactions(self) -> Sequence[TxnInfo]:
        """Return the open transactions, and the aborted ones that are not yet cleaned up, in the server's order."""
        ...

    def abort(self, ids: Sequence[int], *, reason: str, user: str) -> Sequence[TxnInfo]:
        """Abort the open transactions *ids*. Their locks end with them.

        :return: the transactions as they were before the call.
        :raises HiveLockError: one of them is not open. Then none is aborted.
        """
        ...


@runtime_checkable
class ListsTransactional(Protocol):
    """A backend that can list the locks of Hive's transactional manager."""

    def transactional(self, target: LockObject | None) -> Sequence[TransactionalLock]:
        """Return the locks on *target* in the server's order, for a database also those below it. None: all locks."""
        ...


def escaped_once(partition: str) -> str:
    """The name of a *partition* as Hive 3 keeps it. The metastore of Hive 4 escapes names again: ``dt=%3A`` is ``dt=%253A``."""
    return partition.replace("%25", "%")


def locked(database: str, table: str = "", partition: str = "") -> LockObject | None:
    """Return the object with these names. If a name is invalid here, return the nearest valid parent, or None."""
    levels = tuple(unescape_level(level) for level in partition.split("/")) if partition else ()
    try:
        return LockObject(database, table, levels)
    except InvalidRequest:
        return locked(database, table if partition else "") if table else None


def mode(lock_type: str) -> LockMode:
    """Return the mode for this package's readers. They wait for EXCL_WRITE, although Hive's readers do not.

    An unknown type counts as EXCLUSIVE.
    """
    return LockMode.SHARED if lock_type in ("SHARED_READ", "SHARED_WRITE") else LockMode.EXCLUSIVE


class Write(enum.Enum):
    """How a statement changes data."""

    INSERT = "INSERT INTO"
    OVERWRITE = "INSERT OVERWRITE"
    CHANGE = "UPDATE, DELETE, MERGE"


def written(table: Table | None, write: Write, settings: TxnSettings) -> LockType:
    """Return the type of the lock that Hive takes to write *table*. None: the table is unknown.

    This follows AcidUtils.makeLockComponents, and DbTxnManager.acquireLocks of Hive 2.
    """
    if table is None or table.format == ICEBERG:
        return LockType.EXCLUSIVE
    if not table.transactional:
        appends = write is Write.INSERT and not settings.strict
        return LockType.SHARED_READ if appends else LockType.EXCLUSIVE
    match write:
        case Write.INSERT:
            return LockType.SHARED_READ if settings.xlock_write else LockType.SHARED_WRITE
        case Write.OVERWRITE:
            return LockType.EXCLUSIVE if settings.xlock_iow and settings.xlock_write else LockType.EXCL_WRITE
        case Write.CHANGE:
            return LockType.EXCL_WRITE if settings.xlock_write else LockType.SHARED_WRITE


def owner(agent: str, user: str) -> str:
    """Return the owner of a lock: the id of its query, or the user if Hive does not report the query.

    :param agent: Hive's ``agentInfo``.
    """
    return agent if agent not in ("", "NULL", "Unknown") else user


def notes(lock_type: str, transaction: str) -> list[str]:
    """Return texts for the type and the transaction of a lock, for a listing. A type that equals its mode has no
    text."""
    shown = [lock_type] if lock_type not in ("SHARED_READ", "EXCLUSIVE") else []
    return shown + ([f"transaction {transaction}"] if transaction not in ("", "0", "NULL") else [])
