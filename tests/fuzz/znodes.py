"""Nodes of other programs in ZooKeeper: one node anywhere below Hive's namespace or this package's, among valid locks."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from unittest import mock

from hypothesis import strategies as st

from airflow_hivelock.cli.output import print_result
from airflow_hivelock.locks import HiveLockError, LockManager, LockObject, pending, rules
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create, Exists, Refused, SetData
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.model import LockMode, owner_key
from airflow_hivelock.locks.statements.session import StatementSession
from airflow_hivelock.triggers.keeper import _is_due, _owned
from airflow_hivelock.ui import holders as page_holders
from airflow_hivelock.ui import view
from airflow_hivelock.ui import works as page_works
from tests.fuzz.target import ODD_TEXT, Target, damaged
from tests.fuzz.text import STORABLE
from tests.simulation.model import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.backends.zookeeper.client import Client
    from airflow_hivelock.ui.hiding import View

HELD, WAITING, LATE = "here/dag/run/held/-1", "here/dag/run/waiting/-1", "here/dag/run/late/-1"
"""LATE is the owner whose record may be damaged: what it has is its own risk."""

HIVE = b"hive_20130101_1:1356998400000:IMPLICIT:select 1:10.0.0.1"


class ModelClient:
    """:class:`~.client.Client` over the simulation's ZooKeeper, with a server that never lags."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self.zookeeper = zookeeper
        self.session = zookeeper.connect(0)

    @property
    def connection(self) -> int:
        return 0

    @property
    def zxid(self) -> int:
        return self.zookeeper.zxid

    def submit(self, *requests: Any) -> list[Any]:
        return [self.zookeeper.serve(self.session, request) for request in requests]

    def close(self) -> None:
        """Nothing to give back."""


class Stage:
    """Locks that are well, in a ZooKeeper that others write to.

    :param connect: a session with it.
    """

    def __init__(self, connect: Callable[[], Client], layout: Layout) -> None:
        self.client, self.layout = connect(), layout
        self.manager = LockManager(ZooKeeperBackend(connect(), layout))
        self.lease = self.manager.acquire(owner=HELD, writes=["dw.t/dt=1"])
        self.waiter = self.manager.begin(rules.request(WAITING, writes=["dw.t/dt=1"]), lambda: None)
        self.waiter.poll()
        self.late = self.manager.acquire(owner=LATE, reads=["dw.late"])
        self.write(f"{layout.object(LockObject('dw', 'u'))}/LOCK-SHARED-0000000003", HIVE)
        gone = self.manager.acquire(owner="here/dag/run/gone/-1", writes=["dw.gone"])
        self.manager.force_release(gone.id, reason="fuzz", user="ann")

    def write(self, path: str, data: bytes) -> bool:
        """Make the node, with all above it, or write it; False where ZooKeeper takes no such path."""
        parts = path.split("/")[1:]
        above = ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]
        try:
            missing = [
                node for node, stat in zip(above, self.client.submit(*map(Exists, above)), strict=True) if stat is None
            ]
            written = Commit((*map(Create, missing), SetData(path, data, -1)))
            return not isinstance(self.client.submit(written)[0], Refused)
        except HiveLockError:
            return False

    def creates(self, *paths: str) -> list[Create]:
        return [Create(path, b"odd") for path in paths]

    def look(self) -> None:
        """Every listing shows what is well, as if nothing odd were there."""
        reader = LockManager(ZooKeeperBackend(self.client, self.layout))
        holders = reader.show()
        held = {(str(holder.object), holder.mode, holder.owner) for holder in holders}
        assert ("dw.t/dt=1", LockMode.EXCLUSIVE, HELD) in held, "a lock is hidden"
        assert ("dw.u", LockMode.SHARED, "hive_20130101_1") in held, "a lock of Hive's is hidden"
        assert WAITING in {waiter.owner for waiter in reader.waiters()}, "a waiter is hidden"
        leases = {lease.id: lease for lease in reader.leases()}
        assert self.lease.id in leases, "a lease is hidden"
        assert self.lease.id in {tenure.lease_id for tenure in reader.history()}
        assert ("ann", "fuzz") in {(entry.user, entry.reason) for entry in reader.audit()}
        owned = _owned((after := later(reader)).leases(), "here")
        due = {lease.id for _, lease in owned if _is_due(lease, after.now())}
        assert self.lease.id in due, "a lease would not be renewed"
        for shown in views(reader):
            if "leases" in shown.data:
                page_holders.judge(shown.data, 2**47, lambda owners: {}, {})
            json.dumps(shown.data, ensure_ascii=False).encode()
            shown.without(shown.dag_ids)
        for lease in leases.values():
            [page_works.what(work.application) for work in lease.works]
        session = StatementSession(reader, user="ann")
        for result in session.run("show locks; show locks dw.u extended; show lease *; show waiters"):
            for output in ("hive", "table", "json"):
                quietly(result, output)
        reader.renew(self.lease)
        reader.verify(self.lease)
        reader.sweep()

    def touch(self, owner: str) -> None:
        """Whoever meets what is odd is refused, at worst."""
        reader = LockManager(ZooKeeperBackend(self.client, self.layout))
        lease_id = f"{owner_key(owner)}-1"
        for call in (
            lambda: reader.acquire(owner=owner, reads=["dw.late"], timeout_s=0),
            lambda: reader.acquire(owner="here/dag/run/new/-1", writes=["dw.late"], timeout_s=0),
            lambda: reader.release(self.late),
            lambda: reader.find(lease_id),
            lambda: reader.lease_of(owner),
            lambda: reader.check_token(self.late.id, "work", 1),
            lambda: reader.start_work(self.late, "work", "{}"),
        ):
            with suppress(HiveLockError), mock.patch.object(pending, "PASSING_S", 0.0):
                call()


