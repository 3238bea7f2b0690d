"""The state that the statements of one text share: the current database, variables, views and temporary objects."""

from __future__ import annotations

import copy
import itertools
import re
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.catalog import ICEBERG
from airflow_hivelock.locks.hive.settings import DEFAULT_TXN, TxnSettings
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.model.object import CATALOG

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_hivelock.locks.plan.tables import KnownTables

View = TypeVar("View")

GLOBAL = "global_temp"
"""The database of Spark's global temporary views."""


_OF_ICEBERG = re.compile(
    r"(?:branch|tag|snapshot_id|at_timestamp)_.+|(?:all_)?(?:data_files|delete_files|entries|files|manifests)|history|"
    "metadata_log_entries|partitions|position_deletes|refs|snapshots",
    re.IGNORECASE,
)
"""The branches and metadata tables of an Iceberg table, as in ``dw.t.branch_audit``."""


def is_global(parts: Sequence[str]) -> bool:
    """Whether *parts* name a global temporary view."""
    return len(parts) == 2 and parts[0].lower() == GLOBAL


def _as_temporary(parts: Sequence[str]) -> str:
    """The name of the temporary view that *parts* can mean. Empty for a name in a database. Spark 4.3 knows ``session.v``."""
    *where, name = (part.lower() for part in parts)
    return name if where in ([], ["session"], ["system", "session"]) else ""


_KEPT = ("variables", "texts", "prepared", "functions", "made", "materialized", "_temporary")


@dataclass(frozen=True)
class Moment:
    """A point in the time of a session, with the session's state at that time."""

    at: int
    kept: Mapping[str, Any]


