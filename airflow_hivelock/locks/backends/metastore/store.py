"""A metastore's locks below the backend and its acquisitions: its lock calls with this package's values, its time-out,
its clock."""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backends.metastore import row
from airflow_hivelock.locks.backends.metastore.row import Metadata
from airflow_hivelock.locks.errors import InvalidRequest, StoreUnavailable, Unsupported
from airflow_hivelock.locks.hive import thrift, transactional
from airflow_hivelock.locks.hive.properties import CATALOG, TXN_TIMEOUT, seconds
from airflow_hivelock.locks.model import LockObject, LockType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from airflow_hivelock.locks.backends.metastore.row import Row
    from airflow_hivelock.locks.hive.thrift import Metastore
    from airflow_hivelock.locks.hive.transactional import TransactionalLock, TxnInfo
    from airflow_hivelock.locks.model import LockRequest

# The columns of HIVE_LOCKS, in characters (hive-txn-schema-2.3.0 and later).
NAME_CHARS = 128
PARTITION_CHARS = 767


class LockClient:
    """One connection, for a few calls by one thread.

    :param client: from :meth:`.hive.thrift.Metastore.client`.
    :param catalog: the catalog of all locks. Servers before Hive 4.3 have no catalogs of locks.
    :param escapes_again: whether the server escapes the names of partitions that it receives.
    """

    def __init__(self, client: Any, catalog: str, escapes_again: Callable[[], bool]) -> None:
        self._client = client
        self._catalog = catalog
        self._escapes_again = escapes_again

    def lock(self, types: Mapping[LockObject, LockType], metadata: Metadata) -> tuple[int, bool]:
        """Ask for locks of these *types*, all or none. Return the number of the request, and whether it is granted.

        :raises InvalidRequest: a name is longer than the metastore's column.
        """
        from hmsclient.genthrift.hive_metastore.ttypes import LockRequest

        components = [
            thrift.in_catalog(_component(target, kind), thrift.LOCK_CATALOG, self._catalog)
            for target, kind in types.items()
        ]
        answer = self._client.lock(LockRequest(component=components, **metadata.columns))
        return answer.lockid, answer.state == row.ACQUIRED

    def check(self, number: int) -> bool | None:
        """Whether the request is granted now; None when it is gone. Counts as a heartbeat."""
        from hmsclient.genthrift.hive_metastore.ttypes import CheckLockRequest, NoSuchLockException

        try:
            return bool(self._client.check_lock(CheckLockRequest(lockid=number)).state == row.ACQUIRED)
        except NoSuchLockException:
            return None

    def heartbeat(self, number: int) -> bool:
        """Keep the request for another time-out; return whether it existed."""
        from hmsclient.genthrift.hive_metastore.ttypes import HeartbeatRequest, NoSuchLockException

        try:
            self._client.heartbeat(HeartbeatRequest(lockid=number))
        except NoSuchLockException:
            return False
        return True

    def unlock(self, number: int) -> None:
        """Remove the request, granted or not; a request that is already gone is no error.

        :raises Unsupported: it belongs to a transaction, and ends with that.
        """
        from hmsclient.genthrift.hive_metastore.ttypes import NoSuchLockException, TxnOpenException, UnlockRequest

        try:
            self._client.unlock(UnlockRequest(lockid=number))
        except NoSuchLockException:
            return
        except TxnOpenException as error:
            raise Unsupported(
                f"lock {number} belongs to a transaction of Hive, and ends with it ({error.message}). SHOW LOCKS shows the "
                "transaction's number. End it with ABORT TRANSACTIONS"
            ) from error

    def rows(self, databases: Iterable[str | None] = (None,)) -> list[Row]:
        """All locks in *databases*, or everywhere, held and waited for."""
        elements = [element for name in databases for element in self._show_locks(name)]
        if any("%25" in (element.partname or "") for element in elements) and self._escapes_again():
            for element in elements:
                element.partname = element.partname and transactional.escaped_once(element.partname)
        return [found for element in elements if (found := row.parse(element))]

    def names_of(self, number: int, database: str) -> list[str]:
        """The server's names of the partitions of that request."""
        return [element.partname for element in self._show_locks(database) if element.lockid == number]

    def listed(self, target: LockObject | None) -> list[TransactionalLock]:
        """The locks in Hive's own form: on exactly that object, for a database on everything in it, or everywhere."""
        names = (target.database, target.table or None) if target else ()
        found = self._show_locks(*names, isExtended=bool(target))
        if target and target.partition:
            # The server would compare the name with one that Hive 3.1 keeps in lower case, and Hive 4 escapes again.
            found = [element for element in found if _is_on(element, target)]
        return list(map(row.listed, found))

    def _show_locks(self, *names: str | None, **how: bool) -> Sequence[Any]:
        from hmsclient.genthrift.hive_metastore.ttypes import ShowLocksRequest

        request = thrift.in_catalog(ShowLocksRequest(*names, **how), thrift.LISTED_CATALOG, self._catalog)
        return self._client.show_locks(request).locks or ()

    def transactions(self) -> list[TxnInfo]:
        """Hive's transactions, open or aborted."""
        return list(map(row.transaction, self._client.get_open_txns_info().open_txns or ()))

    def abort(self, ids: Sequence[int]) -> None:
        """Abort the open ones among these; the server reports nothing about the others."""
        from hmsclient.genthrift.hive_metastore.ttypes import AbortTxnsRequest

        self._client.abort_txns(AbortTxnsRequest(list(ids)))

    def depth(self, table: LockObject) -> int | None:
        """How many levels the partitions of *table* have; None if it does not exist."""
        found = thrift.table(self._client, table.database, table.table)
        return None if found is None else len(found.partitionKeys or ())


