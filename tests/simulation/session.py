"""A client's session with the modelled ZooKeeper: the backend's own interface to it, with every possible fault."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kazoo.protocol.states import KazooState

from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create, Sync
from airflow_hivelock.locks.errors import AccessDenied, RequestTooLarge, StoreUnavailable
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
    :param lose_rare: how likely the first one of its kind does; the next ones less and less.
    :param refuse: how likely a grant at once is refused before it is sent, or for its ACL.
    :param switch: how likely others go on between a reply and what is made of it.
    :param clients: who had which session.
    """

    zookeeper: ZooKeeper
    schedule: Schedule
    dice: Dice
    lose: float = 0.0
    lose_rare: float = 0.0
    switch: float = 0.0
    refuse: float = 0.0
    kinds: Counter[object] = field(default_factory=Counter)
    clients: dict[int, SimulatedSession] = field(default_factory=dict)

    def refuses(self, request: Request) -> bool:
        """Whether *request* is more than may be asked of the store: a grant at once says more, and of more nodes."""
        if not self.refuse or not isinstance(request, Commit):
            return False
        return any("/unchanged-" in op.path for op in request.ops) and self.dice.chance(self.refuse)

    def loses(self, request: Request) -> bool:
        """Whether the reply to *request* is lost."""
        lose = self.lose
        if self.lose_rare and isinstance(request, Commit):
            kind = frozenset([(type(op), *op[2:]) if isinstance(op, Create) else type(op) for op in request.ops])
            self.kinds[kind] += 1
            lose = max(lose, self.lose_rare / (1 + self.kinds[kind]))
        return bool(lose) and self.dice.chance(lose)


class SimulatedSession:
    """:class:`~airflow_hivelock.locks.backends.zookeeper.client.Client` over the model.

    :param name: the client, for the trace.
    :param steady: it has no faults while its process lives.

    A real session may use it (:mod:`.wire`): it listens, and handles losses itself.
    """

    def __init__(self, network: Network, name: str, *, steady: bool = False) -> None:
        self.name = name
        self.steady = steady
        self.dead = False
        self._session = 0
        self._network = network
        self._zookeeper = network.zookeeper
        self._schedule = network.schedule
        self._dice = network.dice
        self._zxid = 0
        self._synced = 0
        self._connection = 0
        self._in_flight: list[Commit] = []
        self._lapsed: list[Callable[[], None]] = []
        self.listeners: list[Callable[[str], None]] = []
        self._connect()

    @property
    def session(self) -> int:
        return self._session

    @property
    def connection(self) -> int:
        return self._session

    @property
    def zxid(self) -> int:
        return self._zxid

    def close(self) -> None:
        self.dead = True
        if self._zookeeper.lives(self._session):
            self._zookeeper.expire(self._session)

    def submit(self, *requests: Request) -> list[Any]:
        if self.dead:
            raise Killed
        if not requests:
            return []
        self._turn(requests[0])
        if not self._schedule.quiet and self._network.refuses(requests[0]):
            raise self._dice.pick((RequestTooLarge, AccessDenied))("simulated: no such transaction from you")
        if not self._zookeeper.lives(self._session):
            self._notice_expiry()
            if self.listeners or self._dice.chance(0.5):
                raise StoreUnavailable("simulated: session expired; nothing was sent")
        connection = self._connection
        if self._session != self._synced and not self.listeners:
            self._serve(Sync(), requests)
            self._turn(requests[0])
        replies: list[Any] = []
        for number, request in enumerate(requests):
            if number:
                self._turn(request)
            if connection != self._connection or not self._zookeeper.lives(self._session):
                raise StoreUnavailable("simulated: connection lost; the outcome is unknown")
            replies.append(self._serve(request, requests[number:]))
        self._synced = self._session
        if self._dice.chance(self._network.switch):
            self._schedule.turn("has its replies")  # other threads of its process come before it makes use of them
            if self.dead:
                raise Killed
        return replies

    def _turn(self, request: Request) -> None:
        self._schedule.turn(request)
        if self.dead:
            raise Killed

    def _serve(self, request: Request, rest: Sequence[Request]) -> Any:
        if self._in_flight:
            self._settle()
        if not (self.steady or self._schedule.quiet) and self._network.loses(request):
            self._lose(rest)
            raise StoreUnavailable("simulated: reply lost; the outcome is unknown")
        reply = self._zookeeper.serve(self._session, request)
        self._zxid = self._zookeeper.seen(self._session)
        return reply

    # What happens to it

    def break_connection(self) -> None:
        """The client connects again, to another server perhaps; its watches fire, as kazoo's do."""
        if self._zookeeper.lives(self._session):
            self._note("connection lost")
            self._connection += 1
            self._tell(KazooState.SUSPENDED, KazooState.CONNECTED)
            for wake in self._zookeeper.reconnect(self._session, self._follower(), self._zxid):
                wake()

    def expire(self) -> None:
        """The servers end the session; its client learns later."""
        if self._zookeeper.lives(self._session):
            self._note("session expired")
            self._in_flight.clear()
            expired = self._session
            self._lapsed = self._zookeeper.expire(expired)

            def notice() -> None:
                if self._session == expired and not self.dead:
                    self._notice_expiry()

            self._schedule.at(1 + 30 * self._dice.below(8), notice)

    def die(self) -> None:
        """Its process ends without a word; the session expires in time."""
        self._note("process dies")
        self.dead = True
        self._schedule.at(self._dice.below(EXPIRY_MS), self.expire)

    def in_flight(self, request: object) -> None:
        """The process dies while *request* is under way: it may still arrive."""
        if isinstance(request, Commit) and self._dice.chance(0.5):
            self._send_late(request)

    def _notice_expiry(self) -> None:
        self._connect()
        self._tell(KazooState.SUSPENDED, KazooState.LOST, KazooState.CONNECTED)
        for wake in self._lapsed:
            wake()

    def _tell(self, *states: str) -> None:
        for state in states:
            for listener in self.listeners:
                listener(state)

    def _connect(self) -> None:
        self._connection += 1
        self._zxid = 0
        self._session = self._zookeeper.connect(self._follower())
        self._network.clients[self._session] = self
        self._note(f"session {self._session}")

    def _follower(self) -> int:
        return self._dice.below(len(self._zookeeper.followers))

    def _lose(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if isinstance(request, Commit):
                match self._dice.pick(("dropped", "applied", "late")):
                    case "applied":
                        self._zookeeper.serve(self._session, request)
                    case "late":
                        self._send_late(request)
                        break
                    case _:
                        break
        self.break_connection()

    def _send_late(self, request: Commit) -> None:
        if not self._zookeeper.lives(self._session):
            return  # the servers take nothing from a session that has ended
        self._note("a request is under way")
        self._in_flight.append(request)
        self._schedule.at(1 << self._dice.below(9), self._deliver)

    def _settle(self) -> None:
        """Requests on the way arrive before the session's next request, or never."""
        if self._dice.chance(0.5):
            self._deliver()
        self._in_flight.clear()

    def _deliver(self) -> None:
        for request in self._in_flight:
            self._note(request)
            self._zookeeper.serve(self._session, request)
        self._in_flight.clear()

    def _note(self, what: object) -> None:
        self._schedule.note(self.name, what)
