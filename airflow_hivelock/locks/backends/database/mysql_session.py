"""A session with MySQL or MariaDB: its login, which of the two the server is, and settings that do not depend on the
server.

The server's own defaults can be harmful: an isolation of REPEATABLE READ, a ``sql_mode`` that silently cuts texts
short, a ``sql_select_limit`` that silently leaves out rows, waits of a year for a table.
"""

from __future__ import annotations

import math
import re
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import CLIENT

from airflow_hivelock.locks.errors import InvalidRequest, Unsupported
from airflow_hivelock.locks.url import tls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import URL

FILES = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password")

MODES = ("disabled", "required", "verify_ca", "verify_identity")
"""The values of ``ssl_mode``, as in the servers' own clients. The default is ``verify_identity`` if files are given."""

_VERIFY = dict(zip(MODES[1:], ("none", "ca", "full"), strict=True))
"""What of the server's certificate is checked."""

LEAST = {"MySQL": (8, 0), "MariaDB": (10, 6)}
"""Earlier versions have no SKIP LOCKED."""

_VERSION = re.compile(r"(?:5\.5\.5-)?(\d+)\.(\d+)")
"""MariaDB 10 puts 5.5.5 first, for clients that do not know a version 10."""

READ_ONLY_MODE = 1836
"""ER_READ_ONLY_MODE, which the driver does not list."""

_EVERYWHERE = {
    "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "sql_safe_updates": "0",
    # Every row is read: a blocker that a limit leaves out would not block.
    "sql_select_limit": str((1 << 64) - 1),
    "sql_big_selects": "1",
    "completion_type": "'NO_CHAIN'",  # RELEASE would end the session with each transaction
}


@dataclass(frozen=True)
class Login:
    """How sessions are opened.

    :param given: the driver's options in the URL's query.
    :param timeout_s: how long to wait for a connection, a lock and a statement, in seconds; twice that for an answer.
    """

    given: Mapping[str, str] = field(repr=False)
    timeout_s: float

    @classmethod
    def of(cls, url: URL, timeout_s: float) -> Login:
        """Read the login from a URL.

        :raises InvalidRequest: the mode is unknown, or the URL has no database.
        """
        if not url.database:
            raise InvalidRequest(
                f"{url.get_backend_name()}:// names no database. Write it after the host, as in //host/hivelock"
            )
        given = dict(url.query)
        mode = str(given.get("ssl_mode", MODES[-1])).lower()
        if mode not in MODES:
            raise InvalidRequest(f"ssl_mode={mode!r} is unknown. Use one of {', '.join(MODES)}")
        if mode == MODES[0] and (files := [name for name in FILES if name in given]):
            raise InvalidRequest(f"{files[0]} is for TLS, but ssl_mode is {mode}. Leave one of them out")
        return cls({name: str(value) for name, value in given.items()}, timeout_s)

    def open(self, settings: Mapping[str, Any]) -> Any:
        """Open a session of the driver, ready for statements; each is a transaction of its own unless one is begun.

        :param settings: the driver's settings for login and server.
        :raises AccessDenied: a file cannot be read.
        :raises Unsupported: the server is too old, or needs a library that is missing.
        """
        session: Any = pymysql.connect(**self._settings(settings))
        try:
            check_writable(session)
            with session.cursor() as cursor:
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                cursor.execute(
                    f"SET SESSION {', '.join(f'{name}={value}' for name, value in self._variables(session))}"
                )
        except BaseException:
            session.close()
            raise
        return session

    def _settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        given = dict(settings, charset="utf8mb4", autocommit=True, connect_timeout=self.timeout_s)
        given["client_flag"] = settings.get("client_flag", 0) | CLIENT.MULTI_STATEMENTS
        given["read_timeout"] = given["write_timeout"] = 2 * self.timeout_s
        if isinstance(given.get("password"), str):  # the driver would encode a text as latin1
            given["password"] = given["password"].encode()
        if "unix_socket" in self.given:
            given["unix_socket"] = self.given["unix_socket"]
        if self.given.get("ssl_mode", "").lower() == MODES[0]:
            given["ssl_disabled"] = True
        elif any(name.startswith("ssl_") for name in self.given):
            given["ssl"] = self._context()
        return given

    def _context(self) -> ssl.SSLContext:
        """Make a TLS context for each session, because certificates are replaced while processes run."""
        ca, cert, key, password = (self.given.get(name) for name in FILES)
        verify = _VERIFY[self.given.get("ssl_mode", MODES[-1]).lower()]
        context = tls(ca, cert, key, password, verify=verify, options=("ssl_ca", "ssl_cert, ssl_key, ssl_key_password"))
        # the certificates that MySQL makes for itself fail these checks
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def _variables(self, session: Any) -> list[tuple[str, str]]:
        """The session variables for this server."""
        reported = str(session.get_server_info())
        server = "MariaDB" if "MariaDB" in reported else "MySQL"
        found = _VERSION.match(reported)
        version = (int(found[1]), int(found[2])) if found else (0, 0)
        if version < LEAST[server]:
            raise Unsupported(
                f"the server is {reported}, but leases need {' or '.join(f'{name} {major}.{minor}' for name, (major, minor) in LEAST.items())}, "
                "or later"
            )
        most_s = str(max(1, math.ceil(self.timeout_s)))
        # longer than a lock wait: otherwise it would end the wait, and hide its reason
        statement_s = 1.5 * self.timeout_s
        waits = {"innodb_lock_wait_timeout": most_s, "lock_wait_timeout": most_s}
        if server == "MariaDB":
            idle = {"idle_transaction_timeout": most_s, "max_statement_time": f"{statement_s:f}"}
        else:  # MySQL has no time-out for an idle transaction, only for an idle session; the pool then opens another
            idle = {"wait_timeout": most_s, "max_execution_time": str(math.ceil(1000 * statement_s))}
        return list((_EVERYWHERE | waits | idle).items())


def check_writable(session: Any) -> None:
    """Refuse a server that only reads. A replica is behind: it would still show a lease that has been released, and
    confirm it.

    :raises pymysql.err.OperationalError: the server only reads, or does not answer.
    """
    with session.cursor() as cursor:
        cursor.execute("SELECT @@global.read_only")
        ((reads_only,),) = cursor.fetchall()
    if reads_only not in (0, "OFF"):
        raise pymysql.err.OperationalError(READ_ONLY_MODE, "read_only is on")
