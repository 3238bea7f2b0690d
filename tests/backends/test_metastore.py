"""The locks of a real metastore, Hive 2.3's or another's: what we hold in it, what Hive holds, and what it grants by mistake."""

from __future__ import annotations

import itertools
import logging
import os
import random
import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hmsclient import HMSClient
from hmsclient.genthrift.hive_metastore import ttypes as hive
from hmsclient.genthrift.hive_metastore.ttypes import LockState, LockType

from airflow_hivelock.locks import (
    Blocked,
    HiveLockError,
    InvalidRequest,
    Lease,
    LeaseMismatch,
    LockLost,
    LockManager,
    LockMode,
    LockRequest,
    LockTimeout,
    StoreUnavailable,
    Unsupported,
    connect,
    rules,
)
from airflow_hivelock.locks.backends.metastore import MetastoreBackend
from airflow_hivelock.locks.backends.metastore.acquisition import MetastoreAcquisition
from airflow_hivelock.locks.backends.metastore.row import NUMBERS
from airflow_hivelock.locks.backends.metastore.store import LockClient
from airflow_hivelock.locks.hive.catalog import connect_catalog
from airflow_hivelock.locks.hive.coverage import check
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.model import LockType as Type
from airflow_hivelock.locks.statements.session import StatementSession
from tests.conformance import BackendConformance, Polling
from tests.support.servers import Metastore, lock_metastore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    with lock_metastore(tmp_path_factory.mktemp("locks"), txn_timeout_s=TIMEOUT_S) as metastore:
        yield metastore


@pytest.fixture
def connect_metastore(server: Metastore) -> Connect:
    """New managers over the shared metastore, empty of locks."""
    backend = MetastoreBackend.connect(f"127.0.0.1:{server.port}", recheck_s="0.5")
    with backend.store.client() as client:
        for number in {row.id for row in client.rows()}:
            client.unlock(number)
    return lambda: LockManager(backend)


@pytest.fixture
def manager(connect_metastore: Connect) -> LockManager:
    return connect_metastore()


@pytest.fixture
def raw(server: Metastore) -> Hive:
    return Hive(server.port)


class TestMetastore(BackendConformance, capabilities=MetastoreBackend.capabilities):
    @pytest.fixture
    def connect(self, connect_metastore: Connect) -> Connect:
        return connect_metastore

    @frees_what_is_not_renewed
    def test_a_lease_that_is_not_renewed_blocks_nobody_for_long(self, manager: LockManager, other: LockManager) -> None:
        super().test_a_lease_that_is_not_renewed_blocks_nobody_for_long(manager, other)


@passes_waiting_writers
def test_a_waiting_writer_is_not_let_in_beside_a_reader_who_came_later(manager: LockManager, raw: Hive) -> None:
    """HIVE-15077: the reader passes the waiting writer, who is then granted without a look at it."""
    first = raw.lock((S, TABLE))
    ours = Polling(manager, "writer", writes=[TABLE])
    ours.blocked()
    late = raw.lock((S, TABLE))
    assert raw.granted(late), "the server is without the fault: this test shows nothing"
    raw.unlock(first)
    assert [str(by) for by in ours.blocked().by] == [f"hive_query_1 holds {TABLE} SHARED"]
    assert {holder.owner for holder in manager.show(TABLE)} == {"hive_query_1"}
    raw.unlock(late)
    assert ours.granted()


@passes_waiting_writers
def test_that_writer_is_let_in_if_it_believes_the_metastore(manager: LockManager, raw: Hive) -> None:
    first, writer, late = raw.lock((S, TABLE)), raw.lock((X, TABLE)), raw.lock((S, TABLE))
    raw.unlock(first)
    assert raw.granted(writer)
    assert raw.granted(late)
    assert {holder.mode for holder in manager.show(TABLE)} == {LockMode.SHARED, LockMode.EXCLUSIVE}


