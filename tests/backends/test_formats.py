"""Two versions on one lock store: what the later one writes, the earlier one keeps or refuses, and never misreads."""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from airflow_hivelock.locks import LockManager, LockTimeout, UpgradeNeeded, connect, formats, rules
from airflow_hivelock.locks.backends.database import migrations
from airflow_hivelock.locks.backends.database.request import RequestedLocks
from airflow_hivelock.locks.backends.zookeeper.client import Delete, SetData
from airflow_hivelock.locks.backends.zookeeper.store_format import StoreFormat
from airflow_hivelock.locks.model import owner_key
from tests.backends import zookeepers
from tests.backends.conftest import DATABASES
from tests.backends.databases import DAY, HANG_S, database
from tests.conformance import Polling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LATER = formats.Stamp(formats.FORMAT + 5, formats.FORMAT + 5)
COMPATIBLE = formats.Stamp(formats.FORMAT + 5, formats.FORMAT)
RED = {"format": COMPATIBLE.format, "min_reader": COMPATIBLE.min_reader, "colour": ["red", {"dark": True}]}
REFUSED = r"upgrade airflow-hivelock here too"


class TwoVersions(ABC):
    """One store, and what a later version does there."""

    def __init__(self, opened: Callable[[], LockManager]) -> None:
        self.open = opened
        self.manager = opened()

    @abstractmethod
    def raised(self, stamp: formats.Stamp) -> None:
        """A later version has connected."""

    @abstractmethod
    def written(self, owner: str, more: dict[str, Any]) -> None:
        """The request of *owner* is a later version's, with *more*."""

    @abstractmethod
    def more(self, owner: str) -> dict[str, Any]:
        """What the store keeps of *owner*'s request that this version does not know, with the stamp."""


class OnZooKeeper(TwoVersions):
    def raised(self, stamp: formats.Stamp) -> None:
        store = zookeepers.store(self.open())
        StoreFormat(store.client, store.layout.format, stamp).read()

    def written(self, owner: str, more: dict[str, Any]) -> None:
        record = zookeepers.store(self.manager).read(owner_key(owner))
        assert record is not None
        data = json.loads(record.encode()) | more
        zookeepers.commit(self.manager, SetData(self._path(owner), json.dumps(data).encode(), -1))

    def more(self, owner: str) -> dict[str, Any]:
        data = json.loads(zookeepers.data(self.manager, self._path(owner)))
        return {name: data[name] for name in ("format", "min_reader", "colour") if name in data}

    def _path(self, owner: str) -> str:
        return zookeepers.store(self.manager).layout.record(owner_key(owner))


class InDatabase(TwoVersions):
    def raised(self, stamp: formats.Stamp) -> None:
        self._run(
            "UPDATE {}store SET version = :format, min_reader = :lowest, raised_by = '9.9'",
            format=stamp.format,
            lowest=stamp.min_reader,
        )

    def written(self, owner: str, more: dict[str, Any]) -> None:
        self._run("UPDATE {}request SET more = :more WHERE owner = :owner", more=json.dumps(more), owner=owner)

    def more(self, owner: str) -> dict[str, Any]:
        kept = database(self.manager)
        (row,) = kept.rows(kept.tables.request.c.owner == owner)
        return json.loads(row["more"]) if row["more"] else {"format": formats.FORMAT}

    def _run(self, statement: str, **values: object) -> None:
        kept = database(self.manager)
        kept.transact(lambda one: one.ask(text(statement.format(kept.tables.qualified)), **values))


@pytest.fixture(params=[pytest.param("zookeeper", marks=pytest.mark.integration), *DATABASES])
def both(request: pytest.FixtureRequest) -> Iterator[TwoVersions]:
    on_zookeeper = request.param == "zookeeper"
    given = request.getfixturevalue("connect_zookeeper" if on_zookeeper else f"{request.param}_url")
    again = given if on_zookeeper else partial(connect, given)
    with ExitStack() as managers:
        yield (OnZooKeeper if on_zookeeper else InDatabase)(lambda: managers.enter_context(again()))


def test_a_connected_process_is_refused_inside_the_grant_and_may_end_what_it_has(both: TwoVersions) -> None:
    manager = both.manager
    lease = manager.acquire(owner="before", writes=[DAY])
    waiter = Polling.queued(manager, "waits", writes=[DAY])
    manager.acquire(owner="stuck", writes=["dw.stuck"])
    both.raised(LATER)
    stuck = manager.lease_of("stuck")
    assert stuck
    for attempt in (
        lambda: manager.acquire(owner="after", writes=["dw.other"]),
        lambda: manager.acquire(owner="after", writes=["dw.other"], timeout_s=1),
        lambda: manager.force_release(stuck.id, reason="stuck", user="ops"),
        lambda: manager.force_withdraw("waits", reason="stuck", user="ops"),
        lambda: manager.force_priority("waits", 5, reason="stuck", user="ops"),
        manager.sweep,
        both.open,
    ):
        with pytest.raises(UpgradeNeeded, match=REFUSED):
            attempt()
    manager.renew(lease)
    manager.verify(lease)
    assert manager.start_work(lease, "work", "w").work("work")
    assert manager.release(lease)
    with pytest.raises(UpgradeNeeded, match=REFUSED):
        waiter.granted()
    waiter.pending.withdraw()
    assert [each.owner for each in manager.leases()] == ["stuck"]
    assert not manager.waiters()
    assert not manager.audit()


def test_a_process_whose_format_suffices_goes_on_beside_a_later_version(both: TwoVersions) -> None:
    manager = both.manager
    lease = manager.acquire(owner="before", writes=[DAY])
    waiter = Polling.queued(manager, "waits", writes=[DAY])
    both.raised(COMPATIBLE)
    assert both.open().acquire(owner="connects later", writes=["dw.third"])
    assert manager.acquire(owner="after", writes=["dw.other"])
    assert manager.force_release(lease.id, reason="stuck", user="ops")
    assert waiter.granted().owner == "waits"
    assert [entry.owner for entry in manager.audit()] == ["before"]


