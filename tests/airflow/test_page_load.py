"""What the page costs the lock store and the API server, and a lock store that does not answer."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
import tracemalloc
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from airflow_hivelock import hooks
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks import connect, rules
from airflow_hivelock.locks.errors import AccessDenied, HiveLockError, StoreCorrupted, StoreUnavailable
from airflow_hivelock.ui import lock_rows
from airflow_hivelock.ui.reads import SharedReads
from airflow_hivelock.work import applications
from tests.airflow.page import API, ASKED, CURRENT, LEASES, Login, access, hold, looks, on_worker, owner, works

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.model import Lease
    from tests.airflow.conftest import Lines


def test_an_answer_that_has_not_changed_is_not_sent_again(login: Login, manager: LockManager) -> None:
    lease = hold(manager)
    viewer = login("viewer")
    first = viewer.get(CURRENT)
    again = viewer.get(CURRENT, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    manager.release(lease)
    looks.reads.forget(("hivelock_default", "current"))
    assert viewer.get(CURRENT, headers={"If-None-Match": first.headers["ETag"]}).status_code == 200


def test_a_store_that_says_nothing_costs_one_thread_and_a_bounded_time(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence, asked = threading.Event(), []

    def leases_() -> list[Lease]:
        asked.append(1)
        silence.wait(60)
        raise StoreUnavailable("ZooKeeper at zk:2181 is gone")

    monkeypatch.setattr(looks, "reads", SharedReads("store", patience_s=0.3))
    monkeypatch.setattr(manager.backend, "requests", leases_)
    viewer = login("viewer")
    viewer.get("/api/v1/connections")
    started = time.monotonic()
    try:
        answers = [viewer.get(CURRENT) for _ in range(3)]
    finally:
        silence.set()
    assert [answer.status_code for answer in answers] == [503] * 3
    assert "zk:2181" not in answers[0].text, "a viewer is not told of servers"
    assert time.monotonic() - started < 30, "bounded, and not by the store"
    assert len(asked) == 1, "nobody asks again while the store has not answered"


def test_many_viewers_cost_one_look(login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    leases_ = manager.backend.requests

    def counted() -> Any:
        counts.append(1)
        return leases_()

    monkeypatch.setattr(manager.backend, "requests", counted)
    monkeypatch.setattr(looks, "FRESH_S", 60.0)
    viewer = login("viewer")
    for _ in range(5):
        assert viewer.get(CURRENT).status_code == 200
    assert len(counts) == 1


def test_a_dear_look_is_left_alone_for_a_while_and_its_last_answer_does_meanwhile() -> None:
    clock_s, reads, gate = [0.0], [], threading.Event()

    def read() -> int:
        reads.append(1)
        gate.wait(60)
        clock_s[0] += 2
        return len(reads)

    async def play() -> None:
        shared = SharedReads("store", 60, clock=lambda: clock_s[0])
        glance = partial(shared.glance, ("look",), read, 1.0, 60.0, 0.05)
        assert await glance() is None, "nobody waits for the first either"
        gate.set()
        assert await shared.ask(("look",), read, 1.0) == 1
        clock_s[0] += 7
        assert await glance() == 1
        assert len(reads) == 1, "it took two seconds: it rests for eight"
        clock_s[0] += 2
        gate.clear()
        assert await glance() == 1, "the second is on its way"
        clock_s[0] += 60
        assert await glance() is None, "too old"
        gate.set()
        assert await shared.ask(("look",), read, 1.0) == 2

    asyncio.run(play())


def test_a_look_is_not_held_up_by_the_garbage_collector(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which took half of the time of a first look at thousands of locks, and runs again whatever becomes of the look."""
    seen = []
    requests = manager.backend.requests

    def looked() -> Any:
        seen.append(gc.isenabled())
        if len(seen) > 1:
            raise StoreUnavailable("gone")
        return requests()

    monkeypatch.setattr(manager.backend, "requests", looked)
    viewer = login("viewer")
    for status in (200, 503):
        looks.reads.forget(("hivelock_default", "current"))
        assert viewer.get(CURRENT).status_code == status
        assert gc.isenabled()
    assert seen == [False, False]
    with looks._uncollected():
        with looks._uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled(), "another look still goes on"
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StoreUnavailable("zk:2181 is gone"), "Check that the store is up"),
        (AccessDenied("zk:2181 wants a password"), "credentials"),
        (StoreCorrupted("/airflow_hivelock/x is of a newer format"), "Upgrade"),
    ],
)
def test_a_store_that_is_down_is_told_with_what_to_do(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch, error: HiveLockError, said: str
) -> None:
    monkeypatch.setattr(manager.backend, "requests", Mock(side_effect=error))
    answer = login("viewer").get(CURRENT)
    assert answer.status_code == 503
    detail = answer.json()["detail"]
    assert said in detail
    assert "airflow hivelock --conn-id hivelock_default" in detail
    assert str(error) not in detail, "a viewer is not told of servers"