def views(manager: LockManager) -> tuple[View, ...]:
    """All that the page shows."""
    shown_locks = view.ShownLocks(0, manager.show())
    current = view.current(*manager.requests(), shown_locks, "here")
    return current, view.history(manager.history(), "here"), view.audit(manager.audit(), "here")


def later(manager: LockManager) -> Any:
    """*manager* as it will be when leases have to be renewed."""
    later = mock.Mock(wraps=manager)
    later.now.return_value = manager.now() + timedelta(hours=2)
    return later


def quietly(result: Any, output: str) -> None:
    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")):
        print_result(result, output)


def parted(data: bytes) -> tuple[str, bytes]:
    """The path, below the root of all, and what the node says: the first line and the rest."""
    path, _, said = data.partition(b"\n")
    return "/" + path.decode("utf-8", "replace").strip("/"), said


class _InMemory:
    """The stage, as it was made: each input finds it so."""

    def __init__(self) -> None:
        self.zookeeper = ZooKeeper(1, lambda: 1_700_000_000_000, lambda write: None)
        self.stage = Stage(lambda: ModelClient(self.zookeeper), Layout())
        self.tree = dict(self.zookeeper.tree)
        self.log = len(self.zookeeper.log)

    def rewind(self) -> None:
        self.zookeeper.tree.clear()
        self.zookeeper.tree.update(self.tree)
        del self.zookeeper.log[self.log :]
        follower = self.zookeeper.followers[0]
        follower.applied = self.log - 1
        follower.data_watches.clear()
        follower.child_watches.clear()


_memory: list[_InMemory] = []


def znode(data: bytes) -> None:
    """One odd node hides no other node, and a request that meets it is refused."""
    if not _memory:
        _memory.append(_InMemory())
    _memory[0].rewind()
    if place(_memory[0].stage, data):
        _memory[0].stage.look()
        _memory[0].stage.touch(LATE)


def place(stage: Stage, data: bytes) -> bool:
    """Write the node, wherever the stage is; False for one that ZooKeeper would not take, or that is well."""
    path, said = parted(data)
    standard = Layout()
    for usual, here in ((standard.namespace, stage.layout.namespace), (standard.root, stage.layout.root)):
        if path == usual or path.startswith(f"{usual}/"):
            path = here + path.removeprefix(usual)
            break
    return STORABLE.fullmatch(path) is not None and not is_stage(stage, path) and stage.write(path, said)


def is_stage(stage: Stage, path: str) -> bool:
    """Whether the node is one of those that are well: to write there is to break that very lock."""
    parts = path.split("/")
    ours = owner_key(HELD), owner_key(WAITING)
    if path in ("/", "") or any(part.startswith(ours) for part in parts):
        return True
    return path.startswith(
        (
            stage.layout.object(LockObject("dw", "t")) + "/dt=1/LOCK",
            stage.layout.object(LockObject("dw", "u")) + "/LOCK-SHARED-0000000003",
        )
    ) or path.startswith(f"{stage.layout.audit}/00000")