@pytest.mark.skipif(HIVE < "3", reason=f"Hive {HIVE} has HIVE-15077")
def test_a_waiting_writer_is_passed_by_nobody(manager: LockManager, raw: Hive) -> None:
    first = raw.lock((S, TABLE))
    ours = Polling(manager, "writer", writes=[TABLE])
    ours.blocked()
    late = raw.lock((S, TABLE))
    assert not raw.granted(late), "the server has the fault: the guards against it are needed for it"
    raw.unlock(first)
    assert ours.granted()
    assert not raw.granted(late)


@pytest.mark.skipif(HIVE < "4", reason=f"Hive {HIVE} has HIVE-22888")
@pytest.mark.parametrize(("held", "wanted"), [([(S, TABLE)], TABLE), ([(S, DAY)], DAY), ([(S, DAY), (S, "dw")], DAY)])
def test_shared_on_the_database_hides_nobody_from_hive_either(
    raw: Hive, manager: LockManager, held: list[tuple[int, str]], wanted: str
) -> None:
    raw.lock(*held, agent="report")
    raw.lock((S, "dw"), agent="create table")
    assert not raw.granted(raw.lock((X, wanted))), "the server has the fault: the guards against it are needed for it"


@hides_older_locks
@pytest.mark.parametrize(("held", "wanted"), [([(S, TABLE)], TABLE), ([(S, DAY)], DAY), ([(S, DAY), (S, "dw")], DAY)])
def test_shared_on_the_database_hides_no_reader_below_it(
    manager: LockManager, raw: Hive, held: list[tuple[int, str]], wanted: str
) -> None:
    """HIVE-22888: the check of locks stops at the first pair that may be ignored."""
    reader, creator = raw.lock(*held, agent="report"), raw.lock((S, "dw"), agent="create table")
    naive = raw.lock((X, wanted))
    assert raw.granted(naive), "the server is without the fault: this test shows nothing"
    raw.unlock(naive)
    with pytest.raises(LockTimeout, match=rf"report holds {wanted} SHARED"):
        manager.acquire(owner="writer", writes=[wanted])
    assert {holder.owner for holder in manager.show()} == {"report", "create table"}
    waiting = Polling(manager, "waiting writer", writes=[wanted])
    for _ in range(3):
        waiting.blocked()
        assert [waiter.owner for waiter in manager.waiters()] == ["waiting writer"], "it has lost its place"
    waiting.pending.withdraw()
    assert manager.waiters() == []
    raw.unlock(reader)
    assert manager.acquire(owner="writer", writes=[wanted]), "SHARED on a database keeps nobody from its tables"
    raw.unlock(creator)


@hides_older_locks
@pytest.mark.parametrize("call", [LockManager.renew, LockManager.verify])
def test_a_reader_learns_that_a_writer_was_let_in_beside_it(
    manager: LockManager, raw: Hive, call: Callable[[LockManager, Lease], None]
) -> None:
    lease = manager.acquire(owner="reader", reads=[DAY])
    raw.lock((S, "dw"))
    call(manager, lease)
    intruder = raw.lock((X, DAY), agent="insert overwrite")
    assert raw.granted(intruder)
    with pytest.raises(
        LockLost,
        match=rf"reader: .*insert overwrite holds {DAY} EXCLUSIVE, although that conflicts with lease {lease.id}",
    ):
        call(manager, lease)


