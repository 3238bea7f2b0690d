"""The routes of groups: who may see one, and who may change its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import LeaseLimit, LockManager, rules
from airflow_hivelock.locks.model import Group
from tests.airflow.page import API, ASKED, Login, access, owner

if TYPE_CHECKING:
    import pytest

SET, DROP = f"{API}/groups/set", f"{API}/groups/drop"
BODY = {"name": "spark-prod", "leases": 3, "comment": "as many as the cluster runs"}


def test_only_who_may_change_the_connection_changes_a_group(login: Login, manager: LockManager) -> None:
    for role in ("viewer", None):
        for path, body in ((SET, BODY), (DROP, {"name": "spark-prod"})):
            assert login(role).post(path, json=body, headers=ASKED).status_code == (403 if role else 401)
    operator = login("op")
    assert operator.post(SET, json=BODY).status_code == 403, "another site's form sends no such header"
    assert operator.post(SET, json={**BODY, "leases": 0}, headers=ASKED).status_code == 422
    heavy = operator.post(SET, json={**BODY, "weight": 4}, headers=ASKED)
    assert (heavy.status_code, "default weight 4" in heavy.json()["detail"]) == (400, True)
    assert list(manager.groups()) == []
    assert operator.post(SET, json={**BODY, "reason": "it grew"}, headers=ASKED).json() == {"leases": 3}
    assert [use.stored for use in manager.groups()] == [Group("spark-prod", 3, 1, BODY["comment"])]  # type: ignore[arg-type]
    assert operator.post(DROP, json={"name": "spark-prod"}, headers=ASKED).json() == {"dropped": True}
    assert operator.post(DROP, json={"name": "spark-prod"}, headers=ASKED).json() == {"dropped": False}
    entries = [(entry.user, entry.owner, entry.reason) for entry in manager.audit()]
    stored = f"3 leases ({BODY['comment']})"
    assert entries == [
        ("some op", "group spark-prod", f"{stored}, before: no limit in the store. it grew"),
        ("some op", "group spark-prod", f"no limit in the store, before: {stored}"),
    ]


def test_the_page_lists_who_has_the_permits_of_a_group_and_who_waits(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = login("op")
    assert operator.get(f"{API}/groups").json()["groups"] == []
    operator.post(SET, json={**BODY, "leases": 2}, headers=ASKED)
    manager.acquire(owner=owner("daily"), writes=["dw.t"], limit=LeaseLimit("spark-prod", weight=2))
    manager.acquire(owner=owner("secret"), writes=["dw.u"], limit=LeaseLimit("secret", 1))
    wants = rules.request(owner("late"), [], ["dw.v"], limit=LeaseLimit("spark-prod"))
    waiting = manager.begin(wants, lambda: None)
    waiting.poll()

    def listed() -> list[Any]:
        answer = login("op").get(f"{API}/groups").json()
        texts = [each.get("text", "hidden") for each in answer["owners"]]

        def named(members: Any) -> list[Any]:
            return [(texts[one["o"]], one["weight"]) for one in members]

        return [
            (row["name"], row["leases"], row["comment"], row["taken"], named(row["holding"]), named(row["waiting"]))
            for row in answer["groups"]
        ]

    ours = ("spark-prod", 2, BODY["comment"], 2, [(owner("daily"), 2)], [(owner("late"), 1)])
    assert listed() == [("secret", None, "", 1, [(owner("secret"), 1)], []), ours]
    monkeypatch.setattr(access, "hidden", lambda dags, _: frozenset(dags) & {"secret"})
    assert listed() == [("", None, "", 1, [("hidden", 1)], []), ours], "a group without a name has that of its DAG"
    waiting.withdraw()


def test_a_group_with_the_name_of_a_dag_that_one_may_not_see_stays_unsaid_without_a_request(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group has its DAG's id, if it has no name of its own."""
    manager.set_group("secret", 3, comment="the secret limit", user="ann")
    manager.set_group("spark-prod", 3, user="ann")
    paths = (f"{API}/groups", f"{API}/audit", f"{API}/audit?limit=9", f"{API}/audit?owner=ecre")
    monkeypatch.setattr(access, "dags_among", lambda names: frozenset(names) & {"secret"})
    assert ["secret" in login("viewer").get(path).text for path in paths] == [True] * 4
    monkeypatch.setattr(access, "hidden", lambda dags, _: frozenset(dags) & {"secret"})
    texts = [login("viewer").get(path).text for path in paths]
    assert ["secret" in text for text in texts] == [False] * 4
    assert ["spark-prod" in text for text in texts] == [True, True, True, False]
    for path, body in ((SET, {**BODY, "name": "secret"}), (DROP, {"name": "secret"})):
        assert login("op").post(path, json=body, headers=ASKED).status_code == 403


def test_the_dag_whose_task_released_by_force_is_hidden_like_others(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = manager.acquire(owner=owner("daily"), writes=["dw.t"])
    manager.force_release(lease.id, reason="stuck", user=f"ann by {owner('secret')}")
    assert "secret" in login("viewer").get(f"{API}/audit").text
    monkeypatch.setattr(access, "hidden", lambda dags, _: frozenset(dags) & {"secret"})
    answer = login("viewer").get(f"{API}/audit")
    assert "secret" not in answer.text
    assert answer.json()["entries"][0]["reason"] == "stuck"
