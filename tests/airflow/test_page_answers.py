"""The page's server and its scripts agree on the answers: the same fields, of the types in tests/page/answers.d.ts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import LeaseLimit, LockManager, rules
from airflow_hivelock.locks.model import Blocker, Holder, Lease, LockMode, LockObject, Waiter, WaitsFor, Work
from airflow_hivelock.spec import Owner
from airflow_hivelock.work.applications import encode
from airflow_hivelock.work.processes import Processes
from tests.airflow.page import API, ASKED, Login, access, holders, on_worker, owner, view, works
from tests.airflow.page import answers as models
from tests.page.answers import FIELDS, Seen, declared, literals

if TYPE_CHECKING:
    import pytest

NOW = datetime.now(UTC)
DAY = rules.request("any", writes=["dw.t/dt=1"]).locks
TASKS = [str(Owner("here", dag_id, "r1", "load")) for dag_id in ("daily", "secret", "late")]
MAPPED, ELSEWHERE = str(Owner("here", "daily", "r1", "mapped", 3)), str(Owner("there", "daily", "r1", "load"))


def current() -> Any:
    """An answer with each kind of owner, lease and waiter."""
    holding = [*TASKS, MAPPED, ELSEWHERE, "cli:ann:1", "a program"]
    work = (Work("load", encode(Processes(host="worker-7")), 1),)
    leases = [
        Lease(f"l{n}", n, 1, 1, who, DAY, 3600.0, NOW - timedelta(hours=1), expires=NOW, works=work)
        for n, who in enumerate(holding)
    ]
    shown = [Holder(lock.object, lock.mode, TASKS[0], NOW, "l0", query="a task") for lock in DAY[:-1]]
    hives = Holder(LockObject.parse("dw.u"), LockMode.SHARED, "hive_1", NOW, hive_id="17", heartbeat=NOW)
    blocker = Blocker(TASKS[0], DAY[-1].object, DAY[-1].mode)
    out = Blocker(TASKS[0], DAY[-1].object, DAY[-1].mode, group="reruns")
    waiters = [
        Waiter(TASKS[2], DAY, 1, NOW, (blocker,)),
        Waiter("of a group", DAY, 0, NOW, (out,), waits_for=WaitsFor.LEASE),
        Waiter("invited", DAY, 1, NOW, waits_for=WaitsFor.SLOT, until=NOW),
    ]
    sensor = access.Sensor("report", "r1", "is_free", -1, NOW, ("dw.t",), ("dw.u",))
    looked = view.ShownLocks(int(NOW.timestamp() * 1000), [*shown, hives])
    ends = {TASKS[2]: [int(NOW.timestamp() * 1000)] * 2}
    answer = view.current(leases, waiters, looked, "here", sensors=[sensor], expected=ends)
    told = holders.TaskFacts("running", task="running", at=NOW, heartbeat=NOW)
    state = works.WorkState(works.RUNS, "still runs", "Wait until it ends.")
    holders.judge(
        answer.data, int(NOW.timestamp() * 1000), lambda asked: dict.fromkeys(asked, told), {"l0": {"load": state}}
    )
    return answer.without({"secret"})


def test_each_answer_has_exactly_the_fields_that_the_scripts_read(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, seen = login("op"), Seen()
    lease, on_host, ended = (
        on_worker(manager),
        on_worker(manager, "late"),
        manager.acquire(owner=owner("ended"), reads=["dw.z"]),
    )
    monkeypatch.setattr(access, "keeper_suspects", lambda _: (1, {lease.id: "it cannot tell"}))
    answers = {"Current": current()}
    for kind, path in (
        ("Current", "current"),
        ("LeaseDetails", f"leases/{lease.id}"),
        ("LeaseDetails", f"leases/{on_host.id}"),
        ("OnHost", "hosts?host=worker-7"),
    ):
        assert seen.problem(operator.get(f"{API}/{path}").json(), kind) == ""
    gone = operator.post(f"{API}/hosts/gone", json={"host": "worker-7", "reason": "burnt down"}, headers=ASKED)
    freed = operator.post(f"{API}/leases/{ended.id}/release", json={"reason": "its host is gone"}, headers=ASKED)
    monkeypatch.setattr(LockManager, "force_unlock", lambda *_, **__: [DAY[0]])
    hives = operator.post(f"{API}/hive/release", json={"id": "17", "reason": "its client is gone"}, headers=ASKED)
    waiting = manager.begin(rules.request("waits", writes=["dw.t"]), lambda: None)
    waiting.poll()
    asked = {"owner": "waits", "reason": "urgent"}
    changed = operator.post(f"{API}/requests/priority", json={**asked, "priority": 5}, headers=ASKED)
    withdrawn = operator.post(f"{API}/requests/withdraw", json=asked, headers=ASKED)
    wanted = {"object": "free.t", "until": "06:00", "reason": "compaction"}
    reserved = operator.post(f"{API}/reservations", json=wanted, headers=ASKED)
    answers |= {
        "PriorityChanged": changed.json(),
        "Withdrawn": withdrawn.json(),
        "Reserved": reserved.json(),
        "HiveReleased": hives.json(),
        "HostGone": gone.json(),
        "Released": freed.json(),
        "Connections": operator.get("/api/v1/connections").json(),
    }
    manager.set_group("reruns", 2, user="ann")
    manager.acquire(owner=owner("counted"), reads=["dw.z"], limit=LeaseLimit("reruns"))
    answers |= {kind: operator.get(f"{API}/{kind.lower()}").json() for kind in ("History", "Audit", "Groups")}
    for kind, answer in answers.items():
        assert seen.problem(answer, kind) == ""
        getattr(models, f"{kind}Answer").model_validate(answer)
    assert declared() - seen.fields == set(), "the scripts know fields that the server does not send"


def test_the_description_of_the_routes_has_the_fields_that_the_scripts_read() -> None:
    """OpenAPI, for programs, and the types of the page's scripts describe the same answers."""
    described = {
        f"{name}.{field.alias or key}": not field.is_required()
        for name in FIELDS
        for key, field in getattr(models, f"{name}Answer").model_fields.items()
    }
    read = {
        f"{name}.{field}": not always
        for name, fields in FIELDS.items()
        for field, (always, kind) in fields.items()
        if kind != "undefined"
    }
    assert described == read


def test_a_field_that_the_scripts_do_not_know_is_noticed() -> None:
    answer = current()
    answer["waiters"][0]["place"] = answer["waiters"][0].pop("position")
    problem = Seen().problem(answer, "Current")
    assert "Waiter has no field 'place'" in problem
    assert "'position' of Waiter is missing" in problem


def test_the_scripts_know_all_states_of_work_and_all_kinds_of_waiting() -> None:
    assert literals("WorkCode") == {works.RUNS, works.ENDED, works.AWAY, works.UNTOLD, works.SILENT}
    assert literals("WaitsFor") == {each.value for each in WaitsFor} | {"free"}
