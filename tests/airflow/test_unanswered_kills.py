"""Work that continues without the task's process, and that nothing reports on: a server of Spark Connect, Impala, and an
operator without ``on_kill()``. Its locks stay if the task is killed."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from airflow.providers.common.compat.sdk import BaseHook
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import BaseOperator, get_current_context

from airflow_hivelock import HiveLockMixin, locked
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.operators import hive_jobs
from airflow_hivelock.spark import connect_errors
from airflow_hivelock.work import applications
from tests.airflow.tasks import DAY, NAMES, Work, dag

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run


class SparkConnectGrpcException(Exception):
    """As the client of Spark Connect raises it if the connection is lost."""


def kill() -> None:
    """Do what Airflow's SIGTERM does."""
    get_current_context()["ti"].task.on_kill()


def submits(manager: LockManager) -> bool:
    """Whether the work can run longer than the task's process, according to the lease."""
    (work,) = manager.leases()[0].works
    assert work.application
    return bool(json.loads(work.application)["submits"])


class TestPySpark:
    """PySparkOperator, without Spark."""

    @pytest.fixture
    def pyspark(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
        """``pyspark(act)``: the operator under locks, whose function is *act*."""
        module = pytest.importorskip("airflow.providers.apache.spark.operators.spark_pyspark")
        operator = module.PySparkOperator
        monkeypatch.setattr(operator, "execute_callable", lambda self: self.python_callable())
        for name, uri in (
            ("CONNECT", "spark-connect://spark:15002"),
            ("HOST", "spark://sc%3A%2F%2Fspark:15002"),
            ("EXTRA", "spark://yarn?spark.remote=sc%3A%2F%2Fspark"),
            ("CLUSTER", "spark://spark%3A%2F%2Fmaster:7077"),
        ):
            monkeypatch.setenv(f"AIRFLOW_CONN_{name}", uri)

        def make(act: Callable[[], Any], ends: bool | None = None, **options: Any) -> Any:
            given = {"conn_id": "connect"} | options
            return locked(operator, work_ends_with_process=ends)(
                task_id="job", python_callable=lambda: act(), **given, **NAMES
            )

        return make

    @pytest.mark.parametrize(
        ("options", "server"),
        [
            ({"conn_id": "connect"}, True),
            ({"conn_id": "host"}, True),
            ({"conn_id": "extra"}, True),
            ({"conn_id": "no_such_connection"}, True),
            ({"conn_id": "cluster"}, False),
            ({"conn_id": None}, False),
            ({"conn_id": None, "config_kwargs": {"spark.remote": "sc://spark"}}, True),
            ({"conn_id": "{{ 'connect' }}"}, True),
            ({"conn_id": "connect", "ends": True}, False),
        ],
        ids=str,
    )
    def test_a_server_of_spark_connect_may_continue(
        self, options: dict[str, Any], server: bool, pyspark: Any, manager: LockManager, run: Run
    ) -> None:
        seen: list[bool] = []
        with dag() as works:
            pyspark(lambda: seen.append(submits(manager)), **options)
        assert run(works, logical_date=DAY).tasks == {"job": "success"}
        assert seen == [server]
        assert not manager.show(), "the function has returned"

    def test_a_server_is_also_named_by_the_environment(
        self, pyspark: Any, manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SPARK_REMOTE", "sc://spark")
        seen: list[bool] = []
        with dag() as works:
            pyspark(lambda: seen.append(submits(manager)), conn_id=None)
        assert run(works, logical_date=DAY).tasks == {"job": "success"}
        assert seen == [True]

    def test_its_locks_stay_if_its_process_is_gone(self, pyspark: Any, manager: LockManager, run: Run) -> None:
        said: list[str] = []

        def gone() -> None:
            with pytest.raises(CannotTell) as caught:  # the asking process does not count
                applications.running(manager.leases()[0].works)
            said.append(str(caught.value))

        with dag() as works:
            pyspark(gone)
        assert run(works, logical_date=DAY).tasks == {"job": "success"}
        assert "may have submitted work to a cluster" in said[0]

    @pytest.mark.parametrize(("conn_id", "stays"), [("connect", True), ("cluster", False)])
    def test_its_locks_stay_if_the_task_is_killed(
        self, conn_id: str, stays: bool, pyspark: Any, manager: LockManager, run: Run, lines: Callable[[], str]
    ) -> None:
        """The function ends at once, so that it closes its session."""
        after, closes = Mock(), Mock()

        def act() -> None:
            try:
                kill()
                after()
            finally:
                closes()

        with dag() as works:
            pyspark(act, conn_id=conn_id)
        assert run(works, logical_date=DAY).tasks == {"job": "failed"}
        after.assert_not_called()
        closes.assert_called_once()
        assert bool(manager.show()) is stays
        assert ("the server may still run the statement" in lines()) is stays

    @pytest.mark.parametrize(
        ("error", "stays"), [(SparkConnectGrpcException("lost"), True), (ValueError("bad row"), False)]
    )
    def test_its_locks_stay_if_the_server_does_not_answer(
        self, error: Exception, stays: bool, pyspark: Any, manager: LockManager, run: Run
    ) -> None:
        def act() -> None:
            try:
                raise error
            except Exception as caught:
                raise RuntimeError("the load has failed") from caught

        with dag() as works:
            pyspark(act)
        assert run(works, logical_date=DAY).tasks == {"job": "failed"}
        assert bool(manager.show()) is stays

    def test_another_class_of_errors_of_the_connection(self) -> None:
        """The first client of Spark 4 gives up with it."""
        assert connect_errors.unanswered(type("RetriesExceeded", (Exception,), {})())
        assert not connect_errors.unanswered(type("AnalysisException", (SparkConnectGrpcException,), {})())


class Unknown(BaseOperator):
    """An operator that the package does not know, without ``on_kill()``."""

    def execute(self, context: Any) -> None:
        child = subprocess.Popen(["sleep", "60"])
        try:
            kill()
        finally:
            assert child.poll() is not None, "Airflow's kill ends the processes on this host"


class LockedUnknown(HiveLockMixin, Unknown):
    pass


class LockedStops(HiveLockMixin, Work):
    """Another one, whose ``on_kill()`` ends its work."""


def test_the_locks_of_an_unknown_operator_stay_if_nothing_ends_its_work(
    manager: LockManager, run: Run, lines: Callable[[], str]
) -> None:
    with dag() as works:
        LockedUnknown(task_id="job", **NAMES)
    assert run(works, logical_date=DAY).tasks == {"job": "failed"}
    assert manager.show()
    assert "has no on_kill() to end its work" in lines()


def test_an_unknown_operator_with_on_kill_ends_its_work(manager: LockManager, run: Run) -> None:
    with dag() as works:
        LockedStops(task_id="job", act=lambda _: kill(), **NAMES)
    assert run(works, logical_date=DAY).tasks == {"job": "success"}
    assert not manager.show()


@pytest.mark.parametrize("sets", [True, False], ids=["hive", "impala"])
def test_impala_may_continue_a_statement_like_hive(sets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connections have the mark ``run_set_variable_statements=false``."""
    module = pytest.importorskip("airflow.providers.apache.hive.hooks.hive")
    extra = {"run_set_variable_statements": sets}
    monkeypatch.setattr(BaseHook, "get_connection", Mock(return_value=SimpleNamespace(extra_dejson=extra)))
    hook = module.HiveServer2Hook("impala")
    hook.get_conn = Mock(return_value=Mock())
    operator = SQLExecuteQueryOperator(task_id="load", conn_id="impala", sql="SELECT 1")
    monkeypatch.setattr(operator, "get_db_hook", lambda: hook)
    act = Mock()
    hive_jobs.call_when_connected(operator, act)
    act.assert_not_called()
    hook.get_conn()
    act.assert_called_once_with()
