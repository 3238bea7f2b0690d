"""A deferrable operator that knows its work only by an id, as for work in a cluster; the triggerer can import it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

from tests.system.deaths.play import running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import timedelta


class RemoteTrigger(BaseTrigger):
    """Fires when the process has ended; ends it when its task is over.

    :param fails: a file that makes it fail.
    """

    def __init__(self, pid: int, fails: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pid = pid
        self.fails = fails

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__name__}", {"pid": self.pid, "fails": self.fails}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        while running(self.pid):
            if Path(self.fails).exists():
                raise RuntimeError(f"{self.fails} says so")
            await asyncio.sleep(0.1)
        yield TriggerEvent("over")  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)


class Remote(BaseOperator):
    """Starts what it knows by an id alone, as what runs in a cluster is, and defers until that has ended."""

    template_fields: Sequence[str] = ("command",)

    def __init__(self, *, command: str, defer_for: timedelta | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.command = command
        self.defer_for = defer_for

    def execute(self, context: Any) -> None:
        started = subprocess.Popen(self.command.split(), env={}, start_new_session=True)
        fails = f"{self.command.split()[-2]}.fails"
        self.defer(trigger=RemoteTrigger(started.pid, fails), method_name="over", timeout=self.defer_for)

    def over(self, context: Any, event: Any) -> None:
        pass