def test_readers_and_writers_of_ours_stay_apart_where_the_metastore_lets_both_in(
    connect_metastore: Connect, raw: Hive
) -> None:
    """All clients meet the second fault at once: no two conflict, and every client gets its turn."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    inside: dict[str, bool] = {}
    broken: list[str] = []

    def work(name: str, writes: bool) -> None:
        dice = random.Random(f"{seed} {name}")
        for turn in range(4):
            owner = f"{name} {turn}"
            named: dict[str, Any] = {"writes" if writes else "reads": [dice.choice((TABLE, DAY))]}
            with connect_metastore() as session:
                lease = session.acquire(owner=owner, timeout_s=120, **named)
                inside[owner] = writes
                now = dict(inside)
                if len(now) > 1 and any(now.values()):
                    broken.append(f"{owner} beside {now}")
                session.verify(lease)
                del inside[owner]
                session.release(lease)

    kept = raw.lock((S, "dw"))
    threads = [threading.Thread(target=work, args=(f"{what}{i}", what == "w")) for what in "rw" for i in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        raw.granted(kept)  # a heartbeat, too
        threads[0].join(0.2)
        threads = [thread for thread in threads if thread.is_alive()]
    assert not broken, f"seed {seed}"
    assert not inside, "somebody did not get through"


@frees_what_is_not_renewed
def test_a_dead_waiter_blocks_the_queue_only_until_the_server_gives_it_up(manager: LockManager, raw: Hive) -> None:
    lease = manager.acquire(owner="holder", reads=[DAY])
    assert not raw.granted(raw.lock((X, DAY), agent="dead"))
    behind = Polling(manager, "behind", reads=[DAY])
    while isinstance(outcome := behind.pending.poll(), Blocked):
        assert [by.owner for by in outcome.by] == ["dead"]
        manager.renew(lease)
        threading.Event().wait(outcome.recheck_s)
    assert manager.waiters() == []


def test_the_commit_of_iceberg_waits_under_a_lease_on_its_own_table(manager: LockManager, raw: Hive) -> None:
    """Hudi's metastore provider and Trino take the same lock. The guide has the settings against that."""
    lease = manager.acquire(owner="the job that commits", reads=[TABLE])
    commit = raw.lock((X, TABLE), agent="Iceberg-1f2e")
    assert not raw.granted(commit)
    assert [(waiter.owner, str(waiter.blocked_by[0])) for waiter in manager.waiters(TABLE)] == [
        ("Iceberg-1f2e", f"the job that commits holds {TABLE} SHARED")
    ]
    manager.release(lease)
    assert raw.granted(commit)


@pytest.mark.parametrize(("one", "other"), [(TABLE, TABLE), (TABLE, DAY), (DAY, TABLE)])
def test_types_exclude_one_another_as_the_rules_say(
    connect_metastore: Connect, raw: Hive, one: str, other: str
) -> None:
    connect_metastore()
    types = [kind for kind in Type if kind is not Type.EXCL_WRITE or HIVE >= "4"]
    for held, wanted in itertools.product(types, types):
        first, second = (raw.lock((NUMBERS[kind], name)) for kind, name in ((held, one), (wanted, other)))
        excluded = rules.types_conflict(held, wanted, excl_write=HIVE >= "4")
        assert raw.granted(second) is not excluded, f"{held.name} on {one}, {wanted.name} on {other}"
        raw.unlock(second)
        raw.unlock(first)


@has_excl_write
def test_an_update_of_hives_does_not_pass_beside_a_reader(manager: LockManager, raw: Hive) -> None:
    lease = manager.acquire(owner="reader", reads=[DAY])
    assert manager.acquire(owner="another reader", reads=[DAY]), "readers keep one another away"
    update = raw.lock((EXCL_WRITE, TABLE), agent="update")
    assert not raw.granted(update)
    manager.release(lease)
    manager.force_release_all(DAY, reason="the test is over", user="pytest")
    assert raw.granted(update)
    with pytest.raises(LockTimeout, match=f"update holds {TABLE} EXCLUSIVE"):
        manager.acquire(owner="late reader", reads=[DAY])


def test_readers_pass_hives_own_reads_and_inserts_and_each_other(manager: LockManager, raw: Hive) -> None:
    assert raw.granted(raw.lock((S, TABLE), agent="insert into an ACID table"))
    for owner in ("reader", "another"):
        lease = manager.acquire(owner=owner, reads=[DAY])
        assert manager.acquire(owner=owner, reads=[DAY]) == lease
    assert raw.granted(raw.lock((S, DAY)))
    (row,) = [row for row in manager.backend.transactional(None) if row.lock_id == lease.token]  # type: ignore[attr-defined]
    assert row.type == ("SHARED_WRITE" if HIVE >= "4" else "SHARED_READ")


