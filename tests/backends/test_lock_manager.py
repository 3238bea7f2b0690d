"""The ZooKeeper lock manager of a Hive, 2.3's or another's, and ours, both ways: each lists and honours the other's locks."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockLost, LockManager, LockMode, LockObject, LockTimeout, connect
from tests.conformance import Polling
from tests.support.servers.lock_manager import HiveLockManagers, HiveLocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration

HIVE = os.environ.get("HIVE", "2.3.10")
"""The release of the lock manager; another than in PySpark's jars with ``make test-hives``."""

SPACE = "hive_lock_manager"
DAY = "dw.t/dt=2013-01-01"
DAY_PATH = ("dw", "t", "dt=2013-01-01")
ABOVE = [(("dw",), "SHARED"), (("dw", "t"), "SHARED")]
READ_DAY, WRITE_DAY = [*ABOVE, (DAY_PATH, "SHARED")], [*ABOVE, (DAY_PATH, "EXCLUSIVE")]
KEPT_OF_A_QUERY = 999_997
"""Characters, and three dots."""


@pytest.fixture(scope="module")
def hives(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveLockManagers]:
    with HiveLockManagers(tmp_path_factory.mktemp("hive"), zookeeper=zookeeper, tries=2) as managers:
        yield managers


@pytest.fixture
def hive(hives: HiveLockManagers) -> Iterator[HiveLocks]:
    locks = hives.session("main", SPACE)
    yield locks
    locks.unlock()


@pytest.fixture
def manager(zookeeper: ZooKeeperServer) -> Iterator[LockManager]:
    with connect(f"zookeeper://{zookeeper.hosts}/{SPACE}?root=/hivelock_lock_manager") as manager:
        yield manager
        for holder in manager.show():
            if holder.lease_id:
                manager.force_release(holder.lease_id, reason="the test is over", user="test")


def data(raw: KazooClient, path: tuple[str, ...]) -> bytes:
    """The data of the only lock node on that object."""
    at = "/".join(("", SPACE, *path))
    (name,) = [name for name in raw.get_children(at) if name.startswith("LOCK-")]
    found: bytes = raw.get(f"{at}/{name}")[0]
    return found


def test_it_lists_our_locks_as_its_own(hive: HiveLocks, manager: LockManager) -> None:
    """All but those on a database, which it never lists."""
    owner, query = "flights/2013-01-01: daily", "insert\n: overwrite"
    lease = manager.acquire(owner=owner, reads=["dw.u/dt=2013-01-02"], writes=[DAY], query=query)
    time_ms = {row[3] for row in hive.locks()}
    assert len(time_ms) == 1
    details = ("flights/2013-01-01 daily", time_ms.pop(), "EXPLICIT", "insert overwrite")
    assert sorted(hive.locks()) == [
        ("dw@t", "SHARED", *details),
        ("dw@t@dt=2013-01-01", "EXCLUSIVE", *details),
        ("dw@u", "SHARED", *details),
        ("dw@u@dt=2013-01-02", "SHARED", *details),
    ]
    manager.release(lease)
    assert hive.locks() == []


def test_our_nodes_say_byte_for_byte_what_its_own_do(hive: HiveLocks, manager: LockManager, raw: KazooClient) -> None:
    query = "insert overwrite table dw.t select 'a:b', 'ü' from dw.u"
    hive.lock(WRITE_DAY, query, explicit=True)
    (theirs,) = [row for row in hive.locks() if row[0] == "dw@t@dt=2013-01-01"]
    its = data(raw, DAY_PATH)
    hive.unlock()
    manager.acquire(owner="job", writes=[DAY], query=query)
    (ours,) = [row for row in hive.locks() if row[0] == "dw@t@dt=2013-01-01"]
    said = data(raw, DAY_PATH)
    assert (theirs[:2], theirs[4:]) == (ours[:2], ours[4:])
    assert its == f"{theirs[2]}:{theirs[3]}:EXPLICIT:{query.replace(':', '')}:127.0.0.1".encode()
    *fields, ip, key = said.split(b":")
    assert (
        fields == its.replace(theirs[2].encode(), b"job").replace(theirs[3].encode(), ours[3].encode()).split(b":")[:4]
    )
    assert ip
    assert b":" not in key


@pytest.mark.skipif(HIVE < "3", reason=f"Hive {HIVE} does not know hive.lock.query.string.max.length")
@pytest.mark.parametrize("chars", [4, 20, 21, 200])
def test_a_query_is_cut_where_its_configuration_says_in_both(
    zookeeper: ZooKeeperServer, tmp_path: Path, raw: KazooClient, chars: int
) -> None:
    query, most = "insert overwrite dw.t", {"hive.lock.query.string.max.length": str(chars)}
    with HiveLockManagers(tmp_path, zookeeper=zookeeper, config=most) as hives:
        hive = hives.session("cuts", SPACE)
        assert hive.lock(WRITE_DAY, query).granted
        its = data(raw, DAY_PATH).split(b":")[3]
        hive.unlock()
    with connect(f"zookeeper://{zookeeper.hosts}/{SPACE}?root=/hivelock_lock_manager&query_chars={chars}") as manager:
        lease = manager.acquire(owner="job", writes=[DAY], query=query)
        ours = data(raw, DAY_PATH).split(b":")[3]
        manager.release(lease)
    assert ours == its


