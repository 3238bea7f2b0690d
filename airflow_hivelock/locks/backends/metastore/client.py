"""The metastore's lock calls, in our own values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backends.metastore import row
from airflow_hivelock.locks.errors import InvalidRequest, Unsupported
from airflow_hivelock.locks.hive.thrift import setting
from airflow_hivelock.locks.model import LockMode, LockObject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.backends.metastore.row import Metadata, Row
    from airflow_hivelock.locks.hive.transactional import TransactionalLock
    from airflow_hivelock.locks.model import Lock

# The columns of HIVE_LOCKS, in characters (hive-txn-schema-2.3.0 and later).
NAME_CHARS = 128
PARTITION_CHARS = 767


class LockClient:
    """One connection, for a few calls by one thread.

    :param client: as :meth:`.hive.thrift.Metastore.client` gives it.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def lock(self, locks: Iterable[Lock], metadata: Metadata) -> tuple[int, bool]:
        """Ask for *locks*, all of them or none: the number of the request, and whether it is granted.

        :raises InvalidRequest: a name that the metastore has no room for.
        """
        from hmsclient.genthrift.hive_metastore.ttypes import LockRequest

        components = [_component(lock) for lock in locks]
        answer = self._client.lock(LockRequest(component=components, **metadata.columns))
        return answer.lockid, answer.state == row.ACQUIRED

    def check(self, number: int) -> bool | None:
        """Whether the request is granted by now; None when it is gone. Counts as a heartbeat."""
        from hmsclient.genthrift.hive_metastore.ttypes import CheckLockRequest, NoSuchLockException

        try:
            return bool(self._client.check_lock(CheckLockRequest(lockid=number)).state == row.ACQUIRED)
        except NoSuchLockException:
            return None

    def heartbeat(self, number: int) -> bool:
        """Keep the request for another time-out; whether it stood."""
        from hmsclient.genthrift.hive_metastore.ttypes import HeartbeatRequest, NoSuchLockException

        try:
            self._client.heartbeat(HeartbeatRequest(lockid=number))
        except NoSuchLockException:
            return False
        return True

    def unlock(self, number: int) -> None:
        """Take the request away, granted or not; what is gone already is no error.

        :raises Unsupported: it belongs to a transaction, and ends with that.
        """
        from hmsclient.genthrift.hive_metastore.ttypes import NoSuchLockException, TxnOpenException, UnlockRequest

        try:
            self._client.unlock(UnlockRequest(lockid=number))
        except NoSuchLockException:
            return
        except TxnOpenException as error:
            raise Unsupported(
                f"lock {number} belongs to a transaction of Hive's and ends with it: run SHOW LOCKS in Hive for its "
                f"number, and ABORT TRANSACTIONS with that ({error.message})"
            ) from error

    def rows(self, databases: Iterable[str | None] = (None,)) -> list[Row]:
        """All locks in *databases*, or everywhere, held and waited for."""
        from hmsclient.genthrift.hive_metastore.ttypes import ShowLocksRequest

        listed = (self._client.show_locks(ShowLocksRequest(dbname=name)).locks or () for name in databases)
        parsed = (row.parse(element) for elements in listed for element in elements)
        return [found for found in parsed if found]

    def listed(self, target: LockObject | None) -> list[TransactionalLock]:
        """As Hive lists them: on just that object, for a database on all in it, or everywhere."""
        from hmsclient.genthrift.hive_metastore.ttypes import ShowLocksRequest

        wanted = ShowLocksRequest()
        if target:
            partition = "/".join(target.path[2:])
            wanted = ShowLocksRequest(target.database, target.table or None, partition or None, isExtended=True)
        return list(map(row.listed, self._client.show_locks(wanted).locks or ()))

    def depth(self, table: LockObject) -> int | None:
        """How many levels the partitions of *table* have; None where it does not exist."""
        from hmsclient.genthrift.hive_metastore.ttypes import NoSuchObjectException

        try:
            return len(self._client.get_table(table.database, table.table).partitionKeys or ())
        except NoSuchObjectException:
            return None

    def setting(self, name: str) -> str | None:
        """A setting of the metastore's own; None where it is not set, or not told."""
        return setting(self._client, name)


def _component(lock: Lock) -> Any:
    from hmsclient.genthrift.hive_metastore.ttypes import DataOperationType, LockComponent, LockLevel, LockType

    shared, target = lock.mode is LockMode.SHARED, lock.object
    partition = "/".join(target.path[2:])
    if max(len(target.database), len(target.table)) > NAME_CHARS or len(partition) > PARTITION_CHARS:
        raise InvalidRequest(
            f"{target}: the metastore keeps {NAME_CHARS} characters of a database's or a table's name and "
            f"{PARTITION_CHARS} of a partition's; lock what it lies in"
        )
    return LockComponent(
        type=LockType.SHARED_READ if shared else LockType.EXCLUSIVE,
        level=LockLevel.PARTITION if partition else LockLevel.TABLE if target.table else LockLevel.DB,
        dbname=target.database,
        tablename=target.table or None,
        partitionname=partition or None,
        operationType=DataOperationType.SELECT if shared else DataOperationType.NO_TXN,
    )
