"""Who cleans up: frees by force what the dead hold, and sees to it that the run ends with nothing left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.backends.zookeeper.client import Commit, Delete, Exists
from tests.simulation.checks import Violation
from tests.simulation.workload import Worker

if TYPE_CHECKING:
    from tests.simulation.world import World

ROUND_S = 1.0
IDLE_ROUNDS = 60
LAST_ROUNDS = 20


class Operator:
    """A person with two sessions: one as ours, one as Hive's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._forces = world.dice.chance(0.3)
        self._worker = Worker(world.connect("operator"), world)
        self._hive = world.connect("hive-operator")
        world.spawn(self._worker.session, "", self._run)

    def _run(self) -> None:
        schedule, checks = self._world.schedule, self._world.checks
        idle = 0
        while any(not (task.ended or task is schedule.current) for task in schedule.tasks):
            before = schedule.steps
            schedule.sleep(ROUND_S)
            idle = idle + 1 if schedule.steps == before + 1 else 0
            if idle > IDLE_ROUNDS:
                raise Violation(f"nobody goes on: {schedule.standing()}")
            if self._forces and checks.holding and self._world.dice.chance(0.1):
                self._force(self._world.dice.pick(list(checks.holding.values())).id)
            self._clean(idle > 2)
        schedule.quiet = True
        for _ in range(LAST_ROUNDS):
            schedule.sleep(ROUND_S)
            self._clean(True)
            if not checks.left():
                break

    def _clean(self, idle: bool) -> None:
        checks, workload = self._world.checks, self._world.workload
        for key, state in list(checks.states.items()):
            if state.holds and not workload.works_for(key):
                self._force(f"{key}-{state.ticket_epoch}")
            elif state.queued and idle and not workload.works_for(key):
                self._worker.insist(lambda key=key: self._sweep(key))  # type: ignore[misc]
        if idle:
            self._world.settle()
            for path in list(checks.foreign):
                self._worker.insist(lambda path=path: self._hive.submit(Commit((Delete(path),))))  # type: ignore[misc]

    def _force(self, lease_id: str) -> None:
        self._world.checks.forces(lease_id)
        manager = self._worker.manager
        self._worker.insist(lambda: manager.force_release(lease_id, reason="its owner is dead", user="operator"))

    def _sweep(self, key: str) -> None:
        """What the sweeper does: the record first, then the sign of life, then break on that version."""
        backend = self._worker.manager.backend
        record = backend._read(key, fresh=True)
        if record.queued and backend.client.submit(Exists(backend.layout.alive(key)))[0] is None:
            backend.break_dead(key, record)
