"""A client's session with the modelled ZooKeeper: the backend's own seam to it, with all that can go wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backends.zookeeper.client import Commit
from airflow_hivelock.locks.errors import StoreUnavailable
from tests.simulation.schedule import Killed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Request
    from tests.simulation.dice import Dice
    from tests.simulation.model import ZooKeeper
    from tests.simulation.schedule import Schedule

EXPIRY_MS = 400


@dataclass
class Network:
    """What all sessions share, and how badly it behaves.

    :param lose: how likely a request's connection breaks before its reply is here.
    :param forgetful: whether a new session may read what is older than what the expired one has read.
    """

    zookeeper: ZooKeeper
    schedule: Schedule
    dice: Dice
    lose: float = 0.0
    forgetful: bool = True


class SimulatedSession:
    """:class:`~airflow_hivelock.locks.backends.zookeeper.client.Client` over the model.

    :param name: whose; for the trace.
    """

    def __init__(self, network: Network, name: str) -> None:
        self.name = name
        self.robber = False
        self.past: list[int] = []
        self._network = network
        self._dead = False
        self._zxid = 0
        self._connection = 0
        self._in_flight: list[Commit] = []
        self._lapsed: list[Callable[[], None]] = []
        self._connect()

    @property
    def session(self) -> int:
        return self.past[-1]

    @property
    def zxid(self) -> int:
        return self._zxid

    def close(self) -> None:
        self._dead = True
        if self._network.zookeeper.lives(self.session):
            self._network.zookeeper.expire(self.session)

    def submit(self, *requests: Request) -> list[Any]:
        if self._dead:
            raise Killed
        replies: list[Any] = []
        connection = self._connection
        for number, request in enumerate(requests):
            self._network.schedule.turn(request)
            if self._dead:
                raise Killed
            if not self._network.zookeeper.lives(self.session):
                self._notice_expiry()
                if self._network.dice.chance(0.5):
                    raise StoreUnavailable("simulated: session expired; nothing was sent")
            if number == 0:
                connection = self._connection
            elif connection != self._connection:
                raise StoreUnavailable("simulated: connection lost; the outcome is unknown")
            self._settle()
            if not self._network.schedule.quiet and self._network.dice.chance(self._network.lose):
                self._lose(requests[number:])
                raise StoreUnavailable("simulated: reply lost; the outcome is unknown")
            replies.append(self._network.zookeeper.serve(self.session, request))
            self._zxid = self._network.zookeeper.seen(self.session)
        return replies

    # What happens to it

    def break_connection(self) -> None:
        """The client connects again, to another server perhaps; its watches fire, as kazoo's do."""
        network = self._network
        if network.zookeeper.lives(self.session):
            self._note("connection lost")
            self._connection += 1
            for wake in network.zookeeper.reconnect(self.session, self._follower(), self._zxid):
                wake()

    def expire(self) -> None:
        """The servers end the session; its client learns later."""
        network = self._network
        if network.zookeeper.lives(self.session):
            self._note("session expired")
            self._in_flight.clear()
            expired = self.session
            self._lapsed = network.zookeeper.expire(expired)

            def notice() -> None:
                if self.session == expired and not self._dead:
                    self._notice_expiry()

            network.schedule.at(1 + 30 * network.dice.below(8), notice)

    def die(self) -> None:
        """Its process ends without a word; the session expires in time."""
        self._note("process dies")
        self._dead = True
        self._network.schedule.at(self._network.dice.below(EXPIRY_MS), self.expire)

    def in_flight(self, request: object) -> None:
        """The process dies while *request* is under way: it may still arrive."""
        if isinstance(request, Commit) and self._network.dice.chance(0.5):
            self._send_late(request)

    def _notice_expiry(self) -> None:
        seen = self._zxid
        self._connect()
        for wake in self._lapsed:
            wake()
        if not self._network.forgetful:
            follower = self._network.zookeeper.follower_of(self.session)
            self._network.zookeeper.catch_up(follower, seen)

    def _connect(self) -> None:
        self._connection += 1
        self._zxid = 0
        self.past.append(self._network.zookeeper.connect(self._follower()))
        self._note(f"session {self.session}")

    def _follower(self) -> int:
        return self._network.dice.below(len(self._network.zookeeper.followers))

    def _lose(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if isinstance(request, Commit):
                match self._network.dice.pick(("dropped", "applied", "late")):
                    case "applied":
                        self._network.zookeeper.serve(self.session, request)
                    case "late":
                        self._send_late(request)
                        break
                    case _:
                        break
        self.break_connection()

    def _send_late(self, request: Commit) -> None:
        self._note("a request is under way")
        self._in_flight.append(request)
        self._network.schedule.at(1 << self._network.dice.below(9), self._deliver)

    def _settle(self) -> None:
        """What is under way arrives before the session's next request, or never."""
        if self._in_flight and self._network.dice.chance(0.5):
            self._deliver()
        self._in_flight.clear()

    def _deliver(self) -> None:
        for request in self._in_flight:
            self._note(request)
            self._network.zookeeper.serve(self.session, request)
        self._in_flight.clear()

    def _note(self, what: object) -> None:
        self._network.schedule.note(self.name, what)
