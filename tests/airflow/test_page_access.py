"""Access to the page: who may see and free what, and what no answer contains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.models import Connection
from airflow.utils.session import create_session

from airflow_hivelock import HiveLockHook
from airflow_hivelock.locks import InvalidRequest
from airflow_hivelock.work import hosts
from airflow_hivelock.work.applications import encode
from airflow_hivelock.work.processes import Processes
from tests.airflow.page import (
    API,
    ASKED,
    CURRENT,
    LEASES,
    Login,
    access,
    create_auth_manager,
    each_role_and_site,
    hiding,
    hold,
    owner,
    page,
    works,
)

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager


NASTY = "<img src=x onerror=alert(1)>\"'&"
PLACES = [
    "/",
    "/static/page.js",
    "/api/v1/connections",
    CURRENT,
    f"{API}/history",
    f"{API}/audit",
    f"{API}/history?owner=daily&limit=5",
    "/api/v1/openapi.json",
]


@pytest.mark.parametrize("place", [*PLACES, f"{LEASES}/1"])
def test_who_is_signed_out_sees_nothing(place: str, login: Login) -> None:
    assert login(None).get(place).status_code == 401


@pytest.mark.parametrize("place", PLACES)
def test_a_viewer_sees_all_of_it(place: str, login: Login, manager: LockManager) -> None:
    assert login("viewer").get(place).status_code == 200


@each_role_and_site
def test_only_who_may_change_the_connection_frees_a_lease_and_only_from_the_page(
    role: str | None, headers: dict[str, str], status: int, login: Login, manager: LockManager
) -> None:
    lease = hold(manager)
    answer = login(role).post(f"{LEASES}/{lease.id}/release", json={"reason": "its host is gone"}, headers=headers)
    assert answer.status_code == status, answer.text
    assert (manager.find(lease.id) is None) == (status == 200)
    assert [(entry.user, entry.reason) for entry in manager.audit()] == (
        [(f"some {role}", "its host is gone")] if status == 200 else []
    )


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "  \n"}, {"reason": "x" * 1001}])
def test_nothing_is_freed_without_a_reason(body: dict[str, str], login: Login, manager: LockManager) -> None:
    lease = hold(manager)
    answer = login("op").post(f"{LEASES}/{lease.id}/release", json=body, headers=ASKED)
    assert answer.status_code == 422
    assert manager.find(lease.id) is not None


def test_what_cannot_be_sent_back_is_refused_without_it(login: Login, manager: LockManager) -> None:
    lease = hold(manager)
    answer = login("op").post(
        f"{LEASES}/{lease.id}/release",
        content=b'{"reason": "\\ud800"}',
        headers={**ASKED, "Content-Type": "application/json"},
    )
    assert answer.status_code in (400, 422), "not a crash of the API server's"
    assert manager.find(lease.id) is not None


def test_the_audit_trail_tells_users_of_one_name_apart() -> None:
    class User:
        def get_id(self) -> int:
            return 7

        def get_name(self) -> str:
            return "Ann"

    assert access.user_name(User()) == "Ann (7)"


def test_a_form_of_another_site_cannot_free_a_lease(login: Login, manager: LockManager) -> None:
    lease = hold(manager)
    answer = login("op").post(
        f"{LEASES}/{lease.id}/release",
        content='{"reason": "mischief"}',
        headers={"Content-Type": "text/plain", "Sec-Fetch-Site": "cross-site"},
    )
    assert answer.status_code in (403, 422)
    assert manager.find(lease.id) is not None


def test_only_an_operator_is_told_of_the_button(login: Login, manager: LockManager) -> None:
    told = {role: login(role).get(CURRENT).headers["X-May-Release"] for role in ("viewer", "user", "op", "admin")}
    assert told == {"viewer": "false", "user": "false", "op": "true", "admin": "true"}


def test_names_are_sent_as_data_and_never_as_markup(login: Login, manager: LockManager) -> None:
    lease = hold(manager, owner(NASTY, NASTY), query=NASTY)
    answer = login("viewer").get(CURRENT)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.json()["owners"][0]["dag"] == NASTY
    home = login("viewer").get("/")
    policy = home.headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy
    assert "'unsafe" not in policy
    assert "<script>" not in home.text
    manager.release(lease)


def test_no_script_of_the_page_writes_markup() -> None:
    for name, file in page.FILES.items():
        for forbidden in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "http://",
            "https://",
        ):
            text = file.read_text().replace("http://www.w3.org/2000/svg", "")
            assert forbidden not in text, f"{name} uses {forbidden}"


def test_nothing_but_its_own_files_and_connections_is_given_out(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SECRET_DB", "postgres://user:secret@db/x?odd=1")
    operator = login("op")
    for place in ("/static/../app.py", "/static/%2e%2e%2fapp.py", "/static/none.js", "/api/v1/secret_db/current"):
        answer = operator.get(place)
        assert answer.status_code == 404, place
        assert "odd" not in answer.text
    assert operator.get("/api/v1/connections").json()["connections"] == ["hivelock_default"]


def test_a_dag_that_one_may_not_see_stays_nameless(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = hold(manager, owner("payroll"), query="dag payroll")
    public = manager.acquire(owner=owner("public"), writes=["dw.other"])
    auth = create_auth_manager()
    monkeypatch.setattr(auth, "is_authorized_dag", lambda *, details, **_: details.id != "payroll", raising=False)
    operator = login("op")
    text = operator.get(CURRENT).text
    assert "payroll" not in text
    assert lease.id not in text
    assert "dw.t/dt=1" in text
    assert public.id in text
    assert operator.get(f"{LEASES}/{lease.id}").status_code == 403
    answer = operator.post(f"{LEASES}/{lease.id}/release", json={"reason": "no"}, headers=ASKED)
    assert answer.status_code == 403
    assert manager.find(lease.id) is not None


def test_the_work_of_another_dag_under_a_passed_lease_stays_nameless_if_one_may_not_see_that_dag(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = hold(manager)
    manager.start_work(lease, "load", encode(Processes(host="worker-7")))
    manager.start_work(lease, "payroll/bonus 2026/pay", encode(Processes(host="payslips")))
    monkeypatch.setattr(access, "keeper_suspects", lambda _: (1, {lease.id: "payroll/bonus 2026/pay may run"}))
    monkeypatch.setattr(access, "hidden", lambda dag_ids, _: frozenset(dag_ids) & {"payroll"})
    gone = [each for each in hosts.recorded(manager.leases()) if each.processes.host == "payslips"]
    operator = login("op")
    shown = operator.get(CURRENT).json()["leases"][0]["jobs"]
    assert [name for name, *_ in shown] == ["load", hiding.HIDDEN]
    details = operator.get(f"{LEASES}/{lease.id}").json()
    load, hidden = details["works"]
    assert (load["host"], load["code"]) == ("worker-7", works.AWAY)
    assert hidden == {
        "name": hiding.HIDDEN,
        "what": "",
        "host": "",
        "code": works.AWAY,
        "how": "only its host can tell",
        "next": "Ask a user who may see its DAG.",
    }
    refused = operator.post(f"{API}/hosts/gone", json={"host": "payslips", "reason": "burnt down"}, headers=ASKED)
    assert refused.status_code == 400
    hosts.declare_gone(manager, gone, reason="burnt down in payroll", user="ann")
    trail = operator.get(f"{API}/audit").json()["entries"]
    assert [(entry["user"], entry.get("reason")) for entry in trail] == [("ann", None)]
    places = (
        CURRENT,
        f"{LEASES}/{lease.id}",
        f"{API}/hosts?host=worker-7",
        f"{API}/hosts?host=payslips",
        f"{API}/audit",
    )
    for text in (refused.text, *(operator.get(place).text for place in places)):
        for secret in ("payroll", "bonus", "pay/", "payslips'"):
            assert secret not in text.replace("on 'payslips'", ""), "but for the name that the user has asked for"


def test_a_connection_of_a_team_is_not_listed_because_the_page_cannot_open_it(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(Connection, "team_name"):
        pytest.skip("before Airflow 3.2 a connection has no team")
    from airflow.models.team import Team

    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    fields: dict[str, Any] = {"conn_type": "hivelock", "extra": '{"backend": "memory", "installation": "here"}'}
    team, of_all, of_etl = Team(name="etl"), Connection("locks_of_all", **fields), Connection("locks_of_etl", **fields)
    of_etl.team_name = "etl"
    with create_session() as session:
        session.add(team)
        session.flush()
        session.add_all([of_all, of_etl])
    try:
        listed = access.connection_ids()
        assert "locks_of_all" in listed
        assert "locks_of_etl" not in listed
        assert HiveLockHook("locks_of_all").url == "memory://"
        with pytest.raises(InvalidRequest, match="does not exist"):
            HiveLockHook("locks_of_etl").settings  # noqa: B018
    finally:
        with create_session() as session:
            for each in (of_all, of_etl, team):
                session.delete(session.merge(each))
