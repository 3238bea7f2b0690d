"""A session with PostgreSQL: settings that do not depend on the server, the role or the URL, and a check for a shared
session.

The settings are made by SET after the connection. PgBouncer refuses the startup parameter ``options``, or silently
ignores it.
"""

from __future__ import annotations

import re
import time
import uuid
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL, Identifier

from airflow_hivelock.locks.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    Result = TypeVar("Result")

APPLICATION = "airflow_hivelock"
"""The sessions' name in ``pg_stat_activity``, unless the URL or the environment names them."""

PARAMETERS = {
    # A session that only listens would otherwise notice a lost server after two hours.
    **{"keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"},
    "fallback_application_name": APPLICATION,
    # A standby is behind: it would still show a lease that has been released, and confirm it.
    "target_session_attrs": "primary",
}
"""libpq's parameters, unless the URL sets them. None of them reaches a pooler that would refuse it."""

ENCODING = {"client_encoding": "utf8"}
"""Set whatever the environment and the URL contain: names may have characters that other encodings lack."""

SETTINGS = {
    # Tables that fill and empty within seconds have no statistics to plan by: each plan is made once, and uses the indexes.
    **{"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"},
    # Each statement after a lock sees what the lock's last holder has committed.
    "default_transaction_isolation": "read committed",
    # The statement's time-out limits the wait for a lock. A shorter limit would report contention as an outage.
    "lock_timeout": "0",
    # Every table is named with its schema. No function or operator that another role has made is ever called.
    "search_path": "pg_catalog, pg_temp",
}

_SET = (
    "SELECT pg_catalog.set_config(name, value, false) "
    "FROM unnest(%s::pg_catalog.text[], %s::pg_catalog.text[]) AS wanted (name, value) "
    # Otherwise a server that crashes forgets its last grants. Every other value waits for the disk at least.
    "UNION ALL SELECT pg_catalog.set_config('synchronous_commit', 'local', false) "
    "WHERE pg_catalog.current_setting('synchronous_commit') = 'off'"
)
_READ_BACK = "SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY (%s)"
_SERVER_PID = "SELECT pg_catalog.pg_backend_pid()"

_NOTIFY = "SELECT pg_catalog.pg_notify(%s, '')"

_INVALID_OPTION = re.compile(r'invalid "?[a-z_]+"? value:? "')
"""libpq reports an invalid value of most options as it reports an outage, without a code."""


