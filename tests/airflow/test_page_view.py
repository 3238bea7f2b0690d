"""The holders and waiters that the page shows, and how many of them."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.model import Blocker, Holder, Lease, Lock, LockMode, LockObject, Waiter, WaitsFor
from tests.airflow.page import CURRENT, Login, hold, looks, owner, view

if TYPE_CHECKING:
    import pytest

    from airflow_hivelock.locks import LockManager


def test_it_shows_who_holds_and_who_waits_for_whom(login: Login, manager: LockManager) -> None:
    lease = hold(manager, query="dag daily")
    second = manager.begin(rules.request(owner("second"), writes=["dw.t/dt=1"]), lambda: None)
    second.poll()
    third = manager.begin(rules.request(owner("third"), reads=["dw.t/dt=1"]), lambda: None)
    third.poll()
    try:
        viewer = login("viewer")
        shown = viewer.get(CURRENT).json()
        assert shown["hive"] is None, "the first answer does not wait for a look at all of Hive's namespace"
        deadline = time.monotonic() + 60
        while shown["hive"] is None and time.monotonic() < deadline:
            looks.reads.forget(("hivelock_default", "current"))
            shown = viewer.get(CURRENT).json()
    finally:
        third.withdraw()
        second.withdraw()
    [held] = shown["leases"]
    assert shown["owners"][held["o"]] == {"text": lease.owner, "dag": "daily", "run": "r1", "task": "load"}
    assert held["locks"] == [["dw", "S", 1], ["dw.t", "S", 1], ["dw.t/dt=1", "X"]]
    assert (held["id"], held["token"], held["query"]) == (lease.id, lease.token, "dag daily")
    arrows = {
        shown["owners"][waiter["o"]]["dag"]: [shown["owners"][arrow["o"]]["dag"] for arrow in waiter["blockers"]]
        for waiter in shown["waiters"]
    }
    assert arrows == {"second": ["daily"], "third": ["second"]}, "an arrow to each that is waited for, and no other"


def test_an_invitation_is_shown_until_its_end_by_the_stores_clock(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    day, now = rules.request("any", writes=["dw.t/dt=1"]).locks, manager.now()
    invited = Waiter(owner(), day, 1, now, waits_for=WaitsFor.SLOT, until=now + timedelta(seconds=20))
    clock, shown = looks.StoreClock(), []
    with monkeypatch.context() as patch:
        patch.setattr(manager.backend, "waiters", lambda target=None: [invited])
        patch.setitem(looks._clocks, "hivelock_default", clock)
        for passed_s in (19, 21):
            clock._asked = time.monotonic() - passed_s, now.timestamp() * 1000
            looks.reads.forget(("hivelock_default", "current"))
            shown += ["until" in row for row in login("viewer").get(CURRENT).json()["waiters"]]
    assert shown == [True, False]


def test_five_thousand_locks_and_a_thousand_waiters_are_one_small_answer() -> None:
    crowd = _Crowd(1_000, 1_000)
    shown = view.current(crowd.leases(), crowd.waiters(), view.ShownLocks(0, crowd.show()), "here")
    text = json.dumps(shown.data, separators=(",", ":"))
    assert sum(len(lease["locks"]) for lease in shown.data["leases"]) == 5_000
    assert len(shown.data["waiters"]) == 1_000
    assert len(text) < 1_500_000
    assert sum(len(waiter["blockers"]) for waiter in shown.data["waiters"]) < 3_000, "arrows, not all pairs"


def test_a_long_query_of_hive_is_cut_because_each_of_its_locks_has_it() -> None:
    [lease] = _Crowd(1, 0).leases()
    locks = [Holder(lock.object, lock.mode, "hive_1", lease.since, query="SELECT " * 100_000) for lock in lease.locks]
    shown = view.current([], [], view.ShownLocks(0, locks), "here").data
    assert all(row["query"].startswith("SELECT ") for row in shown["hive"])
    assert len(json.dumps(shown)) < 10_000


def test_what_is_too_much_for_a_page_is_counted_and_who_is_in_the_way_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MOST_LOCKS", 60)
    crowd = _Crowd(100, 100)
    leases_ = crowd.leases()[::-1]
    shown = view.current(leases_, crowd.waiters(), view.ShownLocks(0, crowd.show()), "here").data
    assert (len(shown["leases"]), len(shown["waiters"])) == (60 // 5, 60 // 3)
    assert shown["left_out"] == 100 - 60 // 5 + 100 - 60 // 3
    assert shown["leases"][0]["id"] == "l0", "for whom all wait"
    assert len(shown["owners"]) == 60 // 5 + 60 // 3, "nobody is named who is left out"


def test_it_tells_a_wait_for_a_lock_from_one_for_a_slot_and_from_one_for_a_counted_lease() -> None:
    shown = view.current([], _rerun(), None, "here").data
    told = {
        shown["owners"][row["o"]]["run"]: (row["for"], row["priority"], row.get("group"), row.get("out"))
        for row in shown["waiters"]
    }
    assert told == {
        "locked": ("lock", 10, None, None),
        "aside": ("slot", 1, None, None),
        "third": ("lease", 1, "reruns", 2),
        "fourth": ("lease", 1, "reruns", 2),
    }
    arrows = {
        shown["owners"][row["o"]]["run"]: [
            (shown["owners"][arrow["o"]]["run"], arrow.get("counted", False)) for arrow in row["blockers"]
        ]
        for row in shown["waiters"]
    }
    assert arrows == {
        "locked": [("first", False)],
        "aside": [],
        "third": [("first", True), ("second", True)],
        "fourth": [("third", True)],
    }, "an arrow to each that is waited for, and no other"


def test_the_group_of_a_dag_that_one_may_not_see_stays_unsaid() -> None:
    shown = view.current([], _rerun("payroll"), None, "here").without({"payroll"})
    assert "reruns" not in json.dumps(shown)
    assert [row["for"] for row in shown["waiters"]] == ["lock", "slot", "lease", "lease"]


def _rerun(dag_id: str = "daily") -> list[Waiter]:
    """Two days hold the two leases of their group; two more wait for one, one for a slot, and one for a lock."""
    [day] = rules.request("any", writes=["dw.t/dt=1"]).locks[-1:]
    now = datetime.now(UTC)

    def in_the_way(run_id: str, group: str = "reruns", *, waiting: bool = False) -> Blocker:
        return Blocker(owner(dag_id, run_id), day.object, day.mode, waiting, group)

    out = (in_the_way("first"), in_the_way("second"))
    return [
        Waiter(owner(dag_id, "locked"), (day,), 1, now, (in_the_way("first", ""),), 10),
        Waiter(owner(dag_id, "aside"), (day,), 0, now, waits_for=WaitsFor.SLOT),
        Waiter(owner(dag_id, "third"), (day,), 1, now, out, waits_for=WaitsFor.LEASE),
        Waiter(
            owner(dag_id, "fourth"), (day,), 2, now, (*out, in_the_way("third", waiting=True)), waits_for=WaitsFor.LEASE
        ),
    ]


def test_only_what_was_there_before_the_look_can_be_lost() -> None:
    crowd = _Crowd(1, 0)
    [lease] = crowd.leases()
    since_ms = int(lease.since.timestamp() * 1000)
    for at_ms, lost in ((since_ms - 1, None), (since_ms + 1, ["dw.t/dt=0/hr=2"])):
        shown = view.current([lease], [], view.ShownLocks(at_ms, crowd.show()[:-1]), "here").data
        assert shown["leases"][0].get("lost") == lost


class _Crowd:
    """A lock manager with many leases, all of one table, and a long queue behind the first."""

    def __init__(self, held: int, waiting: int) -> None:
        now = datetime.now(UTC)
        self._leases = [
            Lease(f"l{n}", n, 1, 1, owner("dag", f"r{n}"), self._locks(n), 3600.0, now, expires=now)
            for n in range(held)
        ]
        wanted = self._locks(0)[-1]
        line = [Blocker(owner("dag", "r0"), wanted.object, wanted.mode)]
        self._waiters = []
        for n in range(waiting):
            who = owner("late", f"w{n}")
            self._waiters.append(Waiter(who, self._locks(0)[:3], n + 1, now, tuple(reversed(line))))
            line.append(Blocker(who, wanted.object, wanted.mode, True))

    @staticmethod
    def _locks(number: int) -> tuple[Lock, ...]:
        leaves = [f"dw.t/dt={number}/hr={hour}" for hour in range(3)]
        return (
            Lock(LockObject.parse("dw"), LockMode.SHARED),
            Lock(LockObject.parse("dw.t"), LockMode.SHARED),
            *(Lock(LockObject.parse(leaf), LockMode.EXCLUSIVE) for leaf in leaves),
        )

    def leases(self) -> list[Lease]:
        return self._leases

    def show(self) -> list[Holder]:
        return [
            Holder(lock.object, lock.mode, lease.owner, lease.since, lease.id)
            for lease in self._leases
            for lock in lease.locks
        ]

    def waiters(self) -> list[Waiter]:
        return self._waiters


def test_a_lock_of_a_hidden_dag_in_a_listing_of_hive_has_no_name() -> None:
    """HiveServer2 lists the lock node of a task, and so its DAG."""
    since, day = datetime(2026, 1, 1, tzinfo=UTC), LockObject.parse("dw.t/dt=1")
    holders = [
        Holder(day, LockMode.EXCLUSIVE, who, since, query=f"dag {who}", hive_id=f"id of {who}")
        for who in (owner("secret"), owner("secret", installation="elsewhere"), owner("daily"), "hive_1")
    ]
    shown = view.current([], [], view.ShownLocks(1, holders), "here")
    assert shown.dag_ids == {"secret", "daily"}
    rows = shown.without(frozenset({"secret"}))["hive"]
    assert "secret" not in json.dumps(rows)
    for row in rows[:2]:
        assert (row["object"], row["owner"], row["query"], "id" in row) == (
            "dw.t/dt=1",
            "a task of a DAG that you may not see",
            "",
            False,
        )
    assert rows[2:] == shown.data["hive"][2:]
    assert shown.without(frozenset()) is shown.data
