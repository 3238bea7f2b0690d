"""Locks of a Hive that locks in its metastore: each component of a request, held or waiting."""

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
    """A row of SHOW LOCKS of a Hive that locks in the metastore: the fields of its ``ShowLocksResponseElement``.

    :param internal_id: the id of the lock's component. None if the metastore does not report it.
    :param partition: Hive's name of the partition, ``dt=2013-01-01/hr=04``. None for a lock on a table or a database.
    :param state: ``ACQUIRED``, ``WAITING``, ``ABORT`` or ``NOT_ACQUIRED``.
    :param blocked_by: lock id and internal id of the blocker.
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
    """A row of SHOW TRANSACTIONS, with the fields of a ``TxnInfo``. :param state: ``OPEN`` or ``ABORTED``."""

    id: int
    state: str
    started_ms: int
    last_heartbeat_ms: int
    user: str
    hostname: str


@runtime_checkable
class KeepsTransactions(Protocol):
    """A backend with a store that keeps Hive's transactions."""

    def transactions(self) -> Sequence[TxnInfo]:
        """Return the transactions that are open, or aborted and not yet cleaned up, in the server's order."""
        ...

    def abort(self, ids: Sequence[int], *, reason: str, user: str) -> Sequence[TxnInfo]:
        """End the open transactions *ids* and their locks.

        :return: the transactions before the call.
        :raises HiveLockError: one of them is not open. Then none is ended.
        """
        ...


@runtime_checkable
class ListsTransactional(Protocol):
    """A backend with the SHOW LOCKS of Hive's transactional manager."""

    def transactional(self, target: LockObject | None) -> Sequence[TransactionalLock]:
        """Return the locks on *target*, for a database also those below it, in the server's order. None means all."""
        ...


def locked(database: str, table: str = "", partition: str = "") -> LockObject | None:
    """Return the object of those names, or a parent if its name is invalid here. None if the database's name is too."""
    levels = tuple(unescape_level(level) for level in partition.split("/")) if partition else ()
    try:
        return LockObject(database, table, levels)
    except InvalidRequest:
        return locked(database, table if partition else "") if table else None


def mode(lock_type: str) -> LockMode:
    """Return the mode that a lock of Hive has for our readers. They wait for EXCL_WRITE, although Hive's do not.

    An unknown type counts as EXCLUSIVE.
    """
    return LockMode.SHARED if lock_type in ("SHARED_READ", "SHARED_WRITE") else LockMode.EXCLUSIVE


class Write(enum.Enum):
    """How a statement changes data."""

    INSERT = "INSERT INTO"
    OVERWRITE = "INSERT OVERWRITE"
    CHANGE = "UPDATE, DELETE, MERGE"


def written(table: Table | None, write: Write, settings: TxnSettings) -> LockType:
    """Return the lock type that Hive takes to write *table*. None is an unknown table.

    As AcidUtils.makeLockComponents, or DbTxnManager.acquireLocks before Hive 3.
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
    """Return the id of the query, or the user if Hive does not report the query."""
    return agent if agent not in ("", "NULL", "Unknown") else user


def notes(lock_type: str, transaction: str) -> list[str]:
    """Return a lock's type and transaction as texts, if its mode does not already express them."""
    shown = [lock_type] if lock_type not in ("SHARED_READ", "EXCLUSIVE") else []
    return shown + ([f"transaction {transaction}"] if transaction not in ("", "0", "NULL") else [])
