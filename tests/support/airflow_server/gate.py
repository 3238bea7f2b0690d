"""A task that is deferred until its gate opens. The gate is a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context
from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class GateTrigger(BaseTrigger):
    """Fires once the file exists."""

    def __init__(self, path: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.path = path

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{GateTrigger.__module__}.GateTrigger", {"path": self.path}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        self.log.info("waiting at %s", self.path)
        while not Path(self.path).exists():
            await asyncio.sleep(0.1)
        yield TriggerEvent("open")  # type: ignore[no-untyped-call]


class Gate(BaseOperator):
    """Passes once the file exists, and returns what the trigger said."""

    template_fields = ("path",)

    def __init__(self, *, path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path

    def execute(self, context: Context) -> None:
        self.defer(trigger=GateTrigger(self.path), method_name="passed")

    def passed(self, context: Context, event: str) -> str:
        return event
