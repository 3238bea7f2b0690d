"""The page's reads: each answer has the right key, a silent cluster blocks no other read, and hidden DAGs stay hidden."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from unittest import mock

import httpx
import pytest
from airflow.models.asset import AssetEvent, AssetModel
from airflow.utils.session import create_session

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import AccessDenied
from airflow_hivelock.locks.expected import MOST_READ
from airflow_hivelock.locks.model import Tenure
from airflow_hivelock.triggers.keeper import SUSPECT_LEASES
from airflow_hivelock.ui.reads import THREADS
from airflow_hivelock.work import applications
from airflow_hivelock.work.applications import encode
from airflow_hivelock.work.processes import MARK, Processes
from tests.airflow.page import (
    API,
    ASKED,
    CURRENT,
    LEASES,
    Login,
    access,
    hiding,
    hold,
    looks,
    on_worker,
    owner,
    page,
    view,
    works,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi.testclient import TestClient

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Lines


HOSTS = f"{API}/hosts"
DIALOGS = 100


@pytest.mark.parametrize("name", ["current", "audit", "holders", "leases", "keeper", "history"])
def test_no_lease_has_the_name_of_another_answer(name: str, login: Login, manager: LockManager) -> None:
    viewer = login("viewer")
    assert viewer.get(f"{LEASES}/{name}").status_code == 404
    for place in ("current", "audit", "history"):
        assert viewer.get(f"{API}/{place}").status_code == 200
    assert viewer.get(f"{LEASES}/{name}").status_code == 404


def current(viewer: TestClient, until: Callable[[Any], bool]) -> Any:
    """The list, once *until* holds of it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        looks.reads.forget(("hivelock_default", "current"))
        shown = viewer.get(CURRENT).json()
        if until(shown):
            return shown
    raise AssertionError(shown)


def test_the_list_and_the_dialog_of_the_only_suspect_lease_agree(login: Login, manager: LockManager) -> None:
    lease = manager.start_work(hold(manager), "load", encode(Processes(started=1)))
    viewer = login("viewer")
    shown = current(viewer, lambda shown: len(shown["leases"][0]["jobs"][0]) > 2)
    [job] = shown["leases"][0]["jobs"]
    [work] = viewer.get(f"{LEASES}/{lease.id}").json()["works"]
    assert (job[0], job[2]) == (work["name"], work["code"]) == ("load", works.ENDED)


