"""Asks Airflow for the runs of the tasks that block a waiter, so that the waiter's log shows which have failed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from airflow_hivelock import comms
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.spec import Owner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.waiting import InTheWay

KNOWN_S = 30.0
"""How long the triggerer keeps an answer: a thousand waiters may wait for one run."""

LAST_S = 1.0
"""How long a waiter that has its locks waits for the last answer, so that its log has it."""

_OVER = frozenset({"failed", "upstream_failed", "skipped", "removed"})
_asked: dict[str, tuple[float, asyncio.Task[str]]] = {}


class RunsAhead:
    """Asks Airflow in a task of its own, so that the wait goes on, and logs the answers.

    :param installation: the id of this Airflow. It knows no other tasks.
    """

    def __init__(self, installation: str, log: Any) -> None:
        self._installation = installation
        self._log = log
        self._telling: asyncio.Task[None] | None = None

    def tell(self, asked: Sequence[InTheWay]) -> None:
        """Log what became of those; not while the last question has no answer."""
        if asked and (self._telling is None or self._telling.done()):
            self._telling = asyncio.get_running_loop().create_task(self._tell(asked))

    async def tell_last(self, asked: Sequence[InTheWay]) -> None:
        """The same, and wait for a moment: what a trigger logs later may miss its task's log."""
        self.tell(asked)
        if self._telling is not None:
            await asyncio.wait([self._telling], timeout=LAST_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._telling is not None:
            self._telling.cancel()

    async def _tell(self, asked: Sequence[InTheWay]) -> None:
        for each in asked:
            owner = Owner.parse(each.owner)
            if owner is None or owner.installation != self._installation:
                continue
            if end := await _end_of(owner):
                then = "; the keeper frees its locks once nothing of it runs" if each.holds else ""
                self._log.info("%s: %s%s", printable(each.owner), end, then)


async def _end_of(owner: Owner) -> str:
    """One question for all waiters that ask within a while."""
    loop = asyncio.get_running_loop()
    for name in [
        name for name, (until, asking) in _asked.items() if loop.time() > until or asking.get_loop() is not loop
    ]:
        del _asked[name]
    if str(owner) not in _asked:
        _asked[str(owner)] = loop.time() + KNOWN_S, loop.create_task(_ask(owner))
    return await asyncio.shield(_asked[str(owner)][1])


async def _ask(owner: Owner) -> str:
    """What has become of the owner's run, or of its task; empty while both go on, and without an answer."""
    try:
        state, tasks = await comms.run_of(owner)
    except CannotTell:
        return ""
    task = tasks.get(owner.task_id if owner.map_index < 0 else f"{owner.task_id}_{owner.map_index}", "")
    if state is None:
        return "Airflow knows its run no longer"
    if state in comms.FINISHED_RUN:
        return "its run has failed" if state == "failed" else "its run has ended, with success"
    if task == "up_for_retry":
        return "its task has failed, and waits for its next try"
    return f"its task is {task}" if task in _OVER else ""
