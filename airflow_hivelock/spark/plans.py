"""Plans the locks of a statement, or of an action on a DataFrame, from Spark's analysed plan. It executes nothing."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.model.object import CATALOG, MAX_OBJECTS
from airflow_hivelock.locks.plan.planner import Planner
from airflow_hivelock.locks.plan.session import SessionState
from airflow_hivelock.locks.plan.tables import KnownTables
from airflow_hivelock.locks.plan.text import Plan, plan_touched
from airflow_hivelock.spark.holding import NotPlanned, Planned
from airflow_hivelock.spark.jvm import Jvm, items, kind, same
from airflow_hivelock.spark.names import NamesOfPlans
from airflow_hivelock.spark.places import Places
from airflow_hivelock.spark.reading import PlanReader
from airflow_hivelock.spark.tables import Answers, SessionTables

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_RUNS_AS_ANALYSED = ("CompoundBody", "ExecuteImmediateQuery", "UnresolvedExecuteImmediate")
"""Statements that Spark runs while it analyses them."""


class SessionPlans:
    """Plans the statements of all sessions of one driver.

    :param catalogs: Spark's catalogs with Hive's tables.
    :param others: the catalogs with tables that need no lock.
    :param lenient: lock everything that an unknown command names, in place of a refusal.
    """

    def __init__(
        self,
        spark: Any,
        *,
        catalogs: Collection[str] = (CATALOG,),
        others: Collection[str] = (),
        lenient: bool = False,
    ) -> None:
        self._jvm = Jvm(spark)
        self._catalogs = catalogs
        self._others = others
        self._lenient = lenient
        self.tables = SessionTables(self._jvm)
        self.places = Places(self._jvm, self.tables)

    def of_sql(self, session: Any, text: str, args: Any = None, *, runs: bool = False) -> Planned:
        """The locks of the command *text*. A query has none, because Spark runs it later.

        :param session: Spark's session in the JVM.
        :param args: the parameters of the text, as ``spark.sql`` takes them.
        :param runs: plan a query too, as if it ran immediately.
        :raises NotPlanned: its locks are not known.
        """
        literals = _literals(args) if args else args

        def analyse() -> Any:
            parsed = self._jvm.parse(session, text, literals)
            if kind(parsed) in _RUNS_AS_ANALYSED:
                raise NotPlanned(
                    "Spark runs EXECUTE IMMEDIATE and scripts while it analyses them, so their locks are not known before; "
                    "run each statement by itself, or under a lease that names its data, HiveLocks.lease(writes=[…])"
                )
            return session.sessionState().executePlan(parsed, self._jvm.skip).analyzed()

        def read(reader: PlanReader, analysed: Any) -> None:
            if not reader.statement(analysed):
                if runs:
                    reader.query(analysed)
                return
            if literals and None in (literals.values() if isinstance(literals, dict) else literals):
                raise NotPlanned(
                    f"the locks of {text[:80]!r} depend on a parameter that is not NULL, text, a finite number or a date; write "
                    "the value into the statement, or run it under a lease that names its data, HiveLocks.lease(writes=[…])"
                )

        return self._read(session, analyse, read)

    def of_frame(self, frame: Any) -> Planned:
        """The locks of an action on the DataFrame.

        :param frame: the DataFrame in the JVM.
        """
        analysed = _analysed(frame)
        return self._read(frame.sparkSession(), lambda: analysed, PlanReader.query)

    def of_write(self, frame: Any, table: str = "", path: str = "") -> Planned:
        """The locks of a write of the DataFrame to *table*, or to *path*."""
        session, analysed = frame.sparkSession(), _analysed(frame)

        def read(reader: PlanReader, analysed: Any) -> None:
            reader.query(analysed)
            if table:
                reader.write_target(session.sessionState().sqlParser().parseMultipartIdentifier(table))
            if path:
                reader.write_path(path)

        return self._read(session, lambda: analysed, read)

    def run(self, session: Any, analysed: Any) -> Any:
        """The Dataset of an analysed statement."""
        return self._jvm.rows(session, analysed)

    def of_stream(self, frame: Any, path: str = "") -> Plan:
        """A plan that reads all tables and views of a stream, and writes the tables at *path*."""
        planner, reader, _ = self._begin(frame.sparkSession())
        reader.stream(_analysed(frame))
        if path:
            reader.write_path(path)
        return plan_touched(planner)

    def of_call(self, session: Any, table: str, database: str, *, writes: bool) -> Plan:
        """The locks of a call of ``spark.catalog`` on *table*, or on *database*.

        :param writes: the call changes it. Otherwise it reads the table's data.
        """
        planner, reader, _ = self._begin(session)
        parts = session.sessionState().sqlParser().parseMultipartIdentifier(table or database)
        if database:
            reader.write_database(parts)
        else:
            reader.write_table(parts) if writes else reader.read_table(parts)
        return plan_touched(planner)

    def _read(
        self, session: Any, analyse: Callable[[], Any], read: Callable[[PlanReader, Any], None], analysed: Any = None
    ) -> Planned:
        """Plan a statement.

        :param analyse: returns Spark's analysed plan of the statement.
        :param read: adds what the analysed plan touches to the reader.
        :param analysed: the latest analysed plan. None: call *analyse*.
        """
        found = analyse() if analysed is None else analysed
        planner, reader, answers = self._begin(session)
        read(reader, found)
        plan = plan_touched(planner)

        def again() -> Planned:
            """Check all inputs of the plan again, because a rival may have changed one of them before the grant."""
            now = analyse()
            refresh(now)
            unchanged = (
                not reader.by_path
                and same(found, now)
                and all(self._jvm.optimised(session, query).sameResult(former) for query, former in reader.queries)
                and answers.unchanged()
            )
            return planned(now) if unchanged else self._read(session, analyse, read, now)

        def planned(analysed: Any) -> Planned:
            return Planned(plan, again, None if reader.transacts else analysed, reader.moves)

        return planned(found)

    def _begin(self, session: Any) -> tuple[Planner, PlanReader, Answers]:
        answers = Answers(self.tables)
        tables = KnownTables(answers)
        state: SessionState[Any] = SessionState(tables, session.sessionState().catalog().getCurrentDatabase())
        planner = Planner(state, "stricter", MAX_OBJECTS)
        names = NamesOfPlans(session, tables, self._catalogs, self._others)
        reader = PlanReader(self._jvm, session, planner, names, self.places, lenient=self._lenient)
        return planner, reader, answers


def _analysed(frame: Any) -> Any:
    """The analysed plan of a DataFrame. Spark has run a command in it and has replaced it by the command's rows."""
    return frame.queryExecution().commandExecuted()


def _literals(args: Any) -> Any:
    """The parameters as SQL literals. None for a value that has no literal here."""
    return (
        {name: _literal(value) for name, value in args.items()} if isinstance(args, dict) else list(map(_literal, args))
    )


def _literal(value: Any) -> str | None:
    if isinstance(value, str):
        quoted = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{quoted}'"
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | Decimal):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return f"{float(value)!r}D"  # NumPy's floats have another text
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    return f"DATE '{value}'" if isinstance(value, date) else None


def refresh(analysed: Any) -> None:
    """Make Spark list the files of the plan's tables again, because its own list may be older than the locks."""
    for each in (analysed, *items(analysed.subqueriesAll())):
        each.refresh()
    if not analysed.children().size():
        for query in items(analysed.innerChildren()):  # the query of CREATE TABLE … AS SELECT
            refresh(query)
