"""A client of Hive's metastore that is not ours, and what its release can do: for the tests of locks there."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hmsclient import HMSClient
from hmsclient.genthrift.hive_metastore import ttypes as hive
from hmsclient.genthrift.hive_metastore.ttypes import LockState, LockType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks import LockManager

    Connect = Callable[[], LockManager]


pytestmark = pytest.mark.integration


TIMEOUT_S = 15
"""The server's: longer than any test holds a lock without renewing it, but for the one that waits for it."""


HIVE = os.environ.get("HIVE") or "2.3.10"
"""The release of the server; another than in PySpark's jars with ``make test-hives``."""


passes_waiting_writers = pytest.mark.skipif(HIVE >= "3", reason=f"Hive {HIVE} is without HIVE-15077")


frees_what_is_not_renewed = pytest.mark.skipif(
    HIVE.startswith("3"),
    reason=f"Hive {HIVE} frees it by a thread that starts with the compactor, which is not in these jars",
)


hides_older_locks = pytest.mark.skipif(HIVE >= "4", reason=f"Hive {HIVE} is without HIVE-22888")


has_excl_write = pytest.mark.skipif(HIVE < "4", reason=f"Hive {HIVE} has no EXCL_WRITE")


S, W, X, EXCL_WRITE = LockType.SHARED_READ, LockType.SHARED_WRITE, LockType.EXCLUSIVE, 4


TABLE, DAY = "dw.flights", "dw.flights/dt=2013-01-01"


class Hive:
    """A client that believes what the metastore says, as Hive's own DbTxnManager does."""

    def __init__(self, port: int) -> None:
        self._port = port

    def lock(self, *components: tuple[int, str], transaction: int | None = None, agent: str = "hive_query_1") -> int:
        """Ask for type and name, pairs of them in one request; its number."""
        request = hive.LockRequest(
            [_component(*component) for component in components], transaction, "ann", "gateway", agent
        )
        with self._client() as client:
            return int(client.lock(request).lockid)

    def granted(self, number: int) -> bool:
        with self._client() as client:
            return bool(client.check_lock(hive.CheckLockRequest(number)).state == LockState.ACQUIRED)

    def unlock(self, number: int) -> None:
        with self._client() as client:
            client.unlock(hive.UnlockRequest(number))

    @contextmanager
    def transaction(self) -> Iterator[int]:
        with self._client() as client:
            (number,) = client.open_txns(hive.OpenTxnRequest(1, "ann", "gateway")).txn_ids
        yield number
        with self._client() as client:
            client.abort_txns(hive.AbortTxnsRequest([number]))

    def create_table(self, name: str, *columns: str, **parameters: str) -> None:
        database, table = name.split(".")
        storage = hive.StorageDescriptor(cols=[hive.FieldSchema("a", "int")], serdeInfo=hive.SerDeInfo(parameters={}))
        keys = [hive.FieldSchema(column, "string") for column in columns]
        with self._client() as client:
            client.create_database(hive.Database(database))
            client.create_table(
                hive.Table(
                    tableName=table,
                    dbName=database,
                    sd=storage,
                    partitionKeys=keys,
                    parameters={"EXTERNAL": "FALSE", **parameters},
                )
            )

    def _client(self) -> Any:
        return HMSClient(host="127.0.0.1", port=self._port)


def _component(kind: int, name: str) -> hive.LockComponent:
    head, _, partition = name.partition("/")
    database, _, table = head.partition(".")
    level = hive.LockLevel.PARTITION if partition else hive.LockLevel.TABLE if table else hive.LockLevel.DB
    return hive.LockComponent(kind, level, database, table or None, partition or None)
