"""Statements of SQLAlchemy's, compiled once and run by the driver: SQLAlchemy takes longer over a short one than a database."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Delete, Engine, Insert, Select, TextClause, TextualSelect, Update

    Statement = Select[Any] | Insert | Update | Delete | TextClause | TextualSelect


class Prepared:
    """A statement whose values, bound by name, the driver knows: numbers, text, and PostgreSQL's arrays of them."""

    def __init__(self, statement: Statement, engine: Engine) -> None:
        compiled = statement.compile(engine)
        self._text, self._defaults = str(compiled), compiled.params
        names = [column.key for column in getattr(statement, "selected_columns", ())]
        self._row: Any = namedtuple("Row", names)  # type: ignore[misc]

    def all(self, session: Any, given: Mapping[str, Any]) -> list[Any]:
        """Its rows, with the names of its columns."""
        return [self._row(*row) for row in session.execute(self._text, self._values(given))]

    def count(self, session: Any, given: Mapping[str, Any]) -> int:
        """How many rows it has changed."""
        return int(session.execute(self._text, self._values(given)).rowcount)

    def each(self, session: Any, given: Sequence[Mapping[str, Any]]) -> None:
        """Run it for each of *given*."""
        session.cursor().executemany(self._text, list(map(self._values, given)))

    def _values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._defaults, **given}


class PreparedStatements(dict["Statement", Prepared]):
    """Of statements that are never made anew."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine

    def __missing__(self, statement: Statement) -> Prepared:
        return self.setdefault(statement, Prepared(statement, self._engine))


def driver(connection: Connection) -> Any:
    """The driver's own connection."""
    return connection.connection.driver_connection