def polled(manager: LockManager, request: LockRequest) -> Lease:
    lease = manager.begin(request, lambda: None, 10.0).poll()
    assert isinstance(lease, Lease)
    return lease


@pytest.mark.parametrize("kind", [Type.SHARED_WRITE, Type.EXCL_WRITE])
def test_a_lease_of_a_type_of_hives_can_be_taken_over_as_it_is_listed(manager: LockManager, kind: Type) -> None:
    """As a task does after its trigger has acquired the lease."""
    table = LockObject.parse(TABLE)
    lease = polled(manager, rules.request("inserts", writes=[TABLE], named="sql", types={table: kind}))
    assert polled(manager, LockRequest("inserts", lease.locks)).id == lease.id
    with pytest.raises(LeaseMismatch):
        polled(manager, rules.request("inserts", [TABLE], ["dw.other"]))


def test_a_transactions_lock_is_shown_and_honoured_and_ends_with_the_transaction(
    manager: LockManager, raw: Hive
) -> None:
    with raw.transaction() as transaction:
        number = raw.lock((W, TABLE), transaction=transaction, agent="hive_update_7")
        (holder,) = manager.show(TABLE)
        assert (holder.owner, holder.lease_id, holder.token, holder.expires) == ("hive_update_7", None, number, None)
        assert holder.query == f"SHARED_WRITE, transaction {transaction}"
        assert manager.acquire(owner="reader", reads=[DAY]), "SHARED_WRITE lets readers pass"
        with pytest.raises(LockTimeout, match="hive_update_7"):
            manager.acquire(owner="writer", writes=[TABLE])
        with pytest.raises(Unsupported, match=rf"lock {number} of .* ABORT TRANSACTIONS {transaction}$"):
            manager.force_unlock(str(number), reason="stuck", user="ops")
    assert [holder.owner for holder in manager.show()] == ["reader"]


def test_a_transaction_is_shown_and_aborted_with_its_locks(
    manager: LockManager, raw: Hive, caplog: pytest.LogCaptureFixture
) -> None:
    with raw.transaction() as transaction:
        raw.lock((W, TABLE), transaction=transaction, agent="hive_update_8")
        session = StatementSession(manager, user="ops", reason="its session is gone")
        (shown,) = session.run("show transactions")
        (mine,) = [each for each in shown.records() if each["Transaction ID"] == transaction]
        assert (mine["Transaction State"], mine["User"], mine["Hostname"]) == ("OPEN", "ann", "gateway")
        with pytest.raises(HiveLockError, match="transaction 999999 is not open, so none was aborted"):
            list(session.run(f"abort transactions {transaction} 999999"))
        assert manager.show(TABLE)
        with caplog.at_level(logging.WARNING):
            (ended,) = session.run(f"abort transactions {transaction}")
        assert ended.rows == ((transaction, "ann", "gateway"),)
        assert f"ops aborted transaction {transaction} of ann ({TABLE} SHARED): its session is gone" in caplog.text
        assert manager.show() == []
        (shown,) = session.run("show transactions")
        assert "OPEN" not in [e["Transaction State"] for e in shown.records() if e["Transaction ID"] == transaction]