def test_a_wrong_setting_of_the_connection_is_not_shown_to_a_viewer(
    login: Login, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    """It was shown with the host, the login and the options of the store."""
    extra = {"installation": "a", "backend": "postgresql", "sslmodee": "x"}
    fields = {"conn_type": "hivelock", "host": "db.bank", "login": "svc", "schema": "locks", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_HIVELOCK_DEFAULT", json.dumps(fields))
    body = {"reason": "stuck"}
    viewer, operator = login("viewer"), login("op")
    answers = [viewer.get(CURRENT), operator.post(f"{LEASES}/1/release", json=body, headers=ASKED)]
    for answer in answers:
        assert answer.status_code == 503
        assert answer.json()["detail"].startswith("Airflow's API server cannot use this connection")
        assert not [part for part in ("db.bank", "svc", "sslmodee") if part in answer.text]
    assert "sslmodee" in lines()


def test_an_airflow_that_does_not_list_its_connections_is_not_taken_for_a_lock_store(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence, viewer = threading.Event(), login("viewer")
    monkeypatch.setattr(looks, "reads", SharedReads("store", patience_s=0.1))
    monkeypatch.setattr(access, "connection_ids", lambda: silence.wait(60))
    try:
        answers = [viewer.get(path) for path in ("/api/v1/connections", CURRENT)]
    finally:
        silence.set()
    for answer in answers:
        assert (answer.status_code, "lock store" in answer.text) == (503, False)
        assert "Airflow did not list its connections" in answer.json()["detail"]


def test_the_history_of_any_number_of_hours_costs_one_read(login: Login, manager: LockManager) -> None:
    hold(manager)
    history = Mock(wraps=manager.backend.history)
    manager.backend.history = history  # type: ignore[method-assign]
    viewer = login("viewer")
    for hours in range(1, 20):
        answer = viewer.get(f"{API}/history?hours={hours}")
        assert len(answer.json()["tenures"]) == 1
    assert history.call_count == 1


def test_looks_at_many_leases_do_not_fill_the_memory(
    login: Login, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each look at more leases than a database decodes once kept the rows of all of them: 15 MB for 190 leases."""
    days = "dw.t{}/dt=2013-01-01..2013-01-20"
    kept = []
    with closing(connect(f"sqlite:///{tmp_path}/leases.db")) as store:
        for number in range(150):
            store.acquire(owner=owner(f"d{number}"), writes=[days.format(number)])
        monkeypatch.setitem(hooks._managers, "memory://", store)
        viewer = login("viewer")
        tracemalloc.start()
        try:
            for _ in range(12):
                assert len(viewer.get(CURRENT).json()["leases"]) == 150
                looks.reads.forget(("hivelock_default", "current"))
                gc.collect()
                kept.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    assert kept[-1] - kept[4] < 1_000_000


def test_the_rows_of_a_request_that_has_not_changed_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Mock(wraps=lock_rows.rows_of)
    monkeypatch.setattr(lock_rows, "rows_of", made)
    rows, locks = lock_rows.LockRows(), rules.request("any", writes=["dw.t"]).locks
    for _ in range(3):
        assert rows.of(locks) == [["dw", "S", 1], ["dw.t", "X"]]
        rows.end_view()
    assert made.call_count == 1
    rows.end_view()
    assert rows.of(locks)
    assert made.call_count == 2, "a view without it has dropped them"


def test_no_look_keeps_the_other_pages_of_airflow_waiting(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server answers all users in one thread, which must wait for no secrets, packages or clusters."""
    blocking = set()

    def watched(slow: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            with suppress(RuntimeError):
                asyncio.get_running_loop()
                blocking.add(slow.__qualname__)
            return slow(*args, **kwargs)

        return called

    lease = on_worker(manager)
    monkeypatch.setattr(HiveLockHook, "get_connection", staticmethod(watched(HiveLockHook.get_connection)))
    monkeypatch.setattr(applications, "decode", watched(applications.decode))
    viewer = login("viewer")
    for path in (
        CURRENT,
        f"{LEASES}/{lease.id}",
        f"{API}/hosts?host=worker-7",
        f"{API}/history",
        f"{API}/audit?limit=1",
    ):
        for _ in range(2):  # the second time from the answer to the first
            works.host_of.cache_clear()
            works.what.cache_clear()
            assert viewer.get(path).status_code == 200
    assert not blocking
