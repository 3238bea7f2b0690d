"""The harness itself, on one Airflow: what it starts, drives, breaks and reads is real.

On SQLite: all others run on PostgreSQL.
"""

from __future__ import annotations

import os
import shutil
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import connect
from tests.airflow import first_example
from tests.support.airflow_server import AirflowServer, Run, locks_in

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(180)]

DAG = "gated"
RUN_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file here, named for a run, opens that run's gate."""
    return tmp_path_factory.mktemp("gates")


@pytest.fixture(scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lock store."""
    return tmp_path_factory.mktemp("locks") / "leases.db"


@pytest.fixture(scope="module")
def af(gates: Path, locks: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServer]:
    home = tmp_path_factory.mktemp("airflow")
    dags = shutil.copytree(Path(__file__).parent / "dags", home.with_name(f"{home.name}-dags"))
    shutil.copy(first_example.DAG_FILE, dags)
    with AirflowServer(
        home,
        dags,
        connections={"hivelock_default": locks_in(f"sqlite:///{locks}"), **first_example.CONNECTIONS},
        variables={"gates": str(gates)},
        env=first_example.ENV,
        database="sqlite",
    ) as server:
        for dag_id in (DAG, "endless", first_example.DAG_ID):
            server.unpause(dag_id)
        yield server


def deferred(af: AirflowServer, run_id: str) -> str:
    """Wait until the run waits at its gate; gives the run id back."""
    Run(af, DAG, run_id).await_deferred("gate")
    return run_id


def finish(af: AirflowServer, run_id: str, dag_id: str = DAG) -> str:
    """Wait for the run's end; gives its state."""
    ended = ("success", "failed")
    af.wait(lambda: af.run(dag_id, run_id).state in ended, RUN_TIMEOUT_S, f"{run_id} to end")
    return af.run(dag_id, run_id).state


def test_a_deferred_and_a_mapped_task_run_and_leave_logs(af: AirflowServer, gates: Path) -> None:
    run_id = deferred(af, af.trigger(DAG, datetime(2013, 6, 1, tzinfo=UTC)))
    line = f"waiting at {gates / run_id}"
    af.wait(lambda: line in af.task_log(DAG, run_id, "gate"), RUN_TIMEOUT_S, f"{line} in the log")
    (gates / run_id).touch()
    assert finish(af, run_id) == "success"
    squares = af.task_instances(DAG, run_id, "square")
    assert [(task.map_index, task.state) for task in squares] == [(0, "success"), (1, "success")]
    assert "3 squared is 9" in af.task_log(DAG, run_id, "square", map_index=1)


def test_a_backfill_makes_a_run_a_day(af: AirflowServer, gates: Path) -> None:
    backfill_id = af.backfill(DAG, datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 3, tzinfo=UTC))
    for run in af.runs(DAG, backfill_id):
        (gates / deferred(af, run.run_id)).touch()
    days = [run.logical_date for run in af.runs(DAG, backfill_id)]
    assert days == [datetime(2013, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    assert [finish(af, run.run_id) for run in af.runs(DAG, backfill_id)] == ["success"] * 3


def test_a_deferred_task_marked_failed_fails_its_run(af: AirflowServer) -> None:
    run_id = deferred(af, af.trigger(DAG))
    af.set_task_state(DAG, run_id, "gate", "failed")
    assert finish(af, run_id) == "failed"
    af.clear(DAG, run_id)
    deferred(af, run_id)
    assert af.task(DAG, run_id, "gate").try_number == 2
    af.set_run_state(DAG, run_id, "failed")
    assert finish(af, run_id) == "failed"


def test_a_task_whose_process_is_killed_fails(af: AirflowServer) -> None:
    run_id = af.trigger("endless")
    af.wait(lambda: af.task("endless", run_id, "sleep").pid, RUN_TIMEOUT_S, "the task to run")
    process = af.task_process("endless", run_id, "sleep")
    assert {process.pid, process.supervisor_pid} < set(af.process("scheduler").members())
    os.kill(process.pid, signal.SIGKILL)
    assert finish(af, run_id, "endless") == "failed"


def test_a_deferred_task_outlives_its_triggerer(af: AirflowServer, gates: Path) -> None:
    run_id = deferred(af, af.trigger(DAG))
    af.process("triggerer").kill()
    (gates / run_id).touch()
    af.process("triggerer").restart()
    assert finish(af, run_id) == "success"


def test_the_first_example_of_the_readme_on_sqlite(af: AirflowServer, locks: Path) -> None:
    assert not af.postgres
    with connect(f"sqlite:///{locks}") as manager:
        first_example.play(af, manager)
