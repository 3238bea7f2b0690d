"""Redis, as Debian packages it: one server on 127.0.0.1 that keeps nothing."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.support.servers.server import Server, accepts, free_port


class RedisServer(Server):
    """The broker of CeleryExecutor."""

    def __init__(self, workdir: Path) -> None:
        super().__init__(workdir / "redis")
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def ready(self) -> bool:
        return accepts(self.port)

    def command(self) -> list[str]:
        tether = str(Path(__file__).with_name("tether.py"))
        return [sys.executable, tether, "", str(shutil.which("redis-server")), *self._settings()]

    def _settings(self) -> list[str]:
        return ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--maxmemory", "64mb"]
