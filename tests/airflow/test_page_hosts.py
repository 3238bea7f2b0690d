"""A host that a user declares gone on the page."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from tests.airflow.page import API, ASKED, LEASES, Login, access, each_role_and_site, on_worker, works

if TYPE_CHECKING:
    import pytest

    from airflow_hivelock.locks import LockManager


GONE = f"{API}/hosts/gone"


@each_role_and_site
def test_only_who_may_change_the_connection_says_that_a_host_is_gone_and_only_from_the_page(
    role: str | None, headers: dict[str, str], status: int, login: Login, manager: LockManager
) -> None:
    lease = on_worker(manager)
    said = {"host": "worker-7", "reason": "burnt down"}
    answer = login(role).post(GONE, json=said, headers=headers)
    assert answer.status_code == status, answer.text
    trail = [(entry.user, entry.lease_id) for entry in manager.audit()]
    assert trail == ([(f"some {role}", lease.id)] if status == 200 else [])
    shown = login("viewer").get(f"{LEASES}/{lease.id}").json()["works"]
    waits = {"code": works.AWAY, "host": "worker-7"}
    ended = {"code": works.ENDED, "host": ""}
    assert {name: shown[0][name] for name in ("code", "host")} == (ended if status == 200 else waits)
    assert (f"declared gone by some {role}" in shown[0]["what"]) == (status == 200)


def test_a_lease_that_was_looked_at_before_shows_at_once_that_its_host_is_gone(
    login: Login, manager: LockManager
) -> None:
    lease, operator = on_worker(manager), login("op")
    place = f"{LEASES}/{lease.id}"
    assert operator.get(place).json()["works"][0]["code"] == works.AWAY
    assert operator.post(GONE, json={"host": "worker-7", "reason": "burnt down"}, headers=ASKED).json() == {"ended": 1}
    assert operator.get(place).json()["works"][0]["code"] == works.ENDED


def test_what_ends_with_a_host_is_listed_before_it_is_said(login: Login, manager: LockManager) -> None:
    on_worker(manager)
    operator = login("op")
    (row,) = operator.get(f"{API}/hosts?host=worker-7").json()["works"]
    assert (row["name"], row["owner"]["dag"]) == ("load", "daily")
    for host, why in (("worker-8", "no lease records work"), (socket.gethostname(), "so it is not gone")):
        refused = operator.post(GONE, json={"host": host, "reason": "burnt down"}, headers=ASKED)
        assert (refused.status_code, why in refused.json()["detail"]) == (400, True)
    assert not manager.audit()


def test_the_work_of_a_dag_that_one_may_not_see_is_not_said_to_be_gone(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_worker(manager, "secret")
    mine = on_worker(manager)
    monkeypatch.setattr(access, "hidden", lambda dag_ids, _: frozenset(dag_ids) & {"secret"})
    operator = login("op")
    assert len(operator.get(f"{API}/hosts?host=worker-7").json()["works"]) == 1
    said = {"host": "worker-7", "reason": "burnt down"}
    assert operator.post(GONE, json=said, headers=ASKED).json() == {"ended": 1}
    assert [entry.lease_id for entry in manager.audit()] == [mine.id]
