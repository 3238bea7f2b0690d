"""Real processes on one database, some of them killed: no lost update, and every history in the order of its tokens."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockManager, connect
from tests.support.fleet import Fleet
from tests.support.patience import until
from tests.system.leases.crowd import GRABBER, race
from tests.system.leases.work import Ground, broken

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = int(os.environ.get("LEASES_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
OBJECTS = 6
HANG_S = 120.0
KILLS = 10 if os.environ.get("FULL") else 2
"""Each may cost the half minute after which a dead waiter's place is taken away."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(
    params=["sqlite", *(pytest.param(name, marks=pytest.mark.integration) for name in ("postgres", "mysql"))]
)
def url(request: pytest.FixtureRequest) -> str:
    given = str(request.getfixturevalue(f"{request.param}_url"))
    return f"{given}{'&' if '?' in given else '?'}timeout_s=60"


@pytest.fixture
def manager(url: str) -> Iterator[LockManager]:
    with connect(url) as opened:
        yield opened


@pytest.fixture
def ground(url: str, manager: LockManager) -> Iterator[Ground]:
    opened = Ground(url)
    opened.create(OBJECTS)
    yield opened
    opened.close()


def judge(manager: LockManager, ground: Ground) -> None:
    assert broken(ground) == [], f"seed {SEED}"
    assert (manager.show(), manager.waiters()) == ([], []), f"seed {SEED}"


def test_processes_that_grab_the_same_objects_lose_no_update(url: str, manager: LockManager, ground: Ground) -> None:
    taken = race(url, "leases", processes=4, jobs=80, objects=OBJECTS, seed=SEED)
    assert taken.done == 80
    assert len(ground.done()) >= 80
    judge(manager, ground)


def test_processes_that_are_killed_at_any_moment_harm_nobody(url: str, manager: LockManager, ground: Ground) -> None:
    chance = random.Random(SEED)
    with Fleet() as fleet:

        def start() -> None:
            grabber = fleet.start(GRABBER, url, "leases", 0, OBJECTS, chance.randrange(1 << 32))
            assert grabber.hear() == "ready"
            grabber.tell()

        for _ in range(4):
            start()
        for _ in range(KILLS):
            before = len(ground.done())
            until(lambda: len(ground.done()) > before + 5, f"work; seed {SEED}", HANG_S, 0.01)  # noqa: B023
            time.sleep(chance.random() / 20)  # anywhere in its work
            victim = fleet.workers[0]
            fleet.lose(victim)
            for lease in manager.leases():
                if lease.owner.startswith(f"{victim.pid}-"):
                    assert manager.force_release(lease.id, reason="its process was killed", user="test")
            start()
        fleet.dismiss()
        assert sum(fleet.hear()) > 0
        fleet.end()
    # The position of a killed process is removed by the next waiter, or by a sweep.
    last = manager.acquire(owner="last", writes=["dw"], timeout_s=HANG_S)
    manager.release(last)
    judge(manager, ground)


def test_a_history_tells_of_processes_that_take_no_locks(url: str, ground: Ground) -> None:
    def meet() -> object:
        race(url, "lawless", processes=4, jobs=400, objects=2, seed=SEED)
        return broken(ground, fenced=False)

    until(meet, "two that meet", HANG_S)
