"""The routes below /api/v1 as programs use them: their description, selections of the past, and locks of Hive."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from airflow_hivelock import hooks
from airflow_hivelock.locks import InvalidRequest, LockManager, LockMode, LockObject, Unsupported
from airflow_hivelock.locks.backends.metastore import MetastoreBackend
from airflow_hivelock.locks.backends.metastore.row import Metadata
from airflow_hivelock.locks.model import Lock
from airflow_hivelock.ui import api
from tests.airflow.page import API, ASKED, Login, access, owner
from tests.fuzz import hives
from tests.fuzz.hives import MetastoreStub

HIVE = f"{API}/hive/release"
GUIDE = Path(__file__).parents[2] / "docs/guides/http-api.md"


def names(answer: Any, kind: str) -> list[str]:
    """The owners of an answer's rows; "hidden" for one whose name is not told."""
    return [answer["owners"][row["o"]].get("text", "hidden") for row in answer[kind]]


@pytest.fixture
def past(manager: LockManager) -> dict[str, str]:
    """Ended leases of two DAGs, each freed by force, the later one last."""
    owners = {dag: owner(dag) for dag in ("daily", "secret")}
    for name, who in zip(("dw.t/dt=1", "dw.u"), owners.values(), strict=True):
        manager.force_release(manager.acquire(owner=who, writes=[name]).id, reason="stuck", user="ann")
    return owners


def test_history_and_audit_are_of_an_object_or_an_owner_and_no_longer_than_the_limit(
    login: Login, past: dict[str, str]
) -> None:
    viewer = login("viewer")
    daily, secret = past.values()
    for what, kind in (("history", "tenures"), ("audit", "entries")):
        for asked, found in (
            ("", [secret, daily]),
            ("?object=dw.t", [daily]),
            ("?object=dw", [secret, daily]),
            ("?object=dw.t/dt=2", []),
            ("?owner=secret", [secret]),
            ("?owner=here&limit=1", [secret]),
            ("?object=dw.t&owner=secret", []),
        ):
            answer = viewer.get(f"{API}/{what}{asked}")
            assert (answer.status_code, names(answer.json(), kind)) == (200, found), asked
        assert viewer.get(f"{API}/{what}?object=a.b.c").status_code == 400
        assert viewer.get(f"{API}/{what}?limit=0").status_code == 422


