"""Tests for every database: its tables, its clock, expiry, and notifications."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select, text, update

from airflow_hivelock.locks import (
    ExceedsMaxLeaseTime,
    HiveLeases,
    HiveLockError,
    InvalidRequest,
    Lease,
    LockLost,
    LockManager,
    LockObject,
    LockTimeout,
    StoreCorrupted,
    StoreUnavailable,
    UpgradeNeeded,
    connect,
    formats,
    rules,
)
from airflow_hivelock.locks.backends.database import notifier
from airflow_hivelock.locks.backends.database.acquisition import DatabaseAcquisition
from airflow_hivelock.locks.model import LeaseLimit
from tests.backends.databases import DAY, HANG_S, change, database, statements
from tests.conformance import Polling

if TYPE_CHECKING:
    from collections.abc import Callable

    Connect = Callable[..., LockManager]


def lapse(manager: LockManager) -> None:
    """Every lease has ended an hour ago."""
    change(manager, end_us="end_us - 7200000000")


# The tables.


def test_many_that_come_first_at_once_make_one_set_of_tables(opened: Connect) -> None:
    with ThreadPoolExecutor(8) as pool:
        managers = list(pool.map(lambda _: opened(), range(8)))
    kept = database(managers[0])
    rows = kept.read(lambda connection: connection.execute(select(kept.tables.store.c.version)).all())
    assert rows == [(formats.FORMAT,)]
    tokens = [manager.acquire(owner=str(n), writes=[f"dw.t{n}"]).token for n, manager in enumerate(managers)]
    assert tokens == sorted(set(tokens))


def test_tables_of_a_newer_version_are_refused_and_not_touched(opened: Connect) -> None:
    kept = database(opened())
    later = update(kept.tables.store).values(version=99, min_reader=99, raised_by="9.9")
    kept.transact(lambda transaction: transaction.ask(later))
    with pytest.raises(UpgradeNeeded, match=r"format 99 of airflow-hivelock 9.9.*upgrade airflow-hivelock here too"):
        opened()


def test_tables_of_an_older_version_are_refused_with_the_way_out(opened: Connect) -> None:
    kept = database(opened())
    kept.transact(lambda transaction: transaction.ask(update(kept.tables.store).values(version=1)))
    with pytest.raises(StoreCorrupted, match=r"version 1.*When no lease is held, drop them.*prefix="):
        opened()
    assert opened(prefix="other_").acquire(owner="me", writes=[DAY])


def test_stores_with_different_prefixes_do_not_meet(opened: Connect) -> None:
    opened(prefix="one_").acquire(owner="a", writes=[DAY])
    assert opened(prefix="two_").acquire(owner="b", writes=[DAY])


def test_the_hive_lease_can_be_read_as_it_is_documented(opened: Connect) -> None:
    manager = opened()
    lease = manager.acquire(owner="ann", reads=["dw.airports"], writes=[DAY], lease_s=60)
    Polling(manager, "waits", writes=[DAY]).blocked()
    kept = database(manager)
    name = f"{kept.tables.schema}.hivelock_lease" if kept.tables.schema else "hivelock_lease"
    rows = kept.read(lambda connection: connection.execute(text(f"SELECT * FROM {name} ORDER BY 3, 4, 5")).all())
    assert [(*tuple(row)[:5], row.lease_type) for row in rows] == [
        ("ann", int(lease.id), "dw", "", "", "s"),
        ("ann", int(lease.id), "dw", "airports", "", "s"),
        ("ann", int(lease.id), "dw", "flights", "", "s"),
        ("ann", int(lease.id), "dw", "flights", "dt=2013-01-01", "x"),
    ]
    assert str(rows[0].start_utc)[:19] == f"{lease.since:%Y-%m-%d %H:%M:%S}"
    assert lease.expires
    assert str(rows[0].end_utc)[:19] == f"{lease.expires:%Y-%m-%d %H:%M:%S}"


def test_the_ids_of_leases_are_numbers_that_grow(opened: Connect) -> None:
    leases = HiveLeases(opened(), user="ann")
    ids = []
    for _ in range(3):
        ids.append(leases.grab_lease([(DAY, "x")], 60))
        leases.extend_lease(int(ids[-1]), [(DAY, "x")])
        assert leases.drop_lease(int(ids[-1]), [(DAY, "x")])
    assert [str(number) for number in sorted({int(each) for each in ids})] == ids
    with pytest.raises(LockLost):
        leases.extend_lease(ids[0], [(DAY, "x")])


def test_any_number_of_partitions_costs_as_many_statements_as_one(
    opened: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = opened()
    asked = statements(manager, monkeypatch)

    def taken(number: int) -> list[int]:
        counts = []
        for turn in range(2):
            lease = manager.acquire(owner=f"{number}/{turn}", writes=[f"dw.t/n={n}" for n in range(number)])
            counts.append(len(asked))
            for act in (manager.renew, manager.release):
                act(lease)
                counts.append(len(asked))
            asked.clear()
        return counts

    assert taken(1_000) == taken(1)


# Time.


def test_a_client_whose_clock_is_wrong_by_a_month_changes_nothing(
    opened: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = opened(expiry="frees"), opened(expiry="frees")
    bound = statements(wrong, monkeypatch)
    real, month_s = time.time, 30 * 86_400
    monkeypatch.setattr(time, "time", lambda: real() + month_s)
    monkeypatch.setattr(time, "time_ns", lambda: int((real() + month_s) * 1e9))
    first = wrong.acquire(owner="first", writes=[DAY])
    with pytest.raises(LockTimeout):
        right.acquire(owner="second", writes=[DAY])
    wrong.renew(first)
    (shown,) = right.show(DAY)
    assert first.since <= right.now()
    assert (right.now() - first.since).total_seconds() < HANG_S
    assert shown.expires
    assert 3500 < (shown.expires - right.now()).total_seconds() <= 3600
    wrong.release(first)
    months = [
        int(word) for word in str(bound).replace("'", " ").replace(",", " ").replace("}", " ").split() if word.isdigit()
    ]
    around = range(int((real() + month_s - 86_400) * 1e6), int((real() + month_s + 86_400) * 1e6))
    assert len(months) > 5
    assert [number for number in months if number in around] == [], "a client's time was sent to the database"


def test_an_expired_lease_blocks_on_unless_it_is_to_free(opened: Connect) -> None:
    manager, other = opened(), opened()
    lease = manager.acquire(owner="slow", writes=[DAY])
    lapse(manager)
    with pytest.raises(LockTimeout, match="slow"):
        other.acquire(owner="next", writes=[DAY])
    assert manager.find(lease.id)
    manager.renew(lease)
    other.verify(lease)


def test_where_leases_free_an_expired_one_can_be_renewed_until_another_has_taken_its_place(opened: Connect) -> None:
    manager, other = opened(expiry="frees"), opened(expiry="frees")
    assert manager.capabilities.expires
    lease = manager.acquire(owner="slow", writes=[DAY])
    lapse(manager)
    assert (manager.show(), manager.leases(), manager.find(lease.id), manager.lease_of("slow")) == ([], [], None, None)
    with pytest.raises(LockLost, match="expired"):
        manager.verify(lease)
    with pytest.raises(LockLost):
        manager.start_work(lease, "delays", "app-1")
    manager.renew(lease)
    manager.verify(lease)
    lapse(manager)
    taken = other.acquire(owner="next", writes=[DAY])
    assert taken.token > lease.token
    with pytest.raises(LockLost, match="another request got its locks"):
        manager.renew(lease)
    assert not manager.release(lease)
    ended = next(tenure for tenure in manager.history() if tenure.owner == "slow")
    assert ended.ended
    assert ended.ended < taken.since, "it ended when it expired, not when that was found"


def test_where_leases_free_an_owner_may_ask_for_other_locks_once_its_lease_has_expired(opened: Connect) -> None:
    manager = opened(expiry="frees")
    first = manager.acquire(owner="me", writes=[DAY])
    lapse(manager)
    assert manager.acquire(owner="me", writes=[DAY]).id == first.id
    lapse(manager)
    second = manager.acquire(owner="me", writes=[DAY, "dw.delays"])
    assert second.id != first.id
    assert {holder.lease_id for holder in manager.show()} == {second.id}


def test_who_waits_for_a_killed_holder_goes_on_when_its_lease_ends(database_url: str, opened: Connect) -> None:
    manager = opened(expiry="frees")
    code = (
        "import sys; from airflow_hivelock.locks import connect; "
        f"print(connect(sys.argv[1]).acquire(owner='killed', writes=['{DAY}'], lease_s=3).id, flush=True); sys.stdin.read()"
    )
    with_option = f"{database_url}{'&' if '?' in database_url else '?'}expiry=frees"
    holder = subprocess.Popen([sys.executable, "-c", code, with_option], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout
    assert holder.stdout.readline()
    (held,) = manager.show(DAY)
    holder.kill()
    holder.communicate()
    lease = manager.acquire(owner="next", writes=[DAY], timeout_s=HANG_S)
    assert held.expires
    assert held.expires <= lease.since


def test_no_lease_lasts_longer_than_the_most(opened: Connect) -> None:
    manager = opened(max_lease_s=100)
    with pytest.raises(ExceedsMaxLeaseTime, match="100 s"):
        manager.acquire(owner="me", writes=[DAY], lease_s=101)
    lease = manager.acquire(owner="me", writes=[DAY], lease_s=60)
    manager.renew(lease)
    change(manager, granted_us="granted_us - 50000000", end_us="end_us - 50000000")
    before = manager.show(DAY)[0].expires
    with pytest.raises(ExceedsMaxLeaseTime, match="me"):
        manager.renew(lease)
    assert manager.show(DAY)[0].expires == before
    with pytest.raises(ExceedsMaxLeaseTime):
        HiveLeases(manager).grab_lease([("dw.other", "x")], 3600)


# Waiters.


def test_a_grant_whose_answer_was_lost_is_the_same_when_it_is_asked_for_again(
    opened: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, other = opened(), opened()
    lease = other.acquire(owner="holder", writes=[DAY])
    kept, request = database(manager), rules.request("me", writes=[DAY])
    mine = DatabaseAcquisition(kept, notifier.Notifier(kept), request, lambda: None)
    mine.step()
    other.release(lease)
    transact, granted, thread = kept.transact, [], threading.get_ident()

    def cut(work: Any) -> Any:
        outcome = transact(work)
        if threading.get_ident() != thread:  # the notifier's, which signs for the waiters of this process
            return outcome
        granted.append(outcome)
        raise StoreUnavailable("cut")

    with monkeypatch.context() as broken:
        broken.setattr(kept, "transact", cut)
        with pytest.raises(StoreUnavailable, match="cut"):
            mine.step()
    (outcome,) = granted
    for _ in range(2):
        again = mine.step()
        assert isinstance(again, Lease)
        assert (again.id, again.token) == (outcome.record.lease_id, outcome.record.token)
        lease = again
    mine._notifier.close()
    assert manager.release(lease)


@pytest.mark.usefixtures("deaf")
def test_a_release_a_takeover_and_a_force_release_are_told_without_a_look(opened: Connect) -> None:
    manager, other = opened(), opened()
    lease = manager.acquire(owner="holder", writes=[DAY])
    lost, superseded = threading.Event(), threading.Event()
    other.verify(lease, lost.set)
    waiting = Polling.queued(other, "waits", writes=[DAY])
    first = other.begin(rules.request("taken over", writes=[DAY]), superseded.set)
    first.poll()
    second = Polling.queued(manager, "taken over", writes=[DAY])
    assert superseded.wait(HANG_S), "a process that has to stop waits on"
    manager.force_release(lease.id, reason="test", user="test")
    assert lost.wait(HANG_S), "a job would go on without its locks"
    other.release(waiting.granted())
    manager.release(second.granted())


@pytest.mark.usefixtures("deaf")
def test_a_watch_is_told_without_a_look(opened: Connect) -> None:
    manager, other = opened(), opened()
    elsewhere = manager.acquire(owner="elsewhere", writes=["dw.delays"])
    lease = manager.acquire(owner="holder", writes=[DAY])
    changed = threading.Event()
    assert other.backend.watch([LockObject.parse(DAY)], changed.set) is None
    manager.release(elsewhere)
    assert not changed.is_set()
    manager.release(lease)
    assert changed.wait(HANG_S)
    assert other.backend.watch([LockObject.parse(DAY)], changed.set), "nothing is there that could go"


def test_a_request_without_locks_hides_no_other(opened: Connect) -> None:
    with opened() as manager:
        manager.acquire(owner="broken", writes=[DAY], limit=LeaseLimit("few", 2))
        change(manager, locks="'{}'")
        manager.acquire(owner="whole", writes=["dw.other"])
        assert [lease.owner for lease in manager.leases()] == ["whole"]
        assert manager.requests()[1] == []
        with pytest.raises(StoreCorrupted, match="broken names no locks"):
            manager.acquire(owner="next", writes=["dw.third"], limit=LeaseLimit("few", 2))


# The way there.


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cret@127.0.0.1:1/db?timeout_s=2",
        "postgresql://ann:s3cret@127.0.0.1:1/db?expiry=never",
        "postgresql://ann:s3cret@127.0.0.1:1/db?timeout_s=soon",
        "postgresql://ann:s3cret@127.0.0.1:1/db?expirey=frees",
        "postgresql://ann:s3cret@127.0.0.1:1/db?prefix=Drop%20Table",
        "postgresql://ann:s3cret@127.0.0.1:port/db",
        "mysql://ann:s3cret@127.0.0.1:1/db?timeout_s=2",
        "mysql://ann:s3cret@127.0.0.1/db?ssl_key_password=s3cret&ssl_mode=maybe",
        "mysql+mysqldb://ann:s3cret@127.0.0.1/db",
        "oracle://ann:s3cret@127.0.0.1/db",
        "sqlite://",
        "sqlite:///leases.db?max_lease_s=0",
        "sqlite:///leases.db?expire=frees",
    ],
)
def test_no_error_tells_the_password(url: str) -> None:
    with pytest.raises(HiveLockError) as refused:
        connect(url)
    cause: BaseException | None = refused.value
    while cause:
        assert "s3cret" not in f"{cause} {cause!r}"
        cause = cause.__cause__
    if "timeout_s=2" not in url:
        assert isinstance(refused.value, InvalidRequest)


@pytest.mark.parametrize(
    ("module", "scheme", "extra"),
    [
        ("sqlalchemy", "sqlite:///x.db", "postgres"),
        ("psycopg", "postgresql://h/d", "postgres"),
        ("sqlalchemy", "mysql://h/d", "mysql"),
        ("pymysql", "mariadb://h/d", "mysql"),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_extra(module: str, scheme: str, extra: str) -> None:
    code = (
        f"import sys; sys.modules['{module}'] = None\n"
        "from airflow_hivelock.locks import HiveLockError, connect\n"
        f"try:\n    connect('{scheme}')\nexcept HiveLockError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True)
    assert f"pip install 'airflow-hivelock[{extra}]'" in done.stdout


def test_a_forked_process_has_connections_of_its_own(database_url: str) -> None:
    code = f"""
import os, sys, threading
from airflow_hivelock.locks import LockTimeout, connect, rules
manager = connect(sys.argv[1])
lease = manager.acquire(owner="parent", writes=["{DAY}"])
lost = threading.Event()
manager.verify(lease, lost.set)
def works(name):
    for _ in range(50):
        manager.release(manager.acquire(owner=name + " at work", writes=["dw." + name]))
works("before")
pid = os.fork()
if pid == 0:
    try:
        manager.acquire(owner="child", writes=["{DAY}"], timeout_s=0.1)
    except LockTimeout:
        works("child")
        manager.close()
        os._exit(7)
    os._exit(1)
works("parent")
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
manager.verify(lease)
manager.release(lease)
assert lost.wait({HANG_S})
manager.close()
"""
    command = [sys.executable, "-W", "ignore:.*fork:DeprecationWarning", "-c", code, database_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * HANG_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
