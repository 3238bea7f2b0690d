"""The sessions of a driver with a JVM: their statements, their plans and their jobs."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from airflow_hivelock.spark import interception
from airflow_hivelock.spark.driver_work import work_of
from airflow_hivelock.spark.jvm import items
from airflow_hivelock.spark.leases import DriverName
from airflow_hivelock.spark.plans import SessionPlans
from airflow_hivelock.spark.statements import StatementLocks

if TYPE_CHECKING:
    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.plan.text import Plan
    from airflow_hivelock.spark.leases import DriverLeases

ENDS_S = 60.0
"""How long the jobs of an interrupted statement may take to end, in seconds."""


class DriverSide:
    """The sessions of a driver with a JVM."""

    def __init__(self, spark: Any, **options: Any) -> None:
        self._spark = spark
        self._plans = SessionPlans(spark, **options)
        self.name = spark.sparkContext.appName
        self.driver = DriverName(spark.sparkContext.applicationId, spark.sparkContext.master)
        self._statements: StatementLocks | None = None

    @property
    def tables(self) -> Catalog:
        return self._plans.tables

    def sets(self, setting: str) -> bool:
        return bool(self._spark._jsparkSession.sessionState().conf().contains(setting))

    def work(self, keeper: str) -> tuple[str, str]:
        return work_of(self._spark.sparkContext, keeper, self._pid)

    def explained(self, statement: Any) -> Plan:
        if not isinstance(statement, str):
            return self._plans.of_frame(statement._jdf)[0]
        session = interception.active_session() or self._spark
        found = self._plans.of_sql(session._jsparkSession, statement)
        return (found or self._plans.of_frame(interception.unlocked_sql(session, statement)._jdf))[0]

    def named(self) -> AbstractContextManager[None]:
        return nullcontext()  # Spark's plans show what is outside the lease

    def begin(self, leases: DriverLeases) -> None:
        self._statements = StatementLocks(self._spark.sparkContext, self._plans, leases)
        interception.install(self._statements)

    def end(self) -> None:
        if self._statements is not None:
            interception.remove(self._statements)

    def cancel(self) -> None:
        self._spark.sparkContext.cancelAllJobs()

    def _pid(self) -> int:
        """The id of the JVM's process: jobs go on in it after Python has died."""
        runtime = self._spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
        return int(runtime.getName().partition("@")[0])

    def interrupt(self) -> bool:
        """Cancel all jobs, and wait until the statements have ended in the JVM. Return whether they have.

        Another thread asks, because the interrupted one may have left an answer on its connection to the JVM.
        """
        thread = threading.Thread(target=_wait_for_the_end, args=(self._spark,), name="hive-locks-end", daemon=True)
        thread.start()
        thread.join(ENDS_S)
        return not thread.is_alive()


def _wait_for_the_end(spark: Any) -> None:
    spark.sparkContext.cancelAllJobs()
    store = spark._jsparkSession.sharedState().statusStore()
    while not all(each.completionTime().isDefined() for each in items(store.executionsList())):
        time.sleep(0.1)
