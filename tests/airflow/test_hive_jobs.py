"""Jobs that run in Hive, under locks that Hive would otherwise take for the same statement: with its provider's operators."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from thrift.transport.TTransport import TTransportException

from airflow_hivelock import HiveLockOperator, hooks, locked
from airflow_hivelock.locks import InvalidRequest, Unsupported
from airflow_hivelock.locks.hive.sql import setting
from airflow_hivelock.operators import hive_jobs
from tests.airflow.tasks import DAY
from tests.airflow.tasks import dag as dag_named
from tests.support.servers import HiveServer2
from tests.support.servers.jvm import jars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run
    from tests.support.servers import ZooKeeperServer

dag = partial(dag_named, "hive_jobs")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        find_spec("airflow.providers.apache.hive") is None,
        reason="apache-airflow-providers-apache-hive is not installed",
    ),
]

PARTITION = "PARTITION (dt='2013-01-15')"
INSERT = "INSERT OVERWRITE TABLE dw.delays PARTITION (dt='{{ ds }}') SELECT a FROM dw.flights WHERE dt = '{{ ds }}'"
LOCKS = [
    "dw SHARED",
    "dw.delays SHARED",
    "dw.delays/dt=2013-01-15 EXCLUSIVE",
    "dw.flights SHARED",
    "dw.flights/dt=2013-01-15 SHARED",
]
MANAGERS = "org.apache.hadoop.hive.ql.lockmgr"


class Site:
    """A HiveServer2 with two tables, and the connections to it and to a lock store."""

    def __init__(self, server: HiveServer2, store: dict[str, Any]) -> None:
        self.server = server
        self.connections = {
            "HIVELOCK_DEFAULT": {
                "conn_type": "hivelock",
                **store,
                "extra": {
                    **store.get("extra", {}),
                    "installation": "here",
                    "metastore_uri": f"thrift://127.0.0.1:{server.metastore_port}",
                },
            },
            "HIVESERVER2_DEFAULT": {"conn_type": "hiveserver2", "host": "127.0.0.1", "port": server.port},
            "HIVE_CLI_DEFAULT": {
                "conn_type": "hive_cli",
                "host": "127.0.0.1",
                "port": server.port,
                "login": "airflow",
                "schema": "default",
                "extra": {"use_beeline": True},
            },
        }

    def run(self, *statements: str) -> list[Any]:
        """In a session of another user; the rows of the last statement."""
        from pyhive import hive

        with hive.connect("127.0.0.1", self.server.port, username="bob") as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def refused(self, statement: str) -> str:
        """What Hive says in place of running it."""
        from pyhive.exc import OperationalError

        with pytest.raises(OperationalError) as refused:
            self.run(statement)
        return str(refused.value)

    def loaded(self, columns: str = "a", table: str = "delays") -> list[Any]:
        return [row[0] for row in self.run(f"SELECT {columns} FROM dw.{table} WHERE dt = '2013-01-15'")]


@contextmanager
def site(
    workdir: Path, zookeeper: ZooKeeperServer, config: dict[str, str], store: Callable[[HiveServer2], dict[str, Any]]
) -> Iterator[Site]:
    with HiveServer2(workdir, zookeeper=zookeeper, config=config) as server:
        made = Site(server, store(server))
        made.run(
            "CREATE DATABASE dw",
            "CREATE TABLE dw.flights (a int, carrier string, dep_delay int) PARTITIONED BY (dt string)",
            "CREATE TABLE dw.late_flights (carrier string, flights bigint) PARTITIONED BY (dt string)",
            "CREATE TABLE dw.delays (a int) PARTITIONED BY (dt string)",
            f"ALTER TABLE dw.flights ADD {PARTITION}",
            f"ALTER TABLE dw.delays ADD {PARTITION}",
            f"INSERT INTO TABLE dw.flights {PARTITION} VALUES (7, 'UA', 20)",
        )
        yield made


@pytest.fixture(scope="module")
def in_zookeeper(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(
        tmp_path_factory.mktemp("in_zookeeper"),
        zookeeper,
        {"hive.zookeeper.namespace": "hive_jobs"},
        lambda server: {"host": zookeeper.hosts, "schema": "hive_jobs", "extra": {"root": "/hive_jobs_ours"}},
    ) as made:
        yield made


@pytest.fixture(scope="module")
def in_metastore(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(
        tmp_path_factory.mktemp("in_metastore"),
        zookeeper,
        {"hive.txn.manager": f"{MANAGERS}.DbTxnManager", "hive.conf.restricted.list": "hive.support.concurrency"},
        lambda server: {"host": "127.0.0.1", "port": server.metastore_port, "extra": {"backend": "metastore"}},
    ) as made:
        yield made


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Site], LockManager]]:
    """Have Airflow's connections lead to a site."""
    managers: dict[str, LockManager] = {}
    monkeypatch.setattr(hooks, "_managers", managers)
    monkeypatch.setenv("PATH", f"{jars().parent / 'bin'}{os.pathsep}{os.environ['PATH']}")

    def use(site: Site) -> LockManager:
        for name, connection in site.connections.items():
            monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))
        return hooks.HiveLockHook().manager()

    yield use
    for manager in managers.values():
        for lease in manager.leases():
            manager.release(lease)
        manager.close()


