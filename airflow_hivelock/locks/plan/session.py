"""The state that statements of one text share: the current database, and temporary objects."""

from __future__ import annotations

import copy
import itertools
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.settings import DEFAULT_TXN, TxnSettings
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.model.object import CATALOG

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_hivelock.locks.plan.tables import KnownTables

View = TypeVar("View")

GLOBAL = "global_temp"
"""The database of Spark's global temporary views."""


def is_global(parts: Sequence[str]) -> bool:
    """Whether that is the name of a global temporary view."""
    return len(parts) == 2 and parts[0].lower() == GLOBAL


_KEPT = ("variables", "texts", "prepared", "functions", "made", "materialized", "_temporary")


@dataclass(frozen=True)
class Moment:
    """A point in the time of a session, and what it had then."""

    at: int
    kept: Mapping[str, Any]


class SessionState(Generic[View]):
    """The state of a session. It keeps the queries of views, and reads none.

    :param database: what names without a database are in.

    :param txn: what Hive's transactional manager takes, until a SET.

    :ivar concurrency: False after ``SET hive.support.concurrency=false``.
    :ivar variables: what SET has set, as ``hivevar:day`` or ``hiveconf:day``.
    :ivar texts: values of Spark's variables of type STRING, and of parameters: see :func:`.texts.read`; None: not known.
    :ivar names_in_double_quotes: whether SET has made names of what is in double quotes.
    :ivar keeps_spelling: whether SET has had Hive keep values of partitions as they are written, of whatever type.
    :ivar blocks: how many BEGINs have no END yet.
    :ivar prepared: the names of what PREPARE has prepared.
    :ivar functions: by name, the queries of functions that statements so far have made.
    :ivar made: the tables that statements so far have made, under the name that they have now.
    :ivar materialized: of those, the materialized views.
    :ivar being_read: the views that are being read now, each from the previous one.
    """

    def __init__(self, tables: KnownTables, database: str = "default", txn: TxnSettings = DEFAULT_TXN) -> None:
        self.tables = tables
        self.database = LockObject(database).database
        self.concurrency = True
        self.txn = txn
        self.variables: dict[str, str] = {}
        self.texts: dict[str, str | None] = {}
        self.names_in_double_quotes = False
        self.keeps_spelling = False
        self.blocks = 0
        self.prepared: set[str] = set()
        self.functions: dict[str, View] = {}
        self.made: set[LockObject] = set()
        self.materialized: dict[LockObject, View] = {}
        self.being_read: list[View] = []
        self._temporary: set[LockObject] = set()
        # By name, what it came to mean and when: temporary views by their text, others by their object.
        self._meanings: dict[str | LockObject, list[tuple[int, View | None]]] = {}
        self._clock = itertools.count(1)
        self._then: int | None = None
        self._references = itertools.count(1)

    def remember(self) -> Moment:
        """The state as it is now, to :meth:`undo` what comes."""
        return Moment(next(self._clock), {name: copy.copy(getattr(self, name)) for name in _KEPT})

    def undo(self, before: Moment, after: Moment) -> None:
        """Take back what came between the two: statements that were planned, and then failed."""
        for name, value in before.kept.items():
            setattr(self, name, value)
        for found in self._meanings.values():
            found[:] = [each for each in found if not before.at < each[0] < after.at]

    def frozen(self) -> SessionState[View]:
        """A copy of the state that no later statement changes: for EXPLAIN, and for the state that a view was made in."""
        session = copy.copy(self)
        session.texts = dict(self.texts)
        if self._then is None:
            session._then = next(self._clock)
        return session

    def inside(self, view: LockObject) -> SessionState[View]:
        """The state for the text of *view*: without USE and temporary objects."""
        table = self.tables.table(view)
        session = copy.copy(self)
        session.database = LockObject((table and table.view_database) or view.database).database
        session._temporary = set()
        session._then = 0
        return session

    def resolve(self, parts: tuple[str, ...]) -> LockObject:
        """The table of that name.

        :raises InvalidRequest: it is none of Hive's.
        """
        if len(parts) == 3 and parts[0].lower() == CATALOG:
            parts = parts[1:]
        if len(parts) > 2:
            raise InvalidRequest(
                f"{'.'.join(parts)} is in a catalog of its own, which Hive's locks do not cover; where that is over Hive's metastore, "
                "name the table in reads and writes, as in 'db.t'"
            )
        database, table = parts if len(parts) == 2 else (self.database, parts[0])
        if not table:
            raise InvalidRequest("a table needs a name")
        return LockObject(database, table)

    def is_temporary(self, table: LockObject) -> bool:
        """Whether that is only this session's."""
        return table in self._temporary

    def meanings(self, parts: tuple[str, ...]) -> tuple[View | None, ...]:
        """The meanings of the name: the query of a view that this session has made, or None for any other object.

        More than one in a view: what the name meant when the view was made, and what it has come to mean since.
        """
        if len(parts) == 1 and (found := self._since(parts[0].lower()))[0] is not None:
            return found
        return self._since(self.resolve(parts))

    def add_temporary_view(self, parts: tuple[str, ...], view: View) -> None:
        """:param parts: its name; Spark's global ones are in a database of their own, and found nowhere else."""
        self._mean(LockObject(GLOBAL, parts[1]) if is_global(parts) else parts[-1].lower(), view)

    def add_view(self, target: LockObject, view: View | None) -> None:
        self._mean(target, view)

    def forget_stored_views(self) -> None:
        """Ask the catalog for the views in it from now on: other sessions may change them."""
        for name in [each for each in self._meanings if isinstance(each, LockObject) and each.database != GLOBAL]:
            del self._meanings[name]

    def add_temporary(self, table: LockObject) -> None:
        if self._then is None:
            self._temporary.add(table)

    def add_made(self, table: LockObject, query: View | None = None) -> None:
        """:param query: of a materialized view."""
        if self._then is None:
            self.made.add(table)
            if query is not None:
                self.materialized[table] = query

    def forget(self, parts: tuple[str, ...]) -> bool:
        """Whether that was temporary, and is now dropped."""
        target = self.resolve(parts)
        self._mean(target, None)
        if target in self._temporary:
            if self._then is None:
                self._temporary.remove(target)
            return True
        if (was_view := self.is_temporary_view(parts)) and not is_global(parts):
            self._mean(parts[0].lower(), None)
        return was_view

    def is_temporary_view(self, parts: tuple[str, ...]) -> bool:
        """Whether the name is a temporary view of this session."""
        return is_global(parts) or (len(parts) == 1 and self._since(parts[0].lower())[0] is not None)

    def view_text(self, target: LockObject, kind: str = "VIRTUAL_VIEW") -> str | None:
        """The query of *target*; None if it is no view of that *kind*, or its text is unknown."""
        table = self.tables.table(target)
        return (table.view_text or None) if table and table.table_type == kind else None

    def refers_again(self) -> int:
        """How often tables have been referred to, with this time."""
        return next(self._references)

    def _mean(self, name: str | LockObject, view: View | None) -> None:
        if self._then is None and (view is not None or name in self._meanings):
            self._meanings.setdefault(name, []).append((next(self._clock), view))

    def _since(self, name: str | LockObject) -> tuple[View | None, ...]:
        found = self._meanings.get(name, [])
        at = len(found) if self._then is None else bisect_right(found, self._then, key=lambda each: each[0])
        return (found[at - 1][1] if at else None, *(view for _, view in found[at:]))