def _is_on(element: Any, target: LockObject) -> bool:
    """Whether the lock *element* is on the partition *target*, in any version's spelling of its name."""
    name = element.partname or ""
    names = name, transactional.escaped_once(name)
    spellings = (transactional.locked(target.database, target.table, each) for each in names)
    return any(each and rules.folded(each) == rules.folded(target) for each in spellings)


def _component(target: LockObject, kind: LockType) -> Any:
    from hmsclient.genthrift.hive_metastore.ttypes import DataOperationType, LockComponent, LockLevel

    partition = "/".join(target.path[2:])
    if max(len(target.database), len(target.table)) > NAME_CHARS or len(partition) > PARTITION_CHARS:
        raise InvalidRequest(
            f"{target}: the metastore keeps {NAME_CHARS} characters of a database's or a table's name and "
            f"{PARTITION_CHARS} of a partition's. Lock its parent instead"
        )
    return LockComponent(
        type=row.NUMBERS[kind],
        level=LockLevel.PARTITION if partition else LockLevel.TABLE if target.table else LockLevel.DB,
        dbname=target.database,
        tablename=target.table or None,
        partitionname=partition or None,
        operationType=DataOperationType.NO_TXN,
    )


DEFAULT_CATALOG = "hive"
"""Hive's default for ``metastore.catalog.default``. A lock of a client without catalogs is in the one with this name."""

TIMEOUT_S = 300.0
"""Hive's default for ``hive.txn.timeout``, in seconds."""

_PROBE = LockObject("airflow_hivelock", "clock", (("name", "'"),))


