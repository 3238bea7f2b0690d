"""What databases do each in their own way; everything else is said in SQLAlchemy's Core, for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import URL, ColumnElement, Connection, Engine, Update

    from airflow_hivelock.locks.backends.database.record import Record
    from airflow_hivelock.locks.backends.database.wanted import Wanted


NOBODY, THOSE_BEHIND, EVERYBODY = 0, 1, 2
"""Audiences of a request's end: none; those who wait for it; and whoever verifies or watches it, wherever he is."""

CLIENT_LENGTH = 16
"""What the name of an acquisition begins with is its client's."""


@dataclass(frozen=True)
class Change:
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


class Dialect(Protocol):
    """One kind of database, for one set of tables in it."""

    clock_us: ColumnElement[int]
    """The database's clock, read when the statement is."""

    @property
    def number(self) -> ColumnElement[int]:
        """A number larger than any that was drawn before; after :meth:`enter`."""
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
        """Until the transaction ends, keep out all who name one of *keys* too; two may share one where both say False."""
        ...

    def enter(self, connection: Connection, wanted: Wanted) -> None:
        """:meth:`lock`, and make ready to draw a number."""
        ...

    def add_turn(self, connection: Connection) -> None:
        """Make what :meth:`take_turn` and :meth:`release` call in the database."""
        ...

    def take_turn(
        self, session: Any, mine: Record, wanted: Wanted, *, waits: bool, frees: bool, dead_us: int
    ) -> tuple[int, int, list[Any]] | None:
        """At once, :meth:`lock` and grant a request whose owner is new, or that waits, or have it wait.

        :param mine: the request; where its place is 0, its numbers and times are drawn.
        :param frees: an expired lease blocks nobody.
        :param dead_us: how long after its last sign of life a waiter is taken for dead.
        :return: the time, a new number, and rows of who is in the way, as :attr:`Store._in_the_way`'s; None if there is
            more to it; then nothing of the request was written.
        """
        ...

    def release(self, session: Any, key: str, place: int, epoch: int, *, frees: bool) -> bool:
        """End a very grant, in the hands of a very process, and tell its audience; False if there is none."""
        ...

    def bound(self, wanted: Wanted) -> Any:
        """What :meth:`take_turn` gives of *wanted* to its statements."""
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

    def add(
        self, connection: Connection, request: Mapping[str, Any] | None, locks: Sequence[Mapping[str, Any]]
    ) -> None:
        """A request, if it is a new row, and its locks, in a constant number of round trips."""
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

    def ears(self, engine: Engine, client: str) -> Ears:
        """A connection that hears, from now on, what concerns the acquisitions of *client*."""
        ...

    def passing(self, error: BaseException | None) -> bool:
        """Whether the transaction was the victim of another, and may be tried again."""
        ...

    def denied(self, error: BaseException | None) -> bool:
        """Whether the database refuses who asks, and would the next time."""
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
