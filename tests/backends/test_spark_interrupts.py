"""Ctrl-C in a session of Spark: a statement has ended in Spark before its locks are released."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError

from airflow_hivelock.spark.plans import SessionPlans
from tests.support.local_spark import local_spark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.spark import HiveLocks

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

HANG_S = 60.0

SLOW = "insert into dw.t select levenshtein(repeat('a', 12000), repeat('b', 12000))"
"""Spark's optimiser evaluates the distance for seconds. Only then is the statement in Spark's list of statements."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="module")
def spark(home: Path) -> Iterator[SparkSession]:
    with local_spark(home, cores=2) as session:
        session.sql("create database dw")
        session.sql("create table dw.t (k int) stored as textfile")
        session.sql("insert into dw.t values (1)")
        yield session


def until(true: Any) -> None:
    deadline = time.monotonic() + HANG_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_statement_that_spark_still_plans_does_not_begin_without_its_locks(
    spark: Any, home: Path, locks: HiveLocks, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm, run = spark._jvm, SessionPlans.run
    threads: list[Any] = []

    def stack() -> str:
        return str(jvm.scala.runtime.ScalaRunTime.stringOf(threads[0].getStackTrace()))

    def press() -> None:
        until(lambda: "levenshtein" in stack())
        os.kill(os.getpid(), signal.SIGINT)

    def interrupted(plans: SessionPlans, session: Any, analysed: Any) -> Any:
        threads.append(jvm.java.lang.Thread.currentThread())
        threading.Thread(target=press, daemon=True).start()
        return run(plans, session, analysed)

    def files() -> list[Path]:
        return list((home / "warehouse" / "dw.db" / "t").glob("part-*"))

    monkeypatch.setattr(SessionPlans, "run", interrupted)
    with pytest.raises((KeyboardInterrupt, Py4JError)):  # the error of PySpark 3.5 and 4.0
        spark.sql(SLOW)
    assert not manager.leases()
    left = files()
    assert left
    until(lambda: "py4j.commands" not in stack())
    assert files() == left