class MetastoreStore:
    """The locks of one metastore.

    :param timeout_s: after how many seconds without a heartbeat the server frees a lock; None: ask the server.
    :param recheck_s: how often a waiter polls after its first, shorter pauses, in seconds.
    :param catalog: the catalog of all locks; None: ask the server.
    """

    def __init__(
        self, metastore: Metastore, timeout_s: float | None, recheck_s: float, catalog: str | None = None
    ) -> None:
        self.metastore = metastore
        self._recheck_s = recheck_s
        self._timeout_s = timeout_s
        self._catalog = catalog
        self._offset_s = -math.inf
        self._clock_set = False
        self._escapes: bool | None = None
        self._lock = threading.Lock()

    @property
    def timeout_s(self) -> float:
        """After how many seconds without a heartbeat the server frees a lock."""
        if self._timeout_s is None:
            given = self._settings["metastore.txn.timeout"] or self._settings[TXN_TIMEOUT]
            self._timeout_s = _timeout_s(given) if given else TIMEOUT_S
        return self._timeout_s

    @cached_property
    def _settings(self) -> Mapping[str, str | None]:
        """The server's own settings, from one connection."""
        return self.metastore.settings(("metastore.txn.timeout", TXN_TIMEOUT, CATALOG))

    @property
    def catalog(self) -> str:
        """The catalog of all locks. Hive's sessions lock in the same one. The server keeps its name in lower case."""
        return (self._catalog or self._settings[CATALOG] or DEFAULT_CATALOG).lower()

    @property
    def recheck_s(self) -> float:
        """How often a waiter polls, in seconds: in time for its own request not to expire."""
        return min(self._recheck_s, self.timeout_s / 3)

    @cached_property
    def excl_write(self) -> bool:
        """Whether the server has EXCL_WRITE: Hive 4, and vendors' earlier ones.

        Only a try shows it: before 4.0 all report the version ``3.0``.
        """
        from thrift.Thrift import TApplicationException

        try:
            with self._probe(LockType.EXCL_WRITE):
                return True
        except StoreUnavailable as error:
            cause = error.__cause__
            if not isinstance(cause, TApplicationException) or cause.type != TApplicationException.PROTOCOL_ERROR:
                raise
            return False

    def components(self, request: LockRequest) -> dict[LockObject, LockType]:
        """The lock types that *request* takes on this server.

        Readers take SHARED_WRITE if it keeps EXCL_WRITE away and is compatible with itself. On other servers it would
        keep readers apart, and SHARED_WRITE replaces EXCL_WRITE there.
        """
        reads = LockType.SHARED_WRITE if self.excl_write else LockType.SHARED_READ
        return {
            target: min(kind, LockType.SHARED_WRITE) if kind is not LockType.EXCLUSIVE and not self.excl_write else kind
            for target, kind in rules.components(request, reads).items()
            if target.table or kind is LockType.EXCLUSIVE  # SHARED on a database would hide older locks
        }

    @contextmanager
    def client(self) -> Iterator[LockClient]:
        """One connection for one task."""
        catalog = self.catalog  # before the connection, because it may need another one
        with self.metastore.client() as client:
            yield LockClient(client, catalog, self._escapes_again)

    def rows(self, target: LockObject | None) -> list[Row]:
        """All locks in the database of *target*, or everywhere, held and waited for."""
        with self.client() as client:
            rows = client.rows([target.database if target else None])
        self.note_time(rows)
        return rows

    def now(self) -> datetime:
        """The server's clock. No call returns it, so the first time a lock is made, read and given back."""
        if not self._clock_set:
            with self._probe() as (client, _):
                self.note_time(client.rows([_PROBE.database]), fresh=True)
        return datetime.fromtimestamp(self._offset_s + time.monotonic(), UTC)

    def note_time(self, rows: Iterable[Row], *, fresh: bool = False) -> None:
        """Set the clock by the newest heartbeat. It is no later than now; a *fresh* one is as good as now."""
        read = time.monotonic()
        stamps = [row.heartbeat.timestamp() - read for row in rows if row.heartbeat]
        with self._lock:
            self._offset_s = max(self._offset_s, *stamps, -math.inf)
            self._clock_set = self._clock_set or (fresh and bool(stamps))

    def _escapes_again(self) -> bool:
        """Whether the server escapes the names of partitions again: Hive 4 keeps ``dt=%27`` as ``dt=%2527``.

        Only a try shows it: servers report wrong versions, and vendors carry such changes into earlier ones.
        """
        if self._escapes is None:
            with self._probe() as (client, number):
                self._escapes = "name=%27" not in client.names_of(number, _PROBE.database)
        return self._escapes

    @contextmanager
    def _probe(self, kind: LockType = LockType.SHARED_READ) -> Iterator[tuple[LockClient, int]]:
        """Take a lock that no other client uses, to see how the server stores it; yield its number."""
        with self.client() as client:
            number, _ = client.lock({_PROBE: kind}, Metadata("clock", 0, 1, ""))
            try:
                yield client, number
            finally:
                client.unlock(number)


def _timeout_s(text: str) -> float:
    found = seconds(text)
    if found is None:
        raise InvalidRequest(f"{TXN_TIMEOUT} is {text!r}, which cannot be read. Give its seconds as timeout_s")
    return found
