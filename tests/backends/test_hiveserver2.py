"""Hive's locks through a HiveServer2, whichever lock manager it has; and what protects what."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import (
    InvalidRequest,
    LockManager,
    LockMode,
    LockObject,
    StoreUnavailable,
    Unsupported,
    connect,
    rules,
)
from airflow_hivelock.locks.backends.hiveserver2 import HiveServer2Backend
from airflow_hivelock.locks.backends.hiveserver2.backend import Address
from airflow_hivelock.locks.hive.catalog import connect_catalog
from airflow_hivelock.locks.hive.coverage import check
from airflow_hivelock.locks.hive.properties import EXTERNAL
from tests.conformance import BackendConformance
from tests.support.servers.other_hiveserver2 import ReleasedHiveServer2, any_hiveserver2
from tests.support.servers.releases import HIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import HiveServer2, ZooKeeperServer

    Server = HiveServer2 | ReleasedHiveServer2

pytestmark = pytest.mark.integration

IN_METASTORE = {"hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager"}
MAJOR = (HIVE or "2").partition(".")[0]
NAMED = HIVE if MAJOR == "4" else f"{MAJOR} (it calls itself 3.0)"
FAULTS = {"2": "HIVE-15077 and HIVE-22888", "3": "HIVE-22888"}
DAY, HOUR = "dw.flights/dt=2013-01-01", "dw.hours/dt=2013-01-01 10%3A00@x/hr=4"


@pytest.fixture(scope="module")
def server(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with any_hiveserver2(tmp_path_factory.mktemp("hiveserver2"), zookeeper=zookeeper) as hiveserver2:
        run(
            hiveserver2,
            "create database dw",
            "create table dw.flights (a int) partitioned by (dt string)",
            "create table dw.hours (a int) partitioned by (dt string, hr string)",
            "alter table dw.flights add partition (dt='2013-01-01')",
            "alter table dw.hours add partition (dt='2013-01-01 10:00@x', hr='4')",
            "create external table dw.raw (a int)",
            "create table dw.ice (a int) tblproperties ('table_type'='ICEBERG')",
        )
        yield hiveserver2


@pytest.fixture
def manager(server: Server) -> LockManager:
    return connect(f"hiveserver2://ann@127.0.0.1:{server.port}/dw?recheck_s=0.5")


@pytest.fixture
def in_metastore(server: Server) -> LockManager:
    """Sessions that lock, and list locks, in the metastore."""
    return LockManager(HiveServer2Backend(Address("127.0.0.1", server.port), configuration=IN_METASTORE))


def run(server: Server, *statements: str, **connected: Any) -> None:
    from pyhive import hive

    with hive.connect("127.0.0.1", server.port, username="bob", **connected) as connection:
        for statement in statements:
            connection.cursor().execute(statement)


class TestHiveServer2(BackendConformance, capabilities=HiveServer2Backend.capabilities):
    @pytest.fixture
    def connect(self, server: Server) -> Callable[[], LockManager]:
        return lambda: connect(f"hiveserver2://127.0.0.1:{server.port}")


def test_the_locks_of_zookeepers_manager_are_shown_with_who_and_what_for(manager: LockManager, server: Server) -> None:
    query = "lock table dw.flights partition (dt='2013-01-01') exclusive"
    run(server, query, "lock table dw.hours partition (dt='2013-01-01 10:00@x', hr='4') shared")
    try:
        day, hour = manager.show()
        assert (str(day.object), day.mode, day.explicit, day.query) == (DAY, LockMode.EXCLUSIVE, True, query)
        assert (str(hour.object), hour.mode, hour.lease_id) == (HOUR, LockMode.SHARED, None)
        assert day.owner.startswith("root_20")
        assert abs((manager.now() - day.since).total_seconds()) < 600
        assert [holder.object for holder in manager.show("dw.flights")] == [day.object]
        assert manager.waiters() == []
        wanted = rules.request("sensor", reads=[DAY])
        look = manager.look(wanted, lambda: None)
        assert look.poll() == [day]
        assert look.wait_s() == 0.5
        assert manager.look(rules.request("sensor", reads=["dw.hours", "dw.flights"])).poll() == []
    finally:
        run(server, "unlock table dw.flights partition (dt='2013-01-01')")
        run(server, "unlock table dw.hours partition (dt='2013-01-01 10:00@x', hr='4')")
    assert manager.show() == []


def test_the_locks_of_the_metastores_manager_are_shown_as_the_metastore_has_them(
    in_metastore: LockManager, server: Server
) -> None:
    with connect(f"metastore://127.0.0.1:{server.metastore_port}") as locks:
        lease = locks.acquire(owner="prod:flights/2013-01-01", reads=["dw.hours"], writes=[DAY])
        waiting = locks.begin(rules.request("next", writes=["dw.flights"]), lambda: None)
        waiting.poll()
        shown = {str(holder.object): holder for holder in in_metastore.show()}
        assert {name: holder.mode for name, holder in shown.items()} == {
            DAY: LockMode.EXCLUSIVE,
            "dw.hours": LockMode.SHARED,
        }
        assert shown[DAY].token == lease.token
        assert max(holder.since for holder in shown.values()) == lease.since
        (waiter,) = in_metastore.waiters("dw.flights")
        assert [str(lock) for lock in waiter.locks] == ["dw.flights EXCLUSIVE"]
        assert [(by.object, by.waiting) for by in waiter.blocked_by] == [(LockObject.parse(DAY), False)]
        assert not in_metastore.capabilities.parents
        assert in_metastore.look(rules.request("sensor", reads=["dw.flights"])).poll() == [shown[DAY]]
        assert in_metastore.look(rules.request("sensor", reads=["dw.flights/dt=2013-01-02"])).poll() == []
        waiting.withdraw()
        locks.release(lease)
    assert in_metastore.show() == []
    with pytest.raises(Unsupported, match="UNLOCK TABLE frees"):
        in_metastore.acquire(owner="me", writes=[DAY])


def test_a_partition_with_escapes_is_seen_in_the_metastores_listing(in_metastore: LockManager, server: Server) -> None:
    name = "dw.hours/dt=a%3Ab%25c/hr=4"
    with connect(f"metastore://127.0.0.1:{server.metastore_port}") as locks:
        lease = locks.acquire(owner="writer", writes=[name])
        assert [str(holder.object) for holder in in_metastore.show(name)] == [name]
        assert in_metastore.look(rules.request("sensor", reads=[name])).poll() == in_metastore.show(name)
        locks.release(lease)


def test_what_protects_what_is_told(
    manager: LockManager, in_metastore: LockManager, server: Server, zookeeper: ZooKeeperServer
) -> None:
    catalog = connect_catalog(f"thrift://127.0.0.1:{server.metastore_port}")
    tables = [LockObject.parse(name) for name in ("dw.flights", "dw.raw", "dw.ice", "dw.nope")]

    def told(found: Any, hive: Any = None) -> list[str]:
        return [str(finding) for finding in check(found, hive, tables, catalog)]

    with connect(f"zookeeper://{zookeeper.hosts}/coverage?root=/elsewhere") as astray:
        assert (
            "and this lock store below /coverage. They do not see each other's locks"
            in told(astray, manager.backend)[0]
        )
    with connect(f"zookeeper://{zookeeper.hosts}/hive_zookeeper_namespace?root=/elsewhere") as in_zookeeper:
        assert told(in_zookeeper)[0].startswith("WARNING: Hive sees these locks only if it also locks in ZooKeeper")
        seen, *of_tables = told(in_zookeeper, manager.backend)
        assert seen.startswith(
            "ok: Hive locks in ZooKeeper (DummyTxnManager, ZooKeeperHiveLockManager in HiveServer2's"
        )
        assert [text.split(":")[0] for text in of_tables] == ["ok", "ok", "ok", "ERROR", "ok"]
        assert of_tables[-1] == f"ok: the metastore is of Hive {NAMED}"
        unseen, *_ = told(in_zookeeper, in_metastore.backend)
        assert unseen.startswith("ERROR: Hive locks in its metastore (DbTxnManager")
        assert unseen.endswith("Use metastore://")
    with connect(f"metastore://127.0.0.1:{server.metastore_port}") as locks:
        unseen, *of_tables = told(locks)
        assert unseen.startswith(
            "ERROR: Hive locks in ZooKeeper (DummyTxnManager, ZooKeeperHiveLockManager in the meta"
        )
        assert of_tables[1] == (
            "ok: Hive locks dw.raw as its configuration says"
            if MAJOR == "2"
            else f"ERROR: dw.raw is external. Hive 3 and later take no locks on it, and wait for none. Set {EXTERNAL} to true"
        )
        assert "'engine.hive.lock-enabled'='false'" in of_tables[2]
        seen, *rest = told(locks, in_metastore.backend)
        assert seen.startswith("ok: Hive locks in its metastore (DbTxnManager in HiveServer2's configuration), as this")
        if MAJOR != "2":
            assert "do not lock external tables" in rest.pop(0)
        assert "does not end the locks of dead clients" in rest[0]
        *_, named, passes = rest
        wrongly = (
            f". It grants some locks wrongly ({FAULTS[MAJOR]}); hivelock notices that and gives them back"
            if MAJOR in FAULTS
            else ""
        )
        assert named == f"ok: the metastore is of Hive {NAMED}{wrongly}"
        statements = "INSERT INTO" if MAJOR == "4" else "INSERT INTO, UPDATE, DELETE and MERGE"
        assert f"Hive lets {statements} run while there are readers" in passes
    assert told(connect("memory://coverage"))[0].startswith("WARNING: Hive does not see this lock store")


def test_a_lock_store_that_hive_does_not_see_is_warned_of_at_connect(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    connect(f"metastore://127.0.0.1:{server.metastore_port}").close()
    assert "does not see this lock store" in caplog.text
    caplog.clear()
    connect(f"hiveserver2://127.0.0.1:{server.port}").close()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_hive_that_takes_no_locks_is_told_from_one_that_holds_none(
    server: Server,
) -> None:
    off = {"hive.support.concurrency": "false"}
    manager = LockManager(HiveServer2Backend(Address("127.0.0.1", server.port), configuration=off))
    with pytest.raises(Unsupported, match=r"takes no locks: its hive\.support\.concurrency is false"):
        manager.show()
    assert str(check(manager)[0]).startswith("ERROR: Hive takes no locks, and waits for none")


@pytest.mark.parametrize(
    ("rest", "error", "wrong"),
    [
        ("127.0.0.1:1", StoreUnavailable, "HiveServer2 127.0.0.1:1 did not answer"),
        ("", InvalidRequest, "needs a host"),
        ("host:port", InvalidRequest, "A port is a number"),
        ("host/dw`; drop table x", InvalidRequest, "not a database name"),
        ("host?auth=PLAIN", InvalidRequest, "NONE, NOSASL, LDAP, KERBEROS"),
        ("ann:secret@host?auth=NONE", InvalidRequest, "auth=LDAP"),
        ("ann:secret@host?root=1", InvalidRequest, "unknown option root"),
    ],
)
def test_the_url_says_what_is_wrong(rest: str, error: type[Exception], wrong: str) -> None:
    with pytest.raises(error, match=wrong) as refused:
        connect(f"hiveserver2://{rest}")
    assert "secret" not in str(refused.value)
