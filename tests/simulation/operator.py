"""Who cleans up: frees by force what the dead hold, sweeps, and sees to it that the run ends with nothing left."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_hivelock.locks.backends.zookeeper.client import Commit, Delete
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.backends.zookeeper.start import HISTORY_S, sweeping
from airflow_hivelock.locks.errors import InvalidRequest, UpgradeNeeded
from tests.simulation.dice import Dice
from tests.simulation.schedule import Stuck
from tests.simulation.state import ROOT
from tests.simulation.themes import Draw
from tests.simulation.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.manager import LockManager
    from tests.simulation.world import World

LAYOUT = Layout()
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
        self._chances = Dice(world.seed + (1 << 42))  # separate, so that the rest of a seed's run stays the same
        self._withdraws = Draw(self._chances, world.draw.theme)("withdraws", 0.0, 0.0, 0.0, 0.2)
        self._limits = Dice(world.seed + (1 << 44))
        self._sets_limits = Draw(self._limits, world.draw.theme)("sets_limits", 0.0, 0.0, 0.3)
        self._moods = Dice(world.seed + (1 << 43))
        self._changes = Draw(self._moods, world.draw.theme)("changes", 0.0, 0.0, 0.0, 0.3)
        self._blocked_ms: dict[tuple[str, int], int] = {}
        self._worker = Worker(world.connect("operator"), world, passing_s=world.passing_s)
        self._hive = world.connect("hive-operator", steady=True)
        self._upgraded = False
        world.spawn(self._worker.session, "", self._run)

    def _run(self) -> None:
        world, schedule, claims = self._world, self._world.schedule, self._world.checks.claims
        while any(not (task.ended or task is schedule.current) for task in schedule.tasks):
            earlier = world.zookeeper.zxid
            schedule.sleep(self._round_s)
            for follower in world.zookeeper.followers:  # none lags behind for longer than a round
                world.zookeeper.catch_up(follower, earlier)
            if world.upgrade and not self._upgraded and world.upgrades.chance(world.upgrade):
                self._upgraded = True
                world.workload.upgrade()
            if claims.held and world.dice.chance(self._forces):
                self._force(world.dice.pick(list(claims.held.values())).id)
            if self._withdraws:
                self._withdraw()
            if self._sets_limits and self._limits.chance(self._sets_limits):
                self._set_limit()
            if self._changes:
                self._change()
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
            self._insist(lambda manager: manager.sweep())

    def _insist(self, act: Callable[[LockManager], object]) -> None:
        """Do it, and upgrade if that is refused."""
        try:
            self._worker.insist(lambda: act(self._worker.manager))
        except UpgradeNeeded as error:
            self._world.too_old(self._worker.session, error)
            later = self._world.connect("operator-later", steady=True, later=True)
            self._worker = Worker(later, self._world, passing_s=self._world.passing_s)
            self._insist(act)

    def _forget(self) -> None:
        """A week passes for owners without a process that works or has worked since then: a sweep removes their rest."""
        world, schedule = self._world, self._world.schedule
        for key in list(world.checks.states):
            path = f"{ROOT}/requests/{key}"
            node, state = world.zookeeper.tree.get(path), world.checks.states.get(key)  # by now, for others go on
            if node is None or state is None or state.waits or state.holds or state.away or state.invited:
                continue
            stat = node.stat
            if schedule.now_ms - max(stat.mtime_ms, world.workload.worked_ms(key)) < OVER_MS:
                continue
            others = [task for task in schedule.tasks if not task.ended and task is not schedule.current]
            if all(task.busy_since_ms is None or task.busy_since_ms > stat.mtime_ms for task in others):
                self._hive.submit(sweeping(LAYOUT, key, stat.version))

    def _check_turns(self) -> None:
        """A request without a blocker is granted soon."""
        now_ms = self._world.schedule.now_ms
        free = self._world.checks.free()
        self._blocked_ms = {ticket: self._blocked_ms.get(ticket, now_ms) for ticket in free}
        for ticket, since_ms in self._blocked_ms.items():
            if now_ms - since_ms > BLOCKED_MS:
                raise Stuck(f"nobody is in the way of {free[ticket]}, and it is not granted")

    def _look(self) -> None:
        self._insist(lambda manager: (manager.show(), manager.waiters(), manager.history()))

    def _withdraw(self) -> None:
        """Withdraw a request that waits, now and then."""
        waiting = [state.owner for state in self._world.checks.states.values() if state.waits]
        if waiting and self._chances.chance(self._withdraws):
            owner = self._chances.pick(waiting)
            self._world.checks.claims.withdraws_by_force(owner)
            self._insist(lambda manager: manager.force_withdraw(owner, reason="no longer wanted", user="operator"))

    def _set_limit(self) -> None:
        """Store another limit of a group, or delete it."""
        group, leases = self._limits.pick(self._world.workload.groups), self._limits.below(4)
        weight = 1 + (leases > 1 and self._limits.chance(0.3))
        if leases:
            self._insist(lambda manager: manager.set_group(group, leases, weight=weight, user="operator"))
        else:
            self._insist(lambda manager: manager.drop_group(group, user="operator"))

    def _change(self) -> None:
        """Change the priority of a request that waits, now and then."""
        waiting = [state.owner for state in self._world.checks.states.values() if state.queued]
        if not waiting or not self._moods.chance(self._changes):
            return
        owner, priority = self._moods.pick(waiting), self._moods.pick((0, 1, 5, 9))
        zxid, now_ms = self._world.zookeeper.zxid, self._world.schedule.now_ms
        self._world.checks.order.changes(owner, priority, zxid, now_ms)
        with suppress(InvalidRequest):  # it has that priority, or has waited for too long
            self._insist(lambda manager: manager.force_priority(owner, priority, reason="urgent", user="operator"))

    def _force(self, lease_id: str) -> None:
        self._world.checks.claims.forces(lease_id)
        self._insist(lambda manager: manager.force_release(lease_id, reason="its owner is dead", user="operator"))
