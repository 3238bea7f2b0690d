"""Work under locks that runs until its gate opens. The gate is a file with the name of the run."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, Variable

from airflow_hivelock import HiveLockMixin

MOST_S = 600


class Gate(BaseOperator):
    def execute(self, context: Any) -> None:
        deadline = time.monotonic() + MOST_S
        while not (Path(Variable.get("gates")) / context["run_id"]).exists():
            if time.monotonic() > deadline:
                raise TimeoutError("the gate did not open")
            time.sleep(0.1)


class Locked(HiveLockMixin, Gate):
    work_ends_with_process = True


with DAG("versions", schedule=None, start_date=datetime(2013, 1, 1, tzinfo=UTC)):
    Locked(task_id="job", waiting="defer", writes=["dw.flights/dt=2013-01-01"])