_LATE_KEY = owner_key(LATE)
_RECORD: dict[str, Any] = {
    "format": 3,
    "owner": LATE,
    "state": "granted",
    "process": "p",
    "epoch": 9,
    "attempt": 1,
    "begin": 3,
    "ticket_epoch": 9,
    "wait": True,
    "locks": {"dw": "S", "dw.late": "S"},
    "lease_s": 3600.0,
    "query": "dag",
    "named": "",
    "written": 20,
    "placeholders": [["dw.late", 20]],
    "token": 20,
    "works": [["work", '{"kind":"spark","conn_id":"c","job_id":"application_1_1","deploy_mode":null}', 20]],
    "asked_ms": 1_700_000_000_000,
    "since_ms": 1_700_000_000_000,
    "invitation_s": 20.0,
    "old_turn": 3,
    "old_since_ms": 1_700_000_000_000,
}
_TICKET: dict[str, Any] = {
    "owner": LATE,
    "locks": {"dw": "S", "dw.t": "S", "dw.t/dt=1": "X"},
    "place": 3,
    "since_ms": 1,
}
_ENTRY: dict[str, Any] = {"lease": "l", "owner": LATE, "locks": {"dw.t": "X"}, "reason": "why", "user": "who"}
_SEGMENTS = st.sampled_from(
    [
        *(
            "dw",
            "t",
            "u",
            "T",
            "DW",
            "dt=1",
            "dt=2",
            "dt",
            "=",
            "x=%2f",
            "x=%2F",
            "p=x-SHARED-1",
            "x-EXCLUSIVE-2",
            "é",
            " ",
        ),
        *(
            "LOCK-SHARED-0000000001",
            "LOCK-EXCLUSIVE-00000000001",
            "LOCK-SEMI_SHARED-0000000009",
            "LOCK-SHARED-",
            "LOCK-",
        ),
        f"LOCK-SHARED-{'9' * 5_000}",
        *("hive_zookeeper_namespace", "airflow_hivelock", "..a", "%", "%00", "a%zz=b", "__HIVE_DEFAULT_PARTITION__"),
    ]
)
_HIVE_PATHS = st.lists(_SEGMENTS | ODD_TEXT.filter(lambda text: "/" not in text), min_size=1, max_size=5).map(
    lambda parts: "/hive_zookeeper_namespace/" + "/".join(parts)
)
_LOCK_DATA = st.one_of(
    st.binary(max_size=50),
    st.lists(
        st.sampled_from(["hive_1", "1", "EXPLICIT", "", "x" * 2_000, "9" * 30, "\t", "\n"]) | ODD_TEXT, max_size=8
    ).map(lambda fields: ":".join(fields).encode("utf-8", "replace")),
)


def _at(path: str, said: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return said.map(lambda data: path.encode() + b"\n" + data)


_KEYS = ("0123456789abcdef", _LATE_KEY, "x", "é", "f" * 16)
INPUTS = st.one_of(
    st.builds(
        lambda path, data: path.encode("utf-8", "replace").replace(b"\n", b"") + b"\n" + data, _HIVE_PATHS, _LOCK_DATA
    ),
    _at(f"airflow_hivelock/requests/{_LATE_KEY}", damaged(_RECORD)),
    _at("airflow_hivelock/requests/0123456789abcdef", damaged(_RECORD)),
    *(
        _at(f"airflow_hivelock/queue/{unit}/{key}-9-1-{scope}", damaged(_TICKET))
        for unit in ("dw.t", "dw.late", "é")
        for key in _KEYS[:2]
        for scope in ("A", "X", "S00000000", "0000000007")
    ),
    _at("airflow_hivelock/audit/0000000123", damaged(_ENTRY)),
    _at("airflow_hivelock/audit/x", damaged(_ENTRY)),
    st.builds(
        lambda kind, key, data: f"airflow_hivelock/{kind}/{key}".encode() + b"\n" + data,
        st.sampled_from(
            [
                "requests",
                "alive",
                "away",
                "queue",
                "audit",
                "groups",
                "groups/g/permits",
                "groups/g/queue",
                "else",
            ]
        ),
        st.sampled_from(_KEYS),
        st.binary(max_size=30),
    ),
)

TARGETS = (Target("znode", znode, INPUTS),)
