"""What databases do each in their own way; everything else is said in SQLAlchemy's Core, for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import URL, ColumnElement, Connection, Delete, Engine, Executable, Update
    from sqlalchemy import Sequence as NumberSequence

    from airflow_hivelock.locks.backends.database.transaction import Answer, Received, Sent, StoreTransaction


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


class DatabaseDialect(Protocol):
    """One kind of database, for one set of tables in it."""

    @property
    def sequence(self) -> NumberSequence | None:
        """Where numbers are drawn; None: from the row of the store."""
        ...

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

    def reading(self, engine: Engine) -> Engine:
        """For what only reads."""
        ...

    def making(self, engine: Engine, key: int) -> AbstractContextManager[Connection]:
        """A connection that makes tables. No other process that names *key* does so meanwhile."""
        ...

    def send(self, session: Any, statements: Sequence[Sent], *, begins: bool, commits: bool) -> list[Received]:
        """Send *statements* on the driver's connection, and read their answers.

        :param begins: and *commits*: the transaction begins before them, and is committed behind them. Each statement reads
            what is committed when it begins.
        """
        ...

    def enter(self, transaction: StoreTransaction, keys: Mapping[int, bool]) -> None:
        """Until the transaction ends, keep out the others that name one of *keys*, and make ready to draw a number. Two may
        share a key if both have False for it."""
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

    notifies: bool
    """Whether waiters are notified at all; and so :meth:`end` tells by whom the request is watched."""

    def end(self, transaction: StoreTransaction, ended: Update, without_locks: Delete, **values: Any) -> Answer:
        """Run *ended*, which ends a request, and *without_locks*. The answer counts it, if there was one."""
        ...

    @property
    def insert_both(self) -> Executable | None:
        """Writes a request's row with its rows of locks, bound as those of each; None: it takes two statements."""
        ...

    @property
    def insert_locks(self) -> Executable:
        """Writes rows of locks, bound to ``rows`` as JSON, for the request at ``of_place``, if that waits for locks or holds."""
        ...

    def call(self, transaction: StoreTransaction, process: str) -> None:
        """Once this is committed, have that acquisition look again, wherever it is."""
        ...

    def tell(self, transaction: StoreTransaction, place: int) -> None:
        """Once this is committed, notify the waiters of the request at *place*, and the processes that watch it."""
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
