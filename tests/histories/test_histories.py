"""Real processes under faults; see the package's text. ``HISTORY_SECONDS`` and ``HISTORY_SEED`` make it long, or again."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockManager, connect
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from tests.histories import checks
from tests.histories.chaos import Chaos
from tests.servers import Ensemble, ZooKeeperServer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600)]

SECONDS = float(os.environ.get("HISTORY_SECONDS", "12"))
SEED = int(os.environ.get("HISTORY_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


def judge(manager: LockManager, chaos: Chaos) -> None:
    """All that must hold once every process has ended."""
    assert isinstance(manager.backend, ZooKeeperBackend)
    records = checks.granted(manager.backend)
    print(f"seed {chaos.seed}: {len(records)} leases, {chaos.killed} processes killed, {len(chaos.done)} faults")
    assert len(records) > SECONDS / 2, f"too little happened to prove anything, with seed {chaos.seed}"
    assert checks.overlaps(records) == [], f"seed {chaos.seed}"
    assert checks.lost_updates(chaos.directory) == {}, f"seed {chaos.seed}"
    manager.sweep()
    assert manager.show() == [], f"seed {chaos.seed}"
    assert manager.backend.namespace.below(None) == [], f"a lock node that nobody holds, with seed {chaos.seed}"


def test_processes_that_are_killed_and_stopped_and_a_server_that_restarts(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server:

        def restart() -> None:
            server.kill()
            server.start()

        url = f"{server.url}?timeout_s=4"
        with connect(url) as manager:
            chaos = Chaos(url, tmp_path, SEED, faults=[restart])
            chaos.run(manager, SECONDS)
            judge(manager, chaos)


def test_an_ensemble_that_loses_its_leader_or_a_follower(tmp_path: Path) -> None:
    with Ensemble(tmp_path) as ensemble:
        chance = random.Random(SEED)

        def lose_the_leader() -> None:
            if leader := ensemble.leader():
                leader.kill()
                leader.start()

        def lose_one() -> None:
            member = chance.choice(ensemble.members)
            member.kill()
            member.start()

        url = f"{ensemble.url}?timeout_s=4"
        with connect(url) as manager:
            chaos = Chaos(url, tmp_path, SEED, workers=4, faults=[lose_the_leader, lose_one])
            chaos.run(manager, SECONDS)
            judge(manager, chaos)
