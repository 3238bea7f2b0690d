"""Changes on the page while the lock store is slow: nothing happens later without a trace."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from airflow_hivelock import hooks, metrics
from airflow_hivelock.locks import LockManager
from airflow_hivelock.locks.errors import AccessDenied, HiveLockError, StoreUnavailable
from airflow_hivelock.ui.change_pool import ChangePool
from airflow_hivelock.ui.reads import THREADS
from tests.airflow.page import API, ASKED, CURRENT, LEASES, Login, access, changes, hold, looks, on_worker, owner
from tests.support.patience import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi.testclient import TestClient

    from tests.airflow.conftest import Lines

PATIENCE_S = 0.3
DEADLINE_S = 30.0
STUCK = {"reason": "stuck"}

CHANGES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "release": ("leases/1/release", STUCK, "find", "the release of lease 1"),
    "hive": ("hive/release", {"id": "17", **STUCK}, "force_unlock", "the release of the locks of 17 in Hive"),
    "withdraw": ("requests/withdraw", {"owner": "w", **STUCK}, "force_withdraw", "the withdrawal of the request of w"),
    "priority": (
        "requests/priority",
        {"owner": "w", "priority": 7, **STUCK},
        "force_priority",
        "the change of the priority of the request of w",
    ),
    "set": ("groups/set", {"name": "g", "leases": 2}, "set_group", "the change of the limit of group g"),
    "drop": ("groups/drop", {"name": "g"}, "drop_group", "the removal of the limit of group g"),
    "reserve": ("reservations", {"object": "dw.u", "until": "06:00", **STUCK}, "now", "the reservation of dw.u"),
    "gone": ("hosts/gone", {"host": "worker-7", **STUCK}, "leases", "the declaration that host worker-7 is gone"),
}
"""Of each change: its route, its body, a call of the manager on its way, and the change in words."""


@pytest.fixture
def operator(login: Login, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """An operator's browser, on a page that waits only for a moment."""
    monkeypatch.setattr(changes, "pool", ChangePool(PATIENCE_S))
    return login("op")


def slow(monkeypatch: pytest.MonkeyPatch, call: str, fails: HiveLockError | None = None) -> threading.Event:
    """Make a *call* of the manager wait for the event that this returns. After that it can fail."""
    gate, made = threading.Event(), getattr(LockManager, call)

    def wait(*args: Any, **more: Any) -> Any:
        gate.wait(DEADLINE_S)
        if fails is not None:
            raise fails
        return made(*args, **more)

    monkeypatch.setattr(LockManager, call, wait)
    return gate


@contextmanager
def busy(count: int = THREADS) -> Iterator[None]:
    """Changes of the store that use all threads."""
    gate = threading.Event()
    pool = changes.pool._pools["hivelock_default"]
    under_way = [pool.submit(gate.wait, DEADLINE_S) for _ in range(count)]
    try:
        yield
    finally:
        gate.set()
        for each in under_way:
            each.result()


def idle() -> None:
    """Wait until the threads of changes have ended all changes."""
    pool = changes.pool._pools["hivelock_default"]
    assert isinstance(pool, ThreadPoolExecutor)
    pool.shutdown()


def test_slow_reads_of_the_store_delay_no_release(operator: TestClient, manager: LockManager) -> None:
    """Eight slow reads used all threads. The release happened later, and the page had said that nothing is released."""
    lease, gate = hold(manager), threading.Event()
    reads = looks.reads._pools["hivelock_default"]
    under_way = [reads.submit(gate.wait, DEADLINE_S) for _ in range(2 * THREADS)]
    try:
        answer = operator.post(f"{LEASES}/{lease.id}/release", json=STUCK, headers=ASKED)
    finally:
        gate.set()
    assert (answer.status_code, answer.json(), manager.leases()) == (200, {"freed": True}, [])
    assert all(each.result() for each in under_way)


def test_a_release_that_is_reported_as_not_made_does_not_happen_later(
    operator: TestClient, manager: LockManager, lines: Lines
) -> None:
    lease = hold(manager)
    with busy():
        answer = operator.post(f"{LEASES}/{lease.id}/release", json=STUCK, headers=ASKED)
    idle()
    assert answer.status_code == 503
    assert answer.json()["detail"].startswith(
        f"Nothing was changed, because the lock store did not answer within 0.3 s. The release of lease {lease.id} will not "
        "happen later. Try again. On the API server's host, airflow hivelock"
    )
    assert [each.id for each in manager.leases()] == [lease.id]
    assert manager.audit() == []
    assert f"The page gave up the release of lease {lease.id}, which did not begin within 0.3 s" in lines()


