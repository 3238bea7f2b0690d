"""What our side does in one run: owners, and processes that work for them; several for one, at times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.model import DeferredGrant, LeaseLimit, owner_key
from tests.simulation.dice import Dice
from tests.simulation.state import path_of
from tests.simulation.themes import Draw
from tests.simulation.worker import Job, Worker

if TYPE_CHECKING:
    from airflow_hivelock.locks.model import Lock, LockMode, LockObject, LockRequest
    from tests.simulation.schedule import Task
    from tests.simulation.session import SimulatedSession
    from tests.simulation.world import World

PARTITIONS = ("w.a/p=0", "w.b/p=0", "w.a/p=1", "w.b/p=1", "w.a/q=0/h=0", "w.a/q=0-1/h=0", "w.a/q=0")
TABLES = ("w.a", "w.b")
DATABASE = "w"
PRIORITIES = (1, 0, 2, 0)


@dataclass
class Owner:
    """Who asks for the same locks again and again, or for others than before."""

    name: str
    requests: tuple[LockRequest, ...]
    attempt: int = 0
    processes: int = 0
    left: tuple[Lock, ...] = ()
    """The rest of its lease, after the last partial release."""

    @property
    def key(self) -> str:
        return owner_key(self.name)


class Workload:
    """Our side of one run, drawn from its dice."""

    def __init__(self, world: World) -> None:
        dice, draw = world.dice, world.draw
        self._world = world
        self._dice = dice
        self._counting = draw("counting", 0.0, 0.4)
        self._no_waits = draw("no_waits", 0.0, 0.2, 0.6)
        self._gives_up = draw("gives_up", 0.0, 0.1)
        self._changes = draw("changes", 0.0, 0.1)
        self._urgent = draw("urgent", 0.0, 0.2, 0.7)
        self._lates = draw("lates", 0.0, 0.0, 0.2, 0.7)
        self._limits = draw("limits", 0.0, 0.0, 0.3, 1.0)
        self._groups = ("g", "h")[: draw("groups", 1, 2)]
        self._most = draw("most", 1, 2, 3)
        self._unequal = draw("unequal", 0.0, 0.0, 0.5)
        self._reads = draw("reads", 0.3, 0.9)
        self._databases = draw("databases", 0.03, 0.03, 0.4)
        self._naps = draw("naps", 3, 10)
        self._rests_s = draw("rests_s", 0.0, 0.0, 3.0)
        self._partitions = PARTITIONS[: draw("partitions", 1, 2, len(PARTITIONS))]
        self._rounds = draw("rounds", 2, 6, 25)
        self._threads = draw("threads", 1, 1, 2, 2, 4)
        self._machines = draw("machines", 1, 2, 3)
        self._patience_s = draw("patience_s", 86_400.0, 30.0, 0.0, 0.0, 0.5, 0.5)
        self._timeouts_s: tuple[float | None, ...] = draw("timeouts_s", (None, None, 0.5, 5.0))
        self.parts = Dice(world.seed + (1 << 40))  # separate, so that the rest of a seed's run stays the same
        self._gives_back = Draw(self.parts, draw.theme)("gives_back", 0.0, 0.0, 0.5)
        self.slots = Dice(world.seed + (1 << 41))
        self._invitations_s = Draw(self.slots, draw.theme)("invitations_s", (0.0,), (0.0, 0.5), (0.2, 2.0), (10.0,))
        self._weights = Dice(world.seed + (1 << 45))
        self._heavy = Draw(self._weights, draw.theme)("heavy", 0.0, 0.0, 0.4)
        self._abandoning = Dice(world.seed + (1 << 46))
        self._abandons = Draw(self._abandoning, draw.theme)("abandons", 0.0, 0.0, 0.5)
        self._owners = [self._draw_owner(f"o{number}") for number in range(draw("owners", 2, 3, 4))]
        self.workers: list[Worker] = []
        self._working: dict[Task, Owner] = {}
        self._worked_ms: dict[str, int] = {}

    @property
    def objects(self) -> list[str]:
        """All that there is in this run, as paths below Hive's namespace."""
        return [path_of(name) for name in (*self._partitions, *TABLES, DATABASE)]

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of leases that requests name."""
        return self._groups

    @property
    def rounds(self) -> int:
        """How often each thread asks for locks."""
        return self._rounds

    @property
    def over(self) -> bool:
        """Whether all of our processes are done."""
        return all(task.ended for worker in self.workers for task in self._world.tasks_of[worker.session])

    def start(self) -> None:
        for _ in range(self._machines):
            self._start_worker(self._rounds)

    def replace(self, session: SimulatedSession) -> None:
        """After a crash: another process goes on, with a little of the work."""
        if any(worker.session is session for worker in self.workers):
            self.workers = [worker for worker in self.workers if worker.session is not session]
            self._start_worker(1 + self._rounds // 4)

    def upgrade(self) -> None:
        """Each machine gets a process of the later version. The earlier ones stay."""
        for _ in range(self._machines):
            self._start_worker(1 + self._rounds // 2, later=True)

    def works_for(self, key: str) -> bool:
        """Whether some living process acts for that owner."""
        return any(owner.key == key for owner in self._working.values())

    def worked_ms(self, key: str) -> int:
        """Since when no process has acted for that owner; all its requests have arrived soon after."""
        return self._world.schedule.now_ms if self.works_for(key) else self._worked_ms.get(key, 0)

    def insists(self) -> bool:
        """Whether a caller that gives up repeats that until the store answers. Otherwise it tries once."""
        return not self._abandoning.chance(self._abandons)

    def may_have(self, owner: str, target: LockObject, mode: LockMode) -> bool:
        """Whether that owner ever asks for such a lock."""
        requests = [request for known in self._owners if known.name == owner for request in known.requests]
        return any((lock.object, lock.mode) == (target, mode) for request in requests for lock in request.locks)

    def _draw_owner(self, name: str) -> Owner:
        first, other = self._draw_request(name), self._draw_request(name)
        if self._dice.chance(0.2):  # the second was planned from the same, on another day
            first, other = replace(first, named="plan"), replace(other, named="plan")
        return Owner(name, (first, other))

    def _draw_request(self, name: str) -> LockRequest:
        dice = self._dice
        targets = [dice.pick(self._partitions) for _ in range(1 + dice.below(3))]
        if dice.chance(0.1):
            targets.append(dice.pick(TABLES))
        if dice.chance(self._databases):
            targets = [DATABASE]
        writes = [target for target in targets if not dice.chance(self._reads)]
        reads = [target for target in targets if target not in writes]
        limit = LeaseLimit(dice.pick(self._groups), self._most) if dice.chance(self._limits) else None
        return rules.request(name, reads, writes, limit=limit)

    def _start_worker(self, rounds: int, *, later: bool = False) -> None:
        session = self._world.connect(f"worker{1 + self._world.started}", later=later)
        worker = Worker(session, self._world, self._patience_s, self._world.passing_s)
        self.workers.append(worker)

        def run() -> None:
            task = self._world.schedule.current
            for _ in range(rounds):
                owner = self._dice.pick(self._owners)
                self._working[task] = owner
                task.turns = 0  # each job is a caller of its own
                try:
                    self._job(worker, owner).run()
                finally:
                    del self._working[task]
                    self._worked_ms[owner.key] = self._world.schedule.now_ms
                self._world.schedule.progress()
                if self._rests_s:
                    self._world.schedule.sleep(self._rests_s * self._dice.below(4) / 4)

        for thread in range(self._threads):
            self._world.spawn(worker.session, f".{thread}" if thread else "", run)

    def _job(self, worker: Worker, owner: Owner) -> Job:
        dice = self._dice
        owner.attempt += dice.chance(self._counting)
        owner.processes += 1
        wait = not dice.chance(self._no_waits)
        deferred = DeferredGrant(self.slots.pick(self._invitations_s)) if dice.chance(self._lates) else None
        priority = PRIORITIES[dice.chance(self._urgent) * dice.below(4)]
        asked = owner.requests[dice.chance(self._changes)]
        if owner.left and self.parts.chance(0.5):
            whole = asked.whole & {lock.object for lock in owner.left}
            asked = replace(asked, locks=owner.left, whole=whole)
        request = replace(asked, attempt=owner.attempt, wait=wait, deferred=deferred, priority=priority)
        if request.limit and dice.chance(self._unequal):
            request = replace(request, limit=replace(request.limit, most=1 + dice.below(3)))
        if request.limit and self._heavy and self._weights.chance(self._heavy):
            request = replace(request, limit=replace(request.limit, weight=1 + self._weights.below(3)))
        timeout_s = dice.pick(self._timeouts_s) if wait else 0.0
        return Job(worker, owner, request, timeout_s, self._gives_up, dice.below(self._naps), 0.8, self._gives_back)
