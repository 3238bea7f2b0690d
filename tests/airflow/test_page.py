"""The page's application: who may do what, what is shown of whose locks, and that a silent store hangs nobody."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import subprocess
import threading
import time
import warnings
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

# Airflow's own warnings.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi.testclient import TestClient

    from airflow_hivelock.ui import access, holders, view, works
    from airflow_hivelock.ui import app as page
    from airflow_hivelock.ui.holders import Told

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import AccessDenied, HiveLockError, StoreCorrupted, StoreUnavailable
from airflow_hivelock.locks.model import Blocker, Holder, Lease, Lock, LockMode, LockObject, Waiter, WaitsFor
from airflow_hivelock.spec import Owner
from airflow_hivelock.ui.reads import SharedReads
from airflow_hivelock.work.applications import encode
from airflow_hivelock.work.processes import Processes, _started

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Ran

CURRENT = "/api/hivelock_default/current"
ASKED = {"X-Hivelock": "release"}
NASTY = "<img src=x onerror=alert(1)>\"'&"


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], TestClient]:
    """A browser, signed in with that role; None is signed out."""
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "False")
    monkeypatch.setenv(
        "AIRFLOW__API_AUTH__JWT_SECRET", "a secret of at least sixty-four bytes, for these tests and for nothing else"
    )
    monkeypatch.setattr(page, "_reads", SharedReads("store", patience_s=20))
    monkeypatch.setattr(page, "_asks", SharedReads("clusters", patience_s=20))
    auth = create_auth_manager()
    auth.init()
    access._permitted.clear()
    access._may_release.clear()
    page._shown.clear()
    page._needy.clear()

    def client(role: str | None) -> TestClient:
        made = TestClient(page.app, raise_server_exceptions=False)
        if role is not None:
            user: Any = SimpleAuthManagerUser(username=f"some {role}", role=role)
            made.cookies.set("_token", auth.generate_jwt(user))
        return made

    return client


def owner(dag_id: str = "daily", run_id: str = "r1", installation: str = "here") -> str:
    return str(Owner(installation, dag_id, run_id, "load"))


def hold(manager: LockManager, who: str = "", **what: Any) -> Lease:
    return manager.acquire(owner=who or owner(), writes=["dw.t/dt=1"], **what)


PLACES = [
    "/",
    "/static/page.js",
    "/api/connections",
    CURRENT,
    "/api/hivelock_default/history",
    "/api/hivelock_default/audit",
]


@pytest.mark.parametrize("place", [*PLACES, "/api/hivelock_default/leases/1"])
def test_who_is_signed_out_sees_nothing(place: str, login: Callable[[str | None], TestClient]) -> None:
    assert login(None).get(place).status_code == 401


@pytest.mark.parametrize("place", PLACES)
def test_a_viewer_sees_all_of_it(place: str, login: Callable[[str | None], TestClient], manager: LockManager) -> None:
    assert login("viewer").get(place).status_code == 200


@pytest.mark.parametrize(
    ("role", "headers", "status"),
    [
        (None, ASKED, 401),
        ("viewer", ASKED, 403),
        ("user", ASKED, 403),
        ("op", {}, 403),
        ("op", {**ASKED, "Sec-Fetch-Site": "cross-site"}, 403),
        ("op", {**ASKED, "Sec-Fetch-Site": "same-site"}, 403),
        ("op", {**ASKED, "Sec-Fetch-Site": "same-origin"}, 200),
        ("admin", ASKED, 200),
    ],
)
def test_only_who_may_change_the_connection_frees_a_lease_and_only_from_the_page(
    role: str | None,
    headers: dict[str, str],
    status: int,
    login: Callable[[str | None], TestClient],
    manager: LockManager,
) -> None:
    lease = hold(manager)
    answer = login(role).post(
        f"/api/hivelock_default/leases/{lease.id}/release", json={"reason": "its host is gone"}, headers=headers
    )
    assert answer.status_code == status, answer.text
    assert (manager.find(lease.id) is None) == (status == 200)
    assert [(entry.user, entry.reason) for entry in manager.audit()] == (
        [(f"some {role}", "its host is gone")] if status == 200 else []
    )


GONE = "/api/hivelock_default/hosts/gone"


def on_worker(manager: LockManager, dag_id: str = "daily") -> Lease:
    lease = manager.acquire(owner=owner(dag_id), reads=["dw.t"])
    return manager.start_work(lease, "load", encode(Processes(host="worker-7")))


@pytest.mark.parametrize(
    ("role", "headers", "status"),
    [
        (None, ASKED, 401),
        ("viewer", ASKED, 403),
        ("user", ASKED, 403),
        ("op", {}, 403),
        ("op", {**ASKED, "Sec-Fetch-Site": "cross-site"}, 403),
        ("op", {**ASKED, "Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_only_who_may_change_the_connection_says_that_a_host_is_gone_and_only_from_the_page(
    role: str | None,
    headers: dict[str, str],
    status: int,
    login: Callable[[str | None], TestClient],
    manager: LockManager,
) -> None:
    lease = on_worker(manager)
    said = {"host": "worker-7", "reason": "burnt down"}
    answer = login(role).post(GONE, json=said, headers=headers)
    assert answer.status_code == status, answer.text
    trail = [(entry.user, entry.lease_id) for entry in manager.audit()]
    assert trail == ([(f"some {role}", lease.id)] if status == 200 else [])
    shown = login("viewer").get(f"/api/hivelock_default/leases/{lease.id}").json()["works"]
    waits = {"code": works.AWAY, "host": "worker-7"}
    ended = {"code": works.ENDED, "host": ""}
    assert {name: shown[0][name] for name in ("code", "host")} == (ended if status == 200 else waits)
    assert ("gone by the word of some op" in shown[0]["what"]) == (status == 200)


def test_a_lease_that_was_looked_at_before_shows_at_once_that_its_host_is_gone(
    login: Callable[[str | None], TestClient], manager: LockManager
) -> None:
    lease, operator = on_worker(manager), login("op")
    place = f"/api/hivelock_default/leases/{lease.id}"
    assert operator.get(place).json()["works"][0]["code"] == works.AWAY
    assert operator.post(GONE, json={"host": "worker-7", "reason": "burnt down"}, headers=ASKED).json() == {"ended": 1}
    assert operator.get(place).json()["works"][0]["code"] == works.ENDED


def test_what_ends_with_a_host_is_listed_before_it_is_said(
    login: Callable[[str | None], TestClient], manager: LockManager
) -> None:
    on_worker(manager)
    operator = login("op")
    (row,) = operator.get("/api/hivelock_default/hosts?host=worker-7").json()["works"]
    assert (row["name"], row["owner"]["dag"]) == ("load", "daily")
    for host, why in (("worker-8", "no lease records work"), (socket.gethostname(), "it is this host")):
        refused = operator.post(GONE, json={"host": host, "reason": "burnt down"}, headers=ASKED)
        assert (refused.status_code, why in refused.json()["detail"]) == (400, True)
    assert not manager.audit()


def test_the_work_of_a_dag_that_one_may_not_see_is_not_said_to_be_gone(
    login: Callable[[str | None], TestClient], manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_worker(manager, "secret")
    mine = on_worker(manager)
    monkeypatch.setattr(access, "hidden", lambda dag_ids, _: frozenset(dag_ids) & {"secret"})
    operator = login("op")
    assert len(operator.get("/api/hivelock_default/hosts?host=worker-7").json()["works"]) == 1
    said = {"host": "worker-7", "reason": "burnt down"}
    assert operator.post(GONE, json=said, headers=ASKED).json() == {"ended": 1}
    assert [entry.lease_id for entry in manager.audit()] == [mine.id]


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "  \n"}, {"reason": "x" * 1001}])
def test_nothing_is_freed_without_a_reason(
    body: dict[str, str], login: Callable[[str | None], TestClient], manager: LockManager
) -> None:
    lease = hold(manager)
    answer = login("op").post(f"/api/hivelock_default/leases/{lease.id}/release", json=body, headers=ASKED)
    assert answer.status_code == 422
    assert manager.find(lease.id) is not None


def test_what_cannot_be_sent_back_is_refused_without_it(
    login: Callable[[str | None], TestClient], manager: LockManager
) -> None:
    lease = hold(manager)
    answer = login("op").post(
        f"/api/hivelock_default/leases/{lease.id}/release",
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


def test_a_form_of_another_site_cannot_free_a_lease(
    login: Callable[[str | None], TestClient], manager: LockManager
) -> None:
    lease = hold(manager)
    answer = login("op").post(
        f"/api/hivelock_default/leases/{lease.id}/release",
        content='{"reason": "mischief"}',
        headers={"Content-Type": "text/plain", "Sec-Fetch-Site": "cross-site"},
    )
    assert answer.status_code in (403, 422)
    assert manager.find(lease.id) is not None


def test_only_an_operator_is_told_of_the_button(
    login: Callable[[str | None], TestClient], manager: LockManager
) -> None:
    told = {role: login(role).get(CURRENT).headers["X-May-Release"] for role in ("viewer", "user", "op", "admin")}
    assert told == {"viewer": "false", "user": "false", "op": "true", "admin": "true"}


def test_it_shows_who_holds_and_who_waits_for_whom(
    login: Callable[[str | None], TestClient], manager: LockManager
) -> None:
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
            page._reads.forget(("hivelock_default", "current"))
            shown = viewer.get(CURRENT).json()
    finally:
        third.withdraw()
        second.withdraw()
    [held] = shown["leases"]
    assert shown["owners"][held["o"]] == {"text": lease.owner, "dag": "daily", "run": "r1", "task": "load"}
    assert held["locks"] == [["dw", "S", 1], ["dw.t", "S", 1], ["dw.t/dt=1", "X"]]
    assert (held["id"], held["token"], held["query"]) == (lease.id, lease.token, "dag daily")
    arrows = {
        shown["owners"][waiter["o"]]["dag"]: [shown["owners"][arrow["o"]]["dag"] for arrow in waiter["behind"]]
        for waiter in shown["waiters"]
    }
    assert arrows == {"second": ["daily"], "third": ["second"]}, "an arrow to each that is waited for, and no other"


def test_names_are_sent_as_data_and_never_as_markup(
    login: Callable[[str | None], TestClient], manager: LockManager
) -> None:
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


def test_nothing_but_its_own_files_and_connections_is_given_out(
    login: Callable[[str | None], TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SECRET_DB", "postgres://user:secret@db/x?odd=1")
    operator = login("op")
    for place in ("/static/../app.py", "/static/%2e%2e%2fapp.py", "/static/none.js", "/api/secret_db/current"):
        answer = operator.get(place)
        assert answer.status_code == 404, place
        assert "odd" not in answer.text
    assert operator.get("/api/connections").json()["connections"] == ["hivelock_default"]


def test_a_dag_that_one_may_not_see_stays_nameless(
    login: Callable[[str | None], TestClient], manager: LockManager, monkeypatch: pytest.MonkeyPatch
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
    assert operator.get(f"/api/hivelock_default/leases/{lease.id}").status_code == 403
    answer = operator.post(f"/api/hivelock_default/leases/{lease.id}/release", json={"reason": "no"}, headers=ASKED)
    assert answer.status_code == 403
    assert manager.find(lease.id) is not None


def test_an_answer_that_has_not_changed_is_not_sent_again(
    login: Callable[[str | None], TestClient], manager: LockManager
) -> None:
    lease = hold(manager)
    viewer = login("viewer")
    first = viewer.get(CURRENT)
    again = viewer.get(CURRENT, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    manager.release(lease)
    page._reads.forget(("hivelock_default", "current"))
    assert viewer.get(CURRENT, headers={"If-None-Match": first.headers["ETag"]}).status_code == 200


def test_a_store_that_says_nothing_costs_one_thread_and_a_bounded_time(
    login: Callable[[str | None], TestClient], manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence, asked = threading.Event(), []

    def leases_() -> list[Lease]:
        asked.append(1)
        silence.wait(60)
        raise StoreUnavailable("ZooKeeper at zk:2181 is gone")

    monkeypatch.setattr(page, "_reads", SharedReads("store", patience_s=0.3))
    monkeypatch.setattr(manager.backend, "requests", leases_)
    viewer = login("viewer")
    viewer.get("/api/connections")
    started = time.monotonic()
    try:
        answers = [viewer.get(CURRENT) for _ in range(3)]
    finally:
        silence.set()
    assert [answer.status_code for answer in answers] == [503] * 3
    assert "zk:2181" not in answers[0].text, "a viewer is not told of servers"
    assert time.monotonic() - started < 30, "bounded, and not by the store"
    assert len(asked) == 1, "nobody asks again while the store has not answered"


def test_many_viewers_cost_one_look(
    login: Callable[[str | None], TestClient], manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    leases_ = manager.backend.requests

    def counted() -> Any:
        looks.append(1)
        return leases_()

    monkeypatch.setattr(manager.backend, "requests", counted)
    monkeypatch.setattr(page, "FRESH_S", 60.0)
    viewer = login("viewer")
    for _ in range(5):
        assert viewer.get(CURRENT).status_code == 200
    assert len(looks) == 1


def test_a_dear_look_is_left_alone_for_a_while_and_its_last_answer_does_meanwhile() -> None:
    clock_s, reads, gate = [0.0], [], threading.Event()

    def read() -> int:
        reads.append(1)
        gate.wait(60)
        clock_s[0] += 2
        return len(reads)

    async def play() -> None:
        shared = SharedReads("store", 60, clock=lambda: clock_s[0])
        glance = partial(shared.glance, "look", read, 1.0, 60.0, 0.05)
        assert await glance() is None, "nobody waits for the first either"
        gate.set()
        assert await shared.ask("look", read, 1.0) == 1
        clock_s[0] += 7
        assert await glance() == 1
        assert len(reads) == 1, "it took two seconds: it rests for eight"
        clock_s[0] += 2
        gate.clear()
        assert await glance() == 1, "the second is on its way"
        clock_s[0] += 60
        assert await glance() is None, "too old"
        gate.set()
        assert await shared.ask("look", read, 1.0) == 2

    asyncio.run(play())


def test_a_look_is_not_held_up_by_the_garbage_collector(
    login: Callable[[str | None], TestClient], manager: LockManager, monkeypatch: pytest.MonkeyPatch
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
        page._reads.forget(("hivelock_default", "current"))
        assert viewer.get(CURRENT).status_code == status
        assert gc.isenabled()
    assert seen == [False, False]
    with page._uncollected():
        with page._uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled(), "another look still goes on"
    assert gc.isenabled()


NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO, JUST = NOW - timedelta(minutes=24), NOW - timedelta(seconds=5)
MINE = Owner("here", "daily", "r1", "load")


@pytest.mark.parametrize(
    ("told", "jobs", "kind", "state"),
    [
        (Told("running", task="running", at=JUST, heard=JUST), ["load"], "works", "working"),
        (Told("running", task="running", at=LONG_AGO, heard=LONG_AGO), ["load"], "needs", "no heartbeat"),
        (Told("running", task="queued", at=JUST), [], "idle", "queued"),
        (Told("running", task="up_for_retry", at=JUST), ["load"], "idle", "up for retry"),
        (Told("running", task=""), [], "idle", "not scheduled"),
        (Told("running", task="deferred", at=JUST), [], "idle", "deferred"),
        (Told("running", task="deferred", at=JUST), ["load"], "works", "working"),
        (Told("running", paused=True, task="queued", at=LONG_AGO), [], "needs", "DAG paused"),
        (Told("running", paused=True, task="running", at=JUST, heard=JUST), [], "works", "working"),
        (Told("running", task="failed", at=LONG_AGO), ["load"], "needs", "failed"),
        (Told("running", task="failed", at=JUST), ["load"], "ends", "failed"),
        (Told("running", task="skipped", at=LONG_AGO), [], "needs", "skipped"),
        (Told("running", task="success", at=LONG_AGO), ["load"], "needs", "not released"),
        (Told("running", task="success", at=JUST), ["load"], "ends", "not released"),
        (Told("running", task="success", at=LONG_AGO, active={"work": "running"}), ["work"], "works", "working"),
        (Told("running", task="success", at=LONG_AGO, active={"work": "queued"}), [], "idle", "queued"),
        (Told("running", task="success", at=LONG_AGO), [], "idle", "between tasks"),
        (Told("running", paused=True, task="success", at=LONG_AGO), [], "needs", "DAG paused"),
        (Told("running"), [], "needs", "task unknown"),
        (Told("failed", ended=LONG_AGO, task="success", at=LONG_AGO), [], "needs", "run over"),
        (Told("success", ended=JUST, task="success", at=JUST), [], "ends", "run over"),
        (Told("failed", ended=LONG_AGO, task="running", heard=JUST, active={"load": "running"}), [], "works", "working"),
        (Told(), [], "needs", "run unknown"),
    ],
)  # fmt: skip
def test_it_tells_whether_a_holder_is_alive_and_which_needs_somebody(
    told: Told, jobs: list[str], kind: str, state: str
) -> None:
    doing = holders.of_task(MINE, told, jobs, NOW)
    assert (doing.kind, doing.state) == (kind, state), doing.why


def test_a_lease_that_nobody_renews_needs_somebody_whoever_has_it(
    login: Callable[[str | None], TestClient], manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(manager, lease_s=1)
    manager.acquire(owner="cli:ann:1", reads=["dw.other"], lease_s=3600)
    manager.acquire(owner=owner("daily", installation="elsewhere"), reads=["dw.third"], lease_s=3600)
    manager.acquire(owner=owner("late", installation="elsewhere"), reads=["dw.fourth"], lease_s=1)
    manager.acquire(owner="a program", reads=["dw.fifth"], lease_s=3600)
    late = datetime.now(UTC) + timedelta(seconds=5)
    monkeypatch.setattr(manager.backend, "now", lambda: late)
    monkeypatch.setattr(page, "_clocks", {"hivelock_default": view.StoreClock()})
    shown = login("viewer").get(CURRENT).json()
    said = {shown["owners"][lease["o"]]["text"]: (lease["doing"], lease["state"]) for lease in shown["leases"]}
    assert said == {
        owner(): ("needs", "run unknown"),
        "cli:ann:1": ("hand", "by hand"),
        owner("daily", installation="elsewhere"): ("untold", "elsewhere"),
        owner("late", installation="elsewhere"): ("needs", "not renewed"),
        "a program": ("untold", "a program"),
    }


def test_airflow_s_own_database_says_what_tasks_do(run: Callable[..., Ran]) -> None:
    with DAG("told", schedule=None) as dag:
        BashOperator(task_id="good", bash_command="true")
        BashOperator.partial(task_id="bad").expand(bash_command=["true", "exit 1"])
    ran = run(dag)
    good, first, second = (
        Owner("here", "told", ran.run_id, task_id, index) for task_id, index in (("good", -1), ("bad", 0), ("bad", 1))
    )
    unknown, none = Owner("here", "told", "never", "good"), Owner("here", "told", ran.run_id, "none")
    told = access.told([good, first, second, unknown, none])
    assert {who: (said.run, said.task, said.active) for who, said in told.items()} == {
        good: ("failed", "success", {}),
        first: ("failed", "success", {}),
        second: ("failed", "failed", {}),
        none: ("failed", None, {}),
    }
    at = told[second].at
    assert at is not None
    assert timedelta(0) <= datetime.now(UTC) - at < timedelta(minutes=10)


def test_it_says_whether_the_work_of_a_dead_task_still_runs(
    login: Callable[[str | None], TestClient], manager: LockManager
) -> None:
    child = subprocess.Popen(["sleep", "600"])
    recorded = {
        "alive": encode(Processes(pid=child.pid, started=_started(child.pid))),
        "dead": encode(Processes(pid=child.pid, started=1)),
        "away": encode(Processes(host="worker-7")),
        "unknown": "{}",
        "deferred": "",
    }
    for number, (name, application) in enumerate(recorded.items()):
        lease = manager.acquire(owner=owner("daily", f"r{number}"), reads=["dw.t"])
        manager.start_work(lease, name, application)
    viewer = login("viewer")
    try:
        deadline = time.monotonic() + 60
        said: dict[str, str] = {}
        while len(said) < len(recorded) and time.monotonic() < deadline:
            page._reads.forget(("hivelock_default", "current"))
            rows = viewer.get(CURRENT).json()["leases"]
            said = {job[0]: job[2] for row in rows for job in row["jobs"] if len(job) > 2}
        [alive] = [row["id"] for row in rows if row["jobs"][0][0] == "alive"]
        shown = viewer.get(f"/api/hivelock_default/leases/{alive}").json()["works"]
    finally:
        child.kill()
        child.wait()
    assert said == {
        "alive": works.RUNS,
        "dead": works.ENDED,
        "away": works.AWAY,
        "unknown": works.UNTOLD,
        "deferred": works.UNTOLD,
    }
    [work] = shown
    assert (work["name"], work["code"]) == ("alive", works.RUNS)
    assert f"still runs on {socket.gethostname()}: {child.pid} (sleep)" == work["how"]
    assert f"kill {child.pid}" in work["next"]
    assert f"process {child.pid} on " in shown[0]["what"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StoreUnavailable("zk:2181 is gone"), "See that the store is up"),
        (AccessDenied("zk:2181 wants a password"), "credentials"),
        (StoreCorrupted("/airflow_hivelock/x is of a newer format"), "Upgrade"),
    ],
)
def test_a_store_that_is_down_is_told_with_what_to_do(
    login: Callable[[str | None], TestClient],
    manager: LockManager,
    monkeypatch: pytest.MonkeyPatch,
    error: HiveLockError,
    said: str,
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(manager.backend, "requests", fail)
    answer = login("viewer").get(CURRENT)
    assert answer.status_code == 503
    detail = answer.json()["detail"]
    assert said in detail
    assert "airflow hivelock --conn-id hivelock_default" in detail
    assert str(error) not in detail, "a viewer is not told of servers"


def test_five_thousand_locks_and_a_thousand_waiters_are_one_small_answer() -> None:
    crowd = _Crowd(1_000, 1_000)
    shown = view.current(crowd.leases(), crowd.waiters(), view.Looked(0, crowd.show()), "here")
    text = json.dumps(shown.data, separators=(",", ":"))
    assert sum(len(lease["locks"]) for lease in shown.data["leases"]) == 5_000
    assert len(shown.data["waiters"]) == 1_000
    assert len(text) < 1_500_000
    assert sum(len(waiter["behind"]) for waiter in shown.data["waiters"]) < 3_000, "arrows, not all pairs"


def test_what_is_too_much_for_a_page_is_counted_and_who_is_in_the_way_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MOST_LOCKS", 60)
    crowd = _Crowd(100, 100)
    leases_ = crowd.leases()[::-1]
    shown = view.current(leases_, crowd.waiters(), view.Looked(0, crowd.show()), "here").data
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
            (shown["owners"][arrow["o"]]["run"], arrow.get("counted", False)) for arrow in row["behind"]
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
        shown = view.current([lease], [], view.Looked(at_ms, crowd.show()[:-1]), "here").data
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
