"""Who goes on next. Every client is a greenlet that hands over at each request, each wait and each sleep."""

from __future__ import annotations

import heapq
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped, unused-ignore]

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.dice import Dice

IDLE_STEPS = 10_000
IDLE_MS = 100_000
"""How long nobody may get or end anything before that counts as going round in circles."""

TURNS_MAX = 1_000
"""How many requests one may send in a row before that does."""


class Killed(BaseException):
    """The process of this greenlet has died: nothing after the last request it sent has happened."""


class Stuck(Exception):
    """No task can continue, or all tasks loop."""


@dataclass(eq=False)
class Task:
    """A thread of some process.

    :param turns: how many requests it has sent since it rested last, or began a job.
    :param busy_since_ms: when it began to do what it is at; None while it rests.
    """

    name: str
    greenlet: greenlet
    doing: object = ""
    waits: int = 0
    ended: bool = False
    turns: int = 0
    busy_since_ms: int | None = None


@dataclass(eq=False)
class Flag:
    """What ``threading.Event`` is to threads, for one waiting task."""

    schedule: Schedule = field(repr=False)
    raised: bool = False
    _waiting: Task | None = field(default=None, repr=False)

    def set(self) -> None:
        self.raised = True
        if self._waiting is not None:
            self.schedule.make_ready(self._waiting)
            self._waiting = None

    def clear(self) -> None:
        self.raised = False

    def wait(self, timeout_s: float | None = None) -> None:
        """Return once it is raised, or *timeout_s* have passed."""
        if not self.raised:
            self._waiting = self.schedule.current
            self.schedule.sleep(timeout_s)
            self._waiting = None


class Schedule:
    """The clock, the tasks, and which task runs.

    :param switch: the probability that another task continues after a step, although the last one could.
    :param pause: the probability that a task rests for a long time before its step.
    :param disturb: called before each step, for events without a task.

    Set ``quiet`` when no more faults may happen, and time may jump.
    """

    def __init__(self, dice: Dice, switch: float, pause: float, disturb: Callable[[], None]) -> None:
        self.now_ms = 1_000
        self.steps = 0
        self.trace: list[tuple[int, str, object]] = []
        self.tasks: list[Task] = []
        self.quiet = False
        self._dice = dice
        self._switch = switch
        self._pause = pause
        self._disturb = disturb
        self._progress = (0, 0)
        self._living = 0
        self._ready: list[Task] = []
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._timer_number = 0
        self._current: Task | None = None
        self._hub = getcurrent()

    @property
    def current(self) -> Task:
        assert self._current is not None
        return self._current

    def note(self, who: str, what: object) -> None:
        """Write a line of the history."""
        self.trace.append((self.now_ms, who, what))

    def progress(self) -> None:
        """Somebody got what he wanted, or is done."""
        self._progress = self.steps, self.now_ms

    def spawn(self, name: str, run: Callable[[], None]) -> Task:
        """A new task."""

        def body() -> None:
            with suppress(Killed):
                run()

        task = Task(name, greenlet(body, self._hub), busy_since_ms=self.now_ms)
        self.tasks.append(task)
        self._ready.append(task)
        self._living += 1
        return task

    def kill(self, task: Task) -> None:
        """Throw the task away."""
        self._end(task)
        if task.greenlet:  # it has begun
            task.greenlet.throw(Killed)

    def at(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Call *act* after *delay_ms*."""
        self._timer_number += 1
        heapq.heappush(self._timers, (self.now_ms + delay_ms, self._timer_number, act))

    # Called within tasks

    def turn(self, doing: object) -> None:
        """Let others go first; return when it is this task's turn to do *doing*."""
        task = self._current
        if task is None or task.ended or getcurrent() is not task.greenlet:
            raise Killed  # and what it does as it ends does not happen, on whosever session that be
        task.doing = doing
        task.turns += 1
        if task.turns > TURNS_MAX:
            raise Stuck(f"{task.name} asks on and on, without a pause: {doing}")
        self._hub.switch()
        self.trace.append((self.now_ms, task.name, doing))

    def sleep(self, seconds: float | None) -> None:
        """Rest until made ready, or for *seconds*."""
        task = self.current
        task.turns = 0
        task.busy_since_ms = None
        self._rest(task, None if seconds is None else int(seconds * 1000) + 1)
        task.doing = "waits"
        self._hub.switch()
        task.busy_since_ms = self.now_ms

    # Called within the hub

    def run(self) -> None:
        """Until every task has ended.

        :raises Stuck: when that will never be.
        """
        disturb, timers = self._disturb, self._timers
        while self._living:
            disturb()
            if timers and timers[0][0] <= self.now_ms:
                self._fire_timers()
            if not self._ready:
                self._wait_for_timer()
            self.steps += 1
            progress_steps, progress_ms = self._progress
            idle = self.now_ms - progress_ms > IDLE_MS and not self.quiet
            if idle or self.steps - progress_steps > IDLE_STEPS:
                raise Stuck(f"nobody gets anywhere any more; {self._standing()}")
            task = self._choose()
            self.now_ms += 1
            self._current = task
            task.greenlet.switch()
            if task.greenlet.dead:
                self._end(task)

    def make_ready(self, task: Task) -> None:
        if not task.ended and task not in self._ready:
            task.waits += 1
            self._ready.append(task)

    def _choose(self) -> Task:
        ready, last, dice = self._ready, self._current, self._dice
        stays = last in ready and not dice.chance(self._switch)
        task = last if last is not None and stays else dice.pick(ready)
        if self._pause and len(ready) > 1 and dice.chance(self._pause) and not self.quiet:
            self._rest(task, 20 << dice.below(7))
            return self._choose()
        return task

    def _rest(self, task: Task, delay_ms: int | None) -> None:
        self._ready.remove(task)
        task.waits += 1
        waits = task.waits
        if delay_ms is not None:
            self.at(delay_ms, lambda: self.make_ready(task) if task.waits == waits else None)

    def _fire_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self.now_ms:
            heapq.heappop(self._timers)[2]()

    def _wait_for_timer(self) -> None:
        """Let time pass until a task can continue."""
        while not self._ready:
            if not self._timers:
                raise Stuck(f"deadlock: nobody can go on; {self._standing()}")
            self.now_ms = max(self.now_ms, self._timers[0][0])
            self._fire_timers()

    def _end(self, task: Task) -> None:
        if not task.ended:
            task.ended = True
            self._living -= 1
            self.progress()
        if task in self._ready:
            self._ready.remove(task)

    def _standing(self) -> str:
        """The tasks that have not ended, and their steps."""
        return "; ".join(f"{task.name}: {task.doing}" for task in self.tasks if not task.ended)
