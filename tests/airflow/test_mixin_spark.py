"""A Spark job under locks: what it is told, and the locks of one that may still run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_hivelock import HiveLockedSparkSubmitOperator, HiveLockOperator, release_locks
from airflow_hivelock.work.spark_job import SparkJob
from tests.airflow.tasks import DAY, NAMES, dag

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run


class TestSpark:
    @pytest.fixture(autouse=True)
    def spark_submit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A spark-submit that only writes down how it was called."""
        binary = tmp_path / "spark-submit"
        binary.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/called\n')
        binary.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local"}')
        return tmp_path / "called"

    def submit(self, run: Run, **options: Any) -> None:
        with dag() as works:
            HiveLockedSparkSubmitOperator(task_id="job", application="job.py", **options)
        assert run(works, logical_date=DAY).state == "success"

    def test_the_job_is_told_its_lease(self, manager: LockManager, run: Run, spark_submit: Path) -> None:
        self.submit(run, **NAMES)
        called = spark_submit.read_text()
        assert "spark.hivelock.lease=memory-" in called
        assert "spark.hivelock.token=" in called

    @pytest.mark.parametrize(
        ("options", "wanted"),
        [
            (NAMES, "=false"),
            ({**NAMES, "conf": {"spark.sql.hive.convertInsertingPartitionedTable": "true"}}, "=true"),
            ({"reads": ["dw.delays/dt={{ ds }}"]}, None),
            ({"writes": ["dw.delays"]}, None),
        ],
    )
    def test_spark_writes_single_partitions_safely(
        self, options: dict[str, Any], wanted: str | None, manager: LockManager, run: Run, spark_submit: Path
    ) -> None:
        self.submit(run, **options)
        setting = "spark.sql.hive.convertInsertingPartitionedTable"
        assert [
            line.removeprefix(setting) for line in spark_submit.read_text().split() if line.startswith(setting)
        ] == ([wanted] if wanted else [])

    def test_spark_writes_safely_under_an_adopted_lease_too(
        self, manager: LockManager, run: Run, spark_submit: Path
    ) -> None:
        with dag() as works:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            HiveLockedSparkSubmitOperator(task_id="job", application="job.py", lease=lock.output)
        assert run(works, logical_date=DAY).state == "success"
        assert "spark.sql.hive.convertInsertingPartitionedTable=false" in spark_submit.read_text()

    @pytest.mark.parametrize(("status", "stays"), [("RUNNING", True), ("FAILED", False), ("unknown", True)])
    def test_the_locks_of_a_job_that_may_still_run_stay(
        self, status: str, stays: bool, manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In cluster mode a task can fail while its application goes on; a durable retry finds it again."""

        def execute(self: Any, context: Any) -> None:
            self.record_application(SparkJob.submitted_by(self, "driver-1"))
            raise RuntimeError("lost contact")

        def ask(self: Any, job_id: str, context: Any) -> str:
            assert job_id == "driver-1"
            if status == "unknown":
                raise ConnectionError("no master answers")
            return status

        monkeypatch.setattr(SparkSubmitOperator, "execute", execute)
        monkeypatch.setattr(SparkSubmitOperator, "get_job_status", ask)
        monkeypatch.setattr(SparkSubmitOperator, "is_job_active", lambda _, now: now == "RUNNING")
        with dag() as works:
            HiveLockedSparkSubmitOperator(
                task_id="job", application="job.py", on_failure_callback=release_locks, **NAMES
            )
        assert run(works, logical_date=DAY).tasks == {"job": "failed"}
        assert bool(manager.show()) == stays, "the task's end"
