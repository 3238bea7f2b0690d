"""The activity of each lease's holder, and which holders need action."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.models import TaskInstance
from airflow.models.trigger import Trigger
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from airflow.utils.session import create_session
from sqlalchemy import select, update

from airflow_hivelock.spec import Owner
from airflow_hivelock.work.applications import encode
from airflow_hivelock.work.processes import Processes, _started
from tests.airflow.page import CURRENT, LEASES, Login, access, hold, holders, looks, owner, view, works

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run


TaskFacts = holders.TaskFacts
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO, JUST = NOW - timedelta(minutes=24), NOW - timedelta(seconds=5)
MINE = Owner("here", "daily", "r1", "load")


@pytest.mark.parametrize(
    ("told", "jobs", "kind", "state"),
    [
        (TaskFacts("running", task="running", at=JUST, heartbeat=JUST), ["load"], "works", "working"),
        (TaskFacts("running", task="running", at=LONG_AGO, heartbeat=LONG_AGO), ["load"], "needs", "no heartbeat"),
        (TaskFacts("running", task="running", at=LONG_AGO, heartbeat=NOW - timedelta(minutes=4)), ["load"], "ends", "no heartbeat"),
        (TaskFacts("running", task="queued", at=JUST), [], "idle", "queued"),
        (TaskFacts("running", task="up_for_retry", at=JUST), ["load"], "idle", "up for retry"),
        (TaskFacts("running", task=""), [], "idle", "not scheduled"),
        (TaskFacts("running", task="deferred", at=JUST), [], "idle", "deferred"),
        (TaskFacts("running", task="deferred", at=JUST), ["load"], "works", "working"),
        (TaskFacts("running", paused=True, task="queued", at=LONG_AGO), [], "needs", "DAG paused"),
        (TaskFacts("running", paused=True, task="running", at=JUST, heartbeat=JUST), [], "works", "working"),
        (TaskFacts("running", task="failed", at=LONG_AGO), ["load"], "needs", "failed"),
        (TaskFacts("running", task="failed", at=JUST), ["load"], "ends", "failed"),
        (TaskFacts("running", task="skipped", at=LONG_AGO), [], "needs", "skipped"),
        (TaskFacts("running", task="success", at=LONG_AGO), ["load"], "needs", "not released"),
        (TaskFacts("running", task="success", at=JUST), ["load"], "ends", "not released"),
        (TaskFacts("running", task="success", at=LONG_AGO, active={"work": "running"}), ["work"], "works", "working"),
        (TaskFacts("running", task="success", at=LONG_AGO, active={"work": "queued"}), [], "idle", "queued"),
        (TaskFacts("running", task="success", at=LONG_AGO), [], "idle", "between tasks"),
        (TaskFacts("running", paused=True, task="success", at=LONG_AGO), [], "needs", "DAG paused"),
        (TaskFacts("running"), [], "needs", "task unknown"),
        (TaskFacts("failed", ended=LONG_AGO, task="success", at=LONG_AGO), [], "needs", "run over"),
        (TaskFacts("success", ended=JUST, task="success", at=JUST), [], "ends", "run over"),
        (TaskFacts("failed", ended=LONG_AGO, task="running", heartbeat=JUST, active={"load": "running"}), [], "works", "working"),
        (TaskFacts(), [], "needs", "run unknown"),
    ],
)  # fmt: skip
def test_it_tells_whether_a_holder_is_alive_and_which_needs_somebody(
    told: TaskFacts, jobs: list[str], kind: str, state: str
) -> None:
    doing = holders.of_task(MINE, told, jobs, NOW)
    assert (doing.kind, doing.state) == (kind, state), doing.why
    if state in ("no heartbeat", "DAG paused", "task unknown") and kind == "needs":
        assert re.search("[Mm]ark the (run|task) failed", doing.why), (
            "the keeper does not free it: the next step is shown"
        )


def test_a_lease_that_nobody_renews_needs_somebody_whoever_has_it(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(manager, lease_s=1)
    manager.acquire(owner="cli:ann:1", reads=["dw.other"], lease_s=3600)
    manager.acquire(owner=owner("daily", installation="elsewhere"), reads=["dw.third"], lease_s=3600)
    manager.acquire(owner=owner("late", installation="elsewhere"), reads=["dw.fourth"], lease_s=1)
    manager.acquire(owner="a program", reads=["dw.fifth"], lease_s=3600)
    late = datetime.now(UTC) + timedelta(seconds=5)
    monkeypatch.setattr(manager.backend, "now", lambda: late)
    monkeypatch.setattr(looks, "_clocks", {"hivelock_default": looks.StoreClock()})
    shown = login("viewer").get(CURRENT).json()
    said = {shown["owners"][lease["o"]]["text"]: (lease["doing"], lease["state"]) for lease in shown["leases"]}
    assert said == {
        owner(): ("needs", "run unknown"),
        "cli:ann:1": ("hand", "by hand"),
        owner("daily", installation="elsewhere"): ("untold", "elsewhere"),
        owner("late", installation="elsewhere"): ("needs", "not renewed"),
        "a program": ("untold", "a program"),
    }


def test_airflow_s_own_database_says_what_tasks_do(run: Run) -> None:
    with DAG("told", schedule=None) as dag:
        BashOperator(task_id="good", bash_command="true")
        BashOperator.partial(task_id="bad").expand(bash_command=["true", "exit 1"])
    ran = run(dag)
    good, first, second = (
        Owner("here", "told", ran.run_id, task_id, index) for task_id, index in (("good", -1), ("bad", 0), ("bad", 1))
    )
    unknown, none = Owner("here", "told", "never", "good"), Owner("here", "told", ran.run_id, "none")
    told = access.task_facts([good, first, second, unknown, none])
    assert {who: (said.run, said.task, said.active) for who, said in told.items()} == {
        good: ("failed", "success", {}),
        first: ("failed", "success", {}),
        second: ("failed", "failed", {}),
        none: ("failed", None, {}),
    }
    at = told[second].at
    assert at is not None
    assert timedelta(0) <= datetime.now(UTC) - at < timedelta(minutes=10)
    assert access.dags_among(["told", "no DAG", "t\0ld"]) == {"told"}


def test_a_sensor_with_odd_names_hides_no_other_sensor(run: Run) -> None:
    """Its names are in the arguments of a trigger, which any DAG can write."""
    with DAG("waits", schedule=None) as dag:
        BashOperator.partial(task_id="free").expand(bash_command=["true"] * 4)
    run(dag)
    odd: list[Any] = [5, "dw.t", ["dw.t/dt=\ud800"], ["dw.t"]]
    with create_session() as session:
        for task, reads in zip(session.scalars(select(TaskInstance).filter_by(dag_id="waits")), odd, strict=True):
            trigger = Trigger(access._SENSOR_TRIGGER, {"hivelock_conn_id": "hivelock_default", "reads": reads})
            session.add(trigger)
            session.flush()
            task.state, task.trigger_id = "deferred", trigger.id
    try:
        shown = view.current([], [], None, "here", sensors=access.sensors("hivelock_default"))
    finally:
        with create_session() as session:
            session.execute(update(TaskInstance).filter_by(dag_id="waits").values(state="failed", trigger_id=None))
    assert sorted(row["locks"] for row in shown.data["waiters"]) == [
        [],
        [],
        [["dw.t", "S"]],
        [["dw.t/dt=\\ud800", "S"]],
    ]
    json.dumps(shown.data, ensure_ascii=False).encode()


def test_it_says_whether_the_work_of_a_dead_task_still_runs(login: Login, manager: LockManager) -> None:
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
            looks.reads.forget(("hivelock_default", "current"))
            rows = viewer.get(CURRENT).json()["leases"]
            said = {job[0]: job[2] for row in rows for job in row["jobs"] if len(job) > 2}
        [alive] = [row["id"] for row in rows if row["jobs"][0][0] == "alive"]
        shown = viewer.get(f"{LEASES}/{alive}").json()["works"]
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