class SessionState(Generic[View]):
    """The state of a session. It keeps the queries of views, but does not interpret them.

    :param database: the database of names without one, until USE.
    :param txn: the settings of Hive's transactional manager, until a SET.
    :ivar concurrency: False after ``SET hive.support.concurrency=false``.
    :ivar variables: the values from SET, by ``hivevar:day`` or ``hiveconf:day``.
    :ivar texts: values of Spark's STRING variables and of parameters: see :func:`.texts.read`. None means not known.
    :ivar used: whether a USE has changed the database. Its name can also be that of a catalog.
    :ivar names_in_double_quotes: whether double quotes contain names, because of a SET.
    :ivar keeps_spelling: whether Hive stores partition values as they are written, because of a SET.
    :ivar prunes: False if a SET makes an engine read partitions that a condition excludes.
    :ivar blocks: the number of BEGINs without an END.
    :ivar branches: the number of open branches, loops and handlers of a script.
    :ivar prepared: the names of prepared statements.
    :ivar functions: by name, the queries of functions that earlier statements created.
    :ivar made: the tables that earlier statements created, under their current names.
    :ivar materialized: by materialized view in *made*, its query.
    :ivar by_path: the reads, writes and moves of files by path. The plan has no locks for them.
    :ivar being_read: the views whose queries are being read now, outermost first.
    """

    def __init__(self, tables: KnownTables, database: str = "default", txn: TxnSettings = DEFAULT_TXN) -> None:
        self.tables = tables
        self.database = LockObject(database).database
        self.used = False
        self.concurrency = True
        self.txn = txn
        self.variables: dict[str, str] = {}
        self.texts: dict[str, str | None] = {}
        self.names_in_double_quotes = False
        self.keeps_spelling = False
        self.prunes = True
        self.blocks = 0
        self.branches = 0
        self.prepared: set[str] = set()
        self.functions: dict[str, View] = {}
        self.made: set[LockObject] = set()
        self.materialized: dict[LockObject, View] = {}
        self.by_path: list[str] = []  # copies share it
        self.being_read: list[View] = []
        self._temporary: set[LockObject] = set()
        # By name, its meanings with their times. The key of a temporary view is a string, of others an object.
        self._meanings: dict[str | LockObject, list[tuple[int, View | None]]] = {}
        self._clock = itertools.count(1)
        self._then: int | None = None
        self._dropped: set[LockObject] = set()
        self._counts = Counter[str]()  # copies share it

    def begin(self) -> None:
        """Begin the next text. The text before can have failed in a branch of a script, or in the query of a view."""
        self.blocks = self.branches = 0
        self.used = False
        self.being_read.clear()
        self.by_path.clear()
        self._dropped.clear()  # other sessions can have created the names again
        self._counts.clear()

    def remember(self) -> Moment:
        """The state now, for a later :meth:`undo`."""
        return Moment(next(self._clock), {name: copy.copy(getattr(self, name)) for name in _KEPT})

    def undo(self, before: Moment, after: Moment) -> None:
        """Undo the changes between the two moments: they came from statements that failed after planning."""
        for name, value in before.kept.items():
            if value != after.kept[name]:  # else another thread's statement may have changed it meanwhile
                setattr(self, name, value)
        for found in self._meanings.values():
            found[:] = [each for each in found if not before.at < each[0] < after.at]

    def frozen(self) -> SessionState[View]:
        """A copy that later statements do not change: for EXPLAIN, and to read a view as it was when it was created."""
        session = copy.copy(self)
        session.texts = dict(self.texts)
        if self._then is None:
            session._then = next(self._clock)
        return session

    def inside(self, view: LockObject) -> SessionState[View]:
        """The state to read the query of *view*, without USE and temporary objects."""
        table = self.tables.table(view)
        session = copy.copy(self)
        session.database = LockObject((table and table.view_database) or view.database).database
        session._temporary = set()
        session._then = 0
        return session

    def resolve(self, parts: tuple[str, ...]) -> LockObject:
        """The table that *parts* name.

        :raises InvalidRequest: Hive can have no table of this name.
        """
        if len(parts) == 3 and parts[0].lower() == CATALOG:
            parts = parts[1:]
        if len(parts) == 3 and _OF_ICEBERG.fullmatch(parts[2]) and self._is_iceberg(*parts[:2]):
            parts = parts[:2]
        if len(parts) > 2:
            raise InvalidRequest(
                f"{'.'.join(parts)} is in a catalog of its own, which Hive's locks do not cover; if that catalog is in "
                "Hive's metastore, name the table in reads and writes, as in 'db.t'"
            )
        database, table = parts if len(parts) == 2 else (self.database, parts[0])
        if not table:
            raise InvalidRequest("a table needs a name")
        return LockObject(database, table)

    def _is_iceberg(self, database: str, table: str) -> bool:
        with suppress(InvalidRequest):
            known = self.tables.table(LockObject(database, table))
            return self.tables.checked if known is None else known.format == ICEBERG
        return False

    def is_temporary(self, table: LockObject) -> bool:
        """Whether *table* is a temporary table of this session."""
        return table in self._temporary

    def is_stored(self, table: LockObject) -> bool | None:
        """Whether there is a table or view of that name. None without a catalog, if no earlier statement created one."""
        if table in self._dropped:
            return False
        if self.tables.table(table) is not None or table in self.made or self._since(table)[-1] is not None:
            return True
        return None if self.tables.catalog is None else False

    def meanings(self, parts: tuple[str, ...]) -> tuple[View | None, ...]:
        """The meanings of the name: the query of a view that this session created, or None for any other object.

        In a frozen state the first is the meaning at that time, and the others are later meanings.
        The meanings of ``session.v`` can be those of a view and those of a table.
        """
        if (name := _as_temporary(parts)) and (found := self._since(name))[0] is not None:
            return (*found, *self._since(self.resolve(parts))) if self._can_be_stored(parts) else found
        return self._since(self.resolve(parts))

    def use(self, database: str) -> None:
        """:raises InvalidRequest: a branch of a script changes the current database."""
        self._refuse_in_branch("the current database")
        self.database, self.used = database, True

    def add_temporary_view(self, parts: tuple[str, ...], view: View) -> None:
        """Do nothing for a name in a database, because Spark refuses it. Global temporary views have a database."""
        if name := LockObject(GLOBAL, parts[1]) if is_global(parts) else _as_temporary(parts):
            self._mean(name, view)

    def add_view(self, target: LockObject, view: View | None) -> None:
        self._mean(target, view)
        if self._then is None:
            self._dropped.discard(target)

    def forget_stored_views(self) -> None:
        """Forget stored views, so that the catalog is asked for them. Other sessions can change them."""
        for name in [each for each in self._meanings if isinstance(each, LockObject) and each.database != GLOBAL]:
            del self._meanings[name]

    def forget_temporary(self) -> None:
        """Know no temporary view any more, and no value of a variable: a statement that was not planned may have changed them."""
        for name in self._meanings:
            if isinstance(name, str) or name.database == GLOBAL:
                self._mean(name, None)
        self.texts = dict.fromkeys(self.texts)

    def add_temporary(self, table: LockObject) -> None:
        if self._then is None:
            self._refuse_in_branch(f"what {table} means")
            self._temporary.add(table)

    def add_made(self, table: LockObject, query: View | None = None) -> None:
        """:param query: the query, if *table* is a materialized view."""
        if self._then is None:
            self.made.add(table)
            self._dropped.discard(table)
            if query is not None:
                self.materialized[table] = query

    def forget(self, parts: tuple[str, ...]) -> bool:
        """Drop the object of that name. Return whether it was temporary."""
        target = self.resolve(parts)
        self._mean(target, None)
        if target in self._temporary:
            if self._then is None:
                self._refuse_in_branch(f"what {target} means")
                self._temporary.remove(target)
            return True
        if not (was_view := self.is_temporary_view(parts)):
            self.drop(target)
        elif not is_global(parts):
            self._mean(parts[-1].lower(), None)
        return was_view and not self._can_be_stored(parts)

    def drop(self, table: LockObject) -> None:
        """Know that no *table* is stored from here on, unless a branch of a script may have kept it."""
        if self._then is None and not self.branches:
            self._dropped.add(table)

    def is_temporary_view(self, parts: tuple[str, ...]) -> bool:
        """Whether *parts* name a temporary view of this session."""
        name = _as_temporary(parts)
        return is_global(parts) or bool(name and self._since(name)[0] is not None)

    def _can_be_stored(self, parts: tuple[str, ...]) -> bool:
        """Whether ``session.v`` can also be a table. Before Spark 4.3, ``session`` is a database like any other."""
        if len(parts) != 2 or parts[0].lower() != "session":
            return False
        return self.tables.catalog is None or self.tables.table(self.resolve(parts)) is not None

    def view_text(self, target: LockObject, kind: str = "VIRTUAL_VIEW") -> str | None:
        """The query text of *target*. None if it is no view of that *kind*, or its text is not known."""
        table = self.tables.table(target)
        return (table.view_text or None) if table and table.table_type == kind else None

    def refers_again(self) -> int:
        """Count one more reference to a table. Return the count."""
        self._counts["references"] += 1
        return self._counts["references"]

    def inserts(self, value: str) -> int:
        """Count the characters of *value*, which variables add to the text. Return the count."""
        self._counts["inserted"] += len(value)
        return self._counts["inserted"]

    def _mean(self, name: str | LockObject, view: View | None) -> None:
        if self._then is None and (view is not None or name in self._meanings):
            self._refuse_in_branch(f"what {name} means")
            self._meanings.setdefault(name, []).append((next(self._clock), view))

    def _refuse_in_branch(self, what: str) -> None:
        if self.branches:
            raise InvalidRequest(
                f"a branch, a loop or a handler of the script changes {what}; change it before, or name reads and writes instead"
            )

    def _since(self, name: str | LockObject) -> tuple[View | None, ...]:
        found = self._meanings.get(name, [])
        at = len(found) if self._then is None else bisect_right(found, self._then, key=lambda each: each[0])
        return (found[at - 1][1] if at else None, *(view for _, view in found[at:]))
