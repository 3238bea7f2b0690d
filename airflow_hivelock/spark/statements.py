"""Holds the locks of each statement of a driver. The replaced methods of PySpark call it."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.spark.holding import LockedRows, NotPlanned, Planned, hold, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks.plan.text import Plan
    from airflow_hivelock.spark.leases import DriverLeases
    from airflow_hivelock.spark.plans import SessionPlans


_CREATES = (".create", ".createOrReplace", ".replace", ".saveAsTable")
"""The methods of writers that create a table."""


class StatementLocks:
    """Context managers that hold the locks of one statement for the time of the body.

    :param context: the SparkContext of the driver.
    :param before: called in the thread of a statement, directly before Spark runs it.
    """

    def __init__(
        self, context: Any, plans: SessionPlans, leases: DriverLeases, before: Callable[[], None] = lambda: None
    ) -> None:
        self._context = context
        self._plans = plans
        self._leases = leases
        self._before = before
        self._inside: ContextVar[bool] = ContextVar("inside", default=False)

    def begins_statement(self, session: Any) -> bool:
        """Whether a call on *session* begins a statement. A call inside a statement belongs to that statement.

        :raises InvalidRequest: the session belongs to another Spark application, which has no locks.
        """
        if session._sc is not self._context:
            raise InvalidRequest(
                f"this session belongs to Spark application {session._sc.applicationId}, and the locks belong to an earlier "
                "application; call enable_hive_locks for it, or HiveLocks.disable()"
            )
        return not self._inside.get()

    @contextmanager
    def statement(self, session: Any, text: str, args: Any) -> Iterator[Callable[[], Any] | None]:
        """Hold the locks of ``spark.sql``.

        Yield a function that runs the planned statement. Yield None if PySpark's own method has to run the text.
        """
        java = session._jsparkSession
        with self._running(lambda: self._plans.of_sql(java, text, args), text) as found:
            if args or found is None or found.analysed is None:
                yield None
            else:
                yield partial(self._plans.run, java, found.analysed)

    @contextmanager
    def action(self, frame: Any, name: str) -> Iterator[None]:
        """Hold the locks of an action on a DataFrame."""
        with self._running(lambda: self._plans.of_frame(frame._jdf), name):
            yield

    @contextmanager
    def write(self, frame: Any, name: str, table: str = "", path: str = "") -> Iterator[None]:
        """Hold the locks of a write of a DataFrame to a table or a path."""
        moves = name.endswith(_CREATES)
        with self._running(
            lambda: self._plans.of_write(frame._jdf, table, path), f"{name} {table or path}", moves=moves
        ):
            yield

    @contextmanager
    def call(self, session: Any, name: str, table: str = "", database: str = "", writes: bool = True) -> Iterator[None]:
        """Hold the locks of a call of ``spark.catalog``. The call changes a table or a database, or reads a table's data."""

        def plan() -> Planned:
            found = self._plans.of_call(session._jsparkSession, table, database, writes=writes)
            # No change of a rival matters, because the lock is on the whole table or database.
            whole: Planned = Planned(found, lambda: whole)
            return whole

        with self._running(plan, f"{name} {table or database}", moves=writes):
            yield

    def rows(self, frame: Any, begin: Callable[[], Iterator[Any]]) -> LockedRows:
        """Hold the locks of the DataFrame's data while the caller reads its rows one by one."""
        with ExitStack() as held:
            outer = self._leases.held()
            held.enter_context(
                hold(self._leases, lambda: self._plans.of_frame(frame._jdf), "DataFrame.toLocalIterator")
            )
            with self._in_a_statement():
                rows = begin()
            return LockedRows(rows, self._leases.keep(held.pop_all(), outer))

    @contextmanager
    def unplanned(self, name: str) -> Iterator[None]:
        """Run a call that cannot be planned. It needs a lease that names its data."""

        def plan() -> Planned:
            raise NotPlanned(
                f"{name} runs in the JVM, so its locks are not known before; write a statement of spark.sql in its place, or "
                "run it under a lease that names its data, HiveLocks.lease(writes=[…])"
            )

        with self._running(plan, name):
            yield

    def refuse_later(self, frame: Any, what: str, step: str) -> None:
        """Refuse a read of the DataFrame's tables that happens later, when no lock is held.

        :param what: the kind of read, as the message names it.
        :param step: what the user can do instead.
        :raises InvalidRequest: it reads tables that the lease of this thread does not hold.
        """
        found = planned(self._leases, lambda: self._plans.of_frame(frame._jdf))
        if found is not None and not self._leases.covered(found.plan):
            raise InvalidRequest(f"{what} reads {_some(found.plan)} later, when no lock is held; {step}")

    def refuse_stream(self, frame: Any, path: str) -> None:
        """Refuse a stream that reads Hive's tables, or writes to a *path* of one. A stream continues after its start.

        :raises InvalidRequest: the stream reads or writes such a table.
        """
        plan = self._plans.of_stream(frame._jdf, path)
        if plan.reads or plan.writes:
            raise InvalidRequest(
                f"a stream that touches {_some(plan)} never ends, so its locks would never be released; read and write the "
                "table in foreachBatch, which locks each batch"
            )

    @contextmanager
    def _running(self, plan: Callable[[], Planned], query: str, *, moves: bool = False) -> Iterator[Planned | None]:
        """Hold the locks of a statement for the time of the body.

        :param moves: the statement may create, move or drop a table, whatever its plan is.
        """
        with hold(self._leases, plan, query) as found:
            try:
                with self._in_a_statement():
                    yield found
            finally:
                if moves or found is None or found.moves:
                    self._plans.places.forget()

    @contextmanager
    def _in_a_statement(self) -> Iterator[None]:
        """Count PySpark's own calls in the body as parts of one statement."""
        inside = self._inside.set(True)
        try:
            self._before()
            yield
        finally:
            self._inside.reset(inside)

    def close(self) -> None:
        """Release all leases of the driver."""
        self._leases.close()


def _some(plan: Plan) -> str:
    """The first data of the plan, for a message."""
    return ", ".join(str(each) for each in (*plan.writes, *plan.reads)[:3])