def test_a_lock_of_hives_own_is_freed_by_its_id_and_the_log_says_who_and_why(
    manager: LockManager, raw: Hive, caplog: pytest.LogCaptureFixture
) -> None:
    number = raw.lock((X, DAY), (S, "dw.airports"), agent="trino_7")
    other = raw.lock((S, "dw.airports"), agent="a living reader")
    held = {str(holder.object): holder for holder in manager.show() if holder.hive_id == str(number)}
    assert held.keys() == {DAY, "dw.airports"}
    assert held[DAY].heartbeat is not None
    careless, session = (StatementSession(manager, user="ops", reason=why) for why in ("", "its client is gone"))
    with pytest.raises(InvalidRequest, match="needs a reason") as asked:
        careless.run(f"drop force lock {number}")
    shown = [line for line in str(asked.value).splitlines() if line.startswith(f"lock {number}: ")]
    assert len(shown) == 2, "what would be freed is shown before"
    for part in (r"ann at gateway \(trino_7\)", "acquired: 20.* ago", "last heartbeat: 20.* ago", "transaction: none"):
        assert re.search(part, shown[0])
    with pytest.raises(Unsupported, match="is on 2 objects, and a metastore frees it whole"):
        list(session.run(f"drop force lock {number} on table dw.airports"))
    with pytest.raises(HiveLockError, match=r"holds no lock on dw\.other"):
        list(session.run(f"drop force lock {number} on table dw.other"))
    assert {holder.hive_id for holder in manager.show()} == {str(number), str(other)}
    with caplog.at_level(logging.WARNING):
        (freed,) = session.run(f"drop force lock {number}")
    assert {(row["lock_id"], row["user"], row["object"]) for row in freed.records()} == {
        (number, "ann", DAY),
        (number, "ann", "dw.airports"),
    }
    assert re.search(
        f"ops force-released lock {number} of trino_7 .*{DAY} EXCLUSIVE.*: its client is gone", caplog.text
    )
    assert [holder.hive_id for holder in manager.show()] == [str(other)], "the reader keeps its lock"
    for wrong, error in ((number, "holds no lock"), (999999, "lock 999999 holds no lock"), ("hive_q-1", "Lock ID")):
        with pytest.raises(HiveLockError, match=error):
            list(session.run(f"drop force lock {wrong}"))


def test_a_waiting_lock_of_a_transaction_is_not_freed_either(manager: LockManager, raw: Hive) -> None:
    """The metastore itself would remove it: its UNLOCK refuses only the granted locks of transactions."""
    holder = raw.lock((X, TABLE), agent="writer")
    with raw.transaction() as transaction:
        number = raw.lock((X, TABLE), transaction=transaction, agent="hive_update_9")
        with pytest.raises(Unsupported, match=f"ABORT TRANSACTIONS {transaction}$"):
            manager.force_unlock(str(number), reason="stuck", user="ops")
        with manager.backend.store.client() as client:  # type: ignore[attr-defined]
            assert number in {row.id for row in client.rows()}
    raw.unlock(holder)


def test_a_lease_is_no_lock_of_hives_and_a_lock_of_hives_no_lease(manager: LockManager, raw: Hive) -> None:
    lease = manager.acquire(owner="reader", reads=[DAY])
    with pytest.raises(InvalidRequest, match=rf"is lease {lease.id} of reader\. DROP FORCE LEASE {lease.id} frees it"):
        manager.force_unlock(lease.id.partition("-")[2], reason="stuck", user="ops")
    manager.verify(lease)
    number = raw.lock((S, DAY), agent="reader")
    for lease_id in (f"metastore-{number}", "metastore-999999", "another-store-1"):
        assert not manager.force_release(lease_id, reason="typo", user="ops")
    assert raw.granted(number)


def test_what_is_locked_is_named_and_nothing_else(manager: LockManager, raw: Hive) -> None:
    raw.create_table("deep.events", "dt", "hr")
    for owner, reads, writes, locks in (
        ("leaf", ["deep.events/dt=1/hr=2"], [], {"deep.events/dt=1/hr=2": "SHARED"}),
        ("both", ["deep.t"], ["deep.t/dt=1"], {"deep.t": "SHARED", "deep.t/dt=1": "EXCLUSIVE"}),
        ("covered", ["deep.u", "deep.u/dt=1"], [], {"deep.u": "SHARED"}),
        ("unknown", [], ["deep.v/dt=1"], {"deep.v/dt=1": "EXCLUSIVE"}),
    ):
        lease = manager.acquire(owner=owner, reads=reads, writes=writes)
        assert {str(lock.object): lock.mode.value for lock in lease.locks} == locks
        assert manager.acquire(owner=owner, reads=reads, writes=writes) == lease
        assert manager.find(lease.id) == lease
        manager.release(lease)


