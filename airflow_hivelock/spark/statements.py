"""The locks around each statement of a driver: what the interception asks for."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.plan.text import Plan
from airflow_hivelock.spark.holding import Planned, hold, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.spark.leases import DriverLeases
    from airflow_hivelock.spark.plans import SessionPlans


class StatementLocks:
    """Holds the locks of a statement for the time of a body.

    :param context: the SparkContext of the driver.
    """

    def __init__(self, context: Any, plans: SessionPlans, leases: DriverLeases) -> None:
        self._context = context
        self._plans = plans
        self._leases = leases
        self._inside: ContextVar[bool] = ContextVar("inside", default=False)

    def concerns(self, session: Any) -> bool:
        """Whether a statement of *session* begins here: no statement runs already.

        :raises InvalidRequest: the session is one of another Spark application, which has no locks.
        """
        if session._sc is not self._context:
            raise InvalidRequest(
                f"this session belongs to Spark application {session._sc.applicationId}, and the locks are for an earlier one; "
                "call enable_hive_locks for it, or HiveLocks.disable()"
            )
        return not self._inside.get()

    @contextmanager
    def statement(self, session: Any, text: str, args: Any) -> Iterator[Callable[[], Any] | None]:
        """Around ``spark.sql``. The body gets what runs the statement as it was planned; None: it is to be run as usual."""
        java = session._jsparkSession
        with self._running(lambda: self._plans.of_sql(java, text, args), text) as found:
            if args or found is None or found.analysed is None:
                yield None
            else:
                yield partial(self._plans.run, java, found.analysed)

    @contextmanager
    def action(self, frame: Any, name: str) -> Iterator[None]:
        """Around an action on a DataFrame."""
        with self._running(lambda: self._plans.of_frame(frame._jdf), name):
            yield

    @contextmanager
    def write(self, frame: Any, name: str, table: str = "", path: str = "") -> Iterator[None]:
        """Around a write of a DataFrame to a table or a path."""
        with self._running(lambda: self._plans.of_write(frame._jdf, table, path), f"{name} {table or path}"):
            yield

    @contextmanager
    def call(self, session: Any, name: str, table: str = "", database: str = "", writes: bool = True) -> Iterator[None]:
        """Around a call of ``spark.catalog`` that changes a table or a database, or reads a table's data."""

        def plan() -> Planned:
            if database:
                found = Plan([], [LockObject(database)], {})
            else:
                found = self._plans.of_table(session._jsparkSession, table, writes=writes)
            whole: Planned = Planned(found, lambda: whole)  # it names the whole table, whatever a rival changes
            return whole

        with self._running(plan, f"{name} {table or database}"):
            yield

    @contextmanager
    def rows(self, frame: Any, begin: Callable[[], Iterator[Any]]) -> Iterator[Iterator[Any]]:
        """Hold the locks of the frame's data while its rows are read one by one."""
        with hold(self._leases, lambda: self._plans.of_frame(frame._jdf), "DataFrame.toLocalIterator"):
            with self._in_a_statement():
                rows = begin()
            yield rows

    def refuse_later(self, frame: Any, what: str, step: str) -> None:
        """Refuse a read of the frame's tables that happens later, when no lock is held.

        :raises InvalidRequest: it reads tables that the lease of this thread does not hold.
        """
        found = planned(self._leases, lambda: self._plans.of_frame(frame._jdf))
        if found is not None and not self._leases.covered(found.plan):
            raise InvalidRequest(f"{what} reads {_some(found.plan)} later, when no lock is held; {step}")

    def refuse_stream(self, frame: Any, path: str) -> None:
        """Refuse a stream that reads Hive's tables, or writes to *path* in one: it runs on after its start.

        :raises InvalidRequest: it does.
        """
        plan = self._plans.of_names(frame._jdf, path)
        if plan.reads or plan.writes:
            raise InvalidRequest(
                f"a stream that touches {_some(plan)} has no end at which its locks could be freed; read and write the table in "
                "foreachBatch, which locks for each batch"
            )

    @contextmanager
    def _running(self, plan: Callable[[], Planned], query: str) -> Iterator[Planned | None]:
        with hold(self._leases, plan, query) as found, self._in_a_statement():
            yield found

    @contextmanager
    def _in_a_statement(self) -> Iterator[None]:
        """What PySpark calls of itself in the body belongs to the same statement."""
        inside = self._inside.set(True)
        try:
            yield
        finally:
            self._inside.reset(inside)

    def close(self) -> None:
        """Release everything that the driver holds."""
        self._leases.close()


def _some(plan: Plan) -> str:
    return ", ".join(str(each) for each in (*plan.writes, *plan.reads)[:3])
