"""The hive-site.xml that real servers of Hive's run with: the lock store it leads to is the one where they lock."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.cli.command import main
from airflow_hivelock.locks import connect
from airflow_hivelock.locks.hive import lock_store
from airflow_hivelock.locks.hive.site import Site
from tests.support.servers import HiveError, HiveSession, Metastore
from tests.support.servers.server import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration

QUERY_CHARS = 20


@pytest.fixture(scope="module")
def hive(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveSession]:
    config = {
        "hive.zookeeper.namespace": "hive_of_the_site",
        "hive.zookeeper.clean.extra.nodes": "true",
        "hive.lock.query.string.max.length": str(QUERY_CHARS),
        "hive.lockmgr.zookeeper.default.partition.name": "odd_default",
    }
    with HiveSession(tmp_path_factory.mktemp("hive"), zookeeper=zookeeper, config=config) as session:
        session.run("create database dw")
        session.run("create table dw.t (x int) partitioned by (dt string)")
        session.run("alter table dw.t add partition (dt='2013-01-01')")
        yield session


@pytest.fixture(scope="module")
def file(hive: HiveSession) -> str:
    return str(hive.home / "conf" / "hive-site.xml")


def test_its_own_file_leads_to_the_locks_of_a_real_hive(
    hive: HiveSession, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hive.run("lock table dw.t partition (dt='2013-01-01') exclusive")
    try:
        assert main(["--hive-site", file, "-e", "show locks"]) == 0
        assert capsys.readouterr() == ("dw@t@dt=2013-01-01\tEXCLUSIVE\n", "")
        assert main(["--hive-site", file, "--timeout", "0.1", "-e", "lock table dw.t exclusive"]) == 75
        assert "holds dw.t/dt=2013-01-01 EXCLUSIVE" in capsys.readouterr().err
    finally:
        hive.run("unlock table dw.t partition (dt='2013-01-01')")
    assert main(["--hive-site", file, "--output", "json", "check"]) == 0
    settings, findings = map(json.loads, capsys.readouterr().out.splitlines())
    sources = {row["setting"]: row["source"] for row in settings}
    assert file in sources["host"]
    assert sources["schema"].startswith(f"hive.zookeeper.namespace, {file}:")
    assert [row["finding"] for row in findings] == ["ok"]


def test_the_query_is_cut_where_the_file_says(hive: HiveSession, file: str) -> None:
    """Hive 3 and later cut it, ours is cut by the same file; Hive 2.3, which does not know the property, shows what is left."""
    statement = "insert overwrite table dw.t select 1"
    with connect(lock_store.url(lock_store.of_site(Site.read(file)))) as manager:
        lease = manager.acquire(owner="job", writes=["dw.t"], query=statement)
        (ours,) = (holder for holder in manager.show("dw.t") if holder.object.table)
        rows = hive.run("show locks dw.t extended")
        manager.release(lease)
    assert ours.query == "insert overwrite ..."
    assert f"LOCK_QUERYSTRING:{ours.query}" in [row.strip() for row in rows]


def test_where_only_jobs_lock_hives_ddl_passes_our_lock(hive: HiveSession, file: str) -> None:
    """``hive.lock.mapred.only.operation``: what ``hivelock check`` warns of."""
    hive.run("create table dw.dropped (x int)")
    session = hive.session("jobs only")
    session.run("set hive.lock.mapred.only.operation=true")
    with connect(lock_store.url(lock_store.of_site(Site.read(file)))) as manager:
        lease = manager.acquire(owner="job", writes=["dw.dropped"])
        with pytest.raises(HiveError):
            hive.run("drop table dw.dropped")
        with pytest.raises(HiveError):
            session.run("insert into dw.dropped select 1")
        session.run("drop table dw.dropped")
        manager.release(lease)


def test_an_odd_default_partition_name_stands_in_no_lock_of_hives(hive: HiveSession, file: str) -> None:
    """``hive.lockmgr.zookeeper.default.partition.name``: the lock of a partition of several levels has the same path
    without it.
    """
    with connect(lock_store.url(lock_store.of_site(Site.read(file)))) as manager:
        hive.run("create table dw.two (x int) partitioned by (a string, b string)")
        hive.run("alter table dw.two add partition (a='1', b='2')")
        hive.run("lock table dw.two partition (a='1', b='2') exclusive")
        shown = [str(holder.object) for holder in manager.show("dw.two")]
        hive.run("unlock table dw.two partition (a='1', b='2')")
    assert shown == ["dw.two/a=1/b=2"]


def test_the_file_of_a_hive_that_locks_in_its_metastore_leads_there(tmp_path: Path) -> None:
    port = free_port()
    uris = {"hive.metastore.uris": f"thrift://127.0.0.1:{port}"}
    with Metastore(tmp_path, port=port, transactional=True, txn_timeout_s=60, config=uris) as metastore:
        said = lock_store.of_site(Site.read(str(metastore.home / "conf" / "hive-site.xml")))
        assert lock_store.url(said) == f"metastore://127.0.0.1:{port}"
        with connect(lock_store.url(said)) as manager:
            lease = manager.acquire(owner="job", writes=["dw.t"])
            assert [str(holder.object) for holder in manager.show("dw.t")] == ["dw.t"]
            manager.release(lease)
