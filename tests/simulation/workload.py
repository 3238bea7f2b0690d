"""What our own processes do: acquire, hold, renew, hand over, release, give up; and die."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.layout import owner_key
from airflow_hivelock.locks.errors import LockLost, LockTimeout, StoreUnavailable, Superseded
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.model import Lease
from tests.simulation.schedule import Flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.manager import PendingLease
    from airflow_hivelock.locks.model import LockRequest
    from tests.simulation.schedule import Task
    from tests.simulation.session import SimulatedSession
    from tests.simulation.world import World

PARTITIONS = ("w.a/p=0", "w.b/p=0", "w.a/p=1", "w.b/p=1", "w.a/q=0/h=0", "w.a/q=0/h=1")
TABLES = ("w.a", "w.b")
NAP_S = 0.1


@dataclass
class Owner:
    """Who asks for the same locks again and again."""

    name: str
    request: LockRequest
    attempt: int = 0
    processes: int = 0

    @property
    def key(self) -> str:
        return owner_key(self.name)


@dataclass(eq=False)
class Worker:
    """A process of ours: one session, one backend, perhaps several threads."""

    session: SimulatedSession
    world: World
    _manager: LockManager | None = None

    @property
    def manager(self) -> LockManager:
        """Connected at the first use."""
        while self._manager is None:
            try:
                backend = ZooKeeperBackend(self.session)
                self._manager = LockManager(backend, lambda: self.world.schedule.now_ms / 1000)
            except StoreUnavailable:
                self.nap()
        return self._manager

    def nap(self) -> None:
        self.world.schedule.sleep(NAP_S * (1 + self.world.dice.below(4)))

    def insist(self, act: Callable[[], object]) -> None:
        """Repeat what the store did not answer."""
        while True:
            try:
                act()
            except StoreUnavailable:
                self.nap()
            else:
                return


class Workload:
    """Our side of one run, drawn from its dice."""

    def __init__(self, world: World) -> None:
        dice = world.dice
        self._world = world
        self._dice = dice
        self._counting = dice.chance(0.5)
        self._no_waits = dice.pick((0.0, 0.2, 0.6))
        self._gives_up = dice.pick((0.0, 0.1))
        self._rounds = 1 + dice.below(4)
        self._threads = 1 + dice.below(2)
        self._machines = 1 + dice.below(3)
        self._owners = [self._draw_owner(f"o{number}") for number in range(2 + dice.below(3))]
        self._workers: list[Worker] = []
        self._working: dict[Task, Owner] = {}

    def start(self) -> None:
        for _ in range(self._machines):
            self._start_worker(self._rounds)

    def replace(self, session: SimulatedSession) -> None:
        """After a crash: another process goes on, with a little of the work."""
        if any(worker.session is session for worker in self._workers):
            self._start_worker(1)

    def works_for(self, key: str) -> bool:
        """Whether some living process acts for that owner."""
        return any(not task.ended and owner.key == key for task, owner in self._working.items())

    def _draw_owner(self, name: str) -> Owner:
        dice = self._dice
        targets = [dice.pick(PARTITIONS) for _ in range(1 + dice.below(3))]
        if dice.chance(0.1):
            targets.append(dice.pick(TABLES))
        if dice.chance(0.03):
            targets = ["w"]
        writes = [target for target in targets if not dice.chance(0.4)]
        reads = [target for target in targets if target not in writes]
        return Owner(name, rules.request(name, reads, writes))

    def _start_worker(self, rounds: int) -> None:
        worker = Worker(self._world.connect(f"worker{len(self._workers) + 1}"), self._world)
        self._workers.append(worker)

        def run() -> None:
            for _ in range(rounds):
                owner = self._dice.pick(self._owners)
                task = self._world.schedule.current
                self._working[task] = owner
                self._use(worker, owner)
                del self._working[task]

        for number in range(self._threads):
            self._world.spawn(worker.session, f".{number}" if number else "", run)

    def _use(self, worker: Worker, owner: Owner) -> None:
        dice = self._dice
        if self._counting and dice.chance(0.4):
            owner.attempt += 1
        wait = not dice.chance(self._no_waits)
        timeout_s = dice.pick((None, None, 0.5, 5.0)) if wait else 0.0
        request = replace(owner.request, attempt=owner.attempt, wait=wait)
        owner.processes += 1
        self._note(f"begins for {owner.name}, attempt {owner.attempt}, timeout {timeout_s}")
        lease = self._acquire(worker, owner, request, timeout_s)
        if lease is not None:
            self._hold(worker, owner, lease)

    def _acquire(self, worker: Worker, owner: Owner, request: LockRequest, timeout_s: float | None) -> Lease | None:
        dice, flag = self._dice, Flag(self._world.schedule)
        pending = worker.manager.begin(request, flag.set, timeout_s)
        while True:
            flag.clear()
            give_up = dice.chance(self._gives_up)
            try:
                outcome = pending.poll()
                if isinstance(outcome, Lease):
                    return outcome
                self._note(f"is blocked: {', '.join(map(str, outcome.by))}")
            except LockTimeout as error:
                self._note(f"times out: {', '.join(map(str, error.blocked_by))}")
                self._withdrawn(owner, pending)
                return None
            except Superseded as error:
                self._note(f"is superseded: {error}")
                if owner.processes < 2:
                    raise AssertionError(f"superseded by nobody: {error}") from error
                return None
            except StoreUnavailable:
                if not give_up:
                    worker.nap()
                    continue
            if give_up:
                self._note("gives up")
                self._world.checks.withdraws(pending._acquisition._process)  # type: ignore[attr-defined]
                worker.insist(pending.withdraw)
                self._withdrawn(owner, pending)
                return None
            flag.wait(pending.wait_s())

    def _withdrawn(self, owner: Owner, pending: PendingLease) -> None:
        self._world.checks.withdrawn(owner.key, pending._acquisition._process)  # type: ignore[attr-defined]

    def _hold(self, worker: Worker, owner: Owner, lease: Lease) -> None:
        dice, checks, manager = self._dice, self._world.checks, worker.manager
        self._note(f"holds {lease.id} epoch {lease.epoch}")
        checks.granted(lease, owner.key)
        for _ in range(dice.below(3)):
            worker.nap()
            if dice.chance(0.5):
                try:
                    manager.renew(lease)
                except LockLost as error:
                    self._note(f"learns: {error}")
                    checks.lost(lease, owner.key)
                    break
                except StoreUnavailable:
                    continue
        if dice.chance(0.3):  # the lease went to another process, which releases it
            manager = dice.pick(self._workers).manager
        self._note(f"releases {lease.id} epoch {lease.epoch}")
        checks.releases(lease)
        worker.insist(lambda: manager.release(lease))
        self._note(f"has released {lease.id} epoch {lease.epoch}")
        checks.released(lease, owner.key)

    def _note(self, what: str) -> None:
        self._world.schedule.note(self._world.schedule.current.name, what)
