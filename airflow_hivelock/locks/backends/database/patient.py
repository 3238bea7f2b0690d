"""A session with PostgreSQL that does not wait for ever, and that asks what is asked most without the driver's cursors.

``statement_timeout`` is the server's: one that stands still, or that is cut off after it has taken the request, answers
nothing, and its system goes on acknowledging what is sent.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import generators
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Generator

    from psycopg.pq.abc import PGresult

    Result = TypeVar("Result")


class PatientConnection(psycopg.Connection[Any]):
    """:ivar answer_s: the longest that one answer may take; then the session is over, and its outcome unknown."""

    answer_s = float("inf")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._asked: Counter[str] = Counter()
        self._names: dict[str, bytes] = {}

    def ask(self, statement: str, *values: object) -> str | None:
        """The one value that *statement* finds, as text: a transaction of its own, prepared where it is asked often.

        By libpq, for a cursor takes as long over it as the database. The session's encoding must be UTF-8.

        :param values: of ``$1`` and so on, as PostgreSQL reads them from their text, which has no NUL; None is NULL.
        """
        given = [None if value is None else str(value).encode() for value in values]
        if name := self._names.get(statement) or self._prepare(statement):
            self.pgconn.send_query_prepared(name, given)
        else:
            self.pgconn.send_query_params(statement.encode(), given)
        found = self._result(ExecStatus.TUPLES_OK).get_value(0, 0)
        return None if found is None else found.decode()

    def _prepare(self, statement: str) -> bytes | None:
        """Prepare it if it was asked as often as the driver wants; to prepare is a round trip of its own."""
        self._asked[statement] += 1
        if self.prepare_threshold is None or self._asked[statement] <= self.prepare_threshold:
            return None
        name = f"airflow_hivelock_{len(self._names)}".encode()
        self.pgconn.send_prepare(name, statement.encode())
        self._result(ExecStatus.COMMAND_OK)
        self._names[statement] = name
        return name

    def _result(self, expected: ExecStatus) -> PGresult:
        result: PGresult
        (result,) = self.wait(generators.execute(self.pgconn))
        if result.status != expected:
            raise error_from_result(result)
        return result

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
