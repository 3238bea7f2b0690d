"""A connection that changes while a process runs: the sessions that it led to are closed once nothing uses them."""

from __future__ import annotations

import gc
import json
import os
import threading
import time
import weakref
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import structlog

from airflow_hivelock import HiveLockHook, hooks
from airflow_hivelock.locks import Lease, LockManager, StoreUnavailable, rules
from airflow_hivelock.locks.hive import coverage
from airflow_hivelock.locks.hive.site import Site
from airflow_hivelock.waiting import Wait
from tests.backends.databases import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import PostgresServer

pytestmark = pytest.mark.integration

CONNECTION = "AIRFLOW_CONN_CHANGES"
DAY = "dw.flights/dt=2013-01-01"


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(hooks, "_managers", {})
    monkeypatch.setattr(hooks, "_current", {})
    monkeypatch.setattr(hooks, "_replaced", weakref.WeakValueDictionary())
    monkeypatch.setattr(hooks, "_connecting", defaultdict(threading.Lock))
    yield
    for manager in hooks._managers.values():
        manager.close()


@pytest.fixture
def changed(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], HiveLockHook]:
    """Give the connection another password, as an administrator does; the server here takes any."""

    def change(password: str) -> HiveLockHook:
        extra = {"installation": "here", "backend": "postgresql", "application_name": "changes"}
        fields = {"host": f"127.0.0.1:{postgres.port}", "login": "postgres", "schema": "postgres", "extra": extra}
        monkeypatch.setenv(CONNECTION, json.dumps({"conn_type": "hivelock", "password": password, **fields}))
        return HiveLockHook("changes")

    return change


@pytest.fixture
def sessions(postgres: PostgresServer) -> Callable[[], int]:
    def count() -> int:
        with psycopg.connect(postgres.url) as session:
            row = session.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'changes'").fetchone()
        assert row
        return int(row[0])

    return count


def test_six_password_changes_leave_one_session(
    changed: Callable[[str], HiveLockHook], sessions: Callable[[], int]
) -> None:
    for number in range(6):
        assert changed(f"hush-{number}").manager().leases() == []
    wait_until(lambda: sessions() == 1)
    assert len(hooks._managers) == 1


def test_no_password_is_a_key(changed: Callable[[str], HiveLockHook]) -> None:
    changed("hush-1").manager()
    changed("hush-2").manager()
    kept = (hooks._managers, hooks._current, dict(hooks._replaced), hooks._connecting)
    assert not [key for each in kept for pair in each.items() for key in pair if "hush" in str(key)]


def test_what_waits_keeps_its_session_until_it_has_its_locks(
    changed: Callable[[str], HiveLockHook], sessions: Callable[[], int]
) -> None:
    woken = threading.Event()

    def begin(hook: HiveLockHook) -> Wait:
        request = rules.request("waits", writes=[DAY])
        manager = hook.manager()
        return Wait(lambda: (manager, request), None, woken.set, structlog.get_logger())

    holder = changed("hush-1").manager().acquire(owner="holder", writes=[DAY])
    waiting = begin(changed("hush-1"))
    assert waiting.poll() is None
    changed("hush-2").manager().release(holder)
    deadline = time.monotonic() + 60
    while (lease := waiting.poll()) is None:
        assert time.monotonic() < deadline
        woken.wait(0.1)
    assert isinstance(lease, Lease)
    assert waiting.give_up()
    del waiting
    gc.collect()
    wait_until(lambda: sessions() == 1)


def test_a_hook_that_has_read_the_connection_before_shares_the_session_of_its_time(
    changed: Callable[[str], HiveLockHook], sessions: Callable[[], int]
) -> None:
    before = changed("hush-1")
    old = before.manager()
    new = changed("hush-2").manager()
    assert before.manager() is old
    assert changed("hush-2").manager() is new
    del old
    again: Any = before.manager()
    assert again is not new
    del again
    wait_until(lambda: sessions() == 1)


def test_two_connections_to_one_store_share_a_session_until_both_have_changed(
    changed: Callable[[str], HiveLockHook], sessions: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed("hush-1").manager()
    monkeypatch.setenv("AIRFLOW_CONN_TWIN", os.environ[CONNECTION])
    shared = HiveLockHook("twin").manager()
    assert isinstance(shared, LockManager)
    changed("hush-2").manager()
    assert HiveLockHook("twin").manager() is shared
    del shared
    wait_until(lambda: sessions() == 2)
    monkeypatch.setenv("AIRFLOW_CONN_TWIN", os.environ[CONNECTION])
    HiveLockHook("twin").manager()
    wait_until(lambda: sessions() == 1)


def test_a_fork_leaves_its_parents_sessions_open(
    changed: Callable[[str], HiveLockHook], sessions: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = changed("hush-1").manager()
    changed("hush-2").manager()
    open_before = sessions()
    child = os.fork()
    if child == 0:
        closed: list[int] = []
        monkeypatch.setattr(old.backend, "close", lambda: closed.append(1))
        hooks._close(old.backend, os.getppid())  # as the finalizer of a manager that the parent has let go
        for each in threading.enumerate():
            if each.name == "hivelock-close":
                each.join(10)
        os._exit(len(closed))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sessions() == open_before
    assert old.leases() == []


def test_a_failed_check_of_hives_settings_leaves_no_session(
    changed: Callable[[str], HiveLockHook], sessions: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(manager: LockManager, _: object) -> list[object]:
        assert manager.leases() == []  # it has a session
        raise StoreUnavailable("the server went away")

    monkeypatch.setattr(coverage, "check", away)
    hook = changed("hush")
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            hooks._shared_manager(hook.url, Site("hive-site.xml", {}))
    wait_until(lambda: sessions() == 0)
