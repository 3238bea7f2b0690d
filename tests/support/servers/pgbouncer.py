"""PgBouncer, out of Debian's package: one pooler on 127.0.0.1 before one PostgreSQL server."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.servers.server import Server, ServerError, accepts, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.servers.postgres import PostgresServer

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
"""None where the package is not installed."""


class PgBouncer(Server):
    """A pooler that trusts every client, before *server*, with its configuration in a temporary directory of its own.

    ``mode`` is its ``pool_mode``. ``config`` adds to ``pgbouncer.ini``; the pooler itself applies its own defaults otherwise.

    PgBouncer refuses to run as root: started by root, it runs as ``nobody``.
    """

    def __init__(
        self, workdir: Path, server: PostgresServer, *, mode: str, config: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(workdir / f"pgbouncer-{mode}")
        if PROGRAM is None:
            raise ServerError("there is no pgbouncer here; Debian's pgbouncer has it")
        self.port = free_port()
        self._server = server
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._files = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
        weakref.finalize(self, shutil.rmtree, self._files, ignore_errors=True)
        self._config = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": mode,
            **(config or {}),
        }

    @property
    def url(self) -> str:
        """The URL of the server's first database, through the pooler."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def ready(self) -> bool:
        return accepts(self.port)

    def command(self) -> list[str]:
        settings = "\n".join(f"{name} = {value}" for name, value in self._config.items())
        database = f"postgres = host=127.0.0.1 port={self._server.port} dbname=postgres user=postgres"
        file = self._files / "pgbouncer.ini"
        file.write_text(f"[databases]\n{database}\n\n[pgbouncer]\n{settings}\n")
        if self._user:
            for path in (self._files, file):
                os.chown(path, self._user.pw_uid, -1)
        tether = [
            sys.executable,
            str(Path(__file__).with_name("tether.py")),
            str(self._user.pw_uid if self._user else ""),
        ]
        return [*tether, str(PROGRAM), str(file)]

    def environment(self) -> Mapping[str, str]:
        return {"TETHER_SIGNAL": "SIGTERM"}  # with SIGINT it would wait for its clients
