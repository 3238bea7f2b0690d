"""The mark in the environment of the processes that a task starts. It shows that they are work under the lease."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from airflow.providers.standard.operators.bash import BashOperator

from airflow_hivelock import HiveLockedSparkSubmitOperator, locked
from airflow_hivelock.operators.environment import with_variables
from airflow_hivelock.spark import URL
from airflow_hivelock.work.processes import MARK
from tests.airflow.tasks import DAY, NAMES, dag

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run

OWN: dict[str, Any] = {"env": {"DAY": "{{ ds }}"}}
"""An environment in place of the worker's."""


@pytest.mark.parametrize("options", [{}, OWN, {**OWN, "append_env": True}], ids=["inherited", "own", "appended"])
def test_a_shell_has_the_mark_and_the_lock_store(
    options: dict[str, Any], manager: LockManager, run: Run, tmp_path: Path
) -> None:
    with dag() as works:
        locked(BashOperator)(task_id="work", bash_command=f"env > {tmp_path}/env", **options, **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    found = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    assert len(found[MARK]) == 32
    assert found[URL] == "memory://"
    assert found.get("DAY") == ("2013-01-15" if options else None)
    assert ("AIRFLOW_HOME" in found) is (options is not OWN)


@pytest.mark.parametrize("options", [{}, OWN], ids=["inherited", "own"])
def test_a_shell_that_outlives_a_time_out_is_killed_before_its_locks_are_freed(
    options: dict[str, Any], manager: LockManager, run: Run, tmp_path: Path
) -> None:
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; for i in {{1..240}}; do sleep 0.25; done > /dev/null 2>&1"
    ended: list[Any] = []
    with dag() as works:
        locked(BashOperator)(
            task_id="work",
            bash_command=script,
            execution_timeout=timedelta(seconds=2),
            on_failure_callback=lambda context: ended.append(context["ti"].task),
            **options,
            **NAMES,
        )
    assert run(works, logical_date=DAY).tasks == {"work": "failed"}
    shell = int((tmp_path / "pid").read_text())
    try:
        assert not psutil.pid_exists(shell) or psutil.Process(shell).status() == psutil.STATUS_ZOMBIE
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell, signal.SIGKILL)
        with ended[0].subprocess_hook.sub_process:  # closes its output
            pass
    assert not manager.leases()


def test_an_error_before_the_work_begins_leaves_no_lease_and_no_mark(manager: LockManager, run: Run) -> None:
    """Spark's settings come from a template, which can render to something else than a dict."""
    with dag() as works:
        HiveLockedSparkSubmitOperator(task_id="work", application="job.py", conf="{{ ds }}", **NAMES)
    assert run(works, logical_date=DAY).tasks == {"work": "failed"}
    assert not manager.leases()
    assert not {URL, MARK} & os.environ.keys()


def test_an_operator_has_its_own_environment_again_after_its_work() -> None:
    shared = {"A": "b", URL: "mine", MARK: "an outer lease's"}
    task: Any = BashOperator(task_id="work", bash_command="true", env=shared)
    with with_variables(task, {URL: "sqlite:////locks.db", MARK: "1"}):
        assert task.env == {"A": "b", URL: "mine", MARK: "1"}
        task.env["AIRFLOW_CTX_DAG_ID"] = "dag"
    assert task.env is shared
    assert shared == {"A": "b", URL: "mine", MARK: "an outer lease's"}
    assert not {URL, MARK} & os.environ.keys()
