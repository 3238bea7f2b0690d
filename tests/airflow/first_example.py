"""README's first example in a real Airflow, with a spark-submit that only succeeds."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow_server import AirflowServer

DAG_ID = "first_example"
DAG_FILE = Path(__file__).parent / "dags" / f"{DAG_ID}.py"
CONNECTIONS = {"spark_default": {"conn_type": "spark", "host": "local[1]"}}
STAND_INS = Path(__file__).parents[1] / "docs" / "stand_ins"
ENV = {"PATH": os.pathsep.join((str(STAND_INS), os.environ["PATH"]))}
WAIT_S = 60


def play(af: AirflowServer, manager: LockManager) -> None:
    """Two runs for one day wait for somebody else, and then work one after the other."""
    held = manager.acquire(owner="somebody", writes=["dw.delays/dt=2013-01-15"])
    runs = [af.trigger(DAG_ID, datetime(2013, 1, 15, hour, tzinfo=UTC)) for hour in (1, 2)]
    af.wait(lambda: len(manager.waiters("dw.delays")) == len(runs), WAIT_S, "both runs to wait")
    manager.release(held)
    over = ("success", "failed")
    af.wait(lambda: all(af.run(DAG_ID, run_id).state in over for run_id in runs), WAIT_S, "both runs to end")
    states = {run_id: af.run(DAG_ID, run_id).state for run_id in runs}
    assert states == dict.fromkeys(runs, "success"), [af.task_log(DAG_ID, run_id, "delays") for run_id in runs]
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
