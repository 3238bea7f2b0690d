"""What databases do each in their own way; everything else is said in SQLAlchemy's Core, for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

    from sqlalchemy import URL, ColumnElement, Connection, Engine, Update

    from airflow_hivelock.locks.backends.database.functions import Functions


@dataclass(frozen=True)
class Heard:
    """What others have done.

    :param processes: acquisitions of this client's that have to look again.
    :param places: requests that are gone, or taken over.
    :param unsure: there may be more than was heard.
    """

    processes: frozenset[str] = frozenset()
    places: frozenset[int] = frozenset()
    unsure: bool = False


class Transactions(Protocol):
    """Where transactions begin."""

    def begin(self) -> AbstractContextManager[Connection]:
        """One of them: committed at its end, rolled back by an error."""
        ...


class DatabaseDialect(Protocol):
    """One kind of database, for one set of tables in it."""

    functions: Functions | None
    """What grants and releases in the database itself, in one round trip; None: statements of :mod:`.store`'s do."""

    clock_us: ColumnElement[int]
    """The database's clock, read when the statement is."""

    @property
    def number(self) -> ColumnElement[int]:
        """A number larger than any that was drawn before; after :meth:`enter`."""
        ...

    def warnings(self, connection: Connection) -> list[str]:
        """Who else may change what the tables are in; see :class:`~airflow_hivelock.locks.backend.Warns`."""
        ...

    def engine(self, url: URL, timeout_s: float) -> Engine:
        """The connections, as most statements want them."""
        ...

    def transacting(self, engine: Engine) -> Transactions:
        """Transactions, each statement of which reads what is committed when it begins."""
        ...

    def reading(self, engine: Engine) -> Engine:
        """For what only reads."""
        ...

    def writing(self, engine: Engine) -> Transactions:
        """For what writes where each statement may be a transaction of its own."""
        ...

    def lock(self, connection: Connection, keys: Mapping[int, bool]) -> None:
        """Until the transaction ends, keep out all that name one of *keys* too; two may share one where both say False."""
        ...

    def enter(self, connection: Connection, keys: Mapping[int, bool]) -> None:
        """:meth:`lock`, and make ready to draw a number."""
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

    def end(self, connection: Connection, ended: Update, values: Mapping[str, Any]) -> tuple[int, int] | None:
        """Run an update that ends a request, and take away its locks; the place and its audience, if there was one.

        *ended* is one of a few objects that are never made anew, and binds its place to ``of_place``.
        """
        ...

    def call(self, connection: Connection, process: str) -> None:
        """Once this is committed, have that acquisition look again, wherever it is."""
        ...

    def tell(self, connection: Connection, place: int, audience: int) -> None:
        """Once this is committed, tell the audience of the request at *place* that it is gone, or another's now."""
        ...

    def listener(self, engine: Engine, client: str) -> Listener:
        """A connection that hears, from now on, what concerns the acquisitions of *client*."""
        ...

    def passing(self, error: BaseException | None) -> bool:
        """Whether the transaction was the victim of another, and may be tried again."""
        ...

    def denied(self, error: BaseException | None) -> bool:
        """Whether the database refuses this login, and would the next time."""
        ...


class Listener(Protocol):
    """A connection that hears of changes; used by one thread, but for :meth:`interrupt`."""

    def wait(self, most_s: float) -> Heard:
        """What has changed since the last call, or the first that changes within *most_s* seconds."""
        ...

    def sooner(self) -> None:
        """Somebody new waits: whoever is not told looks often again; from any thread."""
        ...

    def interrupt(self) -> None:
        """Have :meth:`wait` return; from any thread."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...
