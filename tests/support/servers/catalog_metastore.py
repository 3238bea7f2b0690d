"""A stand-in for a metastore of Hive 4.3, which no repository has: the locks of catalogs are apart (HIVE-29244).

Its rules are those of Hive's ``CheckLockFunction``, ``InsertHiveLocksCommand`` and ``ShowLocksHandler``. A client that
names no catalog gets the default of the Thrift structs, ``hive``.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from hmsclient.genthrift.hive_metastore import ttypes as hive
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from airflow_hivelock.locks.hive.thrift import in_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPONENT, REQUEST, ELEMENT = 9, 6, 17
"""The ids of the catalog's field in ``LockComponent``, ``ShowLocksRequest`` and ``ShowLocksResponseElement``."""


@dataclass
class Row:
    """A row of HIVE_LOCKS."""

    number: int
    catalog: str
    asked: hive.LockComponent
    request: hive.LockRequest
    acquired: bool = False
    at_ms: int = field(default_factory=lambda: int(time.time() * 1000))

    def blocks(self, other: Row) -> bool:
        """Whether *other*, which came later, has to wait for it."""
        mine, its = self.asked, other.asked
        names = [(mine.dbname, its.dbname), (mine.tablename, its.tablename), (mine.partitionname, its.partitionname)]
        same = all(None in pair or pair[0] == pair[1] for pair in names)
        kinds = {mine.type, its.type}
        apart = hive.LockType.EXCLUSIVE in kinds or kinds == {hive.LockType.SHARED_WRITE}
        return self.number < other.number and self.catalog == other.catalog and same and apart


class _Protocol(TBinaryProtocol):  # type: ignore[misc]
    """Keeps the catalogs, which the structs of ``hmsclient`` skip."""

    def __init__(self, transport: Any) -> None:
        super().__init__(transport)
        self.catalogs: list[str] = []
        self._field = 0

    def readFieldBegin(self) -> Any:
        name, kind, self._field = super().readFieldBegin()
        return name, kind, self._field

    def skip(self, ttype: int) -> None:
        if ttype == TType.STRING and self._field in (COMPONENT, REQUEST):
            self.catalogs.append(self.readString())
        else:
            super().skip(ttype)


class CatalogMetastore:
    """The server's locks.

    :param catalogs: whether it knows catalogs; False: a metastore of Hive 4.2, which skips those fields.
    :param settings: its own settings.
    :ivar named: the catalogs that clients have named.
    """

    def __init__(self, *, catalogs: bool = True, settings: dict[str, str] | None = None) -> None:
        self.port = 0
        self.rows: list[Row] = []
        self.named: list[str] = []
        self._knows, self._settings = catalogs, settings or {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._local = threading.local()

    def getVersion(self) -> str:
        return "4.3.0" if self._knows else "4.2.0"

    def get_config_value(self, name: str, default: str) -> str:
        return self._settings.get(name, default)

    def lock(self, request: hive.LockRequest) -> hive.LockResponse:
        number = next(self._numbers)
        catalogs = self._catalogs() or ["hive"] * len(request.component)
        self.rows += [
            Row(number, each.lower(), asked, request) for each, asked in zip(catalogs, request.component, strict=True)
        ]
        return self._answer(number)

    def check_lock(self, request: hive.CheckLockRequest) -> hive.LockResponse:
        return self._answer(request.lockid)

    def heartbeat(self, request: hive.HeartbeatRequest) -> None:
        self._of(request.lockid)

    def unlock(self, request: hive.UnlockRequest) -> None:
        gone = self._of(request.lockid)
        self.rows = [row for row in self.rows if row not in gone]

    def show_locks(self, request: hive.ShowLocksRequest) -> hive.ShowLocksResponse:
        catalogs = self._catalogs() or ["hive"]
        shown = [
            _element(row, self._knows)
            for row in self.rows
            if row.catalog in catalogs and request.dbname in (None, row.asked.dbname)
        ]
        return hive.ShowLocksResponse(shown)

    def _catalogs(self) -> list[str]:
        named: list[str] = self._local.protocol.catalogs
        found, named[:] = list(named), []
        self.named += found
        return found if self._knows else []

    def _of(self, number: int) -> list[Row]:
        found = [row for row in self.rows if row.number == number]
        if not found:
            raise hive.NoSuchLockException(f"no lock {number}")
        return found

    def _answer(self, number: int) -> hive.LockResponse:
        mine = self._of(number)
        if not any(row.blocks(one) for row in self.rows for one in mine):
            for one in mine:
                one.acquired = True
        return hive.LockResponse(number, hive.LockState.ACQUIRED if mine[0].acquired else hive.LockState.WAITING)

    def serve(self, connection: socket.socket) -> None:
        """Answer one client until it hangs up."""
        handle = TSocket()
        handle.setHandle(connection)
        self._local.protocol = protocol = _Protocol(TBufferedTransport(handle))
        processor = _Processor(self, self._lock)
        with connection, suppress(TTransportException, OSError, EOFError):
            while True:
                processor.process(protocol, protocol)


class _Processor(ThriftHiveMetastore.Processor):  # type: ignore[misc]
    def __init__(self, handler: CatalogMetastore, lock: threading.Lock) -> None:
        super().__init__(handler)
        for name, call in self._processMap.items():
            self._processMap[name] = lambda *args, call=call: _alone(lock, call, args)


def _alone(lock: threading.Lock, call: Any, args: Any) -> None:
    with lock:
        call(*args)


def _element(row: Row, catalogs: bool) -> hive.ShowLocksResponseElement:
    asked, request = row.asked, row.request
    element = hive.ShowLocksResponseElement(
        lockid=row.number,
        dbname=asked.dbname,
        tablename=asked.tablename,
        partname=asked.partitionname,
        state=hive.LockState.ACQUIRED if row.acquired else hive.LockState.WAITING,
        type=asked.type,
        lastheartbeat=int(time.time() * 1000),
        acquiredat=row.at_ms if row.acquired else None,
        user=request.user,
        hostname=request.hostname,
        agentInfo=request.agentInfo,
    )
    return in_catalog(element, ELEMENT, row.catalog) if catalogs else element


@contextmanager
def catalog_metastore(*, catalogs: bool = True, settings: dict[str, str] | None = None) -> Iterator[CatalogMetastore]:
    """A running one. Its clients' connections end with it."""
    metastore = CatalogMetastore(catalogs=catalogs, settings=settings)
    with socket.create_server(("127.0.0.1", 0)) as server:
        metastore.port = server.getsockname()[1]

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=metastore.serve, args=(connection,), daemon=True).start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield metastore
        server.shutdown(socket.SHUT_RDWR)
        accepting.join(10)
