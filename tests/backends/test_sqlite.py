"""What only SQLite can be asked: a file that many processes come to."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from airflow_hivelock.locks import StoreCorrupted, StoreUnavailable, connect, rules
from airflow_hivelock.locks.backends.database import sqlite
from airflow_hivelock.locks.pauses import jitter
from tests.backends.databases import DAY, HANG_S, database

if TYPE_CHECKING:
    from pathlib import Path


def test_who_comes_first_to_a_file_that_another_is_making_waits(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    # Py4J's threads, left by other tests, call ``time.sleep`` too.
    waits = SimpleNamespace(monotonic=time.monotonic, sleep=lambda pause_s: other.rollback())
    monkeypatch.setattr(sqlite, "time", waits)
    with connect(sqlite_url) as manager:
        manager.acquire(owner="first", writes=[DAY])
    other.close()


def test_who_connects_writes_nothing_to_tables_that_are_there(sqlite_url: str) -> None:
    connect(sqlite_url).close()
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with connect(f"{sqlite_url}?timeout_s=1") as manager:
        assert manager.leases() == []
    other.close()


def test_a_file_that_another_writes_to_is_waited_for_as_long_as_the_time_out_says(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/leases.db?timeout_s="
    with connect(f"{url}0.1") as hasty, connect(f"{url}60") as patient, ThreadPoolExecutor(1) as pool:
        writer = sqlite3.connect(tmp_path / "leases.db", isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            hasty.acquire(owner="hasty", writes=[DAY])
        kept_out = pool.submit(patient.acquire, owner="patient", writes=[DAY])
        assert not kept_out.done()
        writer.execute("COMMIT")
        assert patient.release(kept_out.result(HANG_S))
        writer.close()


def test_a_file_that_cannot_be_used_is_reported_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"unable to open database file\. Check that its folder exists"):
        connect(f"sqlite:///{tmp_path}/none/leases.db")
    (tmp_path / "notes.txt").write_text("no database" * 100)
    with pytest.raises(StoreCorrupted, match=r"file is not a database\. Check the URL"):
        connect(f"sqlite:///{tmp_path}/notes.txt")
    with connect(f"sqlite:///{tmp_path}/leases.db") as manager:
        kept = manager.acquire(owner="first", writes=[DAY])
        engine = database(manager).engine

        def limit(session: Any, *_: object) -> None:
            session.execute(f"PRAGMA max_page_count={size}").close()

        size = 1  # SQLite makes the present size of it
        event.listen(engine, "checkout", limit)
        with pytest.raises(StoreUnavailable, match=r"database or disk is full\. Its disk is full\. Free space"):
            manager.acquire(owner="second", writes=[f"dw.t/dt={number}" for number in range(1_000)])
        size = 1_000_000
        assert manager.release(kept)


def test_waiting_leaves_the_random_numbers_of_the_program_alone(sqlite_url: str) -> None:
    with connect(sqlite_url) as manager, connect(sqlite_url) as other:
        held = manager.acquire(owner="holder", writes=[DAY])
        woken = threading.Event()
        before = random.getstate()
        waiting = other.begin(rules.request("waiter", writes=[DAY]), woken.set)
        waiting.poll()
        manager.release(held)
        assert woken.wait(HANG_S)
        waiting.withdraw()
        assert random.getstate() == before


def test_forked_workers_do_not_pause_for_the_same_times() -> None:
    """Airflow forks its workers from one process: in lockstep each would ask when all others do."""
    drawn = []
    for _ in range(2):
        reading, writing = os.pipe()
        if not (child := os.fork()):
            os.write(writing, str([jitter() for _ in range(4)]).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading) as answer:
            drawn.append(answer.read())
    assert drawn[0] != drawn[1]
