"""A line of waiters for one partition, all on one session, and the lock that is handed down it."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError

from airflow_hivelock.locks import Lease, rules
from tests.support.patience import until

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.pending import PendingLease
    from tests.support.servers import ZooKeeperServer

PARTITION = "dw.delays/dt=2013-01-01"
PATIENCE_S = 120.0
QUIET_S = 0.05


class Relay(Protocol):
    """A holder, and as many waiters as it was made with. Each :meth:`hand_over` is followed by one :meth:`join`."""

    @property
    def name(self) -> str: ...

    def hand_over(self) -> float:
        """Release, and wait until the next in line holds; how long that took, in milliseconds."""
        ...

    def join(self) -> None:
        """One more at the end of the line."""
        ...

    def close(self) -> None: ...


class OurRelay:
    """This package's manager, driven as the triggerer drives it: one loop polls the woken requests.

    ``wakes`` counts the watch events.
    """

    name = "airflow_hivelock"

    def __init__(self, manager: LockManager, waiters: int) -> None:
        self.wakes = 0
        self._manager = manager
        self._woken: SimpleQueue[str] = SimpleQueue()
        self._waiting: dict[str, PendingLease] = {}
        self._owners = (f"waiter-{number}" for number in itertools.count())
        self._holder = manager.acquire(owner="holder", writes=[PARTITION])
        for _ in range(waiters):
            self._line_up()

    def hand_over(self) -> float:
        begun = time.perf_counter()
        self._manager.release(self._holder)
        while (granted := self._poll(self._woken.get(timeout=PATIENCE_S))) is None:
            pass
        self._holder = granted
        return (time.perf_counter() - begun) * 1e3

    def join(self) -> None:
        self._settle()
        self._line_up()

    def close(self) -> None:
        """The line ends with its session."""
        self._manager.close()

    def _line_up(self) -> None:
        owner = next(self._owners)

        def wake() -> None:
            self.wakes += 1  # only kazoo's one thread calls this
            self._woken.put(owner)

        self._waiting[owner] = self._manager.begin(rules.request(owner, writes=[PARTITION]), wake)
        if self._poll(owner):
            raise RuntimeError(f"{owner} was granted what another holds")

    def _settle(self) -> None:
        """Wait until everything that a hand-over has started has ended."""
        while True:
            try:
                owner = self._woken.get(timeout=QUIET_S)
            except Empty:
                return
            if self._poll(owner):
                raise RuntimeError(f"{owner} was granted what another holds")

    def _poll(self, owner: str) -> Lease | None:
        pending = self._waiting.get(owner)
        outcome = pending.poll() if pending else None
        if not isinstance(outcome, Lease):
            return None
        del self._waiting[owner]
        return outcome


class RecipeRelay:
    """kazoo's Lock, which wants a thread a waiter."""

    name = "kazoo's Lock"
    _path = "/relay"

    def __init__(self, zookeeper: ZooKeeperServer, waiters: int) -> None:
        self._zk = KazooClient(zookeeper.hosts)
        self._zk.start(PATIENCE_S)
        self._locks: deque[Any] = deque()
        self._threads: list[threading.Thread] = []
        self._granted: SimpleQueue[None] = SimpleQueue()
        for _ in range(waiters + 1):
            self.join()
        self._granted.get(timeout=PATIENCE_S)

    def hand_over(self) -> float:
        begun = time.perf_counter()
        self._locks.popleft().release()
        self._granted.get(timeout=PATIENCE_S)
        return (time.perf_counter() - begun) * 1e3

    def join(self) -> None:
        lock = self._zk.Lock(self._path)
        self._locks.append(lock)
        thread = threading.Thread(target=self._wait, args=(lock,), daemon=True)
        self._threads.append(thread)
        thread.start()
        until(lambda: lock.node is not None, "kazoo's Lock to make its node", PATIENCE_S, 0.001)

    def close(self) -> None:
        for lock in self._locks:
            lock.cancel()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._zk.stop()
        self._zk.close()

    def _wait(self, lock: Any) -> None:
        try:
            lock.acquire()
        except CancelledError:
            return
        self._granted.put(None)