class SessionFactory:
    """Opens the sessions with one server.

    :param where: the server, as errors name it, without a password.
    :param timeout_s: the longest that a statement may run, and that a transaction may idle, in seconds. PostgreSQL 17 and
        later end a transaction after three times as long. Only this limit ends a transaction if its client is cut off in
        the middle of a batch, because the idle time-out starts with the Sync of the batch.
    """

    def __init__(self, where: str, timeout_s: float) -> None:
        most_ms = max(1, round(timeout_s * 1000))
        self._where, self._timeout_s = where, timeout_s
        most = dict.fromkeys(("statement_timeout", "idle_in_transaction_session_timeout"), str(most_ms))
        self._settings = {**most, **SETTINGS}
        self._since = {140000: {"idle_session_timeout": "0"}, 170000: {"transaction_timeout": str(3 * most_ms)}}
        self._trusted = False

    def open(self, args: Any, settings: Mapping[str, Any]) -> DeadlineConnection:
        """Open a session that no other client shares, with the settings of this class.

        :param args: and *settings*: the driver's settings for login and server.
        :raises Unsupported: a pooler shares the session with other clients, or the settings have no effect.
        """
        session = self._connect(args, settings)
        try:
            if not self._trusted:
                # Before anything is set: a setting would stay in a shared session, where other clients would meet it.
                self._refuse_shared(session, args, settings)
                self._trusted = True
            self._set(session)
            session.autocommit = False  # the driver's default, which SQLAlchemy expects
        except BaseException:
            session.close()
            raise
        return session

    def _connect(self, args: Any, settings: Mapping[str, Any]) -> DeadlineConnection:
        try:
            session = DeadlineConnection.connect(*args, **settings)
        except psycopg.Error as error:
            if not isinstance(error, psycopg.ProgrammingError) and not _INVALID_OPTION.search(str(error)):
                raise
            raise InvalidRequest(f"{self._where}: {error}. Correct the options of the lock store's URL") from error
        session.answer_s = 2 * self._timeout_s
        session.autocommit = True
        return session

    def _refuse_shared(self, session: DeadlineConnection, args: Any, settings: Mapping[str, Any]) -> None:
        """Check that no pooler shares the session.

        :raises Unsupported: a pooler before the server pools transactions or statements.
        """
        pid = _server_pid(session)
        # A pooler answers with a process id of its own making.
        if pid == session.info.backend_pid:
            return
        channel = f"airflow_hivelock {uuid.uuid4().hex}"
        with self._connect(args, settings) as other:
            shared = _server_pid(other) == pid or not self._hears(session, other, channel)
        if shared:
            raise Unsupported(
                f"{self._where}: a pooler shares each session with other clients, as PgBouncer does with "
                "pool_mode=transaction. Locks need notifications and time-outs, which belong to a session. Set "
                "pool_mode=session for this database or this role, or name PostgreSQL's own host and port"
            )

    def _hears(self, session: DeadlineConnection, other: DeadlineConnection, channel: str) -> bool:
        """Whether *session*, while it idles, hears what *other* sends. It does if the server's session is its own."""
        session.execute(SQL("LISTEN {}").format(Identifier(channel)))
        other.execute(_NOTIFY, (channel,))
        notices = list(session.notifies(timeout=self._timeout_s, stop_after=1))
        with suppress(psycopg.Error):  # the session works without this
            session.execute(SQL("UNLISTEN {}").format(Identifier(channel)))
        return bool(notices)

    def _set(self, session: DeadlineConnection) -> None:
        """Apply the settings and read them back.

        :raises Unsupported: the server has other values afterwards.
        """
        wanted = dict(self._settings)
        for version, settings in self._since.items():
            wanted |= settings if session.info.server_version >= version else {}
        session.execute(_SET, (list(wanted), list(wanted.values())))
        found = dict(session.execute(_READ_BACK, (list(wanted),)).fetchall())
        if lost := [f"{name} is {found.get(name)}" for name, value in wanted.items() if found.get(name) != value]:
            raise Unsupported(
                f"{self._where}: a setting has no effect in the session ({', '.join(lost)}). Without its time-outs a task "
                "could hang: let the pooler or the proxy in between pass SET on, or name PostgreSQL's own host and port"
            )


def _server_pid(session: DeadlineConnection) -> int:
    row = session.execute(_SERVER_PID).fetchone()
    assert row is not None
    return int(row[0])


class DeadlineConnection(psycopg.Connection[Any]):
    """A session with a deadline for each answer.

    The server itself applies ``statement_timeout``. But a server may be stopped, or cut off after it has got the
    request. Then it does not answer, while its operating system still acknowledges the packets. libpq and the driver
    have no deadline.

    :ivar answer_s: the longest that one answer may take; then the session is over, and its outcome unknown.
    """

    answer_s = float("inf")
    _open_pipeline: ExitStack | None = None
    _batches: psycopg.Pipeline

    @contextmanager
    def batch(self, *, ends: bool) -> Iterator[None]:
        """Send the statements of the block together, and wait for all answers.

        The driver ends a pipeline with Sync and Flush. A Flush stops the server's ``idle_in_transaction_session_timeout``,
        so a stopped client would keep its row locks. The pipeline therefore stays open until the transaction *ends*, and
        each earlier batch ends with Sync only.
        """
        if self._open_pipeline is None:
            self._open_pipeline = ExitStack()
            self._batches = self._open_pipeline.enter_context(self.pipeline())
        yield
        if ends:
            self._exit_pipeline()
        else:
            self._batches.sync()

    def close(self) -> None:
        super().close()
        with suppress(psycopg.Error):  # the connection has ended the pipeline
            self._exit_pipeline()

    def _exit_pipeline(self) -> None:
        pipeline, self._open_pipeline = self._open_pipeline, None
        if pipeline:
            pipeline.close()

    def wait(self, gen: Generator[Any, Any, Result], *args: Any, **kwargs: Any) -> Result:
        try:
            return super().wait(self._bounded(gen), *args, **kwargs)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.pgconn.finish()  # the driver has found the socket closed, but has not marked the session as broken
            raise

    def _bounded(self, gen: Generator[Any, Any, Result]) -> Generator[Any, Any, Result]:
        deadline = time.monotonic() + self.answer_s
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {self.answer_s:g} s, so the outcome is unknown")
                wanted = gen.send(ready)
        except StopIteration as end:
            result: Result = end.value
            return result
