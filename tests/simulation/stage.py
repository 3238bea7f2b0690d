"""A stage for scripts: a few named clients, stepped by hand over the simulated ZooKeeper, while the checks look on.

Nothing happens by itself, so that a script decides who comes between any two requests: see :meth:`Actor.before`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any
from unittest import mock

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend, acquisition, marking
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import Children, Commit, Get, SetData
from airflow_hivelock.locks.backends.zookeeper.store_format import StoreFormat
from airflow_hivelock.locks.backends.zookeeper.turn import NotAtOnce
from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.model import DeferredGrant, Lease, LeaseLimit, owner_key
from airflow_hivelock.locks.pending import Silent
from tests.simulation.checks import Checks
from tests.simulation.dice import Dice, Names
from tests.simulation.format_checks import LATER
from tests.simulation.hive import HiveClient
from tests.simulation.model import ZooKeeper
from tests.simulation.schedule import Flag, Schedule
from tests.simulation.session import Network, SimulatedSession
from tests.simulation.state import ROOT, State
from tests.simulation.worker import AHEAD_S, process_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_hivelock.locks.backend import Blocked, NeedsSlot
    from airflow_hivelock.locks.backends.zookeeper.client import Request
    from airflow_hivelock.locks.pending import PendingLease

    Script = Callable[["Stage"], None]


class Actor(SimulatedSession):
    """A session that a script can delay, and whose replies it can lose."""

    def __init__(self, network: Network, name: str, server: int = 0) -> None:
        self._server = server
        super().__init__(network, name, steady=True)
        self._cues: list[tuple[Callable[[Request], bool], Callable[[Request], object]]] = []

    def before(self, due: Callable[[Request], bool], act: Callable[[], object]) -> None:
        """Call *act* once, when the next request that is *due* has been sent, but not arrived."""
        self._cues.append((due, lambda request: act()))

    def lose_reply(
        self, due: Callable[[Request], bool], *, server: int | None = None, first: Callable[[], object] = lambda: None
    ) -> None:
        """The next request that is *due* arrives, but the connection breaks before its reply.

        :param server: the next connection is to this one.
        :param first: called when the request has been sent, but not arrived.
        """

        def arrive_only(request: Request) -> None:
            first()
            seen = self._zxid
            super(Actor, self)._serve(request, ())
            self._zxid = seen  # only the reply would have told it
            self._server = self._server if server is None else server
            self.break_connection()
            raise StoreUnavailable("scripted: reply lost; the outcome is unknown")

        self._cues.append((due, arrive_only))

    def move(self, server: int) -> None:
        """The session ends, and the next one is with another server."""
        self._server = server
        self.expire()
        self._notice_expiry()

    def _follower(self) -> int:
        return self._server

    def _serve(self, request: Request, rest: Sequence[Request]) -> Any:
        cue = next((cue for cue in self._cues if cue[0](request)), None)
        if cue is not None:
            self._cues.remove(cue)
            cue[1](request)
        return super()._serve(request, rest)


@dataclass(frozen=True)
class Asked:
    """A request under way; *flag* is raised when polling is worthwhile."""

    pending: PendingLease
    flag: Flag

    def poll(self) -> Lease | NeedsSlot | Blocked:
        self.flag.clear()
        outcome = self.pending.poll()
        assert not isinstance(outcome, Silent)
        return outcome

    def lease(self) -> Lease:
        """Wait until it is granted."""
        while not isinstance(outcome := self.poll(), Lease):
            self.flag.wait(self.pending.wait_s())
        return outcome


class Process:
    """One of our processes."""

    def __init__(self, stage: Stage, session: Actor, patience_s: float, passing_s: float) -> None:
        self.session = session
        self.backend = ZooKeeperBackend(
            self.session,
            patience_s=patience_s,
            passing_s=passing_s,
            clock=stage.clock,
            sleep=stage.schedule.sleep,
            later=self._later,
        )
        self.manager = LockManager(self.backend, stage.clock)
        self._stage = stage

    def _later(self, pause_s: float, act: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            self._stage.schedule.sleep(pause_s)
            act()

        self._stage.meanwhile(f"{self.session.name}.ends", run)
        return lambda: None

    def asks(
        self,
        owner: str,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        *,
        attempt: int = 0,
        wait: bool = True,
        deferred: DeferredGrant | None = None,
        priority: int = 1,
        limit: LeaseLimit | None = None,
    ) -> Asked:
        flag, stage = Flag(self._stage.schedule), self._stage
        request = rules.request(
            owner, reads, writes, attempt=attempt, wait=wait, deferred=deferred, priority=priority, limit=limit
        )
        asked = Asked(self.manager.begin(request, flag.set, None if wait else 0.0, outage_s=0), flag)
        stage.begins(asked.pending, deferred=deferred)
        return asked

    def gets(
        self,
        owner: str,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        *,
        attempt: int = 0,
        limit: LeaseLimit | None = None,
    ) -> Lease:
        """Ask, and be granted at once."""
        outcome = self.asks(owner, reads, writes, attempt=attempt, limit=limit).poll()
        assert isinstance(outcome, Lease), f"{owner} is blocked: {outcome}"
        return outcome

    def releases(self, lease: Lease) -> bool:
        self._stage.checks.claims.releases(lease)
        return self.manager.release(lease)

    def gives_back(self, lease: Lease, *names: str) -> Lease | None:
        objects, claims = rules.objects("objects", names), self._stage.checks.claims
        claims.gives(lease, objects, lease.whole)
        left = self.manager.release(lease, objects=objects)
        claims.gave(lease, left, objects, owner_key(lease.owner))
        return left

    def forces(self, lease: Lease) -> bool:
        self._stage.checks.claims.forces(lease.id)
        return self.manager.force_release(lease.id, reason="its owner is dead", user="operator")

    def prioritizes(self, owner: str, priority: int) -> bool:
        stage = self._stage
        stage.checks.order.changes(owner, priority, stage.zookeeper.zxid, stage.schedule.now_ms)
        return self.manager.force_priority(owner, priority, reason="urgent", user="operator")

    def withdraws(self, asked: Asked) -> None:
        self._stage.checks.claims.withdraws(process_of(asked.pending))
        asked.pending.withdraw()


class Stage:
    """The clients and the store of a script."""

    def __init__(self) -> None:
        dice = Dice(0)
        self.schedule = Schedule(dice, 0.0, 0.0, lambda: None)
        self.checks = Checks(lambda number: self.network.clients[number], self.schedule.progress)
        self.zookeeper = ZooKeeper(2, lambda: self.schedule.now_ms, self.checks.observe)
        self.network = Network(self.zookeeper, self.schedule, dice)

    def process(self, name: str, *, patience_s: float = 30.0, passing_s: float = 3600.0, server: int = 0) -> Process:
        """:param server: 0 for one that is up to date, 1 for one that lags behind."""
        return Process(self, Actor(self.network, name, server), patience_s, passing_s)

    def upgrade(self) -> None:
        """A process of a later version connects, and raises the lowest reader."""
        session = Actor(self.network, "later")
        self.checks.formats.later.add(session)
        StoreFormat(session, f"{ROOT}/format", LATER).read()

    def hive(self, name: str = "hive") -> HiveClient:
        assert name.startswith("hive")
        return HiveClient(Actor(self.network, name), self.schedule, self.checks)

    def meanwhile(self, name: str, run: Callable[[], object]) -> None:
        """Let another client do something while the script waits."""

        def act() -> None:
            run()

        self.schedule.spawn(name, act)

    def begins(self, pending: PendingLease, *, deferred: DeferredGrant | None = None) -> None:
        """Have the checks know of it."""
        self.checks.claims.begins(process_of(pending), self.zookeeper.zxid, self.schedule.now_ms, deferred=deferred)

    def key(self, owner: str) -> str:
        return owner_key(owner)

    def clock(self) -> float:
        return self.schedule.now_ms / 1000 + AHEAD_S

    def state(self, owner: str) -> State:
        """The contents of the owner's record."""
        return self.checks.states[owner_key(owner)]

    def intact(self, owner: str) -> bool:
        """Whether the owner holds, and all of its lock nodes are there."""
        state = self.state(owner)
        return state.state == "granted" and len(self.checks.nodes[owner_key(owner)]) == len(state.modes)


