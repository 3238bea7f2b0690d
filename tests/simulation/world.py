"""One run: a small warehouse, its clients, the faults they meet, and the checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest import mock

from airflow_hivelock.locks.backends.zookeeper import acquisition
from tests.simulation.checks import Checks, Violation
from tests.simulation.dice import Dice
from tests.simulation.hive import HiveUser
from tests.simulation.model import ZooKeeper
from tests.simulation.operator import Operator
from tests.simulation.schedule import Schedule, Stuck
from tests.simulation.session import Network, SimulatedSession
from tests.simulation.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.schedule import Task

MAX_STEPS = 60_000
MAX_CRASHES = 8


@dataclass(frozen=True)
class Weather:
    """How rough a run is; each a probability a step."""

    switch: float
    pause: float
    lose: float
    faults: float
    kinds: tuple[str, ...]
    catch_up: float
    followers: int

    @classmethod
    def draw(cls, dice: Dice) -> Weather:
        """Every kind of fault is absent in some runs: together they hide one another's bugs."""
        return cls(
            switch=dice.pick((0.3, 0.05, 0.9)),
            pause=dice.pick((0.0, 0.01, 0.05)),
            lose=dice.pick((0.0, 0.002, 0.02)),
            faults=dice.pick((0.0, 0.002, 0.01)),
            kinds=dice.pick((("expire", "drop", "crash"), ("crash",), ("expire",))),
            catch_up=dice.pick((0.2, 0.02)),
            followers=dice.pick((1, 2, 3)),
        )


@dataclass
class Outcome:
    """What became of a run."""

    failure: Exception | None
    steps: int
    grants: int
    trace: list[tuple[int, str, object]]
    drawn: list[int]


class World:
    """Everything of one run.

    :param forgetful: see :class:`~.session.Network`.
    """

    def __init__(self, dice: Dice, *, forgetful: bool = True) -> None:
        self.dice = dice
        self.weather = Weather.draw(dice)
        self.sessions: dict[int, SimulatedSession] = {}
        self.schedule = Schedule(dice, self.weather.switch, self.weather.pause, self._disturb, MAX_STEPS)
        self.checks = Checks(self.session_of)
        self.zookeeper = ZooKeeper(self.weather.followers, lambda: self.schedule.now_ms, self.checks.observe)
        self.checks.tree = self.zookeeper.tree
        self.network = Network(self.zookeeper, self.schedule, dice, self.weather.lose, forgetful)
        self.clients: list[SimulatedSession] = []
        self.tasks_of: dict[SimulatedSession, list[Task]] = {}
        self._processes = 0
        self.workload = Workload(self)
        self._hives = dice.pick((0, 1, 2))
        self._unlocks = dice.chance(0.3)
        self._crashes = 0

    def session_of(self, number: int) -> SimulatedSession:
        return next(client for client in self.clients if number in client.past)

    def connect(self, name: str) -> SimulatedSession:
        """A new client."""
        client = SimulatedSession(self.network, name)
        self.clients.append(client)
        self.tasks_of[client] = []
        return client

    def run(self) -> Outcome:
        failure: Exception | None = None
        with mock.patch.object(acquisition, "uuid", self):
            try:
                self.workload.start()
                self._start_hive()
                Operator(self)
                self.schedule.run()
                self.checks.at_rest()
            except (Violation, Stuck) as error:
                failure = error
            except Exception as error:  # noqa: BLE001 - whatever the code under test raises is a finding
                failure = error
            for task in self.schedule.tasks:
                if not task.ended:
                    self.schedule.kill(task)
        return Outcome(failure, self.schedule.steps, self.checks.grants, self.schedule.trace, self.dice.drawn)

    def uuid4(self) -> World:
        """Stands in for :mod:`uuid` where acquisitions name themselves."""
        self._processes += 1
        return self

    @property
    def hex(self) -> str:
        return f"process{self._processes}"

    def spawn(self, client: SimulatedSession, suffix: str, run: Callable[[], None]) -> None:
        """A new thread of the client's process."""
        self.tasks_of[client].append(self.schedule.spawn(f"{client.name}{suffix}", run))

    def settle(self) -> None:
        """Let every follower catch up."""
        for follower in self.zookeeper.followers:
            self.zookeeper.catch_up(follower, self.zookeeper.zxid)

    def _start_hive(self) -> None:
        for number in range(self._hives):
            user = HiveUser(self.connect(f"hive{number}"), self, self._unlocks)
            self.spawn(user.session, "", user.work)

    def _crash_one(self) -> None:
        living = [
            client
            for client, tasks in self.tasks_of.items()
            if client.name != "operator" and any(not task.ended for task in tasks)
        ]
        if living and self._crashes < MAX_CRASHES:
            self._crashes += 1
            client = self.dice.pick(living)
            self._crash(client)
            self.workload.replace(client)

    def _crash(self, client: SimulatedSession) -> None:
        tasks = [task for task in self.tasks_of[client] if not task.ended]
        for task in tasks:
            client.in_flight(task.doing)
        client.die()
        for task in tasks:
            self.schedule.kill(task)

    def _disturb(self) -> None:
        """What happens by itself before a step."""
        dice, weather = self.dice, self.weather
        if weather.followers > 1 and dice.chance(weather.catch_up):
            follower = self.zookeeper.followers[1 + dice.below(weather.followers - 1)]
            self.zookeeper.catch_up(follower, min(self.zookeeper.zxid, follower.applied + 1 + dice.below(8)))
        if self.schedule.quiet or not dice.chance(weather.faults):
            return
        match dice.pick(weather.kinds):
            case "expire":
                self._victim().expire()
            case "drop":
                self._victim().break_connection()
            case "crash":
                self._crash_one()

    def _victim(self) -> SimulatedSession:
        return self.dice.pick(self.clients)


def simulate(seed: int = 0, recorded: Sequence[int] | None = None, *, forgetful: bool = True) -> Outcome:
    """One run from *seed*, or from the choices that an earlier one has *recorded*."""
    return World(Dice(seed, recorded), forgetful=forgetful).run()
