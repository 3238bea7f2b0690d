"""Real processes under faults; see the package's text. ``HISTORY_SECONDS`` and ``HISTORY_SEED`` make it long, or again."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockManager, WaitsFor, connect
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from tests.support.servers import Ensemble, ZooKeeperServer
from tests.system.histories.chaos import SESSION_S, Chaos, free_of
from tests.system.histories.checks import History, lost_updates, returned
from tests.system.histories.lawless import WAYS
from tests.system.histories.trace.validate import returned_leases, validate
from tests.system.histories.transactions import transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600)]

PASSING_S = 1.0
OPTIONS = f"timeout_s={SESSION_S}&passing_s={PASSING_S}"
SECONDS = float(os.environ.get("HISTORY_SECONDS", "12"))
SEED = int(os.environ.get("HISTORY_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


def after(seconds: float) -> Callable[[], bool]:
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


def enough(directory: Path) -> Callable[[], bool]:
    """Whether the time is over and some leases were returned. On a busy machine the workers start late."""
    over, late = after(SECONDS), after(10 * SECONDS)
    return lambda: (over() and len(returned_leases(directory)) > 4 * SECONDS) or late()


def history(manager: LockManager, directory: Path, servers: Sequence[ZooKeeperServer]) -> History:
    assert isinstance(manager.backend, ZooKeeperBackend)
    leases = returned(directory)  # before the transactions: whatever was returned has been granted in them
    return History.of(transactions(servers), manager.backend.store.layout, leases, PASSING_S)


def judge(manager: LockManager, chaos: Chaos, servers: Sequence[ZooKeeperServer]) -> None:
    """All that must hold once every process has ended."""
    free_of(manager, 0)  # no worker has that number: this sweeps, and waits for a server that has just started again
    # The position of a dead waiter is kept for its next process, and blocks no other request.
    assert manager.release(manager.acquire(owner="last", writes=["dw"], timeout_s=60)), f"seed {chaos.seed}"
    told = history(manager, chaos.directory, servers)
    follow(manager, chaos, servers)
    leases = told.leases
    contended, passed = sum(lease.contended for lease in leases), sum(lease.passed for lease in leases)
    print(
        f"seed {chaos.seed}: {len(leases)} leases, {contended} after waiting for another, {passed} times one was "
        f"passed, {told.given_back} grants given back, {told.away} went away, {dict(told.most)} of a group at most, "
        f"{dict(chaos.done)}"
    )
    assert told.broken == [], f"seed {chaos.seed}"
    assert told.left_behind == [], f"lock nodes that nobody holds, with seed {chaos.seed}"
    assert contended > SECONDS / 2, f"too little happened to prove anything, with seed {chaos.seed}"
    assert passed, f"nobody was passed, with seed {chaos.seed}"
    assert told.away, f"no request went away, with seed {chaos.seed}"
    assert told.most["few"], f"no lease was counted, with seed {chaos.seed}"
    assert lost_updates(chaos.directory) == {}, f"seed {chaos.seed}"
    # So is the mark of an owner that died, or lost the store, between its going away and its slot: the keeper's to drop.
    for waiter in manager.waiters():
        if waiter.waits_for is WaitsFor.SLOT:
            manager.forget_deferred(waiter.owner, waiter.attempt)
    assert (manager.show(), manager.waiters()) == ([], []), f"seed {chaos.seed}"


def follow(manager: LockManager, chaos: Chaos, servers: Sequence[ZooKeeperServer]) -> None:
    """Each update must be a step of the specification."""
    assert isinstance(manager.backend, ZooKeeperBackend)
    leases = returned_leases(chaos.directory)
    trace = validate(transactions(servers), manager.backend.store.layout, leases)
    trace.processes = len(list(chaos.directory.glob("returned-*")))
    print(trace)
    assert not trace.wrong, f"seed {chaos.seed}\n" + "\n".join(trace.wrong)


def test_processes_that_are_killed_and_stopped_and_a_server_that_restarts(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server:

        def restart() -> None:
            server.kill()
            server.start()

        url = f"{server.url}?{OPTIONS}"
        with connect(url) as manager:
            chaos = Chaos(url, tmp_path, SEED, faults=[restart])
            chaos.run(manager, enough(tmp_path))
            judge(manager, chaos, [server])


def test_an_ensemble_that_loses_its_leader_or_a_follower(tmp_path: Path) -> None:
    with Ensemble(tmp_path) as ensemble:
        chance = random.Random(SEED)

        def lose_the_leader() -> None:
            if leader := ensemble.leader():
                leader.kill()
                leader.start()

        def lose_a_follower() -> None:
            member = chance.choice([member for member in ensemble.members if member is not ensemble.leader()])
            member.kill()
            member.start()

        url = f"{ensemble.url}?{OPTIONS}"
        with connect(url) as manager:
            chaos = Chaos(url, tmp_path, SEED, faults=[lose_the_leader, lose_a_follower])
            chaos.run(manager, enough(tmp_path))
            judge(manager, chaos, ensemble.members)


@pytest.mark.parametrize("way", WAYS)
def test_a_history_tells_of_workers_that_break_a_promise(way: str, tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server, connect(server.url) as manager:
        late = after(60)
        url = f"{server.url}?{OPTIONS}"
        chaos = Chaos(url, tmp_path, SEED, workers=3, program="tests.system.histories.lawless", arguments=[way])
        chaos.run(manager, lambda: bool(history(manager, tmp_path, [server]).broken) or late())
        told = history(manager, tmp_path, [server])
        assert told.broken
        print(told.broken[0])