def sql(**given: Any) -> Any:
    return locked(SQLExecuteQueryOperator)(
        task_id="load",
        conn_id="hiveserver2_default",
        sql=INSERT,
        timeout=timedelta(minutes=1),
        **{"lock_sql": True, **given},
    )


def cli(**given: Any) -> Any:
    from airflow.providers.apache.hive.operators.hive import HiveOperator

    return locked(HiveOperator)(
        task_id="load", hql=INSERT, mapred_job_name="load", timeout=timedelta(minutes=1), **{"lock_sql": True, **given}
    )


def shown(manager: LockManager) -> list[str]:
    return sorted(f"{holder.object} {holder.mode.value}" for holder in manager.show())


@pytest.mark.parametrize(
    ("statement", "given", "fits"),
    [
        ("INSERT INTO delays SELECT 1", {}, False),
        ("INSERT INTO delays SELECT 1", {"lock_database": "dw"}, True),
        ("INSERT INTO dw.delays SELECT 1", {}, True),
        ("USE dw; INSERT INTO delays SELECT 1", {}, True),
        ("INSERT INTO dw.delays SELECT * FROM late", {}, False),
        ("INSERT INTO delays SELECT 1", {"lock_sql": "", "writes": ["dw.delays"]}, True),
        ("INSERT INTO delays SELECT 1", {"lock_sql": "INSERT INTO dw.delays SELECT 1"}, True),
    ],
)
def test_names_are_locked_in_the_database_in_which_the_session_begins(
    statement: str, given: dict[str, Any], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_HIVESERVER2_DEFAULT", "hiveserver2://127.0.0.1:10000/dw")
    task = locked(SQLExecuteQueryOperator)(
        task_id="load", conn_id="hiveserver2_default", sql=statement, **{"lock_sql": True, **given}
    )
    if fits:
        hive_jobs.check_database(task)
    else:
        with pytest.raises(
            InvalidRequest,
            match=r"locks are on tables of 'default', but connection .* starts in 'dw'.*lock_database='dw'",
        ):
            hive_jobs.check_database(task)


@pytest.mark.parametrize("operator", [sql, cli])
@pytest.mark.parametrize(
    ("where", "asks"), [("in_zookeeper", "take_no_locks"), ("in_metastore", "locks_for_itself")], ids=lambda name: name
)
def test_its_statement_waits_for_no_lock_of_its_own_task(
    operator: Callable[..., Any],
    where: str,
    asks: str,
    request: pytest.FixtureRequest,
    use: Callable[[Site], LockManager],
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which it would, as the first run shows."""
    hive: Site = request.getfixturevalue(where)
    manager = use(hive)
    hive.run(f"TRUNCATE TABLE dw.delays {PARTITION}")
    with monkeypatch.context() as left, dag() as collides:
        left.setattr(hive_jobs, asks, lambda *_: False)
        operator()
        assert run(collides, logical_date=DAY).state == "failed"
    assert hive.loaded() == []
    assert not manager.show()
    with dag() as works:
        operator()
    assert run(works, logical_date=DAY).state == "success"
    assert hive.loaded() == ["7"]
    assert not manager.show()


def test_the_example_runs(in_zookeeper: Site, use: Callable[[Site], LockManager], run: Run) -> None:
    from dags_examples.hive_daily import works

    use(in_zookeeper)
    in_zookeeper.run(f"ALTER TABLE dw.late_flights ADD IF NOT EXISTS {PARTITION}")
    assert run(works, logical_date=DAY).state == "success"
    assert in_zookeeper.loaded("carrier", "late_flights") == ["UA"]


def test_a_session_keeps_its_locks_where_the_lease_is_in_another_namespace(
    in_zookeeper: Site, use: Callable[[Site], LockManager], run: Run
) -> None:
    """Nobody's would protect its statement otherwise."""
    store = in_zookeeper.connections["HIVELOCK_DEFAULT"]
    use(
        Site(
            in_zookeeper.server,
            {**store, "schema": "hive_jobs_elsewhere", "extra": {"root": "/hive_jobs_elsewhere_ours"}},
        )
    )
    seen: list[str | None] = []
    with dag() as works:
        sql(handler=lambda cursor: seen.append(setting(cursor, "hive.support.concurrency")))
    assert run(works, logical_date=DAY).state == "success"
    assert seen == ["true"]


def test_while_it_works_other_sessions_of_hive_stay_out(
    in_zookeeper: Site, use: Callable[[Site], LockManager], run: Run
) -> None:
    manager = use(in_zookeeper)
    seen: list[Any] = []

    def done(cursor: Any) -> None:  # the statement is, the task is not
        seen.append(shown(manager))
        seen.append(in_zookeeper.refused(f"ALTER TABLE dw.delays DROP {PARTITION}"))

    with dag() as works:
        sql(handler=done)
    assert run(works, logical_date=DAY).state == "success"
    assert seen[0] == LOCKS
    assert "cannot be acquired" in seen[1]


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (TTransportException(TTransportException.END_OF_FILE, "TSocket read 0 bytes"), True),
        (ValueError("bad row"), False),
    ],
)
def test_its_locks_stay_where_hiveserver2_may_go_on_with_a_statement(
    error: Exception, kept: bool, in_zookeeper: Site, use: Callable[[Site], LockManager], run: Run
) -> None:
    """HiveServer2 continues a statement without locks when its client is gone. The death of the task shows nothing
    about it.
    """
    manager = use(in_zookeeper)
    recorded: list[str] = []

    def fails(cursor: Any) -> None:
        recorded.extend(work.application for lease in manager.leases() for work in lease.works)
        raise error

    with dag() as works:
        sql(handler=fails)
    assert run(works, logical_date=DAY).state == "failed"
    assert json.loads(recorded[0])["submits"] is True
    assert shown(manager) == (LOCKS if kept else [])


