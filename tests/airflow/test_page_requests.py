"""A person withdraws a request, changes its priority, or reserves an object on the page."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import Withdrawn, reservations, rules
from tests.airflow.page import API, ASKED, CURRENT, Login, access, each_role_and_site, hold, owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.pending import PendingLease

    Waits = Callable[[str], PendingLease]

WITHDRAW, PRIORITY, RESERVE = (f"{API}/{what}" for what in ("requests/withdraw", "requests/priority", "reservations"))


@pytest.fixture
def waits(manager: LockManager) -> Iterator[Waits]:
    """Return a function that makes the request of a DAG's task wait, and returns it."""
    waiting: list[PendingLease] = []

    def wait(dag_id: str) -> PendingLease:
        waiting.append(manager.begin(rules.request(owner(dag_id), writes=["dw.t/dt=1"]), lambda: None))
        waiting[-1].poll()
        return waiting[-1]

    yield wait
    for pending in waiting:
        pending.withdraw()


@pytest.mark.parametrize(("route", "more"), [(WITHDRAW, {}), (PRIORITY, {"priority": 5})])
@each_role_and_site
def test_only_who_may_change_the_connection_changes_a_request_and_only_from_the_page(
    route: str,
    more: dict[str, Any],
    role: str | None,
    headers: dict[str, str],
    status: int,
    login: Login,
    manager: LockManager,
    waits: Waits,
) -> None:
    hold(manager)
    waits("urgent")
    body = {"owner": owner("urgent"), "reason": " due at 7 ", **more}
    answer = login(role).post(route, json=body, headers=headers)
    assert answer.status_code == status, answer.text
    said = {WITHDRAW: "due at 7", PRIORITY: "priority 5: due at 7"}[route]
    trail = [(entry.owner, entry.user, entry.reason) for entry in manager.audit()]
    assert trail == ([(owner("urgent"), f"some {role}", said)] if status == 200 else [])


def test_the_next_look_shows_a_changed_request(login: Login, manager: LockManager, waits: Waits) -> None:
    hold(manager)
    waits("first")
    last = waits("last")
    operator = login("op")

    def queue() -> list[tuple[str, int]]:
        looked = operator.get(CURRENT).json()
        return [(looked["owners"][each["o"]]["dag"], each["priority"]) for each in looked["waiters"]]

    assert queue() == [("first", 1), ("last", 1)]
    body = {"owner": owner("last"), "reason": "urgent"}
    assert operator.post(PRIORITY, json={**body, "priority": 9}, headers=ASKED).json() == {"changed": True}
    assert queue() == [("last", 9), ("first", 1)]
    again = operator.post(PRIORITY, json={**body, "priority": 9}, headers=ASKED)
    assert (again.status_code, "has priority 9 already" in again.json()["detail"]) == (400, True)
    assert operator.post(WITHDRAW, json=body, headers=ASKED).json() == {"withdrawn": True}
    assert queue() == [("first", 1)]
    with pytest.raises(Withdrawn, match="some op: urgent"):
        last.poll()
    for route, answer in ((WITHDRAW, {"withdrawn": False}), (PRIORITY, {"changed": False})):
        assert operator.post(route, json={**body, "priority": 5}, headers=ASKED).json() == answer


@pytest.mark.parametrize("priority", [True, 1.5, "5", 10**10, None])
def test_a_priority_is_a_whole_number(priority: Any, login: Login, manager: LockManager, waits: Waits) -> None:
    hold(manager)
    waits("urgent")
    body = {"owner": owner("urgent"), "reason": "urgent", "priority": priority}
    assert login("op").post(PRIORITY, json=body, headers=ASKED).status_code == 422
    assert manager.audit() == []


def test_the_request_of_a_dag_that_one_may_not_see_is_not_changed(
    login: Login, manager: LockManager, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(manager)
    waits("secret")
    monkeypatch.setattr(access, "hidden", lambda dag_ids, _: frozenset(dag_ids) & {"secret"})
    body = {"owner": owner("secret"), "reason": "curious", "priority": 5}
    for route in (WITHDRAW, PRIORITY):
        assert login("op").post(route, json=body, headers=ASKED).status_code == 403
    assert [waiter.priority for waiter in manager.waiters()] == [1]


def test_an_operator_reserves_what_is_free(login: Login, manager: LockManager) -> None:
    operator = login("op")
    until = (manager.now() + timedelta(hours=2)).replace(microsecond=0)
    body = {"object": "dw.sales", "until": until.isoformat(), "reason": " compaction "}
    assert login("viewer").post(RESERVE, json=body, headers=ASKED).status_code == 403
    lease = manager.find(operator.post(RESERVE, json=body, headers=ASKED).json()["lease"])
    assert lease is not None
    assert reservations.end_of(lease.owner) == until
    assert lease.owner.startswith("reservation:some op:")
    (holder,) = manager.show("dw.sales")
    assert holder.query == "compaction"
    looked = operator.get(CURRENT).json()
    assert [looked["owners"][each["o"]]["text"] for each in looked["leases"]] == [lease.owner]


def test_an_object_in_use_is_not_reserved_and_its_holder_is_not_named(login: Login, manager: LockManager) -> None:
    hold(manager, owner("secret"))
    body = {"object": "dw.t/dt=1", "until": "06:00", "reason": "compaction"}
    answer = login("op").post(RESERVE, json=body, headers=ASKED)
    assert answer.status_code == 409
    assert "dw.t/dt=1 is in use" in answer.json()["detail"]
    assert "RESERVE dw.t PARTITION (dt='1') UNTIL '" in answer.json()["detail"]
    assert "secret" not in answer.text
    assert len(manager.leases()) == 1
    assert manager.waiters() == []
    for wrong in ({"object": "dw..t"}, {"until": "soon"}, {"until": "2001-01-01T00:00Z"}, {"object": "dw.t/dt=\0"}):
        refused = login("op").post(RESERVE, json={**body, "object": "dw.u", **wrong}, headers=ASKED)
        assert refused.status_code == 400, refused.text
