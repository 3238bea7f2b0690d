"""Locks as Hive lists them where it locks in its metastore: each component of a request, held or waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.model import LockObject


@dataclass(frozen=True)
class TransactionalLock:
    """A row of SHOW LOCKS where Hive locks in the metastore: the fields of its ``ShowLocksResponseElement``.

    :param internal_id: of the component of the lock; None from a metastore that does not say.
    :param partition: Hive's name of it, ``dt=2013-01-01/hr=04``; None where a table or a database is locked.
    :param state: ``ACQUIRED``, ``WAITING``, ``ABORT`` or ``NOT_ACQUIRED``.
    :param blocked_by: lock id and internal id of what it waits for.
    :param type: ``SHARED_READ``, ``SHARED_WRITE``, ``EXCLUSIVE`` or ``EXCL_WRITE``.
    :param txn_id: None for a lock without a transaction, as are all of ours.
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


@runtime_checkable
class ListsTransactional(Protocol):
    """A backend whose SHOW LOCKS is that of Hive's transactional manager."""

    def transactional(self, target: LockObject | None) -> Sequence[TransactionalLock]:
        """What lies on just that object, for a database on all in it, or everything; in the server's order."""
        ...
