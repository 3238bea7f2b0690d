"""One of our processes, and one job in it: acquire, hold, renew, watch, hand over, release; or give up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_hivelock.locks import invitations
from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.acquisition import QUICKER
from airflow_hivelock.locks.errors import (
    InvalidRequest,
    LeaseMismatch,
    LockLost,
    LockTimeout,
    StoreUnavailable,
    Superseded,
    UpgradeNeeded,
    Withdrawn,
)
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.model import Lease, owner_key
from airflow_hivelock.locks.pending import PASSING_S
from tests.simulation.claims import Violation
from tests.simulation.schedule import Flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.model import LockRequest
    from airflow_hivelock.locks.pending import PendingLease
    from tests.simulation.session import SimulatedSession
    from tests.simulation.workload import Owner
    from tests.simulation.world import World

NAP_S = 0.1
AHEAD_S = 4_000.0
"""How far a process's own clock is ahead of the store's."""

SLOTS_S = (0.0, 0.1, 0.5, 3.0)
"""How long it takes until a deferred request has its worker slot."""

WORK = "job"


@dataclass(eq=False)
class Worker:
    """A process of ours: one session, one backend, perhaps several threads."""

    session: SimulatedSession
    world: World
    patience_s: float = 30.0
    passing_s: float = 3600.0
    _manager: LockManager | None = None

    @property
    def manager(self) -> LockManager:
        """Connected at the first use.

        :raises UpgradeNeeded: it is too old for the stamp.
        """
        while self._manager is None:
            try:
                client = self.world.client_of(self.session)
                backend = ZooKeeperBackend(
                    client,
                    patience_s=self.patience_s,
                    passing_s=self.passing_s,
                    clock=self._clock,
                    sleep=self.world.schedule.sleep,
                    later=self._later,
                )
                self._manager = LockManager(backend, self._clock)
            except StoreUnavailable:
                self.nap()
        return self._manager

    def manager_or(self, other: LockManager) -> LockManager:
        """Its manager, or *other* if it is too old to connect."""
        try:
            return self.manager
        except UpgradeNeeded as error:
            self.world.too_old(self.session, error)
            return other

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

    def _later(self, pause_s: float, act: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            self.world.schedule.sleep(pause_s)
            act()

        self.world.spawn(self.session, ".ends", run)
        return lambda: None

    def _clock(self) -> float:
        return self.world.schedule.now_ms / 1000 + AHEAD_S


class Job:
    """One use of locks by one process.

    :param gives_up: how likely it withdraws at a step.
    :param naps: how long it holds, renewing now and then.
    :param comes_back: how likely a deferred request asks again, once it could have had its locks.
    :param gives_back: how likely it gives back a part of what it holds between two naps.
    """

    def __init__(
        self,
        worker: Worker,
        owner: Owner,
        request: LockRequest,
        timeout_s: float | None,
        gives_up: float,
        naps: int,
        comes_back: float,
        gives_back: float,
    ) -> None:
        self._worker = worker
        self._owner = owner
        self._request = request
        self._timeout_s = timeout_s
        self._gives_up = gives_up
        self._naps = naps
        self._comes_back = comes_back
        self._gives_back = gives_back
        self._world = worker.world
        self._dice = worker.world.dice
        self._parts = worker.world.workload.parts
        self._claims = worker.world.checks.claims
        self._flag = Flag(worker.world.schedule)
        self._token = 0

    def run(self) -> None:
        owner, request = self._owner, self._request
        self._note(f"begins for {owner.name}: {request.locks}, attempt {request.attempt}, timeout {self._timeout_s}")
        lease = self._acquire()
        if isinstance(lease, NeedsSlot):
            self._note("could have had them")
            lease = self._come_back()
        if isinstance(lease, Lease):
            self._note(f"holds {lease.id} epoch {lease.epoch}")
            self._claims.granted(lease, owner.key)
            left = self._hold(lease)
            if left:
                self._release(self._parts.pick((lease, left)))

    def _come_back(self) -> Lease | NeedsSlot | None:
        """It asks again once it has a slot. One that was invited gives it back if another is in the way, and waits again."""
        deferred, slots, rounds = self._request.deferred, self._world.workload.slots, 0
        assert deferred is not None
        outcome: Lease | NeedsSlot | Blocked | None = NeedsSlot()
        while isinstance(outcome, NeedsSlot) and self._dice.chance(self._comes_back):
            if not deferred.invitation_s:
                self._worker.nap()
                self._request = replace(self._request, deferred=None)
                return self._waits()
            self._world.schedule.sleep(slots.pick(SLOTS_S))
            self._request = replace(self._request, deferred=replace(deferred, has_slot=True))
            own = self._worker
            if slots.chance(0.5):
                self._worker = slots.pick(
                    self._world.workload.workers
                )  # it does not wait there: nothing dies with this one
            outcome = self._acquire()
            self._worker = own
            if isinstance(outcome, Blocked):
                rounds += 1
                self._request = replace(self._request, deferred=invitations.of_round(rounds, deferred.invitation_s))
                outcome = self._waits()
        return outcome if isinstance(outcome, Lease) else None

    def _waits(self) -> Lease | NeedsSlot | None:
        outcome = self._acquire()
        assert not isinstance(outcome, Blocked)
        return outcome

    def _acquire(self) -> Lease | NeedsSlot | Blocked | None:
        worker, owner, request = self._worker, self._owner, self._request
        try:
            manager = worker.manager
        except UpgradeNeeded as error:
            self._world.too_old(worker.session, error)
            return None
        began = self._world.schedule.now_ms, self._world.zookeeper.zxid
        pending = self._begin(manager)
        while True:
            self._flag.clear()
            give_up = self._dice.chance(self._gives_up)
            try:
                outcome = pending.poll()
                if isinstance(outcome, Lease):
                    return outcome
                if isinstance(outcome, NeedsSlot):
                    self._claims.free(owner.name, owner.key, process_of(pending))
                    if not give_up:
                        return outcome
                    self._give_up(pending)
                    return None
                assert isinstance(outcome, Blocked)
                self._note(f"is blocked: {', '.join(map(str, outcome.by))}")
                if self._request.has_slot and not give_up:
                    return outcome
            except InvalidRequest as error:
                self._note(f"is refused: {error}")
                if not self._world.checks.groups.was_too_heavy(owner.key, request.limit, began[1]):
                    raise Violation(f"{owner.name} is refused, and was never too heavy: {error}") from error
                self._withdrawn(pending)
                return None
            except LockTimeout as error:
                self._timed_out(error, *began)
                self._withdrawn(pending)
                return None
            except Withdrawn as error:
                self._note(f"is withdrawn: {error}")
                self._claims.check_withdrawn(owner.name)
                return None
            except UpgradeNeeded as error:
                self._world.too_old(worker.session, error)
                self._give_up(pending)
                return None
            except (Superseded, LeaseMismatch) as error:
                self._note(f"stops: {error}")
                if owner.processes < 2:
                    raise Violation(f"stopped by nobody: {error}") from error
                return None
            except LockLost as error:
                self._note(f"finds: {error}")
                worker.insist(self._release_lost)
                return None
            except StoreUnavailable:
                give_up = self._dice.chance(4 * self._gives_up)
                if not give_up:
                    worker.nap()
                    self._flag.set()
                    if has_abandoned(pending):
                        pending = self._begin(manager)  # as a caller that begins again
            if give_up:
                self._give_up(pending)
                return None
            self._flag.wait(pending.wait_s())

    def _begin(self, manager: LockManager) -> PendingLease:
        pending = manager.begin(self._request, self._flag.set, self._timeout_s, outage_s=0)
        zxid, now_ms = self._world.zookeeper.zxid, self._world.schedule.now_ms
        self._claims.begins(process_of(pending), zxid, now_ms, deferred=self._request.deferred)
        return pending

    def _give_up(self, pending: PendingLease) -> None:
        self._note("gives up")
        self._claims.withdraws(process_of(pending))
        if self._world.workload.insists():
            self._worker.insist(pending.withdraw)
        else:
            try:
                pending.withdraw()
            except StoreUnavailable:
                self._note("leaves the end of its request to its process")
                return
        self._withdrawn(pending)

    def _timed_out(self, error: LockTimeout, began_ms: int, began_zxid: int) -> None:
        self._note(f"times out: {', '.join(map(str, error.blocked_by))}")
        blocker = error.blocked_by[0]
        nearest = blocker.owner
        soon = self._world.schedule.now_ms - began_ms < PASSING_S * 1000
        if not self._request.wait and soon and not nearest.startswith(("Hive", "query-of-hive", QUICKER)):
            self._claims.refused(self._owner.name, owner_key(nearest), began_zxid)
            if not self._world.workload.may_have(nearest, blocker.object, blocker.mode):
                raise Violation(f"{self._owner.name} is refused because of what {nearest} never asks for: {blocker}")

    def _withdrawn(self, pending: PendingLease) -> None:
        self._claims.withdrawn(self._owner.key, process_of(pending))

    def _release_lost(self) -> None:
        """Release the owner's lease after the notice that one of its locks was removed."""
        lease = self._worker.manager.lease_of(self._owner.name)
        if lease is not None:
            self._claims.releases(lease)
            self._worker.manager.release(lease)

    def _hold(self, lease: Lease) -> Lease | None:
        """Return the rest of the lease: None after all of it was released, a part at a time."""
        worker = self._worker
        try:
            if self._dice.chance(0.3):
                worker.insist(partial(self._watch, lease))
            works = self._dice.chance(0.3)
            if works:
                worker.insist(partial(self._start_work, lease))
            for _ in range(self._naps):
                worker.nap()
                if self._gives_back and self._parts.chance(self._gives_back):
                    left = self._give_back(lease)
                    if left is None:
                        return None
                    lease = left
                if self._dice.chance(0.5):
                    worker.insist(partial(self._renew, lease))
            if works:
                worker.insist(partial(worker.manager.check_token, lease.id, WORK, self._token))
        except LockLost as error:
            self._note(f"learns: {error}")
            self._claims.lost(lease, self._owner.key)
        return lease

    def _give_back(self, lease: Lease) -> Lease | None:
        """Give back one of its locks, or some; by another process, perhaps, or twice."""
        parts, manager = self._parts, self._worker.manager
        left: Lease | None = lease
        objects = {parts.pick(lease.locks).object for _ in range(1 + parts.below(2))}
        if parts.chance(0.3):
            manager = parts.pick(self._world.workload.workers).manager_or(manager)

        def give_back() -> None:
            nonlocal left
            left = manager.release(lease, objects=objects)

        self._note(f"gives back {sorted(map(str, objects))} of {lease.id}")
        self._claims.gives(lease, objects, self._request.whole)
        for _ in range(1 + parts.chance(0.2)):
            self._worker.insist(give_back)
        self._claims.gave(lease, left, objects, self._owner.key)
        self._note(f"has {left and left.locks} left")
        self._owner.left = left.locks if left else ()
        if left and left.locks != lease.locks and manager is self._worker.manager:
            try:
                self._worker.insist(lambda: self._worker.manager.verify(lease))
            except LockLost:
                pass
            else:
                raise Violation(f"{lease.owner} still has all of {lease.locks}, it is told, and has {left.locks}")
        return left

    def _start_work(self, lease: Lease) -> None:
        work = self._worker.manager.start_work(lease, WORK, "application").work(WORK)
        assert work is not None
        if work.token <= lease.token:
            raise Violation(f"work started under {lease.id} has token {work.token}, no larger than {lease.token}")
        self._token = work.token

    def _renew(self, lease: Lease) -> None:
        self._claims.renewing(lease, self._owner.key, self._worker.session.zxid)
        self._worker.manager.renew(lease)
        self._claims.renewed(lease)

    def _watch(self, lease: Lease) -> None:
        """Rest until woken; if not woken, everything that this process can know must still be held."""
        session = self._worker.session
        for _ in range(1 + self._dice.below(3)):
            self._flag.clear()
            number = session.session
            self._worker.manager.verify(lease, self._flag.set)
            self._flag.wait(0.2 * (1 + self._dice.below(8)))
            if not self._flag.raised and session.session == number and self._world.zookeeper.lives(number):
                tree = self._world.zookeeper.follower_of(number).tree
                self._claims.undisturbed(lease, self._owner.key, tree)

    def _release(self, lease: Lease) -> None:
        manager = self._worker.manager
        if self._dice.chance(0.3):  # the lease went to another process, which releases it
            manager = self._dice.pick(self._world.workload.workers).manager_or(manager)
        self._note(f"releases {lease.id} epoch {lease.epoch}")
        self._claims.releases(lease)
        self._worker.insist(lambda: manager.release(lease))
        self._note(f"has released {lease.id} epoch {lease.epoch}")
        self._claims.released(lease, self._owner.key)

    def _note(self, what: str) -> None:
        self._world.schedule.note(self._world.schedule.current.name, what)


def process_of(pending: PendingLease) -> str:
    """The name that its acquisition writes into the record."""
    return str(pending._acquisition._process)  # type: ignore[attr-defined]


def has_abandoned(pending: PendingLease) -> bool:
    """Whether it could not leave the queue at an error of its own. A time-out is another matter: its next poll leaves."""
    return pending._acquisition._abandoned and not pending._overdue  # type: ignore[attr-defined]