def test_a_prefix_becomes_its_table(manager: LockManager, raw: Hive) -> None:
    raw.create_table("prefix.events", "dt", "hr")
    lease = manager.acquire(owner="writer", writes=["prefix.events/dt=1"])
    assert [str(lock) for lock in lease.locks] == ["prefix.events EXCLUSIVE"]
    assert manager.acquire(owner="writer", writes=["prefix.events/dt=1"]) == lease
    assert not raw.granted(raw.lock((S, "prefix.events/dt=1/hr=2"))), "by its name alone it would have been let in"


def test_shared_on_a_database_is_not_taken(manager: LockManager) -> None:
    with pytest.raises(InvalidRequest, match="Name the tables"):
        manager.acquire(owner="reader", reads=["dw"])
    lease = manager.acquire(owner="reader", reads=["dw", TABLE])
    assert [str(lock) for lock in lease.locks] == [f"{TABLE} SHARED"]


@pytest.mark.parametrize(
    "owner", ["it's", "prod:dag/manual__2026-01-01T00:00:00+00:00/task/-1", "ü" * 40, "a b\\c", "x" * 255]
)
def test_an_owner_is_read_back_as_it_was_given(manager: LockManager, owner: str) -> None:
    query = "insert overwrite table dw.flights select 'it''s' from dw.staging; " * 9
    lease = manager.acquire(owner=owner, writes=["dw.flights/dt=it's"], query=query)
    assert manager.lease_of(owner) == lease
    (holder,) = manager.show()
    assert (holder.owner, str(holder.object)) == (owner, "dw.flights/dt=it%27s")
    assert query.startswith(holder.query[:30])


def test_an_owner_too_long_to_be_kept_finds_its_lease_again(manager: LockManager) -> None:
    first, second = (f"{'long ' * 80}{number}" for number in (1, 2))
    lease = manager.acquire(owner=first, reads=[DAY])
    assert manager.acquire(owner=first, reads=[DAY]) == lease
    assert manager.lease_of(first) == lease
    assert manager.acquire(owner=second, reads=[DAY]).id != lease.id


def test_a_lease_lasts_no_longer_than_the_server_waits_for_heartbeats(manager: LockManager) -> None:
    lease = manager.acquire(owner="me", writes=[DAY], lease_s=3600)
    assert lease.lease_s == TIMEOUT_S
    assert manager.acquire(owner="brief", writes=["dw.other"], lease_s=2).lease_s == 2


def test_a_lost_answer_leaves_no_lock_behind(manager: LockManager) -> None:
    def lock(client: LockClient, *arguments: Any) -> Any:
        given(client, *arguments)
        raise StoreUnavailable("the answer was lost")

    given = LockClient.lock
    manager.release(manager.acquire(owner="first", reads=[TABLE]))  # by now it is known what the server is
    for end in ("step", "withdraw"):
        pending = manager.begin(rules.request("me", writes=[DAY]), lambda: None, outage_s=0)
        with mock.patch.object(LockClient, "lock", lock), pytest.raises(StoreUnavailable):
            pending.poll()
        assert len(manager.show()) == 1
        if end == "step":
            lease = pending.poll()
            assert isinstance(lease, Lease)
            manager.release(lease)
        pending.withdraw()
        assert manager.show() == []


def test_of_two_processes_of_an_owner_that_ask_at_once_the_later_takes_up_the_earliers_lease(
    manager: LockManager,
) -> None:
    lease = manager.acquire(owner="me", writes=[DAY])
    late = Polling(manager, "me", writes=[DAY])
    with mock.patch.object(MetastoreAcquisition, "_existing", return_value=None):  # it looked before the other asked
        late.blocked()
    assert late.granted() == lease
    assert manager.waiters() == []


