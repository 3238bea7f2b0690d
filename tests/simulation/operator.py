"""Who cleans up: frees by force what the dead hold, sweeps, and sees to it that the run ends with nothing left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.backends.zookeeper.client import Check, Commit, Delete
from airflow_hivelock.locks.backends.zookeeper.store import HISTORY_S
from tests.simulation.schedule import Stuck
from tests.simulation.state import ROOT
from tests.simulation.worker import Worker

if TYPE_CHECKING:
    from tests.simulation.world import World

ROUND_S = 1.0
OVER_MS = 600
"""After so long nothing is under way any more of what a process has sent."""

BLOCKED_MS = 20_000
"""How long anybody may wait whom nobody keeps waiting."""


class Operator:
    """A person with two sessions: one as ours, one as Hive's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._forces = world.draw("forces", 0.0, 0.0, 0.1)
        self._round_s = world.draw("round_s", ROUND_S, ROUND_S / 4)
        self._forgets = world.draw("forgets", 0.0, 0.0, 0.5)
        self._blocked_ms: dict[tuple[str, int], int] = {}
        self._worker = Worker(world.connect("operator"), world)
        self._hive = world.connect("hive-operator", steady=True)
        world.spawn(self._worker.session, "", self._run)

    def _run(self) -> None:
        world, schedule, claims = self._world, self._world.schedule, self._world.checks.claims
        while any(not (task.ended or task is schedule.current) for task in schedule.tasks):
            earlier = world.zookeeper.zxid
            schedule.sleep(self._round_s)
            for follower in world.zookeeper.followers:  # none lags behind for longer than a round
                world.zookeeper.catch_up(follower, earlier)
            if claims.held and world.dice.chance(self._forces):
                self._force(world.dice.pick(list(claims.held.values())).id)
            self._clean()
            if world.dice.chance(self._forgets):
                self._forget()
            if world.dice.chance(0.2):
                self._look()
            self._check_turns()
        schedule.quiet = True
        for _ in range(3):  # frees and breaks; removes what that left; finds nothing more
            schedule.sleep(HISTORY_S + ROUND_S)
            self._clean()

    def _clean(self) -> None:
        world, schedule = self._world, self._world.schedule
        checks, workload = world.checks, world.workload
        for key, state in list(checks.states.items()):
            if state.holds and not workload.works_for(key):
                self._force(f"{key}-{state.ticket_epoch}")
        for path, placed in list(checks.foreign.items()):
            if placed.by.dead:
                self._hive.submit(Commit((Delete(path),)))
        if (
            schedule.quiet
            or world.dice.chance(0.3)
            or any(state.waits and not workload.works_for(key) for key, state in checks.states.items())
        ):
            self._worker.insist(lambda: self._worker.manager.sweep())

    def _forget(self) -> None:
        """A week passes for owners that nobody works for, nor has been busy with since then: a sweep takes what is left."""
        world, schedule = self._world, self._world.schedule
        for key in list(world.checks.states):
            path = f"{ROOT}/requests/{key}"
            node, state = world.zookeeper.tree.get(path), world.checks.states.get(key)  # by now, for others go on
            if node is None or state is None or state.waits or state.holds or state.aside:
                continue
            stat = node.stat
            if schedule.now_ms - max(stat.mtime_ms, world.workload.worked_ms(key)) < OVER_MS:
                continue
            others = [task for task in schedule.tasks if not task.ended and task is not schedule.current]
            if all(task.busy_since_ms is None or task.busy_since_ms > stat.mtime_ms for task in others):
                self._hive.submit(Commit((Check(path, stat.version), Delete(path))))

    def _check_turns(self) -> None:
        """Whoever waits for nobody is granted soon."""
        now_ms = self._world.schedule.now_ms
        free = self._world.checks.free()
        self._blocked_ms = {ticket: self._blocked_ms.get(ticket, now_ms) for ticket in free}
        for ticket, since_ms in self._blocked_ms.items():
            if now_ms - since_ms > BLOCKED_MS:
                raise Stuck(f"nobody is in the way of {free[ticket]}, and it is not granted")

    def _look(self) -> None:
        manager = self._worker.manager
        self._worker.insist(lambda: (manager.show(), manager.waiters(), manager.history()))

    def _force(self, lease_id: str) -> None:
        self._world.checks.claims.forces(lease_id)
        manager = self._worker.manager
        self._worker.insist(lambda: manager.force_release(lease_id, reason="its owner is dead", user="operator"))