def test_a_hundred_dialogs_on_a_silent_cluster_leave_the_page_quick(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster takes connections and says nothing, and its client has no time-out."""
    leases = [
        manager.start_work(manager.acquire(owner=owner("daily", f"r{n}"), reads=["dw.t"]), "load", "{}")
        for n in range(DIALOGS)
    ]
    cookies = dict(login("viewer").cookies)
    with closing(socket.create_server(("127.0.0.1", 0), backlog=DIALOGS)) as silent:
        asked: list[socket.socket] = []

        class OnCluster:
            def running(self) -> bool:
                with socket.create_connection(silent.getsockname()) as asking:
                    asked.append(asking)
                    return bool(asking.recv(1))

        monkeypatch.setattr(applications, "of", lambda work: OnCluster())

        async def timed(client: httpx.AsyncClient, place: str) -> tuple[float, httpx.Response]:
            began = time.monotonic()
            answer = await client.get(place)
            return time.monotonic() - began, answer

        async def play() -> tuple[list[tuple[float, httpx.Response]], list[tuple[float, httpx.Response]]]:
            transport = httpx.ASGITransport(page.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://page", cookies=cookies) as client:
                assert (await client.get(CURRENT)).status_code == 200
                dialogs = asyncio.gather(*(timed(client, f"{LEASES}/{lease.id}") for lease in leases))
                others: list[tuple[float, httpx.Response]] = []
                while len(asked) < THREADS and not dialogs.done():  # a dialog that has its answer is no longer there
                    await asyncio.sleep(0.05)
                while not dialogs.done() or not others:
                    for place in (CURRENT, "/", f"{API}/history", "/api/v1/connections"):
                        looks.reads.forget(("hivelock_default", "current"))
                        others.append(await timed(client, place))
                    await asyncio.sleep(0.2)
                return await dialogs, others

        try:
            dialogs, others = asyncio.run(play())
        finally:
            # In this order: a thread without its connection would take the next question and connect again.
            pool = looks.asks._pools["work"]
            pool.shutdown(wait=False, cancel_futures=True)
            silent.close()  # resets the connections, which were never accepted
            pool.shutdown()
    took_s = sorted(took for took, _ in others)
    longest_s = max(took for took, _ in dialogs)
    print(
        f"{len(others)} answers while {DIALOGS} dialogs wait: median {took_s[len(took_s) // 2]:.2f} s, "
        f"slowest {took_s[-1]:.2f} s; the slowest dialog {longest_s:.1f} s"
    )
    assert {answer.status_code for _, answer in (*dialogs, *others)} == {200}
    assert took_s[-2] < 1, "except at the moment when all dialogs end at once"
    assert longest_s < 15
    said = [answer.json()["works"][0] for _, answer in dialogs]
    assert {work["how"] for work in said} <= {
        "its cluster has not answered yet",
        "is not checked yet, because other clusters have not answered",
    }
    assert any(work["code"] == works.SILENT for work in said), "it is the cluster that does not answer, not the store"


def test_what_ends_the_process_elsewhere_is_an_answer_here(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = manager.start_work(hold(manager), "load", "{}")
    monkeypatch.setattr(applications, "of", mock.Mock(side_effect=SystemExit(1)))
    answer = login("viewer").get(f"{LEASES}/{lease.id}")
    assert (answer.status_code, answer.json()["works"][0]["code"]) == (200, works.SILENT)


def test_a_dead_process_whose_child_lives_is_told_with_the_child(login: Login, manager: LockManager) -> None:
    """The page said that the dead process still runs."""
    mark = "ab" * 16
    child = subprocess.Popen(["sleep", "600"], env={MARK: mark, "PATH": "/usr/bin:/bin"})
    try:
        application = encode(Processes(pid=2**22 + 1, started=1, mark=mark))
        lease = manager.start_work(hold(manager), "load", application)
        shown = login("viewer").get(f"{LEASES}/{lease.id}").json()
    finally:
        child.kill()
        child.wait()
    [work] = shown["works"]
    here = socket.gethostname()
    assert work["how"] == (
        f"still runs on {here}: {child.pid} (sleep), started by process {2**22 + 1}, which has ended"
    )
    assert work["next"].startswith(f"On {here}, ps -fp {child.pid} shows more.")
    assert shown["keeper"] == {
        "why": f"keeps it, because load still runs on {here}: {child.pid} (sleep), started by process {2**22 + 1}, "
        "which has ended",
        "next": work["next"],
    }, "the keeper has reported nothing yet, and the lease is no suspect"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (works.ENDED, "frees it within a minute, if its task is over and Airflow's triggerer runs"),
        (works.AWAY, "only worker-7 can tell whether load has ended; a triggerer there then frees it"),
        (works.UNTOLD, "does not know whether load has ended"),
        (works.SILENT, "does not know whether load has ended"),
    ],
)
def test_the_keeper_judges_by_the_answers_that_the_page_has(code: str, why: str) -> None:
    rows = [["load", "what", code, "only worker-7 can tell", "Look there."], ["ended", "what", works.ENDED, "", ""]]
    assert works.judge(rows) == (why, "Look there." if code != works.ENDED else "")
    assert works.judge([["left behind", "", works.RUNS, "7 (sleep) on a still runs", "x"]])[0] == (
        "keeps it, because 7 (sleep) on a still runs"
    )
    assert works.judge([])[0] == "frees it within a minute, if its task is over and Airflow's triggerer runs"


@pytest.mark.parametrize(
    ("who", "work", "why", "step"),
    [
        (owner("gone"), "", "Airflow does not know its run", "Trigger the DAG force_release_stale_locks"),
        (owner("gone"), "load", "frees it within a minute", ""),
        (owner(installation="elsewhere"), "load", "no task of this Airflow", "release it by force"),
        (owner(installation="elsewhere"), "driver for here", "frees it within a minute", ""),
        ("cli:ann:1", "", "no task of this Airflow", "release it by force"),
    ],
)
def test_no_lease_is_left_to_the_keeper_that_the_keeper_never_frees(
    login: Login, manager: LockManager, who: str, work: str, why: str, step: str
) -> None:
    """A user waited for the keeper, and it did nothing."""
    lease = hold(manager, who)
    if work:
        manager.start_work(lease, work, encode(Processes.none()))
    keeper = login("viewer").get(f"{LEASES}/{lease.id}").json()["keeper"]
    assert why in keeper["why"]
    assert step in keeper["next"]
    assert bool(step) == bool(keeper["next"])


def test_what_the_keeper_has_last_said_of_a_lease_is_shown_with_it(login: Login, manager: LockManager) -> None:
    lease, other = hold(manager), manager.acquire(owner=owner("other"), reads=["dw.z"])
    why = "run r1 of daily is failed, but process 4711 on worker-7 can only be checked there"
    with create_session() as session:
        asset = session.query(AssetModel).filter_by(uri=SUSPECT_LEASES.uri).one_or_none()
        if asset is None:  # a DAG of another test may have it
            asset = AssetModel(name=SUSPECT_LEASES.name, uri=SUSPECT_LEASES.uri)
            session.add(asset)
        session.query(AssetEvent).delete()
        session.flush()
        for said in ({}, {lease.id: why}):
            extra = {"from_trigger": True, "payload": {"suspects": said}}
            session.add(AssetEvent(asset_id=asset.id, extra=extra, timestamp=datetime.now(UTC)))
            session.flush()
    try:
        viewer = login("viewer")
        keeper = viewer.get(f"{LEASES}/{lease.id}").json()["keeper"]
        assert keeper["report"] == why
        assert abs(keeper["at"] / 1000 - time.time()) < 60
        assert "report" not in viewer.get(f"{LEASES}/{other.id}").json()["keeper"]
    finally:
        with create_session() as session:
            session.query(AssetEvent).delete()


def test_the_hosts_of_hidden_dags_are_not_named_and_the_store_is_not_asked_for_each_name(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = manager.acquire(owner=owner("secret"), reads=["dw.t"])
    manager.start_work(secret, "load", encode(Processes(host="secret-host")))
    on_worker(manager)
    monkeypatch.setattr(access, "hidden", lambda dag_ids, _: frozenset(dag_ids) & {"secret"})
    with mock.patch.object(manager.backend, "leases", wraps=manager.backend.leases) as looks:
        operator = login("op")
        for number in range(20):
            refused = operator.get(f"{HOSTS}?host=guess-{number}")
            assert refused.status_code == 400
            assert "worker-7" in refused.text
            assert "secret-host" not in refused.text
        refused = operator.get(f"{HOSTS}?host=secret-host")
        assert "no lease records work on 'secret-host'" in refused.json()["detail"]
    assert looks.call_count == 1
    said = {"host": "guess", "reason": "burnt down"}
    assert "secret-host" not in operator.post(f"{HOSTS}/gone", json=said, headers=ASKED).text


def test_the_auth_manager_is_not_asked_at_each_poll_who_may_release(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = hold(manager)
    with mock.patch.object(access, "may_release", wraps=access.may_release) as asked:
        operator, viewer = login("op"), login("viewer")
        for _ in range(5):
            assert operator.get(CURRENT).headers["X-May-Release"] == "true"
            assert viewer.get(CURRENT).headers["X-May-Release"] == "false"
        assert asked.call_count == 2, "one question for each user"
        monkeypatch.setattr(access, "may_release", lambda *_: False)
        assert operator.get(CURRENT).headers["X-May-Release"] == "true", "only the button is remembered"
        answer = operator.post(f"{LEASES}/{lease.id}/release", json={"reason": "no"}, headers=ASKED)
        assert answer.status_code == 403, "what frees is asked for each time"


def test_a_malformed_connection_of_the_environment_is_logged_once_and_without_its_password(
    monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_BROKEN_LOCKS", '{"conn_type": "hivelock", "password": "hush"')
    access._malformed.clear()
    for _ in range(3):
        assert "broken_locks" not in access.connection_ids()
    assert lines().count("AIRFLOW_CONN_BROKEN_LOCKS is malformed") == 1
    assert "hush" not in lines()


def test_each_waiter_is_shown_with_who_holds_what_it_waits_for_in_the_end(manager: LockManager) -> None:
    """The page named the nearest one in the queue."""
    holder = hold(manager, owner("holder"))
    line = [manager.begin(rules.request(owner(f"w{n}"), writes=["dw.t/dt=1"]), lambda: None) for n in range(4)]
    line.append(manager.begin(rules.request(owner("table"), writes=["dw.t"]), lambda: None))
    line.append(manager.begin(rules.request(owner("aside"), reads=["dw.t/dt=2"]), lambda: None))
    try:
        for each in line:
            each.poll()
        leases, waiters = manager.requests()
        shown = view.current(leases, waiters, None, "here").data
    finally:
        for each in reversed(line):
            each.withdraw()
    names = [row.get("dag") for row in shown["owners"]]
    held = {names[row["o"]]: [names[each["o"]] for each in row["holders"]] for row in shown["waiters"]}
    assert held == {dag: ["holder"] for dag in ("w0", "w1", "w2", "w3", "table", "aside")}
    manager.release(holder)


def test_each_waiter_is_shown_with_when_it_will_probably_go_on(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = hold(manager, owner("daily"))
    waiting = manager.begin(rules.request(owner("report"), reads=["dw.t/dt=1"]), lambda: None)
    waiting.poll()
    at = datetime(2013, 1, 1, tzinfo=UTC)
    past = [
        Tenure(f"l{n}", owner("daily", f"r-{n}"), holder.locks, at, at, at + timedelta(minutes=n))
        for n in range(12, 21)
    ]
    asked: list[int | None] = []

    def history(target: Any = None, *, most: int | None = None) -> list[Tenure]:
        asked.append(most)
        return past

    monkeypatch.setattr(manager.backend, "history", history)
    try:
        viewer = login("viewer")
        for _ in range(5):
            [row] = viewer.get(CURRENT).json()["waiters"]
            looks.reads.forget(("hivelock_default", "current"))
    finally:
        waiting.withdraw()
        manager.release(holder)
    since = round(holder.since.timestamp())
    assert [round(each / 1000) - since for each in row["expected"]] == pytest.approx([12 * 60, 20 * 60], abs=1)
    assert asked == [MOST_READ], "one bounded read for all looks"


def test_a_history_that_cannot_be_read_takes_nothing_from_the_page(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager.backend, "history", mock.Mock(side_effect=AccessDenied("not for readers")))
    holder = hold(manager, owner("daily"))
    viewer = login("viewer")
    for _ in range(3):
        assert len(viewer.get(CURRENT).json()["leases"]) == 1
        looks.reads.forget(("hivelock_default", "current"))
    manager.release(holder)


def test_a_sensor_that_waits_is_listed_with_what_it_waits_for(manager: LockManager) -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    sensor = access.Sensor("report", "manual__1", "is_free", -1, since, ("dw.t/dt=1",), ("dw.u",))
    shown = view.current([], [], None, "here", sensors=[sensor])
    [row] = shown.data["waiters"]
    assert (row["for"], row["locks"]) == ("free", [["dw.t/dt=1", "S"], ["dw.u", "X"]])
    assert shown.data["owners"][row["o"]]["dag"] == "report"
    assert shown.dag_ids == {"report"}
    assert "report" not in json.dumps(shown.without({"report"}))


def test_a_person_is_shown_by_name() -> None:
    assert hiding.owner_row("cli:ann:495449b4-0c3f", "here")["person"] == "ann"
    assert "person" not in hiding.owner_row("cli:", "here")


def test_a_reservation_is_shown_by_its_user_and_its_end() -> None:
    row = hiding.owner_row(f"reservation:ann:20261121T060000Z:{'0' * 32}", "here")
    assert (row["person"], row["until"]) == ("ann", 1_795_240_800_000)
    assert "person" not in hiding.owner_row(f"reservation:ann:20261399T060000Z:{'0' * 32}", "here")
