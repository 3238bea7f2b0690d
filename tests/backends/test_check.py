"""``hivelock check`` on real servers: the exit code of each wrong configuration, and the one line that names what to change."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.cli.command import main
from airflow_hivelock.locks import connect
from tests.support.servers import Metastore, free_port
from tests.support.servers.jvm import write_site
from tests.support.servers.lock_manager import HiveLockManagers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration

TABLE = [(("dw",), "SHARED"), (("dw", "t"), "SHARED")]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def hives(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveLockManagers]:
    with HiveLockManagers(tmp_path_factory.mktemp("hive"), zookeeper=zookeeper) as managers:
        yield managers


@pytest.fixture
def chroot(raw: KazooClient) -> str:
    """A part of the shared server in which no Hive of another test locks."""
    name = f"check_{next(_numbers)}"
    raw.ensure_path(f"/{name}")  # Hive makes its namespace, and nothing above it
    return name


def checked(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, list[str], str]:
    """The exit code, the findings, and what is on standard error."""
    code = main([*args, "check"])
    out, err = capsys.readouterr()
    return code, [line for line in out.splitlines() if line.startswith(("ok:", "WARNING:", "ERROR:"))], err


def url_of(zookeeper: ZooKeeperServer, chroot: str, namespace: str = "hive_zookeeper_namespace") -> str:
    return f"zookeeper://{zookeeper.hosts}/{namespace}?chroot=/{chroot}"


def test_a_namespace_that_hive_has_never_locked_in_fails_also_once_tasks_have(
    zookeeper: ZooKeeperServer, chroot: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = url_of(zookeeper, chroot)
    for _ in range(2):
        code, (line,), err = checked(capsys, "--url", url)
        assert (code, err) == (1, "")
        assert line.startswith(
            "ERROR: Hive has never locked below /hive_zookeeper_namespace in this ZooKeeper. Compare"
        )
        assert "hive.zookeeper.quorum" in line
        with connect(url) as manager:
            manager.release(manager.acquire(owner="job", writes=["dw.t"]))


def test_an_unused_namespace_beside_the_one_that_hive_uses_fails_and_names_that(
    zookeeper: ZooKeeperServer, hives: HiveLockManagers, chroot: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hive = hives.session(chroot, f"{chroot}/hive_locks")
    assert hive.lock(TABLE).granted
    code, (line,), _ = checked(capsys, "--url", url_of(zookeeper, chroot))
    assert code == 1
    assert "Hive has never locked below /hive_zookeeper_namespace, and it locks below /hive_locks" in line
    assert "Set the hive.zookeeper.namespace of your Hive in the URL, or as the connection's schema" in line
    hive.unlock()


def test_the_namespace_in_which_hive_locks_passes_also_when_hive_is_idle(
    zookeeper: ZooKeeperServer, hives: HiveLockManagers, chroot: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = url_of(zookeeper, chroot, "hive_locks")
    assert checked(capsys, "--url", url)[0] == 1
    hive = hives.session(chroot, f"{chroot}/hive_locks")
    assert hive.lock(TABLE).granted
    assert [row[0] for row in hive.locks()] == ["dw@t"], "the mark breaks no SHOW LOCKS of Hive's"
    code, lines, _ = checked(capsys, "--url", url)
    assert (code, lines) == (
        0,
        ["ok: Hive locks below /hive_locks, as this lock store does. Hive has 2 locks there now"],
    )
    hive.unlock()
    code, (line,), _ = checked(capsys, "--url", url)
    assert (code, line[:66]) == (0, "WARNING: Hive sees these locks only if it also locks in ZooKeeper.")


def test_a_hive_that_locks_in_its_metastore_fails_a_connection_to_zookeeper(
    zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Metastore(tmp_path, transactional=True) as metastore:
        code, lines, _ = checked(capsys, "--url", url_of(zookeeper, chroot), "--metastore", metastore.uri)
        assert code == 1
        assert lines[0].startswith("ERROR: Hive locks in its metastore (DbTxnManager in the metastore's configuration)")
        assert lines[0].endswith("Use metastore://")
        assert checked(capsys, "--url", f"metastore://127.0.0.1:{metastore.port}")[0] == 0


def test_a_hive_that_locks_in_zookeeper_fails_a_connection_to_its_metastore(
    zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Metastore(tmp_path, config={"hive.support.concurrency": "true"}) as metastore:
        code, lines, _ = checked(capsys, "--url", f"metastore://127.0.0.1:{metastore.port}")
        assert code == 1
        assert lines[0].startswith(
            "ERROR: Hive locks in ZooKeeper (DummyTxnManager, ZooKeeperHiveLockManager in the meta"
        )
        assert lines[0].endswith("Use zookeeper://")
    code, lines, _ = checked(capsys, "--url", url_of(zookeeper, chroot), "--metastore", metastore.uri)
    assert code == 1
    assert lines[0].startswith("ERROR: the metastore did not say where Hive locks")
    assert f"127.0.0.1:{metastore.port}" in lines[0]
    assert "Hive has never locked below" in lines[1], "what can be looked at is looked at all the same"


def test_a_hive_without_concurrency_fails(
    zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hive-site.xml"
    write_site(file, {"hive.support.concurrency": "false", "hive.zookeeper.quorum": zookeeper.hosts})
    code, (line,), _ = checked(capsys, "--hive-site", str(file), "--url", url_of(zookeeper, chroot))
    assert code == 1
    assert line.startswith("ERROR: Hive takes no locks, and waits for none: hive.support.concurrency is false in")
    assert "Set it to true for HiveServer2" in line


def test_a_lock_store_that_does_not_answer_fails(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    code, lines, err = checked(capsys, "--url", f"zookeeper://127.0.0.1:{port}/hive?timeout_s=1")
    assert (code, lines) == (1, [])
    assert f"ZooKeeper at 127.0.0.1:{port} did not answer within 1 s" in err
