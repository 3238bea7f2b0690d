"""What Hive's servers answer: a metastore's show_locks, HiveServer2's SHOW LOCKS."""

from __future__ import annotations

import itertools
import json
from contextlib import contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from airflow_hivelock.locks import HiveLockError, LockManager
from airflow_hivelock.locks.backends.hiveserver2 import HiveServer2Backend
from airflow_hivelock.locks.backends.metastore import MetastoreBackend
from airflow_hivelock.locks.backends.metastore.row import Metadata
from airflow_hivelock.locks.hive.thrift import Metastore
from airflow_hivelock.locks.statements.session import StatementSession
from airflow_hivelock.ui import view
from tests.fuzz.target import ODD, ODD_TEXT, Target, loaded
from tests.fuzz.znodes import quietly, views

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELDS = (
    *("lockid", "dbname", "tablename", "partname", "state", "type", "txnid", "lastheartbeat", "acquiredat", "user"),
    *("hostname", "heartbeatCount", "agentInfo", "blockedByExtId", "blockedByIntId", "lockIdInternal"),
)
NOW_MS = 1_700_000_000_000
_TEXT = ("dbname", "tablename", "partname", "user", "hostname", "agentInfo")


def _element(**given: Any) -> SimpleNamespace:
    blank = dict.fromkeys(FIELDS)
    return SimpleNamespace(
        **{**blank, "dbname": "dw", "state": 1, "type": 3, "lastheartbeat": NOW_MS, "acquiredat": NOW_MS, **given}
    )


_OURS = _element(lockid=17, tablename="t", **Metadata("here/dag/run/held/-1", 1, 3600.0, "n").columns)
_THEIRS = _element(lockid=18, tablename="u", type=1, user="hive", agentInfo="hive_20130101_1")
_BEHIND = _element(lockid=19, tablename="t", state=2, user="hive", agentInfo="hive_20130101_2")


class _Thrift:
    """A client that answers with the same three valid locks, and one more."""

    def __init__(self) -> None:
        self.odd: list[SimpleNamespace] = []

    def show_locks(self, request: Any) -> SimpleNamespace:
        for name in ("dbname", "tablename", "partname"):
            value = getattr(request, name)
            assert value is None or "'" not in value, "metastores before 4.0 paste it into their SQL"
        return SimpleNamespace(locks=[_OURS, *self.odd, _THEIRS, _BEHIND])

    def get_config_value(self, name: str, default: str) -> str:
        return default

    def lock(self, request: Any) -> SimpleNamespace:
        for text in (request.user, request.hostname, request.agentInfo, *(c.partitionname for c in request.component)):
            assert text is None or not set("'\\") & set(text), "metastores before 4.0 paste it into their SQL"
        return SimpleNamespace(lockid=20, state=1)

    def _accept(self, request: Any) -> None:
        assert -(2**63) <= request.lockid < 2**63, "Thrift cannot send it"

    heartbeat = unlock = _accept


_thrift = _Thrift()


class MetastoreStub(Metastore):
    @contextmanager
    def client(self) -> Iterator[Any]:
        yield _thrift


def metastore(data: bytes) -> None:
    """One odd answer hides no lock."""
    given = loaded(data)
    if not isinstance(given, dict):
        return
    # What Thrift's own types let through; a field that is missing is None.
    fits = {name: value for name, value in given.items() if name in FIELDS and _thrift_has(name, value)}
    _thrift.odd = [_element(**{"lockid": None, "dbname": None, "state": None, "type": None, **fits})]
    if fits.get("lockid") in (17, 18, 19):
        return
    clock = partial(next, itertools.count(step=60.0))  # what may pass by itself is not waited for
    manager = LockManager(MetastoreBackend(MetastoreStub((("127.0.0.1", 1),)), timeout_s=300), clock)
    holders = manager.show()
    assert {"here/dag/run/held/-1", "hive_20130101_1"} <= {holder.owner for holder in holders}, "a lock is hidden"
    assert "hive_20130101_2" in {waiter.owner for waiter in manager.waiters()}, "a waiter is hidden"
    leases = {lease.id: lease for lease in manager.leases()}
    assert "metastore-17" in leases
    assert manager.history()
    for shown in views(manager):
        json.dumps(shown.data, ensure_ascii=False).encode()
    for result in StatementSession(manager, user="ann").run("show locks; show locks extended; show lease *"):
        for output in ("hive", "table", "json"):
            quietly(result, output)
    for call in (
        lambda: manager.renew(leases["metastore-17"]),
        lambda: manager.acquire(owner=str(given.get("user")), writes=["dw.t"], query=str(given.get("agentInfo"))),
        lambda: manager.release(leases["metastore-17"]),
    ):
        with suppress(HiveLockError):
            call()


