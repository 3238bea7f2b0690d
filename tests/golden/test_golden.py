"""Every version reads what each release has written, and reads the same in it."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import select

from airflow_hivelock.locks import LockManager, connect, formats
from airflow_hivelock.locks.backends.database import migrations
from airflow_hivelock.locks.backends.zookeeper.record import Record
from tests.backends.databases import database
from tests.golden import stored
from tests.golden.meaning import differences, meaning
from tests.golden.scene import DAYS, owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import PostgresServer

HERE = Path(__file__).parent
RELEASES = sorted(path.name for path in HERE.iterdir() if path.is_dir() and (path / "sqlite.sql").exists())
SEEN_IN_DATABASES = ("leases", "waiters", "history", "audit", "holders", "records")
OFTEN = {"stat", "stamp"}


def golden(release: str, name: str) -> Any:
    return json.loads((HERE / release / name).read_text())


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def restored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Callable[[], LockManager]]]:
    """Puts a release's tables into a database, and returns what connects to it."""
    managers: list[LockManager] = []

    def opened(url: str) -> LockManager:
        managers.append(connect(url))
        return managers[-1]

    def restore(release: str) -> Callable[[], LockManager]:
        dump = (HERE / release / f"{request.param}.sql").read_text()
        if request.param == "sqlite":
            with sqlite3.connect(tmp_path / "leases.db") as connection:
                connection.executescript(dump)
            return partial(opened, f"sqlite:///{tmp_path}/leases.db")
        server: PostgresServer = request.getfixturevalue("postgres")
        with psycopg.connect(server.url.replace("+psycopg", ""), autocommit=True) as session:
            session.execute("DROP SCHEMA IF EXISTS golden CASCADE")
            session.execute(dump.encode())
        return partial(opened, f"{server.url}?schema=golden")

    restore.kind = request.param  # type: ignore[attr-defined]
    yield restore
    for manager in managers:
        manager.close()


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_has_stored_in_zookeeper_means_the_same(release: str) -> None:
    with stored.opened(HERE / release / "zookeeper.json") as manager:
        assert not differences(golden(release, "zookeeper.meaning.json"), meaning(manager))


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_has_stored_in_a_database_means_the_same_after_the_migration(
    release: str, restored: Any
) -> None:
    manager = restored(release)()
    assert not differences(golden(release, f"{restored.kind}.meaning.json"), meaning(manager))
    kept = database(manager)
    rows = kept.read(lambda connection: connection.execute(kept.tables.stamp).all())
    assert [row.version for row in rows] == [formats.FORMAT]


@pytest.mark.parametrize("release", RELEASES)
def test_leases_and_waiters_go_on_after_the_migration(release: str, restored: Any) -> None:
    manager = restored(release)()
    held = manager.lease_of(owner("holds"))
    assert held is not None
    manager.renew(held)
    name = owner("takes-its-turn")
    before = manager.lease_of(name)
    taken = manager.acquire(owner=name, writes=["dw.busy"], attempt=4)
    assert before is not None
    assert (taken.id, taken.token) == (before.id, before.token)
    started = manager.start_work(held, "job", "{}")
    assert started.token > held.token, "a later job would be refused by the guard"
    assert manager.release(started)
    waiting = manager.acquire(owner=owner("waits-urgently"), writes=DAYS[:1], attempt=3, timeout_s=60, priority=9)
    assert int(waiting.id) < int(started.token), "it was in the queue, and has lost its position"
    assert manager.force_release(waiting.id, reason="over", user="ops")


def test_many_processes_that_connect_at_once_migrate_once(restored: Any) -> None:
    opened = restored("format-3")
    with ThreadPoolExecutor(6) as pool:
        managers = list(pool.map(lambda _: opened(), range(6)))
    kept = database(managers[0])
    rows = kept.read(lambda connection: connection.execute(select(kept.tables.store)).all())
    assert [row.version for row in rows] == [formats.FORMAT]
    assert {manager.acquire(owner=str(n), writes=[f"dw.t{n}"]).id for n, manager in enumerate(managers)}
    assert not differences(golden("format-3", f"{restored.kind}.meaning.json")["audit"], meaning(managers[1])["audit"])


def test_a_migration_whose_process_ended_is_taken_up(restored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = restored("format-3")
    steps = dict(migrations.STEPS)

    def dies(connection: Any, tables: Any) -> None:
        steps[4](connection, tables)
        raise RuntimeError("killed")

    monkeypatch.setattr(migrations, "STEPS", {**steps, 4: dies})
    with pytest.raises(RuntimeError, match="killed"):
        opened()
    monkeypatch.setattr(migrations, "STEPS", steps)
    assert opened().lease_of(owner("holds"))


def test_each_step_of_a_migration_leads_to_a_version_that_this_one_knows() -> None:
    assert all(formats.OLDEST < number <= formats.FORMAT for number in migrations.STEPS)


def test_every_field_of_a_record_is_set_in_some_golden_one() -> None:
    """Otherwise its meaning could change without a failing test."""
    records = golden("0.1.0", "zookeeper.meaning.json")["records"]
    named = set(records[0]) - OFTEN
    defaults = {each.name: each.default for each in dataclasses.fields(Record)}
    unset = {name for name in named if all(record[name] in (defaults[name], [], "", None) for record in records)}
    assert not unset


@pytest.mark.parametrize("release", [each for each in RELEASES if (HERE / each / "passed.json").exists()])
def test_what_a_release_passes_through_airflow_means_the_same(release: str) -> None:
    from tests.golden import passed

    pytest.importorskip("airflow")
    assert not differences(golden(release, "passed.meaning.json"), passed.meaning(golden(release, "passed.json")))
