"""An operator that works under locks, and the DAG that it is in."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_hivelock import (
    HiveLockMixin,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from airflow_hivelock.locks import LockManager


DAY = datetime(2013, 1, 15, tzinfo=UTC)
OBJECT = "dw.delays/dt=2013-01-15"
NAMES: dict[str, Any] = {"writes": ["dw.delays/dt={{ ds }}"]}


class Work(BaseOperator):
    """Does what the test says; ``on_kill`` stops it."""

    def __init__(
        self,
        *,
        act: Callable[[Work], Any] = lambda _: None,
        at_stop: Callable[[], Any] = lambda: None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.act = act
        self.at_stop = at_stop
        self.stopped = threading.Event()
        self.kills: list[str] = []

    def execute(self, context: Any) -> Any:
        return self.act(self)

    def on_kill(self) -> None:
        self.at_stop()
        self.kills.append(threading.current_thread().name)
        self.stopped.set()


class LockedWork(HiveLockMixin, Work):
    pass


class Defers(BaseTrigger):
    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Defers", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent("go on")  # type: ignore[no-untyped-call]


def dag(name: str = "works", **options: Any) -> DAG:
    return DAG(name, schedule=None, start_date=DAY, **options)


def holders(manager: LockManager) -> list[str]:
    return [holder.owner for holder in manager.show(OBJECT)]