def _thrift_has(name: str, value: Any) -> bool:
    if name in _TEXT:
        return (isinstance(value, str) and value.isascii()) or value is None
    return value is None or (isinstance(value, int) and -(2**63) <= value < 2**63)


class _HiveServer2(HiveServer2Backend):
    """Gives the answers that the test sets."""

    rows: list[tuple[Any, ...]] = []  # noqa: RUF012

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        return self.rows

    def __init__(self) -> None:
        self.address = SimpleNamespace()  # type: ignore[assignment]
        self.recheck_s = 30.0


_WELL: dict[int, list[tuple[Any, ...]]] = {
    2: [("dw@u", "SHARED"), ("LOCK_QUERYID:hive_20130101_1", " "), ("LOCK_TIME:1356998400000", " ")],
    13: [
        (
            "17",
            "dw",
            "u",
            "NULL",
            "ACQUIRED",
            " ",
            "EXCLUSIVE",
            "0",
            "1",
            str(NOW_MS),
            "hive",
            "host",
            "hive_20130101_1",
        ),
    ],
}


def hiveserver2(data: bytes) -> None:
    """One odd row hides no lock."""
    given = loaded(data)
    rows = [tuple(row) for row in given if isinstance(row, list)] if isinstance(given, list) else []
    columns = next((13 if len(row) > 2 else 2 for row in rows if len(row) > 1), 2)  # one manager's alone
    backend = _HiveServer2()
    backend.rows = [*rows, *_WELL[columns]]
    manager = LockManager(backend)
    assert "hive_20130101_1" in {holder.owner for holder in manager.show()}, "a lock is hidden"
    manager.waiters()
    shown_locks = view.ShownLocks(0, manager.show())
    json.dumps(view.current([], manager.waiters(), shown_locks, "here").data)


_AGENT = st.sampled_from(
    [
        "hivelock/1 a=1 s=1.2.3 n= r= x",
        f"hivelock/1 a={'9' * 5000} s=1 n= r= x",
        "hivelock/1 a=1 s=1e+999 n= r= x",
        "hivelock/1 a=1 s=3 n= r= '",
    ]
)
_ELEMENTS = st.dictionaries(
    st.sampled_from(FIELDS),
    ODD_TEXT.filter(str.isascii)
    | st.integers(-(2**63), 2**63 - 1)
    | st.none()
    | _AGENT
    | st.sampled_from([1, 2, 3, 4, "dw", "p=1", "T"]),
    max_size=8,
)
_CELLS = (
    ODD_TEXT
    | st.none()
    | st.sampled_from(
        [
            "dw@t",
            "EXCLUSIVE",
            "SHARED",
            "LOCK_TIME:²",
            f"LOCK_TIME:{'9' * 30}",
            "LOCK_QUERYID:x",
            "17",
            "17.1",
            "1x",
            "²",
            "dw",
            "NULL",
        ]
    )
)
_ROWS = st.lists(st.lists(_CELLS, max_size=3) | st.lists(_CELLS, min_size=12, max_size=14), max_size=4)
TARGETS = (
    Target(
        "metastore",
        metastore,
        (_ELEMENTS | st.dictionaries(st.sampled_from(FIELDS), ODD, max_size=3)).map(
            lambda value: json.dumps(value).encode()
        ),
    ),
    Target("hiveserver2", hiveserver2, _ROWS.map(lambda value: json.dumps(value).encode())),
)