def test_the_url_says_what_is_wrong_before_anything_is_locked(server: Metastore) -> None:
    with connect(f"metastore://127.0.0.1:1,127.0.0.1:{server.port}?timeout_s=60") as manager:
        assert manager.acquire(owner="me", writes=[DAY], lease_s=100).lease_s == 60
        manager.force_release_all(DAY, reason="the test is over", user="pytest")
    with pytest.raises(StoreUnavailable, match=r"thrift://127\.0\.0\.1:1 did not answer"):
        connect("metastore://127.0.0.1:1")
    for url, wrong in (
        ("metastore://", "names no metastore"),
        ("metastore://ann:secret@host", "metastore host takes no login"),
        ("metastore://host:port", "A port is a number"),
        ("metastore://host?auth=LDAP", "NONE, KERBEROS"),
        ("metastore://host?timeout_s=soon", "timeout_s=.soon. is not a number of seconds, above 0"),
        ("metastore://host?ssl=1", "true or false"),
        ("metastore://host?root=/x", "unknown option root"),
    ):
        with pytest.raises(InvalidRequest, match=wrong) as told:
            connect(url)
        assert "secret" not in str(told.value)


def test_show_locks_is_that_of_hives_transactional_manager(manager: LockManager, raw: Hive) -> None:
    lease = manager.acquire(owner="ours", writes=["dw.shown/dt=2013-01-01"])
    raw.lock((hive.LockType.SHARED_READ, "dw.shown/dt=2013-01-01"))
    session = StatementSession(manager, user="ann")
    (shown,) = session.run("SHOW LOCKS dw.shown PARTITION (dt='2013-01-01')")
    assert len(shown.columns) == 13
    held, waits = shown.records()
    assert (held["Lock ID"], held["State"], held["Type"]) == (f"{lease.token}.1", "ACQUIRED", "EXCLUSIVE")
    assert (held["Database"], held["Table"], held["Partition"]) == ("dw", "shown", "dt=2013-01-01")
    assert (waits["State"], waits["Blocked By"], waits["Type"]) == ("WAITING", f"{lease.token}.1", "SHARED_READ")
    assert str(shown.text).startswith("Lock ID\tDatabase\tTable\tPartition\tState\tBlocked By\t")
    (everything,) = session.run("SHOW LOCKS")
    assert everything.text == shown.text
    assert [result.rows for result in session.run("SHOW LOCKS dw.other; SHOW LOCKS DATABASE lake")] == [(), ()]
    manager.release(lease)


def test_the_check_names_the_release_and_what_readers_are_not_told_of(manager: LockManager, server: Metastore) -> None:
    findings = list(map(str, check(manager)))
    *_, named, passes = findings
    release = HIVE if HIVE >= "4" else HIVE[0]
    assert named.startswith(f"ok: the metastore is of Hive {release}")
    assert ("HIVE-22888" in named) is (HIVE < "4")
    assert ("HIVE-15077" in named) is (HIVE < "3")
    assert ("UPDATE" in passes) is (HIVE < "4")
    assert "INSERT INTO" in passes
    catalog = connect_catalog(server.uri)
    assert str(check(connect("memory://check"), catalog, catalog=catalog)[-1]).startswith(named.partition(". ")[0])


def test_a_table_and_its_partition_columns_are_found(server: Metastore, raw: Hive) -> None:
    catalog = connect_catalog(server.uri)
    raw.create_table("shop.orders", "dt", "hr")
    found = catalog.table(LockObject("shop", "orders"))
    assert found is not None
    assert (found.partition_columns, found.partition_types) == (("dt", "hr"), ("string", "string"))
    assert catalog.table(LockObject("shop", "none")) is None
    assert catalog.names("shop") == ["orders"]
    assert list(catalog.partitions(LockObject("shop", "orders"))) == []


@pytest.mark.skipif(not HIVE.startswith("3"), reason=f"Hive {HIVE} makes none for a client of Hive 2.3's")
def test_an_insert_only_table_is_told_of(server: Metastore, raw: Hive) -> None:
    """Hive 3 reports such a table only to clients that know the type."""
    raw.create_table("acid.orders", "dt", transactional="true", transactional_properties="insert_only")
    found = connect_catalog(server.uri).table(LockObject("acid", "orders"))
    assert found is not None
    assert found.transactional
    assert found.partition_columns == ("dt",)
