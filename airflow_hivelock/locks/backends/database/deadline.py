"""A session with PostgreSQL in which no answer is waited for without end.

``statement_timeout`` is the server's: one that stands still, or that is cut off after it has taken the request, answers
nothing, and its system goes on acknowledging what is sent. Neither libpq nor the driver has a deadline for that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Generator

    Result = TypeVar("Result")


class DeadlineConnection(psycopg.Connection[Any]):
    """:ivar answer_s: the longest that one answer may take; then the session is over, and its outcome unknown."""

    answer_s = float("inf")

    def wait(self, gen: Generator[Any, Any, Result], *args: Any, **kwargs: Any) -> Result:
        try:
            return super().wait(self._bounded(gen), *args, **kwargs)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.pgconn.finish()  # the driver has found the socket closed, and has told nobody
            raise

    def _bounded(self, gen: Generator[Any, Any, Result]) -> Generator[Any, Any, Result]:
        deadline = time.monotonic() + self.answer_s
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {self.answer_s:g} s; its outcome is unknown")
                wanted = gen.send(ready)
        except StopIteration as end:
            result: Result = end.value
            return result