def test_a_lease_of_another_task_serves_as_well(
    in_zookeeper: Site, use: Callable[[Site], LockManager], run: Run
) -> None:
    manager = use(in_zookeeper)
    with dag() as works:
        lock = HiveLockOperator(task_id="lock", lock_sql=INSERT)
        lock >> sql(lease=lock.output, lock_sql="")
    assert run(works, logical_date=DAY).tasks == {"lock": "success", "load": "success"}
    assert shown(manager) == LOCKS


def test_a_lease_of_another_task_in_hives_metastore_is_refused(
    in_metastore: Site, use: Callable[[Site], LockManager], run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    manager = use(in_metastore)
    with dag() as works:
        lock = HiveLockOperator(task_id="lock", lock_sql=INSERT)
        lock >> sql(lease=lock.output, lock_sql="")
    assert run(works, logical_date=DAY).tasks == {"lock": "success", "load": "failed"}
    assert "or leave them to Hive" in capfd.readouterr().out
    assert manager.leases()


def test_a_hive_that_locks_elsewhere_keeps_its_locks(
    in_zookeeper: Site, in_metastore: Site, use: Callable[[Site], LockManager], run: Run
) -> None:
    """Otherwise its transactional tables would be written without locks. The locks here block none of them."""
    seen: list[Any] = []
    in_metastore.connections["HIVELOCK_DEFAULT"], of_metastore = (
        in_zookeeper.connections["HIVELOCK_DEFAULT"],
        in_metastore.connections["HIVELOCK_DEFAULT"],
    )
    try:
        use(in_metastore)
        with dag() as works:
            sql(handler=lambda cursor: seen.append(setting(cursor, "hive.support.concurrency")))
        assert run(works, logical_date=DAY).state == "success"
    finally:
        in_metastore.connections["HIVELOCK_DEFAULT"] = of_metastore
    assert seen == ["true"]


def test_a_hive_that_lets_no_session_go_without_locks_is_named(in_metastore: Site) -> None:
    from pyhive import hive

    in_zookeeper = {"hive.txn.manager": f"{MANAGERS}.DummyTxnManager"}
    connected = hive_jobs._once_connected(
        lambda: hive.connect("127.0.0.1", in_metastore.server.port, username="bob", configuration=in_zookeeper),
        lambda connection: hive_jobs._take_none(connection, "connection 'hive'", None),
    )
    with pytest.raises(Unsupported, match=r"connection 'hive': .*Cannot modify hive\.support\.concurrency.*restricted"):
        connected()


def test_a_session_whose_setting_is_in_capitals_takes_no_locks_either(in_zookeeper: Site) -> None:
    from pyhive import hive

    def connect() -> Any:
        capitals = {"hive.support.concurrency": "TRUE"}
        return hive.connect("127.0.0.1", in_zookeeper.server.port, username="bob", configuration=capitals)

    with connect() as locks:
        locks.cursor().execute("SHOW LOCKS")  # refused in a session without locks
    with hive_jobs._once_connected(connect, lambda made: hive_jobs._take_none(made, "hive", None))() as silent:
        assert setting(silent.cursor(), "hive.support.concurrency") == "false"