def test_a_request_with_a_field_that_this_version_does_not_know_keeps_it_until_its_end(both: TwoVersions) -> None:
    manager = both.manager
    lease = manager.acquire(owner="later", writes=[DAY, "dw.flights/dt=2013-01-02"])
    both.written("later", RED)
    manager.renew(lease)
    lease = manager.start_work(lease, "work", "w")
    taken = manager.acquire(owner="later", writes=[DAY, "dw.flights/dt=2013-01-02"], attempt=2)
    assert taken.id == lease.id
    left = manager.release(taken, objects=[DAY])
    assert left
    assert both.more("later") == RED
    assert manager.release(left)
    again = manager.acquire(owner="later", writes=[DAY], attempt=3)
    assert again.id != lease.id
    assert both.more("later") == {"format": formats.FORMAT}, "another request's field"


@pytest.mark.parametrize("stamp", [{"min_reader": LATER.min_reader}, {}], ids=["told", "as its format says"])
def test_a_request_for_later_readers_is_not_overtaken_and_not_touched(both: TwoVersions, stamp: dict[str, Any]) -> None:
    manager = both.manager
    lease = manager.acquire(owner="later", writes=[DAY])
    stamp = {"format": LATER.format, **stamp, "colour": "red"}
    both.written("later", stamp)
    for attempt in (
        lambda: manager.acquire(owner="later", writes=[DAY], attempt=2),
        lambda: manager.force_release(lease.id, reason="stuck", user="ops"),
    ):
        with pytest.raises(UpgradeNeeded, match=REFUSED):
            attempt()
    with pytest.raises((UpgradeNeeded, LockTimeout)):
        manager.acquire(owner="other", writes=[DAY])
    assert both.more("later") == stamp
    assert manager.acquire(owner="elsewhere", writes=["dw.other"])


def test_a_passed_lease_keeps_what_a_later_version_has_added(both: TwoVersions) -> None:
    passed = both.manager.acquire(owner="me", writes=[DAY]).to_json()
    assert passed["format"] == formats.FORMAT
    lease = both.manager.backend.lease_of("me")
    assert lease is not None
    read = type(lease).from_json(passed | RED)
    assert read == lease
    assert read.to_json() == passed | RED
    with pytest.raises(UpgradeNeeded, match=REFUSED):
        type(lease).from_json(passed | {"format": LATER.format})


# ZooKeeper.


@pytest.mark.integration
def test_a_stamp_that_was_deleted_and_made_again_by_a_later_version_refuses_all_the_same(
    connect_zookeeper: Callable[[], LockManager],
) -> None:
    """The version of the new node must not be one under which an earlier process knows the old one."""
    with connect_zookeeper() as manager:
        store = zookeepers.store(manager)
        manager.release(manager.acquire(owner="me", writes=[DAY]))
        zookeepers.commit(manager, Delete(store.layout.format))
        StoreFormat(store.client, store.layout.format, LATER).read()
        with pytest.raises(UpgradeNeeded, match=REFUSED):
            manager.acquire(owner="me", writes=[DAY])


@pytest.mark.integration
def test_a_stamp_that_is_gone_is_written_again(connect_zookeeper: Callable[[], LockManager]) -> None:
    with connect_zookeeper() as manager:
        path = zookeepers.store(manager).layout.format
        zookeepers.commit(manager, Delete(path))
        assert manager.acquire(owner="me", writes=[DAY])
        assert json.loads(zookeepers.data(manager, path))["format"] == formats.FORMAT


# Databases.


@pytest.fixture
def in_database(opened: Callable[[], LockManager]) -> InDatabase:
    return InDatabase(opened)


def test_tables_that_have_changed_under_a_process_tell_what_to_upgrade(in_database: InDatabase) -> None:
    """It said that the database does not answer, and the task waited for it."""
    manager = in_database.manager
    in_database.raised(LATER)
    in_database._run("ALTER TABLE {}request RENAME COLUMN lease_s TO lease_ms")
    for attempt in (manager.leases, lambda: manager.acquire(owner="me", writes=[DAY])):
        with pytest.raises(UpgradeNeeded, match=REFUSED):
            attempt()


def test_a_migration_waits_for_the_grants_that_have_begun(in_database: InDatabase) -> None:
    """Otherwise a grant could follow the stamp that refuses it."""
    manager, late = in_database.manager, in_database.open()
    kept, other = database(manager), database(late)
    locks = RequestedLocks(kept.tables.name, owner_key("me"), rules.request("me", [], [DAY]).locks)
    entered, go, done = threading.Event(), threading.Event(), list[str]()

    def grant() -> None:
        def work(transaction: Any) -> None:
            kept.enter(transaction, locks, decides=True)
            entered.set()
            assert go.wait(HANG_S)

        kept.transact(work)
        done.append("granted")

    def migrate() -> None:
        def work(connection: Any) -> None:
            other.dialect.alone(connection)
            migrations.migrate(connection, other.tables, formats.OLDEST)
            connection.execute(text(f"UPDATE {other.tables.qualified}store SET min_reader = 99"))
            done.append("migrated")

        other.make(work, other.tables.key)

    threads = [threading.Thread(target=grant), threading.Thread(target=migrate)]
    threads[0].start()
    assert entered.wait(HANG_S)
    threads[1].start()
    time.sleep(0.5)  # a migration that does not wait is over by then
    go.set()
    for thread in threads:
        thread.join(HANG_S)
    assert done == ["granted", "migrated"]
