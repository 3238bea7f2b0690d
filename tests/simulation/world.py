"""One run: a small warehouse, its clients, the faults they meet, and the checks."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from unittest import mock

from airflow_hivelock.locks.backends.zookeeper import (
    acquisition,
    backend,
    marking,
    nodes,
    queue,
    record,
    session,
    store,
)
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from airflow_hivelock.locks.backends.zookeeper.store_format import StoreFormat
from airflow_hivelock.locks.backends.zookeeper.turn import NotAtOnce
from airflow_hivelock.locks.model import Lock, locks_from_json
from tests.simulation.checks import Checks
from tests.simulation.claims import Violation
from tests.simulation.dice import Dice, Names
from tests.simulation.format_checks import LATER
from tests.simulation.hive import Habits, HiveUser
from tests.simulation.model import ZooKeeper
from tests.simulation.operator import Operator
from tests.simulation.schedule import Schedule
from tests.simulation.session import Network, SimulatedSession
from tests.simulation.themes import THEMES, Draw
from tests.simulation.wire import Wire
from tests.simulation.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.backends.zookeeper.client import Client
    from airflow_hivelock.locks.errors import UpgradeNeeded
    from tests.simulation.schedule import Task
    from tests.simulation.themes import Theme

CRASHES_MAX = 12


@dataclass(frozen=True)
class Weather:
    """How rough a run is; each a probability a step."""

    switch: float
    pause: float
    lose: float
    lose_rare: float
    faults: float
    kinds: tuple[str, ...]
    late: float
    refuse: float
    catch_up: float
    followers: int

    @property
    def calm(self) -> bool:
        return not (self.lose or self.lose_rare or self.faults)

    @classmethod
    def draw(cls, draw: Draw) -> Weather:
        """Every kind of fault is absent in some runs: together they hide one another's bugs."""
        return cls(
            switch=draw("switch", 0.3, 0.05, 0.9),
            pause=draw("pause", 0.0, 0.01, 0.05, 0.2),
            lose=draw("lose", 0.0, 0.002, 0.02),
            lose_rare=draw("lose_rare", 0.0, 0.0, 1.0),
            faults=draw("faults", 0.0, 0.002, 0.01, 0.05),
            kinds=draw("kinds", ("expire", "drop", "crash"), ("crash",), ("expire",)),
            late=draw("late", 0.0, 0.3),
            refuse=draw("refuse", 0.0, 0.0, 0.0, 0.05),
            catch_up=draw("catch_up", 0.2, 0.02),
            followers=draw("followers", 1, 2, 3),
        )


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    :param grants: leases that were granted.
    :param leases: leases that were handed to a process, taken over ones too.
    """

    seed: int
    failure: Exception | None
    steps: int
    grants: int
    leases: int
    trace: list[tuple[int, str, object]]


class World:
    """Everything of one run."""

    def __init__(self, seed: int, theme: Theme | None = None) -> None:
        dice = self.dice = Dice(seed)
        self.seed = seed
        drawn = dice.pick(THEMES)
        self.draw = draw = Draw(dice, drawn if theme is None else theme)
        self.weather = weather = Weather.draw(draw)
        self.schedule = Schedule(dice, weather.switch, weather.pause, self._disturb)
        self.passing_s = draw("passing_s", 3600.0, 3600.0, 2.0)
        self.checks = Checks(self._session_of, self.schedule.progress, self.passing_s)
        self.zookeeper = ZooKeeper(weather.followers, lambda: self.schedule.now_ms, self.checks.observe)
        self.network = Network(
            self.zookeeper, self.schedule, dice, weather.lose, weather.lose_rare, weather.late, weather.refuse
        )
        self.tasks_of: dict[SimulatedSession, list[Task]] = {}
        self.workload = Workload(self)
        self._hives = draw("hives", 0, 1, 2, 3)
        self._habits = Habits.draw(draw)
        self._steady_hive = draw("steady_hive", True, True, False)
        self._cached_tickets = draw("cached_tickets", 0, 3, 20_000)
        self._few = draw("few", 0, 0, 32)
        self._remembered = draw("remembered", 1, 1_000)
        self._kept_s = draw("kept_s", 0.3, 86_400.0)
        self._at_once = draw("at_once", True, True, False)
        self._crashes = 0
        self._real_sessions = draw("real_sessions", True, False, False)
        self._version = draw("version", "3.9.5", "3.9.5", "3.4.14")
        self.upgrades = Dice(seed + (1 << 43))  # separate, so that a run without an upgrade stays the same
        self.upgrade = Draw(self.upgrades, draw.theme)("upgrade", 0.0, 0.0, 0.0, 0.3)
        self._later_clients: list[Client] = []

    @property
    def started(self) -> int:
        """How many clients there have been."""
        return len(self.tasks_of)

    def connect(self, name: str, *, steady: bool = False, later: bool = False) -> SimulatedSession:
        """A new client.

        :param later: it has a later version, which raises the lowest reader when it connects.
        """
        client = SimulatedSession(self.network, name, steady=steady)
        self.tasks_of[client] = []
        if later:
            self.checks.formats.later.add(client)
        return client

    def client_of(self, session: SimulatedSession) -> Client:
        """The client of a backend: in some runs the real session over the simulated one."""
        client = KazooSession(session.name) if self._real_sessions else session
        if session in self.checks.formats.later:
            self._later_clients.append(client)
        return client

    def _format(self, client: Client, path: str) -> StoreFormat:
        later = any(client is other for other in self._later_clients)
        return StoreFormat(client, path, LATER) if later else StoreFormat(client, path)

    def too_old(self, client: SimulatedSession, error: UpgradeNeeded) -> None:
        """*client* is refused. It must be of the earlier version, and the stamp must be raised."""
        self.schedule.note(self.schedule.current.name, f"is refused: {error}")
        if client in self.checks.formats.later or not self.checks.formats.raised:
            raise Violation(f"{client.name} is refused, and is not too old: {error}") from error

    def _wire(self, hosts: str, **options: object) -> Wire:
        return Wire(next(client for client in self.tasks_of if client.name == hosts), self._version)

    def spawn(self, client: SimulatedSession, suffix: str, run: Callable[[], None]) -> None:
        """A new thread of the client's process."""
        self.tasks_of[client].append(self.schedule.spawn(f"{client.name}{suffix}", run))

    def run(self) -> Outcome:
        failure: Exception | None = None
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(acquisition, "uuid", Names()))
            stack.enter_context(mock.patch.object(session, "KazooClient", self._wire))
            stack.enter_context(mock.patch.object(session.log, "error", _complained))
            stack.enter_context(mock.patch.object(backend, "WAITER_KEPT_S", self._kept_s))
            stack.enter_context(mock.patch.object(queue, "CACHED_TICKETS", self._cached_tickets))
            stack.enter_context(mock.patch.object(nodes, "FEW", self._few))
            stack.enter_context(mock.patch.object(marking, "FEW", 0))
            stack.enter_context(mock.patch.object(store, "REMEMBERED", self._remembered))
            stack.enter_context(mock.patch.object(store, "StoreFormat", self._format))
            if not self._at_once:  # or the long way would hardly be gone
                stack.enter_context(mock.patch.object(ZooKeeperAcquisition, "_at_once", side_effect=NotAtOnce))
            for module in (queue, record):
                stack.enter_context(mock.patch.object(module, "locks_from_json", _locks))
            try:
                self.workload.start()
                self._start_hive()
                Operator(self)
                self.schedule.run()
                self.checks.at_rest(self.zookeeper.tree)
            except Exception as error:  # noqa: BLE001 - a broken promise, or whatever the code under test raises
                failure = error
            for task in self.schedule.tasks:
                if not task.ended:
                    self.schedule.kill(task)
        checks, schedule = self.checks, self.schedule
        return Outcome(self.seed, failure, schedule.steps, checks.grants, checks.claims.leases, schedule.trace)

    def _session_of(self, number: int) -> SimulatedSession:
        return self.network.clients[number]

    def _start_hive(self) -> None:
        for number in range(self._hives):
            client = self.connect(f"hive{number}", steady=self._steady_hive)
            rounds = 1 + self.dice.below(2 * self.workload.rounds)
            user = HiveUser(client, self, rounds, self._habits)
            self.spawn(client, "", user.work)

    def _disturb(self) -> None:
        """What happens by itself before a step."""
        dice, weather = self.dice, self.weather
        if weather.followers > 1 and dice.chance(weather.catch_up):
            follower = self.zookeeper.followers[1 + dice.below(weather.followers - 1)]
            self.zookeeper.catch_up(follower, min(self.zookeeper.zxid, follower.applied + 1 + dice.below(8)))
        if weather.faults and dice.chance(weather.faults) and not self.schedule.quiet:
            match dice.pick(weather.kinds):
                case "expire":
                    self._victim().expire()
                case "drop":
                    self._victim().break_connection()
                case "crash":
                    self._crash_one()

    def _victim(self) -> SimulatedSession:
        return self.dice.pick([client for client in self._living() if not client.steady])  # the operator's at least

    def _living(self) -> list[SimulatedSession]:
        return [client for client, tasks in self.tasks_of.items() if any(not task.ended for task in tasks)]

    def _crash_one(self) -> None:
        living = [client for client in self._living() if not client.name.startswith("operator")]
        if living and self._crashes < CRASHES_MAX:
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


def _complained(said: str, *given: object) -> None:
    """The real session says that the store has gone back, which it does not do here."""
    raise Violation(said % given)


def _locks(data: dict[str, str]) -> tuple[Lock, ...]:
    """What :func:`locks_from_json` says, which is asked for the same few locks all the time."""
    return _parsed(tuple(data.items()))


@cache
def _parsed(items: tuple[tuple[str, str], ...]) -> tuple[Lock, ...]:
    return locks_from_json(dict(items))


def simulate(seed: int, theme: Theme | None = None) -> Outcome:
    """One run, wholly decided by *seed*, and by *theme* where it is not to be drawn."""
    return World(seed, theme).run()
