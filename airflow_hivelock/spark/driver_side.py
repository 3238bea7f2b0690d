"""The sessions of a driver with a JVM. It plans and intercepts their statements, and cancels their jobs."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError

from airflow_hivelock.locks.pauses import pauses
from airflow_hivelock.spark import interception
from airflow_hivelock.spark.driver_work import work_of
from airflow_hivelock.spark.jvm import items, optional
from airflow_hivelock.spark.jvm_threads import JvmThreads
from airflow_hivelock.spark.leases import DriverName
from airflow_hivelock.spark.plans import SessionPlans
from airflow_hivelock.spark.statements import StatementLocks
from airflow_hivelock.spark.waiting import MOST_SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.plan.text import Plan
    from airflow_hivelock.spark.leases import DriverLeases

ENDS_S = 60.0
"""How long to wait for the end of an interrupted statement, in seconds."""

PAUSES_S = 0.1, 2.0
"""The pause between two checks for that end, in seconds. It grows from the first value to the second."""

log = logging.getLogger(__name__)


class DriverSide:
    """The sessions of one driver with a JVM.

    :ivar name: the name in listings.
    """

    def __init__(self, spark: Any, **options: Any) -> None:
        self._spark = spark
        self._plans = SessionPlans(spark, **options)
        self._threads = JvmThreads(spark.sparkContext._gateway)
        self.name = spark.sparkContext.appName
        self.driver = DriverName(spark.sparkContext.applicationId, spark.sparkContext.master)
        self._statements: StatementLocks | None = None

    @property
    def tables(self) -> Catalog:
        return self._plans.tables

    def has_setting(self, name: str) -> bool:
        return bool(self._spark._jsparkSession.sessionState().conf().contains(name))

    def work(self, keeper: str) -> tuple[str, str]:
        return work_of(self._spark.sparkContext, keeper, self._pid)

    def plan_of(self, statement: Any) -> Plan:
        """The locks of a SQL statement or a DataFrame."""
        if not isinstance(statement, str):
            return self._plans.of_frame(statement._jdf).plan
        session = interception.active_session() or self._spark
        return self._plans.of_sql(session._jsparkSession, statement, runs=True).plan

    def start(self, leases: DriverLeases) -> None:
        """Lock each later statement with *leases*."""
        self._statements = StatementLocks(self._spark.sparkContext, self._plans, leases, self._threads.note)
        interception.install(self._statements)

    def stop(self) -> None:
        if self._statements is not None:
            interception.remove(self._statements)

    def cancel(self) -> None:
        self._spark.sparkContext.cancelAllJobs()

    def _pid(self) -> int:
        """The id of the JVM's process, where jobs continue after Python has died."""
        runtime = self._spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
        return int(runtime.getName().partition("@")[0])

    def ended(self, error: BaseException) -> bool:
        """Whether all statements have ended in the JVM after *error*.

        After an interruption, cancel all jobs and wait for the end of all statements. A new thread asks the JVM, because
        the interrupted thread may have an unread answer on its connection. The JVM may not answer the new thread, so the
        wait for that thread has a limit.
        """
        # In PySpark 3.5 and 4.0, Ctrl-C during a call raises a Py4JError, because PySpark's handler uses the busy connection.
        unanswered = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
        if isinstance(error, Exception) and not unanswered:
            return True
        ended = threading.Event()
        noted = self._threads.noted()
        call_runs = partial(self._threads.runs_call, noted) if noted else lambda: False
        arguments = self._spark, call_runs, ended, unanswered
        thread = threading.Thread(target=_end, args=arguments, name="hive-locks-end", daemon=True)
        thread.start()
        thread.join(ENDS_S)
        return ended.is_set()


def _end(spark: Any, call_runs: Callable[[], bool], ended: threading.Event, unanswered: bool) -> None:
    """Cancel all jobs, and set *ended* when no statement runs. Give up after :data:`ENDS_S`.

    :param call_runs: whether the interrupted call still runs in the JVM.
    :param unanswered: do nothing if that call has ended: it has failed, and no user has interrupted it.
    """
    try:
        running = _cancelled(spark, call_runs) if not unanswered or call_runs() else []
    except Exception:
        log.exception("It is not known whether the cancelled statements have ended")
        return
    if not running:
        ended.set()
        return
    named = "; ".join(running[:MOST_SHOWN])
    log.error("%d statements still run %g s after they were cancelled: %s", len(running), ENDS_S, named)


def _cancelled(spark: Any, call_runs: Callable[[], bool]) -> list[str]:
    """Cancel all jobs, and wait until no statement runs. Return those that still run after :data:`ENDS_S`."""
    until = time.monotonic() + ENDS_S
    store = spark._jsparkSession.sharedState().statusStore()
    running: list[Any] = []
    in_call = True
    for pause_s in pauses(*PAUSES_S):
        if in_call:  # the call may have started another job
            spark.sparkContext.cancelAllJobs()
        # The call comes before the list: a statement that it starts after this line is seen in the next round.
        in_call = call_runs()
        # The list of all statements is long, so it is read only first and last. A statement may have started another one.
        running = _unended(optional(store.execution(each.executionId())) for each in running)
        running = running or _unended(items(store.executionsList()))
        if not (running or in_call) or time.monotonic() + pause_s > until:
            break
        time.sleep(pause_s)
    named = [str(each.description()) for each in running]
    return named or ["a statement that Spark plans"] * in_call


def _unended(executions: Iterable[Any]) -> list[Any]:
    return [each for each in executions if each is not None and not each.completionTime().isDefined()]
