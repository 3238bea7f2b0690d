"""A process of one version, as the test sees it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, Self

from tests.support.fleet import Worker

ACTOR = Path(__file__).with_name("actor.py")


class Refused(Exception):
    """The version of that process is too old; the text is its message."""


def options(target: Path) -> dict[str, Any]:
    """Run an actor of the version that is installed there."""
    env = {**os.environ, "PYTHONPATH": str(target), "AIRFLOW_HOME": str(target.parent / "airflow")}
    return {"env": env, "cwd": target.parent}


class Process(Worker):
    """An actor; see :mod:`.actor` for the commands. An order is a command and its arguments."""

    def __init__(self, target: Path, url: str) -> None:
        super().__init__(ACTOR, url, stderr=subprocess.DEVNULL, **options(target))
        self.version = target.name

    def connected(self) -> Self:
        assert self.ask("connect", {}) == self.version, "another version was imported"
        return self

    def hear(self) -> Any:
        """The next answer.

        :raises Refused: its version is too old.
        """
        found = super().hear()
        if isinstance(found, dict) and "error" in found:
            if found["error"] == "UpgradeNeeded":
                raise Refused(found["text"])
            raise AssertionError(f"{self.version}: {found['error']}: {found['text']}")
        return found

    def begin(self, command: str, **arguments: Any) -> None:
        self.tell(command, arguments)

    def do(self, command: str, **arguments: Any) -> Any:
        return self.ask(command, arguments)
