"""Plans the locks of a Spark Connect request: the text planner reads the SQL in the request.

The client has no analysed plan. Its request is a tree of messages. The leaves contain the texts of ``spark.sql`` and the
names of ``spark.table``. The planner ignores the filters of DataFrames, so it locks all partitions of those leaves.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.model.object import CATALOG, MAX_OBJECTS
from airflow_hivelock.locks.plan.planner import QUERY, Planner
from airflow_hivelock.locks.plan.query import Scan
from airflow_hivelock.locks.plan.session import GLOBAL, Moment, SessionState
from airflow_hivelock.locks.plan.sql import Sql
from airflow_hivelock.locks.plan.statement import add
from airflow_hivelock.locks.plan.tables import KnownTables
from airflow_hivelock.locks.plan.text import Plan, plan_touched
from airflow_hivelock.spark.connect_tables import ConnectTables
from airflow_hivelock.spark.holding import NotPlanned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.spark.connect_caches import Caches
    from airflow_hivelock.spark.connect_tables import Ask

_LEASE = "run it under a lease that names its data: HiveLocks.lease(writes=[…])"
_INSTEAD = f"write it as a statement of spark.sql, or {_LEASE}"

_NO_DATA = frozenset(
    """
    cached_local_relation cached_remote_relation chunked_cached_local_relation
    common_inline_user_defined_table_function local_relation range
    """.split()  # noqa: SIM905
)
"""Leaves that read no table."""

_OVER_OTHERS = frozenset(
    """
    aggregate apply_in_pandas_with_state approx_quantile as_of_join co_group_map collect_metrics corr cov crosstab
    deduplicate describe drop drop_na fill_na filter freq_items group_map hint html_string join lateral_join limit
    map_partitions nearest_by_join offset parse project repartition repartition_by_expression replace sample sample_by
    set_op show_string sort subquery_alias summary tail to_df to_schema transpose unpivot with_columns
    with_columns_renamed with_relations with_watermark zip
    """.split()  # noqa: SIM905
)
"""Relations that read only through the relations inside them."""

_CATALOG = frozenset(
    """
    cache_table clear_cache current_catalog current_database database_exists drop_global_temp_view drop_temp_view
    function_exists get_create_table_string get_database get_function get_table get_table_properties is_cached
    list_catalogs list_columns list_databases list_functions list_partitions list_tables list_views refresh_by_path
    refresh_table set_current_catalog set_current_database table_exists uncache_table
    """.split()  # noqa: SIM905
)
"""Calls of ``spark.catalog`` that do not change data."""

_COMMANDS = frozenset(
    """
    create_resource_profile_command get_resources_command register_data_source register_function
    register_table_function remove_cached_remote_relation_command streaming_query_command
    streaming_query_listener_bus_command streaming_query_manager_command
    """.split()  # noqa: SIM905
)
"""Commands that do not touch data."""

_IN_GLOBAL = re.compile(rf"`?{GLOBAL}`?\s*\.\s*`?(\w+)", re.IGNORECASE)

_MAKES = re.compile(r"\b(view|cache|declare|set|immediate|begin)\b", re.IGNORECASE)
"""SQL that may change a temporary view or a variable of the session."""

_CACHES = re.compile(r"\bcache\b(?>\s+|lazy\b|--[^\n]*|/\*.*?\*/)*+table\b", re.IGNORECASE | re.DOTALL)
"""SQL that may create a cache."""

_IMMEDIATE = re.compile(r"\bimmediate\b", re.IGNORECASE)
"""SQL whose own SQL the text need not show."""

_CLEARS = re.compile(r"\s*clear\s+cache\s*;?\s*", re.IGNORECASE)


@dataclass
class Request:
    """One request of the session.

    :param texts: its SQL.
    :param catalog: the call of ``spark.catalog``; ``""`` if it is none.
    :param command: the text comes from ``spark.sql``, which runs a command immediately and a query later.
    :param defines: it creates a temporary view and reads nothing yet.
    :param uncovered: the part that the text planner cannot plan; ``""`` if it can plan everything.
    :param view: the temporary view that it creates, if the planner cannot know what the view reads.
    :param planned: its locks are known.
    :param cached: the planner has found that it creates a cache. Its text need not show that: EXECUTE IMMEDIATE.
    :param between: the state of the session before and after the planner read the texts.
    """

    texts: tuple[str, ...] = ()
    catalog: str = ""
    command: bool = False
    defines: bool = False
    uncovered: str = ""
    view: str = ""
    planned: bool = True
    cached: bool = False
    between: tuple[Moment, Moment] | None = None

    @property
    def name(self) -> str:
        """The request as listings show it."""
        return "; ".join(self.texts) or self.uncovered or "a DataFrame of Spark Connect"

    @property
    def caches(self) -> bool:
        """Whether it may create a cache."""
        patterns = (_CACHES,) if self.planned else (_CACHES, _IMMEDIATE)
        return self.cached or self.catalog == "cache_table" or any(p.search(t) for p in patterns for t in self.texts)

    @property
    def clears(self) -> bool:
        """Whether it clears all caches."""
        return self.catalog == "clear_cache" or any(map(_CLEARS.fullmatch, self.texts))


class ConnectPlans:
    """Plans the requests of one session of Spark Connect.

    :param ask: runs a statement without locks.
    :param caches: the caches of the session's server.
    """

    def __init__(self, ask: Ask, caches: Caches) -> None:
        self._ask = ask
        self._caches = caches
        self.tables = ConnectTables(ask)
        self._known = KnownTables(self.tables)
        self._state: SessionState[Any] = SessionState(self._known)
        self._planner = Planner(self._state, "stricter", MAX_OBJECTS, always=True)
        self._one = threading.RLock()
        self._unknown = self._temporary_views()

    def read(self, plan: Any) -> Request:
        """The request that the message *plan* describes."""
        kind = plan.WhichOneof("op_type")
        if kind == "command":
            return _command(plan.command)
        if kind != "root":
            return Request(uncovered="a compressed plan")
        return _relations(plan.root)

    def plan(self, request: Request) -> tuple[Plan, list[LockObject]] | None:
        """The locks of *request*, and the tables that it reads. None if it does not touch data.

        :raises NotPlanned: its locks are not known.
        """
        if request.view:
            return None
        request.planned = False
        if request.uncovered:
            raise NotPlanned(
                f"{request.uncovered} is not covered in Spark Connect, because the client has no plan; {_INSTEAD}"
            )
        [(catalog, database)] = self._ask("SELECT current_catalog(), current_database()")
        if catalog != CATALOG:
            raise NotPlanned(
                f"the current catalog is {catalog}; in Spark Connect only tables of {CATALOG} are covered; {_INSTEAD}"
            )
        try:
            with self._one:
                found = self._plan(request, database.lower())
        except NotPlanned:
            raise
        except InvalidRequest as error:
            raise NotPlanned(f"{error}; in Spark Connect {_LEASE}") from error
        request.planned = True
        return found

    def _plan(self, request: Request, database: str) -> tuple[Plan, list[LockObject]] | None:
        planner, state = self._planner, self._state
        if request.between is not None:
            state.undo(*request.between)  # the request is planned a second time
        for collected in (planner.scans, planner.writes, planner.looks):
            collected.clear()
        planner.caches = False
        self._known.forget()
        state.database = database
        before, runs = state.remember(), False
        try:
            for text in request.texts:
                self._check_text(text, state)
                for statement in Sql(text).statements:
                    add(statement, planner)
                    runs |= statement.tokens[0].text.upper() not in QUERY
                if state.by_path:  # also in the SQL of EXECUTE IMMEDIATE
                    raise NotPlanned(
                        f"{text[:80]!r} names files by path; in Spark Connect it is not known which table they belong to; "
                        f"name the table, or {_LEASE}"
                    )
            request.cached = planner.caches
            if self._caches.filled:  # the query may use a cache, which Spark fills from all partitions
                planner.scans[:] = [Scan(LockObject(each.table.database, each.table.table)) for each in planner.scans]
            touched = plan_touched(planner)
            if request.defines or (request.command and not runs and not touched.writes):
                return None
            self._check_known(touched, database)
        finally:
            request.between = before, state.remember()
            state.begin()  # now, because a refused statement can still run under a lease, and then changes the state
        return touched, list(
            dict.fromkeys(LockObject(each.database, each.table) for each in touched.reads if each.table)
        )

    def ended(self, request: Request, *, succeeded: bool) -> None:
        """Remember the temporary views and variables that *request* has created, if it *succeeded*."""
        with self._one:
            if request.view:
                if succeeded:
                    self._unknown.add(request.view)
                    if request.view.partition(".")[0] != GLOBAL:
                        self._state.forget((request.view,))
                return
            if request.between is not None:
                if not succeeded or not request.planned or not (request.command or request.defines):
                    self._state.undo(*request.between)
                self._state.made.clear()
                self._state.forget_stored_views()
                self._unknown = {
                    each for each in self._unknown if "." in each or not self._state.is_temporary_view((each,))
                }
            if succeeded and not request.planned and any(map(_MAKES.search, request.texts)):
                self._state.forget_temporary()
                self._unknown = self._temporary_views()

    def _temporary_views(self) -> set[str]:
        """The temporary views that only this session has."""
        return {row["tableName"].lower() for row in self._ask(f"SHOW TABLES IN {GLOBAL}") if not row["namespace"]}

    def _check_known(self, touched: Plan, database: str) -> None:
        unknown = {LockObject(database, each) for each in self._unknown if "." not in each}
        tables = [LockObject(each.database, each.table) for each in (*touched.reads, *touched.writes) if each.table]
        missing = [each for each in touched.reads if each.table and self._known.table(each) is None]
        for each in (*(table for table in tables if table in unknown), *missing):
            raise NotPlanned(
                f"{each.table} is not a known table or temporary view; create the view with CREATE TEMPORARY VIEW in "
                f"spark.sql after enable_hive_locks, or {_LEASE}"
            )

    def _check_text(self, text: str, state: SessionState[Any]) -> None:
        for name in _IN_GLOBAL.findall(text):
            made = re.search(r"create\s+(or\s+replace\s+)?global\s+temp", text, re.IGNORECASE)
            if not made and state.meanings((GLOBAL, name))[0] is None:
                raise NotPlanned(
                    f"{GLOBAL}.{name} was created by another session, so the tables that it reads are not known; {_INSTEAD}"
                )


def _command(command: Any) -> Request:
    kind = command.WhichOneof("command_type")
    if kind == "sql_command":
        found = command.sql_command
        if not found.HasField("input"):
            return Request((found.sql,), command=True)
        if found.input.WhichOneof("rel_type") == "sql":
            return Request((found.input.sql.query,), command=True)
        return Request(tuple(_texts(found.input)), command=True, uncovered="a DataFrame in a statement")
    if kind == "create_dataframe_view":
        found = command.create_dataframe_view
        name = f"{GLOBAL}.{found.name}" if found.is_global else found.name
        if found.input.WhichOneof("rel_type") == "sql" and not _has_arguments(found.input.sql):
            scope = "GLOBAL TEMPORARY" if found.is_global else "TEMPORARY"
            text = f"CREATE OR REPLACE {scope} VIEW `{found.name}` AS {found.input.sql.query}"
            return Request((text,), defines=True)
        return Request(view=name.lower())
    if kind == "checkpoint_command":
        return _relations(command.checkpoint_command.relation)
    return Request() if kind in _COMMANDS else Request(uncovered=f"{_shown(kind)} by a DataFrame")


def _has_arguments(sql: Any) -> bool:
    return any(field.name != "query" for field, _ in sql.ListFields())


def _relations(root: Any) -> Request:
    """The request that reads the relation *root*."""
    texts: list[str] = []
    catalog = ""
    for relation in _below(root):
        kind = relation.WhichOneof("rel_type")
        if kind == "sql":
            texts.append(relation.sql.query)
        elif (
            kind == "read" and relation.read.WhichOneof("read_type") == "named_table" and not relation.read.is_streaming
        ):
            texts.append(f"SELECT * FROM {relation.read.named_table.unparsed_identifier}")
        elif kind == "catalog" and relation.catalog.WhichOneof("cat_type") in _CATALOG:
            catalog = relation.catalog.WhichOneof("cat_type")
        elif kind not in _NO_DATA | _OVER_OTHERS:
            what = relation.catalog.WhichOneof("cat_type") if kind == "catalog" else kind
            return Request(uncovered=f"{_shown(what)} by {'spark.catalog' if kind == 'catalog' else 'a DataFrame'}")
    return Request(tuple(texts), catalog)


def _texts(root: Any) -> Iterator[str]:
    """The texts of ``spark.sql`` in a relation."""
    return (each.sql.query for each in _below(root) if each.WhichOneof("rel_type") == "sql")


def _shown(kind: str | None) -> str:
    return f"{(kind or 'what').removesuffix('_command').removesuffix('_relation').replace('_', ' ')!r}"


def _below(message: Any) -> Iterator[Any]:
    """All relations in *message*, at every depth."""
    waiting = [message]
    while waiting:
        each = waiting.pop()
        if each.DESCRIPTOR.name == "Relation":
            yield each
        for field, value in each.ListFields():
            if field.message_type is None:
                continue
            if field.message_type.GetOptions().map_entry:
                waiting += [item for item in value.values() if hasattr(item, "ListFields")]
            elif hasattr(value, "ListFields"):
                waiting.append(value)
            else:
                waiting += value
