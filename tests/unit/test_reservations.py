"""A reservation keeps new work off an object until its time."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import LockManager, reservations, rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.errors import InvalidRequest, LockTimeout, Unsupported
from airflow_hivelock.locks.statements.session import StatementSession
from tests.unit.statements.running import run

if TYPE_CHECKING:
    from collections.abc import Callable

BY: dict[str, Any] = {"reason": "compaction", "user": "ann"}
DEADLINE_S = 30.0


@pytest.fixture
def manager() -> LockManager:
    return LockManager(MemoryBackend())


def after(manager: LockManager, **delta: float) -> datetime:
    return manager.now() + timedelta(**delta)


def test_it_waits_for_the_running_work_and_keeps_new_work_out(manager: LockManager) -> None:
    running = manager.acquire(owner="job", writes=["dw.sales/dt=2013-01-01"])
    waits = threading.Event()
    granted: list[Any] = []
    thread = threading.Thread(
        target=lambda: granted.append(
            reservations.reserve(
                manager, "dw.sales", after(manager, hours=1), **BY, tell=lambda outcome, waited_s: waits.set()
            )
        )
    )
    thread.start()
    assert waits.wait(DEADLINE_S)
    later = manager.begin(rules.request("later", reads=["dw.sales"]), lambda: None)
    assert isinstance(blocked := later.poll(), Blocked)
    assert blocked.by[0].owner.startswith("reservation:ann:")
    manager.release(running)
    thread.join(DEADLINE_S)
    assert [(holder.owner, holder.query) for holder in manager.show("dw.sales") if holder.object.table] == [
        (granted[0].owner, "compaction")
    ]
    assert isinstance(later.poll(), Blocked)
    assert manager.release(granted[0])
    assert later.poll()


def test_it_may_end_within_a_second(manager: LockManager, monkeypatch: pytest.MonkeyPatch) -> None:
    end = after(manager, hours=1).replace(microsecond=0)
    monkeypatch.setattr(manager, "now", lambda: end - timedelta(seconds=0.5))
    lease = reservations.reserve(manager, "dw.sales", end, **BY)
    assert reservations.end_over(manager, [lease], end) == [lease]


def test_it_ends_at_its_time_and_only_then(manager: LockManager) -> None:
    until = after(manager, hours=1)
    lease = reservations.reserve(manager, "dw.sales", until, **BY)
    end = reservations.end_of(lease.owner)
    assert end
    assert end <= until < end + timedelta(seconds=1)
    other = manager.acquire(owner="job", writes=["dw.other"])
    assert reservations.end_over(manager, manager.leases(), end - timedelta(seconds=1)) == []
    assert manager.find(lease.id)
    assert [ended.id for ended in reservations.end_over(manager, manager.leases(), end)] == [lease.id]
    assert [lease.id for lease in manager.leases()] == [other.id]


def test_work_under_it_keeps_it(manager: LockManager) -> None:
    lease = reservations.reserve(manager, "dw.sales", after(manager, hours=1), **BY)
    manager.start_work(lease, "job", "app-1")
    assert reservations.end_over(manager, manager.leases(), after(manager, hours=2)) == []


@pytest.mark.parametrize(
    "owner",
    [
        "here/dag/run/task/-1",
        "reservation:ann",
        "reservation:ann:20131301T000000Z:0123456789abcdef0123456789abcdef",
        "a reservation:ann:20130101T000000Z:0123456789abcdef0123456789abcdef",
    ],
)
def test_other_owners_are_no_reservations(owner: str) -> None:
    assert reservations.end_of(owner) is None


def test_a_name_with_colons_is_a_name() -> None:
    owner = "reservation:cli:ann:20130101T000000Z:0123456789abcdef0123456789abcdef"
    assert reservations.end_of(owner) == datetime(2013, 1, 1, tzinfo=UTC)


def test_bad_input_is_refused_and_nothing_is_acquired(manager: LockManager) -> None:
    for until, reason, message in (
        (after(manager, seconds=-1), "why", "that time is over"),
        (after(manager, days=400), "why", r"dw\.sales until .* is more than a year away\. Give an earlier time"),
        (datetime(2113, 1, 1), "why", "zone"),  # noqa: DTZ001
        (after(manager, hours=1), " ", "reason"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            reservations.reserve(manager, "dw.sales", until, reason=reason, user="ann")
    manager.backend.capabilities = manager.capabilities.__class__(parents=False)  # type: ignore[misc]
    with pytest.raises(Unsupported, match=r"dw\.sales.* metastore .* Take the lock with HiveLockOperator"):
        reservations.reserve(manager, "dw.sales", after(manager, hours=1), **BY)
    assert not manager.leases()


def test_one_that_is_not_granted_in_its_time_ends(manager: LockManager) -> None:
    manager.acquire(owner="job", writes=["dw.sales"])
    with pytest.raises(LockTimeout, match="job holds"):
        reservations.reserve(manager, "dw.sales", after(manager, seconds=2), **BY)
    assert not manager.waiters()


NOW = datetime(2026, 11, 20, 22, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("23:00", NOW.replace(hour=23, minute=0)),
        ("06:00", datetime(2026, 11, 21, 6, tzinfo=UTC)),
        ("22:30", datetime(2026, 11, 21, 22, 30, tzinfo=UTC)),
        ("2026-11-21T06:00", datetime(2026, 11, 21, 6, tzinfo=UTC)),
        ("2026-11-21T06:00+01:00", datetime(2026, 11, 21, 5, tzinfo=UTC)),
    ],
)
def test_until_is_a_time_of_day_or_a_time(text: str, end: datetime) -> None:
    assert reservations.parse_end(text, NOW) == end


@pytest.mark.parametrize("text", ["", "24:00", "06:61", "soon", "6", "9999-12-31T23:59-10:00"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="UNTIL"):
        reservations.parse_end(text, NOW)


def test_reserve_as_a_statement(manager: LockManager, caplog: pytest.LogCaptureFixture) -> None:
    session = StatementSession(manager, user="ann", database="dw", reason="of the session")
    until = (manager.now() + timedelta(hours=2)).isoformat()
    (row,) = run(session, f"reserve sales until '{until}'").records()
    assert row["object"] == "dw.sales"
    assert manager.show("dw.sales")[-1].query == "of the session"
    assert run(session, f"reserve database other until '{until}' reason 'move it'").rows
    assert {holder.query for holder in manager.show("other")} == {"move it"}
    running = manager.acquire(owner="job", writes=["dw.t"])
    soon = (manager.now() + timedelta(seconds=2)).isoformat()
    with pytest.raises(LockTimeout):
        run(session, f"reserve t until '{soon}'")
    assert "RESERVE waits: job holds dw.t EXCLUSIVE" in caplog.text
    silent: Callable[[], Any] = lambda: run(StatementSession(manager, user="ann"), f"reserve dw.t until '{until}'")  # noqa: E731
    with pytest.raises(InvalidRequest, match="reason"):
        silent()
    assert manager.release(running)
