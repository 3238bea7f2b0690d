"""The transactions that statements run in: begun, tried again, and their errors translated."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import exc

from airflow_hivelock.locks.backends.database.transaction import StoreTransaction
from airflow_hivelock.locks.errors import AccessDenied, HiveLockError, StoreCorrupted, StoreUnavailable
from airflow_hivelock.locks.url import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import URL, Connection

    from airflow_hivelock.locks.backends.database.dialect import DatabaseDialect, Listener

    Result = TypeVar("Result")

log = logging.getLogger(__name__)

MAX_TRIES = 10
"""How often a transaction that another one has made to fail is tried again."""


class Sessions:
    """The connections with one database.

    :param tables: what those are called that are used there; for errors.
    """

    def __init__(self, url: URL, dialect: DatabaseDialect, tables: str) -> None:
        self.url, self.dialect = url, dialect
        self.engine = dialect.engine(url)
        self._tables = tables
        self._driver: Any = self.engine.dialect.loaded_dbapi
        self._errors = (exc.DBAPIError, exc.TimeoutError, self._driver.Error)

    def __repr__(self) -> str:
        return f"{shown(self.url.render_as_string(hide_password=False))} {self._tables}*"

    def transact(self, work: Callable[[StoreTransaction], Result]) -> Result:
        """What *work* returns, once its statements are committed.

        :raises StoreUnavailable: whether they were committed is not known.
        """
        for tries in range(MAX_TRIES):
            try:
                with self._driver_session() as session:
                    transaction = StoreTransaction(partial(self.dialect.send, session), self.engine.dialect)
                    result = work(transaction)
                    transaction.flush(commits=True)
                    return result
            except self._errors as error:
                if not self.dialect.passing(_said(error)):
                    raise self._translation(error) from error
                log.debug("transaction %d of %r was the victim of another", tries + 1, self)
        raise StoreUnavailable(f"{self!r}: {MAX_TRIES} transactions in turn were the victims of others; try again")

    @contextmanager
    def _driver_session(self) -> Iterator[Any]:
        pooled = self.engine.raw_connection()
        try:
            yield pooled.driver_connection
        except BaseException:
            pooled.invalidate()  # it may be cut off, or in the middle of an answer; and what it has begun must not stay
            raise
        finally:
            pooled.close()

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """What *work* finds."""
        with self._translated(), self.engine.connect() as connection:
            return work(connection)

    def make(self, work: Callable[[Connection], None], key: int) -> None:
        """Run *work*, which makes tables, while no other process that names *key* does."""
        with self._translated(), self.dialect.making(self.engine, key) as connection:
            work(connection)

    def close(self) -> None:
        self.engine.dispose()

    def forked(self) -> None:
        """In a forked process: leave the connections to the parent, and connect anew."""
        self._parents = self.engine.pool  # or they would be closed, once nobody has them any more
        self.engine.dispose(close=False)

    def listener(self, client: str) -> Listener:
        """A connection that hears of changes."""
        with self._translated():
            return self.dialect.listener(self.engine, client)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise self._translation(error) from error

    def _translation(self, error: Exception) -> HiveLockError:
        if isinstance(error, exc.TimeoutError):
            return StoreUnavailable(f"{self!r}: all connections of the pool are busy; try again")
        said = _said(error)
        cause = " ".join(str(said).split())
        if self.dialect.denied(said):
            return AccessDenied(
                f"{self!r} does not let this process in: {cause}. Check login and password, the grants, and its options for TLS"
            )
        silent = (self._driver.OperationalError, self._driver.InterfaceError, self._driver.InternalError)
        if isinstance(said, silent):
            return StoreUnavailable(f"{self!r} does not answer: {cause}")
        return StoreCorrupted(f"{self!r} is not as this version of airflow-hivelock made it: {cause}")


def _said(error: BaseException) -> BaseException | None:
    """What the driver has said."""
    return error.orig if isinstance(error, exc.DBAPIError) else error
