"""The transactions of the statements: begin them, try them again, and translate their errors."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import exc

from airflow_hivelock.locks.backends.database.transaction import StoreTransaction
from airflow_hivelock.locks.errors import AccessDenied, HiveLockError, StoreCorrupted, StoreUnavailable, UpgradeNeeded
from airflow_hivelock.locks.pauses import tries
from airflow_hivelock.locks.url import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import URL, Connection

    from airflow_hivelock.locks.backends.database.dialect import DatabaseDialect, Listener

    Result = TypeVar("Result")

log = logging.getLogger(__name__)

MAX_TRIES = 10
"""How often a transaction that failed because of another one is tried again."""


class Sessions:
    """The connections with one database.

    :param tables: the name of the tables, for errors.
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
        """Return the result of *work*, after its statements are committed.

        :raises StoreUnavailable: it is unknown whether they were committed.
        """
        for number in tries(MAX_TRIES):
            try:
                with self._driver_session() as session:
                    transaction = StoreTransaction(partial(self.dialect.send, session), self.engine.dialect)
                    result = work(transaction)
                    transaction.flush(commits=True)
                    return result
            except self._errors as error:
                if not self.dialect.passing(_driver_error(error)):
                    raise self._translation(error) from error
                log.debug(
                    "transaction %d of %r was rolled back because of a conflict with another one", number + 1, self
                )
        raise StoreUnavailable(
            f"{self!r}: {MAX_TRIES} transactions in a row were rolled back because of conflicts. Try again"
        )

    @contextmanager
    def _driver_session(self) -> Iterator[Any]:
        pooled = self.engine.raw_connection()
        try:
            yield pooled.driver_connection
        except BaseException:
            lost = self.dialect.lost(pooled.driver_connection)
            # it may be cut off, or in the middle of an answer; and an open transaction must not stay
            pooled.invalidate()
            if lost:  # the server has probably ended the others, too: each would fail one more call
                self.engine.dispose()
            raise
        finally:
            pooled.close()

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Return the result of *work*, which only reads."""
        with self._translated(), self.engine.connect() as connection:
            return work(connection)

    def make(self, work: Callable[[Connection], None], key: int) -> None:
        """Run *work*, which makes tables. No other process that uses *key* runs at the same time."""
        with self._translated(), self.dialect.making(self.engine, key) as connection:
            work(connection)

    def refusal(self) -> UpgradeNeeded | None:
        """The reason if the tables have changed because this version is too old for them; else None."""
        return None

    def close(self) -> None:
        self.engine.dispose()

    def forked(self) -> None:
        """In a forked process: leave the connections to the parent, and connect again."""
        self._parents = self.engine.pool  # otherwise garbage collection would close the parent's sockets
        self.engine.dispose(close=False)

    def listener(self, client: str) -> Listener:
        """A connection that listens or polls for changes."""
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
            return StoreUnavailable(f"{self!r}: all connections of the pool are busy. Try again")
        driver_error = _driver_error(error)
        cause = " ".join(str(driver_error).split())
        if self.dialect.denied(driver_error):
            return AccessDenied(
                f"{self!r} refuses this process: {cause}. Check login and password, the grants, and the options for TLS"
            )
        if self.dialect.changed(driver_error) and (refusal := self.refusal()):
            return refusal
        silent = (self._driver.OperationalError, self._driver.InterfaceError, self._driver.InternalError)
        if isinstance(driver_error, silent) and not self.dialect.changed(driver_error):
            step = self.dialect.next_step(driver_error)
            what = f"cannot do this now: {cause}. {step}" if step else f"does not answer: {cause}. {_UNREACHED}"
            return StoreUnavailable(f"{self!r} {what}")
        return StoreCorrupted(
            f"{self!r} does not have the tables that this version of airflow-hivelock creates: {cause}. Check the URL, and "
            "what else has written there"
        )


_UNREACHED = "Check the address, and that the server runs and can be reached from here"


def _driver_error(error: BaseException) -> BaseException | None:
    """The driver's own error."""
    return error.orig if isinstance(error, exc.DBAPIError) else error
