"""What the statements of one text know of one another: the current database, and what is temporary."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import LockObject

if TYPE_CHECKING:
    from airflow_hivelock.locks.plan.query import Named
    from airflow_hivelock.locks.plan.tables import Tables

CATALOG = "spark_catalog"
"""What Spark calls Hive's tables where it knows others."""


class Session:
    """:param database: what names without a database are in.

    :ivar made: the tables that statements so far have made, under the name that they have now.
    """

    def __init__(self, tables: Tables, database: str = "default") -> None:
        self.tables = tables
        self.database = LockObject(database).database
        self.made: set[LockObject] = set()
        self._temporary_views: dict[str, Named] = {}
        self._views: dict[LockObject, Named] = {}
        self._temporary: set[LockObject] = set()
        self._references = itertools.count(1)

    def inside(self, view: LockObject) -> Session:
        """What the text of *view* knows: neither USE nor what is temporary."""
        table = self.tables.table(view)
        session = Session(self.tables, (table and table.view_database) or view.database)
        session._references = self._references
        return session

    def resolve(self, parts: tuple[str, ...]) -> LockObject:
        """The table of that name.

        :raises InvalidRequest: it is none of Hive's.
        """
        if len(parts) == 3 and parts[0].lower() == CATALOG:
            parts = parts[1:]
        if len(parts) > 2:
            raise InvalidRequest(f"{'.'.join(parts)} is in a catalog of its own, which Hive's locks do not cover")
        database, table = parts if len(parts) == 2 else (self.database, parts[0])
        return LockObject(database, table)

    def is_temporary(self, table: LockObject) -> bool:
        """Whether that is only this session's."""
        return table in self._temporary

    def view(self, parts: tuple[str, ...]) -> Named | None:
        """What this session has made a view of that name."""
        if len(parts) == 1 and (found := self._temporary_views.get(parts[0].lower())) is not None:
            return found
        return self._views.get(self.resolve(parts))

    def add_temporary_view(self, parts: tuple[str, ...], view: Named) -> None:
        """:param parts: its name; Spark's global ones are in a database of their own."""
        self._temporary_views[parts[-1].lower()] = view
        self.add_view(LockObject("global_temp", parts[-1]), view)

    def add_view(self, target: LockObject, view: Named) -> None:
        self._views[target] = view

    def add_temporary(self, table: LockObject) -> None:
        self._temporary.add(table)

    def forget(self, parts: tuple[str, ...]) -> bool:
        """Whether that was temporary, and is now dropped."""
        target = self.resolve(parts)
        self._views.pop(target, None)
        if target in self._temporary:
            self._temporary.remove(target)
            return True
        return len(parts) == 1 and self._temporary_views.pop(parts[0].lower(), None) is not None

    def view_text(self, target: LockObject) -> str | None:
        """The query that *target* stands for; None where it is no view, or its text is not known."""
        table = self.tables.table(target)
        return (table.view_text or None) if table and table.table_type == "VIRTUAL_VIEW" else None

    def refers_again(self) -> int:
        """How often tables have been referred to, with this time."""
        return next(self._references)
