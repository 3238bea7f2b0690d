"""The rows of SHOW WAITERS, SHOW LOCKS and SHOW TRANSACTIONS."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.errors import AccessDenied
from airflow_hivelock.locks.hive.transactional import TransactionalLock
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.model import Blocker, Holder, LockMode, LockObject, Waiter, WaitsFor
from airflow_hivelock.locks.statements import render
from tests.unit.statements.running import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks.statements.session import StatementSession


T = LockObject("dw", "t")


@pytest.fixture
def queue(manager: LockManager) -> Iterator[None]:
    """Two days are held; an ALTER TABLE waits for both, a rerun of five days behind it, another table's job for itself."""
    held = ["dw.t/dt=1", "dw.t/dt=2", "dw.u"]
    for number, name in enumerate(held):
        manager.acquire(owner=f"day {number}", writes=[name])
    rerun = [f"dw.t/dt={day}" for day in range(1, 6)]
    waiting = [
        manager.begin(rules.request(owner, writes=writes), lambda: None)
        for owner, writes in {"alter": ["dw.t"], "rerun": rerun, "other": ["dw.u"]}.items()
    ]
    for request in waiting:
        request.poll()
    yield
    for request in waiting:
        request.withdraw()


@pytest.mark.usefixtures("queue")
def test_show_waiters_prints_the_queue_and_who_is_in_the_way(session: StatementSession) -> None:
    result = run(session, "show waiters")
    text = re.sub(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\dZ", "NOW", result.text or "")
    assert text.split("\n") == [
        "1\talter waits for dw.t EXCLUSIVE since NOW",
        "\tday 1 holds dw.t SHARED",
        "\tday 0 holds dw.t SHARED",
        "2\trerun waits for dw.t/dt=1 EXCLUSIVE, dw.t/dt=2 EXCLUSIVE, dw.t/dt=3 EXCLUSIVE and 2 more since NOW",
        "\talter waits ahead for dw.t EXCLUSIVE",
        "\tday 1 holds dw.t/dt=2 EXCLUSIVE",
        "\tday 0 holds dw.t/dt=1 EXCLUSIVE",
        "1\tother waits for dw.u EXCLUSIVE since NOW",
        "\tday 2 holds dw.u EXCLUSIVE",
    ]
    rows = result.records()
    assert [list(row) for row in rows] == 3 * [
        [
            *("position", "user", "waits_for", "priority", "wants", "since_utc", "in_the_way"),
            *("expected_least_s", "expected_most_s"),
        ]
    ]
    assert {(row["expected_least_s"], row["expected_most_s"]) for row in rows} == {(None, None)}
    assert [(row["position"], row["user"]) for row in rows] == [(1, "alter"), (2, "rerun"), (1, "other")]
    assert rows[1]["wants"] == ", ".join(f"dw.t/dt={day} EXCLUSIVE" for day in range(1, 6))
    assert rows[2]["in_the_way"] == "day 2 holds dw.u EXCLUSIVE"
    assert str(rows[0]["since_utc"]).endswith("+00:00")


@pytest.fixture
def history(manager: LockManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five holds of ten to fifty minutes, a sixth that began a minute ago, and a waiter behind it."""
    at = datetime(2013, 1, 15, tzinfo=UTC)
    monkeypatch.setattr(manager.backend, "now", lambda: at)
    for minutes in (10, 20, 30, 40, 50):
        lease = manager.acquire(owner=f"prod/etl/run {minutes}/load/-1", writes=[f"dw.t/dt={minutes}"])
        at += timedelta(minutes=minutes)
        manager.release(lease)
    manager.acquire(owner="prod/etl/now/load/-1", writes=["dw.t/dt=1"])
    at += timedelta(minutes=1)
    manager.begin(rules.request("prod/etl/now/report/-1", reads=["dw.t/dt=1"]), lambda: None).poll()


@pytest.mark.usefixtures("history")
def test_show_waiters_says_how_long_it_will_probably_take(session: StatementSession) -> None:
    result = run(session, "show waiters")
    (row,) = result.records()
    assert (row["expected_least_s"], row["expected_most_s"]) == (540, 2940)
    assert (result.text or "").split("\n")[0].endswith("Z, probably 9 to 49 min more")


@pytest.mark.usefixtures("history")
def test_show_waiters_of_one_object_counts_those_ahead_elsewhere(session: StatementSession) -> None:
    """The holder of the other table blocks the first waiter of this one."""
    manager = session.manager
    manager.begin(rules.request("prod/etl/now/load/7", writes=["dw.t/dt=1", "dw.u"]), lambda: None).poll()
    manager.begin(rules.request("prod/etl/now/last/-1", reads=["dw.u"]), lambda: None).poll()
    (*_, last) = run(session, "show waiters u").records()
    assert last["user"] == "prod/etl/now/last/-1"
    assert last["expected_most_s"] is None, "nothing is known of how long load holds dw.u"


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("silent", ["history", "now"])
def test_show_waiters_needs_neither_the_history_nor_the_time(
    session: StatementSession, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    monkeypatch.setattr(type(session.manager), silent, Mock(side_effect=AccessDenied("not for readers")))
    (row,) = run(session, "show waiters").records()
    assert (row["position"], row["expected_most_s"]) == (1, None)


def test_show_waiters_tells_a_slot_and_a_counted_lease_from_a_lock(
    session: StatementSession, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = rules.request("any", writes=["dw.t/dt=1"]).locks
    counted = Blocker("day 2", day[-1].object, day[-1].mode, group="reruns")
    now = manager.now()
    ahead, over = now + timedelta(seconds=20), now - timedelta(seconds=1)
    behind = [Blocker("day 4", day[-1].object, day[-1].mode, True, until=end) for end in (ahead, over)]
    told = [
        Waiter("day 1", day, 0, now, (), 10, WaitsFor.SLOT),
        Waiter("day 4", day, 1, now, (), 1, WaitsFor.SLOT, until=ahead),
        Waiter("day 5", day, 1, now, (), 1, WaitsFor.SLOT, until=over),
        Waiter("day 6", day, 2, now, tuple(behind)),
        Waiter("day 3", day, 1, now, (counted,), 1, WaitsFor.LEASE),
    ]
    monkeypatch.setattr(manager.backend, "waiters", lambda target=None: told)
    result = run(session, "show waiters")
    text = re.sub(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\dZ", "NOW", result.text or "")
    assert text.split("\n") == [
        "0\tday 1 waits for a worker slot, to lock dw.t/dt=1 EXCLUSIVE since NOW, priority 10",
        "1\tday 4 waits for a worker slot and keeps its position until NOW, to lock dw.t/dt=1 EXCLUSIVE since NOW",
        "1\tday 5 waits for a worker slot, to lock dw.t/dt=1 EXCLUSIVE since NOW",
        "2\tday 6 waits for dw.t/dt=1 EXCLUSIVE since NOW",
        "\tday 4 waits ahead for dw.t/dt=1 EXCLUSIVE and has until NOW to get a worker slot",
        "\tday 4 waits ahead for dw.t/dt=1 EXCLUSIVE",
        "1\tday 3 waits for a lease of its group, holding nothing, to lock dw.t/dt=1 EXCLUSIVE since NOW",
        "\tday 2 holds a lease of 'reruns'",
    ]
    assert [(row["user"], row["waits_for"], row["priority"]) for row in result.records()] == [
        ("day 1", "slot", 10),
        ("day 4", "slot", 1),
        ("day 5", "slot", 1),
        ("day 6", "lock", 1),
        ("day 3", "lease", 1),
    ]


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize(
    ("target", "users"),
    [
        ("t", ["alter", "rerun"]),
        ("t partition (dt='1')", ["alter", "rerun"]),
        ("t partition (dt='9')", ["alter"]),
        ("u", ["other"]),
        ("database dw", ["alter", "rerun", "other"]),
        ("nothing", []),
    ],
)
def test_show_waiters_of_an_object_has_those_who_want_what_it_lies_in_too(
    session: StatementSession, target: str, users: list[str]
) -> None:
    result = run(session, f"show waiters {target}")
    assert [row["user"] for row in result.records()] == users
    assert bool(result.text) == bool(users)


def test_rows_are_sorted_and_shown_as_hive_does(manager: LockManager, session: StatementSession) -> None:
    manager.acquire(owner="b", reads=["dw.t", "dw.t/s=a b/hr=1", "dw.t/s=a/hr=1"], writes=["dw.t2"], query="a\n\tb")
    result = run(session, "show locks")
    assert result.text == (
        "dw@t\tSHARED\ndw@t@s=a\tSHARED\ndw@t@s=a b\tSHARED\ndw@t@s=a b/hr=1\tSHARED\ndw@t@s=a/hr=1\tSHARED\n"
        "dw@t2\tEXCLUSIVE"
    )
    assert [record["object"] for record in result.records()] == [
        *("dw.t", "dw.t/s=a", "dw.t/s=a b", "dw.t/s=a b/hr=1", "dw.t/s=a/hr=1", "dw.t2")
    ]
    extended = (run(session, "show locks t2 extended").text or "").split("\n")
    assert extended[1] == "LOCK_QUERYID:b\t "
    assert extended[3:] == ["LOCK_MODE:EXPLICIT\t ", "LOCK_QUERYSTRING:a b\t "]
    assert run(session, "show locks nothing extended").text == ""


def test_a_query_over_several_lines_makes_the_rows_that_hive_makes_of_it() -> None:
    """As Hive 2.3.10 printed them; of a lock without four fields it prints the first row alone."""
    now = LockManager(MemoryBackend()).now()
    query = "insert overwrite\n  table\tx\ty\nselect 1\r\nfrom\ru\n\nend"
    holders = [
        Holder(T, LockMode.EXCLUSIVE, "q", now, details=("q", "1", "EXPLICIT", query)),
        Holder(T, LockMode.SHARED, "q", now),
    ]
    assert render.show_locks(holders, extended=True).split("\n") == [
        "dw@t\tEXCLUSIVE",
        "LOCK_QUERYID:q\t ",
        "LOCK_TIME:1\t ",
        "LOCK_MODE:EXPLICIT\t ",
        "LOCK_QUERYSTRING:insert overwrite\t ",
        "  table\tx",
        "select 1\t ",
        "from\t ",
        "u\t ",
        "\t ",
        "end\t ",
        "dw@t\tSHARED",
    ]


def test_transactional_rows_are_what_hive_prints_where_it_locks_in_the_metastore() -> None:
    """The text is what DDLTask.dumpLockInfo of Hive 2.3.10 wrote for these three locks."""
    lock = TransactionalLock
    rows = [
        lock(7, 1, "dw", "t", "dt=2013-01-01", "ACQUIRED", "SHARED_READ", "root", "host1", None, None, 1795332941243,
             1795332941000, "hive_1"),
        lock(8, 2, "dw", None, None, "WAITING", "EXCLUSIVE", "eve", "host2", blocked_by=(7, 1), txn_id=12),
        lock(9, None, "dw", None, None, "WAITING", "SHARED_WRITE", "u", "h", txn_id=12, last_heartbeat_ms=5),
    ]  # fmt: skip
    assert render.render_transactional(rows) == (
        "Lock ID\tDatabase\tTable\tPartition\tState\tBlocked By\tType\tTransaction ID\tLast Heartbeat\tAcquired At\t"
        "User\tHostname\tAgent Info\n"
        "7.1\tdw\tt\tdt=2013-01-01\tACQUIRED\t            \tSHARED_READ\tNULL\t1795332941243\t1795332941000\troot\t"
        "host1\thive_1\t\n"
        "8.2\tdw\tNULL\tNULL\tWAITING\t7.1\tEXCLUSIVE\t12\t0\tNULL\teve\thost2\tNULL\t\n"
        "9\tdw\tNULL\tNULL\tWAITING\t            \tSHARED_WRITE\t12\t5\tNULL\tu\th\tNULL\t"
    )


def test_show_locks_extended_names_the_job_that_runs_under_the_lease(session: StatementSession) -> None:
    lease = session.manager.acquire(owner="o", writes=["dw.t"], query="INSERT INTO dw.t SELECT 1")
    assert "LOCK_QUERYSTRING:INSERT INTO dw.t SELECT 1\t" in (run(session, "show locks t extended").text or "")
    for application in ("", "[", "{}", "[1]", '{"kind":"processes"}', '{"job_id":1}'):
        session.manager.start_work(lease, "submit", application)
        assert run(session, "show locks t extended").records()[0]["query"] == "INSERT INTO dw.t SELECT 1"
    session.manager.start_work(lease, "submit", '{"kind":"spark","conn_id":"c","job_id":"application_1_0001"}')
    said = "INSERT INTO dw.t SELECT 1 (runs as application_1_0001)"
    result = run(session, "show locks t extended")
    assert (f"LOCK_QUERYSTRING:{said}\t" in (result.text or ""), result.records()[0]["query"]) == (True, said)
