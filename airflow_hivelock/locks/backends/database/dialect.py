"""What databases do each in their own way; everything else is said in SQLAlchemy's Core, for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import URL, ColumnElement, Connection, Engine

    from airflow_hivelock.locks.backends.database.tables import Tables


@dataclass(frozen=True)
class Change:
    """What others have done.

    :param places: of the requests that were ended or taken over.
    :param units: the databases and tables in which locks came or went; None: any of them.
    :param unsure: anything may have happened: look.
    """

    places: frozenset[int] = frozenset()
    units: frozenset[int] | None = frozenset()
    unsure: bool = False


class Dialect(Protocol):
    """One kind of database."""

    clock_us: ColumnElement[int]
    """The database's clock, read when the statement is."""

    def engine(self, url: URL, timeout_s: float) -> Engine:
        """Transactions, each statement of which reads what is committed when it begins."""
        ...

    def reading(self, engine: Engine) -> Engine:
        """The same for what only reads."""
        ...

    def writing(self, engine: Engine) -> Engine:
        """The same for transactions of one statement."""
        ...

    def lock(self, connection: Connection, keys: Mapping[int, bool]) -> None:
        """Until the transaction ends, keep out all who name one of *keys* too; two may share one where both say False."""
        ...

    def number(self, connection: Connection, tables: Tables) -> ColumnElement[int]:
        """A number larger than any before, for the next statement to read."""
        ...

    def among(self, column: ColumnElement[int], name: str) -> ColumnElement[bool]:
        """Whether *column* is one of the :meth:`numbers` bound to *name*."""
        ...

    def numbers(self, given: Iterable[int]) -> Any:
        """Any count of numbers as one bound value."""
        ...

    def timestamp(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """Microseconds, as this database shows a time."""
        ...

    def tell(self, connection: Connection, tables: Tables, place: int, units: Iterable[int]) -> None:
        """With the commit, tell all who listen."""
        ...

    def ears(self, engine: Engine, tables: Tables) -> Ears:
        """A connection that hears of changes from now on."""
        ...

    def passing(self, error: BaseException | None) -> bool:
        """Whether the transaction was the victim of another, and may be tried again."""
        ...


class Ears(Protocol):
    """A connection that hears of changes; used by one thread, but for :meth:`interrupt`."""

    def wait(self, most_s: float) -> Change:
        """What has changed since the last call, or the first that changes within *most_s* seconds."""
        ...

    def interrupt(self) -> None:
        """Have :meth:`wait` return; from any thread."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...