def test_a_release_that_waits_for_a_connection_to_the_store_does_not_happen_later(
    operator: TestClient, manager: LockManager
) -> None:
    """Its thread had begun, and a read was connecting."""
    lease = hold(manager)
    with hooks._connecting["memory://"]:
        answer = operator.post(f"{LEASES}/{lease.id}/release", json=STUCK, headers=ASKED)
    idle()
    assert (answer.status_code, "Nothing was changed" in answer.json()["detail"]) == (503, True)
    assert [each.id for each in manager.leases()] == [lease.id]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_takes_too_long_has_an_unknown_outcome(
    change: str, operator: TestClient, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_worker(manager)
    route, body, call, what = CHANGES[change]
    gate = slow(monkeypatch, call)
    try:
        answer = operator.post(f"{API}/{route}", json=body, headers=ASKED)
    finally:
        gate.set()
    assert answer.status_code == 503
    assert answer.json()["detail"].startswith(
        f"The outcome of {what} is unknown, because the lock store did not answer in time. The change can still happen. Look "
        "again before you repeat it. On the API server's host, airflow hivelock --conn-id hivelock_default"
    )
    idle()


def test_a_name_with_a_line_break_forges_no_line_of_the_log(
    operator: TestClient, manager: LockManager, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    gate = slow(monkeypatch, "force_withdraw")
    try:
        body = {"owner": "w\nwarning: forged", **STUCK}
        answer = operator.post(f"{API}/requests/withdraw", json=body, headers=ASKED)
    finally:
        gate.set()
    idle()
    assert answer.status_code == 503
    assert r"The outcome of the withdrawal of the request of w\nwarning: forged is unknown" in lines()


def test_a_late_release_is_logged_and_counted_and_shown(
    operator: TestClient, manager: LockManager, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    lease, counted = hold(manager), mock.Mock()
    monkeypatch.setattr(metrics, "force_released", counted)
    monkeypatch.setattr(looks, "FRESH_S", 600.0)
    gate = slow(monkeypatch, "force_release")
    try:
        answer = operator.post(f"{LEASES}/{lease.id}/release", json=STUCK, headers=ASKED)
        assert answer.status_code == 503
        assert len(operator.get(CURRENT).json()["leases"]) == 1
        assert not counted.called
    finally:
        gate.set()
    idle()
    assert operator.get(CURRENT).json()["leases"] == []
    assert counted.call_count == 1
    log = lines()
    assert f"The outcome of the release of lease {lease.id} is unknown: no answer within 0.3 s" in log
    assert f"Lease {lease.id} freed by force by some op: stuck" in log
    assert [(entry.user, entry.reason) for entry in manager.audit()] == [("some op", "stuck")]


def test_a_late_failure_of_a_release_is_logged(
    operator: TestClient, manager: LockManager, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    """Only asyncio logged it: Future exception was never retrieved."""
    lease, counted = hold(manager), mock.Mock()
    monkeypatch.setattr(metrics, "force_released", counted)
    gate = slow(monkeypatch, "force_release", AccessDenied("zk:2181 refuses the release"))
    try:
        answer = operator.post(f"{LEASES}/{lease.id}/release", json=STUCK, headers=ASKED)
    finally:
        gate.set()
    idle()
    assert (answer.status_code, "zk:2181" in answer.text) == (503, False)
    until(lambda: "zk:2181 refuses the release" in lines(), "the line of the log", DEADLINE_S)
    log = lines()
    assert f"The outcome of the release of lease {lease.id} is still unknown: zk:2181" in log
    assert "never retrieved" not in log
    assert not counted.called


@pytest.mark.parametrize(
    ("error", "unknown"),
    [
        (StoreUnavailable("zk:2181: connection lost during a request"), True),
        (SystemExit(1), True),
        (AccessDenied("zk:2181 refuses the release"), False),
    ],
)
def test_a_release_whose_answer_is_lost_has_an_unknown_outcome(
    operator: TestClient,
    manager: LockManager,
    monkeypatch: pytest.MonkeyPatch,
    lines: Lines,
    error: BaseException,
    unknown: bool,
) -> None:
    lease = hold(manager)
    monkeypatch.setattr(LockManager, "force_release", mock.Mock(side_effect=error))
    answer = operator.post(f"{LEASES}/{lease.id}/release", json=STUCK, headers=ASKED)
    detail = answer.json()["detail"]
    assert (answer.status_code, "zk:2181" in detail) == (503, False)
    assert detail.startswith(f"The outcome of the release of lease {lease.id} is unknown") == unknown
    assert str(error) in lines()


def test_a_store_that_cannot_be_reached_is_told_as_such(
    operator: TestClient, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = hold(manager)
    monkeypatch.setattr(hooks, "_shared_manager", mock.Mock(side_effect=StoreUnavailable("zk:2181 is gone")))
    answer = operator.post(f"{LEASES}/{lease.id}/release", json=STUCK, headers=ASKED)
    assert answer.status_code == 503
    assert answer.json()["detail"].startswith("The lock store does not answer. Leases stay held")


def test_a_refused_change_is_no_unknown_outcome(
    operator: TestClient, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = hold(manager, owner("secret"))
    monkeypatch.setattr(access, "hidden", lambda dag_ids, _: frozenset(dag_ids) & {"secret"})
    assert operator.post(f"{LEASES}/{lease.id}/release", json=STUCK, headers=ASKED).status_code == 403
