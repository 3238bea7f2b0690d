"""MariaDB, out of Debian's package: one server on 127.0.0.1."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import sys
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import programs
from tests.support.servers.server import Server, ServerError, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

INSTALL_S = 120.0
PROGRAM = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
"""None where the package is not installed."""


class MariaDBServer(Server):
    """A MariaDB server that trusts every user, with a data directory of its own among the temporary ones.

    ``config`` adds to the server's settings, ``-`` for ``_``. A commit is answered before it is on disk.

    Other users cannot enter a test's directory, and MariaDB does not like to be root. Started by root, it runs as
    ``nobody``. It reads no settings of the system.
    """

    def __init__(self, workdir: Path, *, config: Mapping[str, str] | None = None) -> None:
        super().__init__(workdir / "mariadb")
        if PROGRAM is None:
            raise ServerError("there is no mariadbd here; Debian's mariadb-server has it")
        self.port = free_port()
        self._data = Path(tempfile.mkdtemp(prefix="mariadb-"))
        weakref.finalize(self, shutil.rmtree, self._data, ignore_errors=True)
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._config = {
            "port": str(self.port),
            "bind-address": "127.0.0.1",
            "socket": str(self._data / "socket"),
            "pid-file": str(self._data / "pid"),
            "tmpdir": str(self._data),  # a starting server deletes the files in the common one
            "innodb-buffer-pool-size": "64M",
            "innodb-log-file-size": "16M",
            "innodb-flush-log-at-trx-commit": "2",
            "max-connections": "200",
            **(config or {}),
        }

    @property
    def url(self) -> str:
        """The URL of its first database."""
        return f"mysql://root@127.0.0.1:{self.port}/test"

    def ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as asked:
                return bool(asked.recv(1))  # it speaks first
        except OSError:
            return False

    def command(self) -> list[str]:
        if not (self._data / "mysql").exists():
            self._initialise()
        settings = [f"--{name}={value}" for name, value in self._config.items()]
        user = str(self._user.pw_uid) if self._user else ""
        tether = [sys.executable, str(Path(__file__).with_name("tether.py")), user]
        return [*tether, str(PROGRAM), "--no-defaults", f"--datadir={self._data}", "--skip-name-resolve", *settings]

    def environment(self) -> Mapping[str, str]:
        zone = "Asia/Kathmandu"  # a quarter of an hour off every other
        return {"TZ": zone, "LC_ALL": "C", "TETHER_SIGNAL": "SIGTERM"}

    def _initialise(self) -> None:
        if self._user:
            os.chown(self._data, self._user.pw_uid, -1)
        program = shutil.which("mariadb-install-db") or "mariadb-install-db"
        options = [
            "--no-defaults",
            f"--datadir={self._data}",
            "--auth-root-authentication-method=normal",
            "--skip-name-resolve",
        ]
        user = self._user.pw_uid if self._user else None
        programs.run([program, *options], INSTALL_S, ServerError, user=user, cwd=self._data)
