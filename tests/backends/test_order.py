"""Priority, limits, deferred grants and invitations: databases give the same answers as the plain memory backend."""

from __future__ import annotations

import itertools
import os
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import Lease, LockManager, Superseded, connect, rules
from airflow_hivelock.locks.backend import NeedsSlot
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.errors import InvalidRequest, LeaseMismatch, LockTimeout
from airflow_hivelock.locks.model import DeferredGrant, LeaseLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import LockRequest, PendingLease

OBJECTS = ["dw", "dw.a", "dw.b", "dw.c", "dw.a/d=1", "dw.a/d=2"]
OWNERS = [f"owner {number}" for number in range(8)]
LIMITS = [None, None, LeaseLimit("g", 1), LeaseLimit("g", 2), LeaseLimit("g", 2), LeaseLimit("h", 1)]
BRIEF = DeferredGrant(0.001)
DEFERRED = [
    *[None] * 10,
    DeferredGrant(),
    DeferredGrant(600.0),
    DeferredGrant(600.0),
    BRIEF,
    BRIEF,
    DeferredGrant(has_slot=True),
    DeferredGrant(has_slot=True),
]
PRIORITIES = [1, 1, 1, 2, 3, 0, 0, -1]
STEPS = 120
RUNS = 200 if os.environ.get("FULL") else 8


@dataclass
class Asked:
    """The same request in both stores."""

    pending: list[PendingLease]
    leases: list[Lease]


class Twins:
    """Two lock managers that are asked the same, and must answer the same."""

    def __init__(self, seed: int, managers: list[LockManager]) -> None:
        self._random = random.Random(seed)
        self._managers = managers
        self._asked: dict[str, Asked] = {}
        self.said: list[str] = [f"seed {seed}"]

    def step(self) -> None:
        held = [owner for owner, asked in self._asked.items() if asked.leases]
        waiting = [owner for owner, asked in self._asked.items() if not asked.leases]
        acts: list[Callable[[], None]] = [self._ask, self._ask]
        acts += [lambda: self._poll(self._random.choice(waiting))] * 3 if waiting else []
        acts += [lambda: self._withdraw(self._random.choice(waiting))] if waiting else []
        acts += [lambda: self._prioritize(self._random.choice(waiting))] if waiting else []
        acts += [lambda: self._release(self._random.choice(held))] * 2 if held else []
        self._random.choice(acts)()
        if any(asked.pending[0].request.deferred == BRIEF for asked in self._asked.values()):
            time.sleep(0.005)  # by the next step its invitation is over, by the clocks of both stores
        # In the order of each queue. Two queues have no order between them, and requests in no queue have none either.
        listed = [
            sorted(map(_shown, manager.waiters()), key=lambda shown: (shown[1].value, "" if shown[2] else shown[0]))
            for manager in self._managers
        ]
        assert listed[0] == listed[1], "\n".join(self.said)

    def _ask(self) -> None:
        choose = self._random
        owner = choose.choice(OWNERS)
        objects = choose.sample(OBJECTS, choose.choice([1, 1, 2]))
        request = rules.request(
            owner,
            objects[1:],
            objects[:1],
            priority=choose.choice(PRIORITIES),
            limit=choose.choice(LIMITS),
            deferred=choose.choice(DEFERRED),
            wait=choose.random() < 0.8,
        )
        self.said.append(f"ask {request}")
        pending = [manager.begin(request, _ignore, None if request.wait else 0.0) for manager in self._managers]
        outcomes = [_outcome(one, request) for one in pending]
        if self._compared(outcomes):
            self._asked[owner] = Asked(pending, [lease for lease in outcomes if isinstance(lease, Lease)])

    def _poll(self, owner: str) -> None:
        self.said.append(f"poll {owner}")
        asked = self._asked[owner]
        outcomes = [_outcome(one, one.request) for one in asked.pending]
        if self._compared(outcomes):
            asked.leases = [lease for lease in outcomes if isinstance(lease, Lease)]

    def _prioritize(self, owner: str) -> None:
        priority = self._random.choice(PRIORITIES)
        self.said.append(f"priority {priority} of {owner}")
        self._compared([_changed(manager, owner, priority) for manager in self._managers])

    def _withdraw(self, owner: str) -> None:
        self.said.append(f"withdraw {owner}")
        for pending in self._asked.pop(owner).pending:
            pending.withdraw()

    def _release(self, owner: str) -> None:
        self.said.append(f"release {owner}")
        freed = [
            manager.release(lease) for manager, lease in zip(self._managers, self._asked.pop(owner).leases, strict=True)
        ]
        assert freed[0] is freed[1], "\n".join(self.said)

    def _compared(self, outcomes: list[Any]) -> bool:
        """Whether it waits, holds or is away, in both."""
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds[0] is kinds[1], "\n".join([*self.said, *map(str, outcomes)])
        return not isinstance(outcomes[0], Exception)

    def end(self) -> None:
        for owner, asked in list(self._asked.items()):
            (self._release if asked.leases else self._withdraw)(owner)
        assert [[*manager.waiters(), *manager.leases()] for manager in self._managers] == [[], []]


def _outcome(pending: PendingLease, request: LockRequest) -> Any:
    try:
        outcome = pending.poll()
    except (LockTimeout, LeaseMismatch, Superseded) as error:
        return error
    assert request.deferred or not isinstance(outcome, NeedsSlot)
    return outcome


def _changed(manager: LockManager, owner: str, priority: int) -> Any:
    try:
        return [None, owner][manager.force_priority(owner, priority, reason="urgent", user="ops")]
    except InvalidRequest as error:
        return error


def _shown(waiter: Any) -> tuple[Any, ...]:
    by = [(one.owner, one.waiting, one.group) for one in waiter.blocked_by]
    leases_of_group = {one for one in by if one[2] and not one[1]}  # in any order
    others = tuple(one for one in by if one not in leases_of_group)
    return (
        waiter.owner,
        waiter.waits_for,
        waiter.position,
        waiter.priority,
        leases_of_group,
        others,
        waiter.until is None,
    )


def _ignore() -> None:
    """It polls all the same."""


def _check(url: str) -> None:
    first = int(os.environ.get("ORDER_SEED", random.SystemRandom().randrange(1 << 32)))
    for seed, number in zip(itertools.count(first), range(RUNS), strict=False):
        sets = f"{'&' if '?' in url else '?'}prefix=run_{number}_"
        with connect(f"{url}{sets}") as manager:
            twins = Twins(seed, [LockManager(MemoryBackend()), manager])
            for _ in range(STEPS):
                twins.step()
            twins.end()


def test_sqlite_does_as_memory_does(sqlite_url: str) -> None:
    _check(sqlite_url)


@pytest.mark.integration
def test_postgresql_does_as_memory_does(postgres_url: str) -> None:
    _check(postgres_url)
