"""README's first example in a real Airflow, with a spark-submit that only succeeds."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.support.airflow_server import AirflowServer

DAG_ID = "first_example"
DAG_FILE = Path(__file__).parent / "dags" / f"{DAG_ID}.py"
CONNECTIONS = {"spark_default": {"conn_type": "spark", "host": "local[1]"}}
STAND_INS = Path(__file__).parents[1] / "docs" / "stand_ins"
ENV = {"PATH": os.pathsep.join((str(STAND_INS), os.environ["PATH"]))}
WAIT_S = 60


def play(af: AirflowServer, manager: LockManager) -> None:
    """Two runs for one day wait for another holder, and then work one after the other."""
    held = manager.acquire(owner="somebody", writes=["dw.delays/dt=2013-01-15"])
    runs = [af.trigger(DAG_ID, datetime(2013, 1, 15, hour, tzinfo=UTC)) for hour in (1, 2)]
    af.wait(lambda: len(manager.waiters("dw.delays")) == len(runs), WAIT_S, "both runs to wait")
    manager.release(held)
    af.wait(lambda: failed(af) or done(af), WAIT_S, "both runs to succeed")
    assert not [af.task_log(DAG_ID, run_id, "delays") for run_id in failed(af)]
    tenures = sorted(manager.history("dw.delays"), key=lambda tenure: tenure.granted)
    assert [str(lock) for lock in tenures[-1].locks] == [
        "dw SHARED",
        "dw.delays SHARED",
        "dw.delays/dt=2013-01-15 EXCLUSIVE",
        "dw.flights SHARED",
        "dw.flights/dt=2013-01-15 SHARED",
    ]
    assert len(tenures) == 1 + len(runs)
    assert all(one.ended and one.ended <= other.granted for one, other in pairwise(tenures)), "two at once"
    assert not manager.show("dw.delays")


def failed(af: AirflowServer) -> list[str]:
    """Runs that have failed: others may wait for ever for what they have left locked."""
    return [run.run_id for run in af.runs(DAG_ID) if run.state == "failed"]


def done(af: AirflowServer) -> bool:
    return all(run.state == "success" for run in af.runs(DAG_ID))
