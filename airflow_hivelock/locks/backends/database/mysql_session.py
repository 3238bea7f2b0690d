"""A session with MySQL or MariaDB: who logs in and how, which of both it is, and what holds in it whatever the server's defaults.

Everything else goes by the defaults of whoever runs the server: an isolation of REPEATABLE READ, a ``sql_mode`` that cuts texts
short in silence, waits of a year for a table.
"""

from __future__ import annotations

import math
import re
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import CLIENT

from airflow_hivelock.locks.errors import AccessDenied, InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import URL

FILES = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password")
OPTIONS = (*FILES, "ssl_mode", "unix_socket")

MODES = ("disabled", "required", "verify_ca", "verify_identity")
"""Of ``ssl_mode``, as the servers' own clients have them; ``verify_identity`` where files are given and it is not."""

LEAST = {"MySQL": (8, 0), "MariaDB": (10, 6)}
"""Before those, SKIP LOCKED is missing."""

_VERSION = re.compile(r"(?:5\.5\.5-)?(\d+)\.(\d+)")
"""MariaDB 10 says 5.5.5 first, for clients that would not know a 10."""

_EVERYWHERE = {"sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'", "sql_safe_updates": "0"}


@dataclass(frozen=True)
class Login:
    """How sessions are opened.

    :param given: of the URL's query; :data:`OPTIONS`.
    :param timeout_s: how long to wait for a connection, for a lock, and for what a statement does; twice that for an answer.
    """

    given: Mapping[str, str] = field(repr=False)
    timeout_s: float

    @classmethod
    def of(cls, url: URL, timeout_s: float) -> Login:
        """:raises InvalidRequest: an option or a mode that is not known; or no database."""
        if not url.database:
            raise InvalidRequest(
                f"{url.get_backend_name()}:// names no database; write it after the host, as in //host/hivelock"
            )
        given = dict(url.query)
        if unknown := [name for name, value in given.items() if name not in OPTIONS or not isinstance(value, str)]:
            raise InvalidRequest(
                f"{url.get_backend_name()}:// has no option {unknown[0]}, or not twice; there are {', '.join(OPTIONS)}"
            )
        mode = str(given.get("ssl_mode", MODES[-1])).lower()
        if mode not in MODES:
            raise InvalidRequest(f"ssl_mode={mode!r}: use one of {', '.join(MODES)}")
        if mode == MODES[0] and (files := [name for name in FILES if name in given]):
            raise InvalidRequest(f"{files[0]} is for TLS, and ssl_mode says {mode}; leave one of them out")
        return cls({name: str(value) for name, value in given.items()}, timeout_s)

    def open(self, settings: Mapping[str, Any]) -> Any:
        """A session of the driver's, ready for statements; each is a transaction of its own, if none is begun.

        :param settings: the driver's, of who logs in and where.
        :raises AccessDenied: a file cannot be read.
        :raises Unsupported: the server is too old, or asks for a library that is missing.
        """
        session: Any = pymysql.connect(**self._settings(settings))
        try:
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
        if isinstance(given.get("password"), str):  # the driver would have it be latin1
            given["password"] = given["password"].encode()
        if "unix_socket" in self.given:
            given["unix_socket"] = self.given["unix_socket"]
        if self.given.get("ssl_mode", "").lower() == MODES[0]:
            given["ssl_disabled"] = True
        elif any(name.startswith("ssl_") for name in self.given):
            given["ssl"] = self._context()
        return given

    def _context(self) -> ssl.SSLContext:
        """Made anew for each session: certificates are replaced while processes run."""
        ca, cert, key, password = (self.given.get(name) for name in FILES)
        mode = self.given.get("ssl_mode", MODES[-1]).lower()
        files = "ssl_ca"
        try:
            context = ssl.create_default_context(cafile=ca)
            if cert:
                files = "ssl_cert, ssl_key, ssl_key_password"
                context.load_cert_chain(cert, key, lambda: password or "")  # or OpenSSL would ask the terminal
        except (OSError, ValueError) as error:
            raise AccessDenied(f"{files} cannot be used ({error}): give files of PEM, on this host") from error
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # which the authorities that MySQL makes for itself do not bear
        context.check_hostname = mode == "verify_identity"
        context.verify_mode = ssl.CERT_NONE if mode == "required" else ssl.CERT_REQUIRED
        return context

    def _variables(self, session: Any) -> list[tuple[str, str]]:
        """The session's, of the server that has answered."""
        said = str(session.get_server_info())
        server = "MariaDB" if "MariaDB" in said else "MySQL"
        found = _VERSION.match(said)
        version = (int(found[1]), int(found[2])) if found else (0, 0)
        if version < LEAST[server]:
            raise Unsupported(
                f"the server is {said}; leases need {' or '.join(f'{name} {major}.{minor}' for name, (major, minor) in LEAST.items())}, "
                "or later"
            )
        most_s = str(max(1, math.ceil(self.timeout_s)))
        statement_s = 1.5 * self.timeout_s  # or it would end a wait before that has said why
        waits = {"innodb_lock_wait_timeout": most_s, "lock_wait_timeout": most_s}
        if server == "MariaDB":
            idle = {"idle_transaction_timeout": most_s, "max_statement_time": f"{statement_s:f}"}
        else:  # which ends a session that is idle in a transaction only as one that is idle; the pool opens another
            idle = {"wait_timeout": most_s, "max_execution_time": str(math.ceil(1000 * statement_s))}
        return list((_EVERYWHERE | waits | idle).items())
