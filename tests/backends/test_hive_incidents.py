"""Known incidents with Hive's locks, replayed with real Hive: a lock of a dead session, and simultaneous loads of one
table.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import InvalidRequest, LockManager, LockTimeout, Unsupported, connect
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Delete
from airflow_hivelock.locks.statements.session import StatementSession
from tests.conformance import Polling
from tests.support.servers import HiveError, HiveSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration

NAMESPACE = "hive_incidents"
CONFIG = {"hive.zookeeper.namespace": NAMESPACE}
WHY = "its client was killed at 03:12"


@pytest.fixture(scope="module")
def hive(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveSession]:
    with HiveSession(tmp_path_factory.mktemp("hive"), zookeeper=zookeeper, config=CONFIG) as session:
        session.run("create database dw")
        session.run("create table dw.core (x int)")
        session.run("create table dw.loads (x int) partitioned by (dt string)")
        session.run("alter table dw.loads add partition (dt='2013-01-01')")
        yield session


@pytest.fixture
def manager(zookeeper: ZooKeeperServer, hive: HiveSession) -> Iterator[LockManager]:
    with connect(f"zookeeper://{zookeeper.hosts}/{NAMESPACE}?root=/hive_incidents_ours") as manager:
        yield manager
        for lease in manager.leases():
            manager.release(lease)


def session(manager: LockManager, reason: str = "") -> Callable[[str], str]:
    """What ``hivelock`` prints."""
    statements = StatementSession(manager, user="ann", reason=reason)
    return lambda text: "\n".join(result.text or str(result.rows) for result in statements.run(text))


def test_the_lock_of_a_dead_session_is_found_and_freed_alone(
    hive: HiveSession, manager: LockManager, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """Hive's own UNLOCK TABLE would free the living ones' as well."""
    with HiveSession(tmp_path, zookeeper=zookeeper, config=CONFIG) as dead:
        dead.run("create database dw")
        dead.run("create table dw.core (x int)")
        dead.run("lock table dw.core shared")
    hive.run("lock table dw.core shared")
    reader = manager.acquire(owner="report", reads=["dw.core"])
    with pytest.raises(HiveError):
        hive.run("insert into dw.core values (1)")
    alter = Polling.queued(manager, "alter", writes=["dw.core"])

    shown = session(manager)("SHOW LOCKS dw.core EXTENDED")
    blocks = [block.splitlines() for block in shown.split("LOCK_QUERYID:")[1:]]
    first = min(block[0].strip() for block in blocks if "lock table dw.core" in block[3])
    with pytest.raises(InvalidRequest, match="needs a reason"):
        session(manager)(f"DROP FORCE LOCK {first} ON TABLE dw.core")
    assert first in session(manager, WHY)(f"DROP FORCE LOCK {first} ON TABLE dw.core")

    assert [row for row in hive.run("show locks dw.core") if row] == ["dw@core\tSHARED"] * 2
    assert first not in session(manager)("SHOW LOCKS EXTENDED")
    manager.verify(reader)
    (entry,) = manager.audit("dw.core")
    assert (entry.owner, entry.user, entry.reason, entry.lease_id) == (first, "ann", WHY, "")
    hive.run("unlock table dw.core")  # takes ours along, as ever: which is why
    manager.release(reader)
    assert alter.granted(within_s=10)


def test_what_has_come_to_its_place_since_is_left_alone(
    hive: HiveSession, manager: LockManager, raw: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hive's clean-up removes the object, and the next lock on it has the same name."""
    hive.run("lock table dw.loads partition (dt='2013-01-01') exclusive")
    (holder,) = manager.show("dw.loads")
    client: Any = manager.backend.store.client  # type: ignore[attr-defined]
    submit = client.submit
    swapped: list[str] = []

    def late(*requests: Any) -> Any:
        doomed = [op.path for each in requests if isinstance(each, Commit) for op in each.ops if isinstance(op, Delete)]
        locks = [path for path in doomed if "LOCK-" in path]
        if locks and not swapped:
            hive.run("unlock table dw.loads partition (dt='2013-01-01')")
            hive.run("lock table dw.loads partition (dt='2013-01-01') exclusive")
            swapped.extend(locks)
        return submit(*requests)

    monkeypatch.setattr(client, "submit", late)
    assert manager.force_unlock(holder.owner, reason=WHY, user="ann") == []
    monkeypatch.undo()
    (after,) = manager.show("dw.loads")
    assert raw.exists(swapped[0]), "the next lock has another name: nothing was tried"
    assert after.owner != holder.owner
    assert not [entry for entry in manager.audit() if entry.owner == holder.owner]
    freed = manager.force_unlock(after.owner, reason=WHY, user="ann")
    assert [str(lock) for lock in freed] == ["dw.loads/dt=2013-01-01 EXCLUSIVE"]
    assert hive.run("show locks dw.loads partition (dt='2013-01-01')") == []


def test_a_lock_is_freed_on_the_object_that_is_named_and_on_no_other(hive: HiveSession, manager: LockManager) -> None:
    hive.run("lock table dw.core shared")
    (holder,) = manager.show("dw.core")
    assert manager.force_unlock(holder.owner, "dw.loads", reason=WHY, user="ann") == []
    assert manager.force_unlock(holder.owner, "dw.core", reason=WHY, user="ann")
    hive.run("insert into dw.core values (2)")


def test_other_stores_free_no_locks_of_hives() -> None:
    with pytest.raises(Unsupported, match="its ZooKeeper or its metastore"):
        connect("memory://").force_unlock("root_1", reason=WHY, user="ann")


def test_loads_of_new_partitions_of_one_table_run_at_once(
    hive: HiveSession, manager: LockManager, tmp_path: Path
) -> None:
    """Hive locks the whole table for each load, so it refuses a load during any other work on that table."""
    days = ("2013-01-02", "2013-01-03")
    for day in days:
        (tmp_path / day).write_text(f"{day[-1]}\n")

    def load(day: str) -> str:
        return f"load data local inpath '{tmp_path / day}' into table dw.loads partition (dt='{day}')"

    leases = [manager.acquire(owner=day, writes=[f"dw.loads/dt={day}"]) for day in days]
    with pytest.raises(HiveError):
        hive.run(load(days[0]))  # as it is: Hive wants dw.loads EXCLUSIVE, and both leases are SHARED on it
    for day in days:
        hive.session(day).run("set hive.support.concurrency=false")
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda day: hive.session(day).run(load(day)), days))
    for day in days:
        assert hive.session(day).run(f"select x from dw.loads where dt='{day}'") == [day[-1]]

    with pytest.raises(LockTimeout, match=days[0]):
        manager.acquire(owner="hasty", writes=[f"dw.loads/dt={days[0]}"], timeout_s=0)
    patient = Polling.queued(manager, "patient", writes=[f"dw.loads/dt={days[0]}"])
    manager.release(leases[0])
    assert patient.granted(within_s=10)
