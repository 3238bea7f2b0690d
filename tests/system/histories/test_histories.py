"""Real processes under faults; see the package's text. ``HISTORY_SECONDS`` and ``HISTORY_SEED`` make it long, or again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockManager, connect
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from tests.support.servers import Ensemble, ZooKeeperServer
from tests.system.histories.chaos import SESSION_S, Chaos
from tests.system.histories.judge import PASSING_S, SEED, after, enough, judge
from tests.system.histories.lawless import WAYS
from tests.system.histories.trace.validate import Trace, returned_leases, validate
from tests.system.histories.transactions import transactions

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from tests.system.histories.trace.validate import Returned

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600)]

OPTIONS = f"timeout_s={SESSION_S}&passing_s={PASSING_S}"
TAKEN = ("enter", "grant", "queue", "invite", "release")


def validated(manager: LockManager, servers: Sequence[ZooKeeperServer], returned: Collection[Returned]) -> Trace:
    assert isinstance(manager.backend, ZooKeeperBackend)
    return validate(transactions(servers), manager.backend.store.layout, returned, passing_s=PASSING_S)


def judged(manager: LockManager, chaos: Chaos, servers: Sequence[ZooKeeperServer]) -> None:
    trace = judge(manager, chaos, lambda returned: validated(manager, servers, returned), TAKEN)
    assert trace.passed, f"nobody was passed, with seed {chaos.seed}"
    assert trace.counted, f"no lease was counted, with seed {chaos.seed}"
    assert trace.actions["step_aside"] + trace.actions["end_invitation"], f"none went away, with seed {chaos.seed}"


def test_processes_that_are_killed_and_stopped_and_a_server_that_restarts(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server:

        def restart() -> None:
            server.kill()
            server.start()

        url = f"{server.url}?{OPTIONS}"
        with connect(url) as manager:
            chaos = Chaos(url, tmp_path, SEED, faults=[restart])
            chaos.run(manager, enough(tmp_path))
            judged(manager, chaos, [server])


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
            judged(manager, chaos, ensemble.members)


@pytest.mark.parametrize("way", WAYS)
def test_a_history_tells_of_workers_that_break_a_promise(way: str, tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server, connect(server.url) as manager:
        late = after(60)
        url = f"{server.url}?{OPTIONS}"
        chaos = Chaos(url, tmp_path, SEED, workers=3, program="tests.system.histories.lawless", arguments=[way])

        def wrong() -> list[str]:
            returned = returned_leases(tmp_path)  # before the transactions: all that was returned was granted in them
            return validated(manager, [server], returned).wrong

        chaos.run(manager, lambda: bool(wrong()) or late())
        told = wrong()
        assert told
        print(told[0])
