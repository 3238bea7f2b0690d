"""A turn and a release in SQLite, by few statements of the driver's: they do what PostgreSQL's functions do (:mod:`.turn`).

The transaction in which they run keeps out all others who write, so that nothing is made in it that can be made before. Who
is in the way stays there until it ends, and whoever ends a request looks for those behind it: no word is left on its row.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import column, text
from sqlalchemy.dialects.sqlite import insert

from airflow_hivelock.locks.backends.database.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Engine

    from airflow_hivelock.locks.backends.database.tables import Tables

_DRAW = "UPDATE {prefix}store SET number = number + 1"

_IN_THE_WAY = """
    json_each(:conflicts) AS conflict
    CROSS JOIN {prefix}lock AS held ON held.object_key = conflict.key + 0 AND held.lease_type >= conflict.value
    CROSS JOIN {prefix}request AS their ON their.place = held.place
"""
"""Their locks that conflict, for an object and the least mode that does: of ``s`` and ``x``. SQLite joins in this order."""

_LOOK = f"""
SELECT (SELECT number FROM {{prefix}}store), {{clock_us}}, min(their.place), max(their.place), max(
    CASE their.state WHEN 'waiting' THEN their.seen_us < {{clock_us}} - :dead_us
    ELSE :frees AND their.end_us <= {{clock_us}} END
)
FROM {_IN_THE_WAY} WHERE their.place < :before
"""

_WRITE = """
UPDATE {prefix}request SET state = :state, token = :token, granted_us = :granted_us, end_us = :end_us, ahead = :ahead
WHERE owner_key = :owner_key AND epoch = :epoch AND state = 'waiting'
"""

_AHEAD = f"""
SELECT their.owner, their.state, their.end_us, their.place, 0,
    held.db_name, held.table_name, held.partition_name, held.lease_type, min(held.position)
FROM {_IN_THE_WAY} WHERE their.place IN (:earliest, :nearest)
GROUP BY their.place ORDER BY their.place DESC
"""

_END = """
UPDATE {prefix}request
SET state = 'ended', ended_us = CASE WHEN :frees AND end_us < {clock_us} THEN end_us ELSE {clock_us} END
WHERE owner_key = :key AND place = :place AND epoch = :epoch AND state = 'granted'
"""

_TAKE_AWAY = "DELETE FROM {prefix}lock WHERE place = :place"

_BEHIND = "SELECT process FROM {prefix}request WHERE ahead = :place AND state = 'waiting'"


def conflicts(locks: Iterable[Mapping[str, Any]]) -> str:
    """The objects of *locks*, each with the least mode that conflicts with the one in which it is wanted."""
    return json.dumps({lock["object_key"]: "s" if lock["lease_type"] == "x" else "x" for lock in locks})


class Turns:
    """Takes turns and releases, each in a transaction that is begun and ended by others.

    :param clock_us: the database's clock, in SQL.
    """

    def __init__(self, tables: Tables, clock_us: str, engine: Engine) -> None:
        def prepared(statement: str, *columns: str) -> Prepared:
            made = text(statement.format(prefix=tables.qualified, clock_us=clock_us))
            return Prepared(made.columns(*map(column, columns)) if columns else made, engine)

        self._draw, self._write, self._end, self._take_away = map(prepared, (_DRAW, _WRITE, _END, _TAKE_AWAY))
        self._add = Prepared(insert(tables.request).on_conflict_do_nothing(), engine)
        self._add_lock = Prepared(insert(tables.lock), engine)
        self._look = prepared(_LOOK, "number", "now_us", "earliest", "nearest", "void")
        self._behind = prepared(_BEHIND, "process")
        whose = ("ahead_owner", "ahead_state", "ahead_end_us", "ahead_place", "ahead_void")
        self._ahead = prepared(_AHEAD, *whose, "db_name", "table_name", "partition_name", "lease_type", "position")

    def take(
        self, session: Any, asked: Mapping[str, Any], locks: Sequence[Mapping[str, Any]]
    ) -> tuple[int, int, list[Any]] | None:
        """See :meth:`~airflow_hivelock.locks.backends.database.dialect.Dialect.take_turn`; after None, roll back.

        :param asked: also the place ``before`` which others are in the way; and its :func:`conflicts`.
        """
        self._draw.count(session, {})
        (found,) = self._look.all(session, asked)
        mine = {**asked, "ahead": found.nearest}
        if found.nearest is None:
            end_us = found.now_us + asked["lease_us"]
            mine |= {"state": "granted", "token": found.number, "granted_us": found.now_us, "end_us": end_us}
        elif found.void or not asked["waits"]:
            return None
        if asked["place"]:
            if not self._write.count(session, mine):
                return None
        else:
            mine |= dict.fromkeys(("place", "epoch", "began"), found.number)
            mine |= dict.fromkeys(("asked_us", "seen_us"), found.now_us)
            if not self._add.count(session, mine):
                return None
            self._add_lock.each(session, [{**lock, "place": found.number} for lock in locks])
        ahead = self._ahead.all(session, {**asked, **found._asdict()}) if found.nearest else []
        return found.now_us, found.number, ahead

    def release(self, session: Any, given: Mapping[str, Any]) -> list[str] | None:
        """End a grant, given its ``key``, ``place`` and ``epoch``; the processes that wait for that, None if there is none."""
        if not self._end.count(session, given):
            return None
        self._take_away.count(session, given)
        return [row.process for row in self._behind.all(session, given)]