def play(script: Script) -> None:
    """Play *script* on a stage of its own; whatever it, or a check, finds wrong is raised."""
    stage = Stage()
    with mock.patch.object(acquisition, "uuid", Names()), mock.patch.object(marking, "FEW", 0):
        stage.schedule.spawn("script", lambda: script(stage))
        stage.schedule.run()


def step_by_step(script: Script) -> Script:
    """In *script* nothing is granted at once."""

    @wraps(script)
    def played(stage: Stage) -> None:
        with mock.patch.object(ZooKeeperAcquisition, "_at_once", side_effect=NotAtOnce):
            script(stage)

    return played


def writes(owner: str, state: str = "") -> Callable[[Request], bool]:
    """Whether a request writes the owner's record, to say *state*."""
    path = f"{ROOT}/requests/{owner_key(owner)}"

    def due(request: Request) -> bool:
        return isinstance(request, Commit) and any(
            isinstance(op, SetData) and op.path == path and f'"state":"{state}'.encode() in op.data
            for op in request.ops
        )

    return due


def verifies(path: str) -> Callable[[Request], bool]:
    """Whether a request reads the object at *path* for a verification. Other looks read only the names."""
    return lambda request: type(request) is Children and request.path == path


def reads(owner: str) -> Callable[[Request], bool]:
    """Whether a request reads the owner's record."""
    path = f"{ROOT}/requests/{owner_key(owner)}"
    return lambda request: isinstance(request, Get) and request.path == path