@pytest.mark.usefixtures("past")
def test_a_hidden_owner_cannot_be_found_by_its_name(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a user could learn by trial which tables a DAG locks that the user may not see."""
    monkeypatch.setattr(access, "hidden", lambda dags, _: frozenset(dags) & {"secret"})
    viewer = login("viewer")
    for what, kind in (("history", "tenures"), ("audit", "entries")):
        assert names(viewer.get(f"{API}/{what}?limit=5").json(), kind)[0] == "hidden"
        for part in ("secret", "here", "load"):
            answer = viewer.get(f"{API}/{what}?owner={part}").json()
            assert "hidden" not in names(answer, kind), part
            assert not any("secret" in str(each) for each in answer["owners"])


def test_each_dependency_of_a_route_is_a_function() -> None:
    """The FastAPI of Airflow 3.1 resolves the annotations of a function only, and answers 500 for those of a class."""
    routes = [route for route in api.router.routes if isinstance(route, APIRoute)]
    calls = [(route.path, each.call) for route in routes for each in route.dependant.dependencies]
    assert calls
    assert not [(path, call) for path, call in calls if isinstance(call, type)]


def test_openapi_describes_every_route_with_its_answer_and_its_rights(
    login: Login,
) -> None:
    described = login("viewer").get("/api/v1/openapi.json").json()
    paths = {path.removeprefix("/api/v1/"): methods for path, methods in described["paths"].items()}
    assert set(paths) == {
        "connections",
        *(
            f"{{connection_id}}/{what}"
            for what in ("current", "history", "audit", "groups", "hosts", "leases/{lease_id}")
        ),
        *(f"{{connection_id}}/{what}" for what in ("leases/{lease_id}/release", "hive/release", "hosts/gone")),
        *(f"{{connection_id}}/groups/{what}" for what in ("set", "drop")),
        *(f"{{connection_id}}/{what}" for what in ("requests/withdraw", "requests/priority", "reservations")),
    }
    for path, methods in paths.items():
        for route in methods.values():
            answer = route["responses"]["200"]["content"]["application/json"]["schema"]
            assert answer["$ref"].rpartition("/")[2] in described["components"]["schemas"], path
            assert route["security"], f"{path}: a program has to sign in"
    asked = {parameter["name"] for parameter in paths["{connection_id}/history"]["get"]["parameters"]}
    assert asked == {"connection_id", "hours", "object", "owner", "limit"}


def test_a_program_signs_in_with_airflows_token(login: Login) -> None:
    program = login("viewer")
    token = program.cookies.pop("_token")
    assert program.get(f"{API}/current").status_code == 401
    assert program.get(f"{API}/current", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_the_guide_names_every_route_and_no_other(login: Login) -> None:
    described = login("viewer").get("/api/v1/openapi.json").json()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in described.items() for method in methods}
    named = set(re.findall(r"`((?:GET|POST) /api/v1/[^`?]+)", GUIDE.read_text()))
    assert named == {*routes, "GET /api/v1/openapi.json"}


def test_the_routes_without_a_version_are_gone(login: Login) -> None:
    assert login("viewer").get("/api/hivelock_default/current").status_code == 404


def test_an_operator_frees_a_lock_of_hive_by_its_id(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def force_unlock(_: LockManager, hive_id: str, **record: str) -> list[Lock]:
        asked.append((hive_id, record))
        if hive_id == "18":
            raise Unsupported("lock 18 belongs to transaction 5 of Hive, and ends with it")
        return [Lock(LockObject("dw", "t"), LockMode.SHARED)] if hive_id == "17" else []

    monkeypatch.setattr(LockManager, "force_unlock", force_unlock)
    operator, body = login("op"), {"id": "17", "reason": " its client is gone "}
    for role in ("viewer", None):
        assert login(role).post(HIVE, json=body, headers=ASKED).status_code == (403 if role else 401)
    assert operator.post(HIVE, json=body).status_code == 403, "another site's form sends no such header"
    assert operator.post(HIVE, json={"id": "17", "reason": " "}, headers=ASKED).status_code == 422
    assert asked == []
    assert operator.post(HIVE, json=body, headers=ASKED).json() == {"freed": 1}
    assert asked == [("17", {"reason": "its client is gone", "user": "some op"})]
    assert operator.post(HIVE, json={**body, "id": "19"}, headers=ASKED).json() == {"freed": 0}
    refused = operator.post(HIVE, json={**body, "id": "18"}, headers=ASKED)
    assert (refused.status_code, refused.json()["detail"]) == (
        400,
        "lock 18 belongs to transaction 5 of Hive, and ends with it",
    )


def test_no_owner_of_a_lease_or_a_request_is_found_by_the_number_of_its_lock(
    login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow can hide the DAG from this user."""
    waits = hives._element(lockid=21, tablename="t", state=2, **Metadata(owner("a_dag"), 1, 3600.0, "n").columns)
    monkeypatch.setattr(hives._thrift, "odd", [waits])
    backend = MetastoreBackend(MetastoreStub((("127.0.0.1", 1),)), timeout_s=300)
    monkeypatch.setitem(hooks._managers, "memory://", LockManager(backend))
    for number in ("17", "21"):
        answer = login("op").post(HIVE, json={"id": number, "reason": "curious"}, headers=ASKED)
        assert (answer.status_code, "is not Hive's" in answer.text, "dag" in answer.text) == (400, True, False)


def test_a_store_without_locks_of_hive_frees_none(login: Login, manager: LockManager) -> None:
    answer = login("op").post(HIVE, json={"id": "17", "reason": "its client is gone"}, headers=ASKED)
    assert (answer.status_code, "no locks of Hive" in answer.json()["detail"]) == (400, True)
    with pytest.raises(InvalidRequest):
        manager.force_unlock("17", reason="", user="ann")
