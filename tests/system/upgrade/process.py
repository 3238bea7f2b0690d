"""A process of one version, as the test sees it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

ACTOR = Path(__file__).with_name("actor.py")
ANSWER_S = 120.0


class Refused(Exception):
    """The version of that process is too old; the text is its message."""


def environment(target: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(target), "AIRFLOW_HOME": str(target.parent / "airflow")}


class Process:
    """An actor; see :mod:`.actor` for the commands."""

    def __init__(self, target: Path, url: str) -> None:
        self.version = target.name
        command = [sys.executable, str(ACTOR), url]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, env=environment(target), cwd=target.parent, text=True, **pipes)

    def connected(self) -> Self:
        assert self.ask("connect") == self.version, "another version was imported"
        return self

    def send(self, command: str, **arguments: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps([command, arguments]) + "\n")
        self._process.stdin.flush()

    def answer(self, within_s: float = ANSWER_S) -> Any:
        """The next answer.

        :raises Refused: its version is too old.
        """
        stdout = self._process.stdout
        assert stdout
        assert select.select([stdout], [], [], within_s)[0], f"{self.version}: no answer within {within_s:g} s"
        found = json.loads(stdout.readline())
        if isinstance(found, dict) and "error" in found:
            if found["error"] == "UpgradeNeeded":
                raise Refused(found["text"])
            raise AssertionError(f"{self.version}: {found['error']}: {found['text']}")
        return found

    def ask(self, command: str, **arguments: Any) -> Any:
        self.send(command, **arguments)
        return self.answer()

    def still_waits(self, for_s: float = 1.0) -> bool:
        assert self._process.stdout
        return not select.select([self._process.stdout], [], [], for_s)[0]

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()