@pytest.mark.parametrize("explicit", [False, True])
def test_we_show_its_locks(hive: HiveLocks, manager: LockManager, explicit: bool) -> None:
    assert hive.lock(WRITE_DAY, "insert: overwrite", explicit=explicit).granted
    rows = {row[0]: row for row in hive.locks()}
    shown = {str(holder.object): holder for holder in manager.show()}
    assert {name: holder.mode.value for name, holder in shown.items()} == {
        "dw": "SHARED",
        "dw.t": "SHARED",
        DAY: "EXCLUSIVE",
    }
    day, row = shown[DAY], rows["dw@t@dt=2013-01-01"]
    assert (day.owner, day.query, day.lease_id, day.explicit) == (row[2], "insert overwrite", None, explicit)
    assert abs(day.since.timestamp() - int(row[3]) / 1000) < 600
    hive.unlock()
    assert manager.show() == []


@pytest.mark.skipif(HIVE < "3", reason=f"Hive {HIVE} keeps a query whole, up to the largest packet of ZooKeeper's")
def test_of_a_long_query_a_million_characters_are_kept_and_read(
    hive: HiveLocks, manager: LockManager, raw: KazooClient
) -> None:
    query = "select '" + "x" * KEPT_OF_A_QUERY + "'"
    assert hive.lock(WRITE_DAY, query).granted
    kept = data(raw, DAY_PATH).split(b":")[3].decode()
    assert kept == query[:KEPT_OF_A_QUERY] + "..."
    assert [holder.query for holder in manager.show(DAY)] == [kept]
    with pytest.raises(LockTimeout, match=r"dw\.t/dt=2013-01-01 EXCLUSIVE"):
        manager.acquire(owner="job", reads=[DAY])
    hive.unlock()
    assert manager.acquire(owner="job", reads=[DAY])


@pytest.mark.parametrize("value", ["10:00/x=y%z {a}", "it's", "ü", "a b", "__HIVE_DEFAULT_PARTITION__"])
def test_odd_names_are_the_same_object_to_both(hive: HiveLocks, manager: LockManager, value: str) -> None:
    target = LockObject("dw", "odd", (("ds", value), ("hr", "5")))
    above = [(target.path[:depth], "SHARED") for depth in range(1, len(target.path))]
    hive.lock([*above, (target.path, "EXCLUSIVE")])
    assert {holder.object for holder in manager.show("dw.odd") if holder.mode is LockMode.EXCLUSIVE} == {target}
    theirs = {row[0] for row in hive.locks()}
    with pytest.raises(LockTimeout):
        manager.acquire(owner="job", reads=[str(target)])
    hive.unlock()
    manager.acquire(owner="job", writes=[str(target)])
    assert {row[0] for row in hive.locks()} == theirs
    assert not hive.lock([*above, (target.path, "SHARED")]).granted


def test_each_keeps_out_whom_it_has_to_and_nobody_else(hive: HiveLocks, manager: LockManager) -> None:
    reader = manager.acquire(owner="reader", reads=[DAY])
    assert hive.lock(READ_DAY).granted
    hive.unlock()
    assert not hive.lock(WRITE_DAY).granted
    manager.release(reader)
    writer = manager.acquire(owner="writer", writes=[DAY])
    assert not hive.lock(READ_DAY).granted
    manager.release(writer)
    assert hive.lock(READ_DAY).granted
    reader = manager.acquire(owner="reader", reads=[DAY])
    with pytest.raises(LockTimeout, match=r"dw\.t/dt=2013-01-01 SHARED"):
        manager.acquire(owner="writer", writes=[DAY])
    with pytest.raises(LockTimeout, match=r"holds dw\.t"):
        manager.acquire(owner="alter", writes=["dw.t"])
    assert [holder.owner for holder in manager.show(DAY) if holder.lease_id] == ["reader"]


def test_of_semi_shared_we_keep_our_writers_away_and_not_our_readers(
    hive: HiveLocks, hives: HiveLockManagers, manager: LockManager
) -> None:
    semi = [*ABOVE, (DAY_PATH, "SEMI_SHARED")]
    assert hive.lock(semi).granted
    assert {row[0] for row in hive.locks()} == {"dw@t"}, "it never lists them"
    with pytest.raises(LockTimeout, match=r"query-\d+ holds dw\.t/dt=2013-01-01 SHARED"):
        manager.acquire(owner="writer", writes=[DAY])
    reader = manager.acquire(owner="reader", reads=[DAY])
    second = hives.session("second", SPACE)
    assert second.lock(semi).granted is (HIVE < "4"), "from 4.0 on they exclude one another"
    second.unlock()
    hive.unlock()
    assert hive.lock(semi).granted, "our reader keeps it out as little as Hive's does"
    hive.unlock()
    manager.release(reader)
    manager.acquire(owner="writer", writes=[DAY])
    assert not hive.lock(semi).granted


def test_we_wait_for_its_lock_and_go_on_the_moment_it_is_freed(hive: HiveLocks, manager: LockManager) -> None:
    hive.lock(WRITE_DAY)
    waiting = Polling(manager, "job", writes=[DAY])
    assert [str(by.object) for by in waiting.blocked().by] == [DAY]
    assert not [holder for holder in manager.show() if holder.lease_id], "what waits holds nothing"
    hive.unlock()
    assert waiting.granted(within_s=10)


def test_a_holder_notices_that_unlock_table_has_taken_its_lock_and_takes_nobody_elses(
    hive: HiveLocks, manager: LockManager
) -> None:
    """The clean-up of UNLOCK TABLE resets the numbers: the next lock has the path of ours."""
    lease = manager.acquire(owner="robbed", writes=[DAY])
    changed = threading.Event()
    manager.verify(lease, changed.set)
    assert hive.free(DAY_PATH) == 1
    assert changed.wait(10)
    with pytest.raises(LockLost, match=r"dw\.t/dt=2013-01-01"):
        manager.verify(lease)
    assert hive.lock(WRITE_DAY, explicit=True).granted
    assert manager.release(lease)
    assert sorted(row[:2] for row in hive.locks()) == [("dw@t", "SHARED"), ("dw@t@dt=2013-01-01", "EXCLUSIVE")]
