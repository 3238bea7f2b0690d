"""Leases that a task could not free are freed without any waiter and any user, by a new triggerer.

The keeper is that of ``dags_examples/force_release_stale_locks.py``, which is paused.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import StoreUnavailable
from tests.support.servers import PostgresServer, ZooKeeperServer
from tests.system.deaths.components import FREED_S
from tests.system.deaths.play import WAIT_S, Play, running
from tests.system.deaths.stage import staged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.system.deaths.play import Stage

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(1800)]

TASKS = 20
OUTAGE_S = 180.0
"""Longer than a task tries to release, and than a session of ZooKeeper's lasts by far."""

CONFIG = {
    ("core", "parallelism"): "24",
    # For that time Airflow takes a dead task for alive if its child keeps its output open.
    ("workers", "socket_cleanup_timeout"): "2",
}
"""Airflow's own patience otherwise: twenty tasks at once are slow to give signs of life."""

POKES = "own_poke"
"""Its tasks ask for their locks on a worker: no trigger of theirs brings a keeper."""


@pytest.fixture(scope="module", params=[ZooKeeperServer, PostgresServer])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperServer | PostgresServer]:
    with request.param(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, store: ZooKeeperServer | PostgresServer) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("unattended"), store, unpaused=POKES, config=CONFIG) as stage:
        yield stage


def test_a_killed_task_s_lease_is_free_within_a_minute_of_its_last_work(stage: Stage) -> None:
    play = Play(stage, "killed")
    run = play.at_work(POKES)
    run.kill()
    run.await_end()
    stage.af.process("triggerer").restart()
    assert play.owners() == [run.owner()], "freed under the hands of a writer"
    os.kill(writer := play.lives()[0].pid, signal.SIGKILL)
    play.until(lambda: not running(writer), "the writer to be gone")
    print(f"freed {_until_free([play]):.0f} s after its last work")


def test_what_twenty_tasks_could_not_free_is_free_within_a_minute_of_the_store_s_return(
    stage: Stage, store: ZooKeeperServer | PostgresServer
) -> None:
    plays = [Play(stage, f"away_{number}") for number in range(TASKS)]
    runs = [play.start(POKES) for play in plays]
    for play in plays:
        play.writing()
    store.kill()
    stage.af.process("triggerer").restart()
    away = time.monotonic()
    for run in runs:
        run.open()
    for run in runs:
        run.await_end()
        assert run.state() == "success"
    stage.af.wait(lambda: time.monotonic() > away + OUTAGE_S, OUTAGE_S + WAIT_S, "three minutes to pass")
    store.start()
    print(f"{TASKS} leases freed {_until_free(plays):.0f} s after the store's return")
    assert {entry.user for entry in stage.manager.audit("dw.away_0")} == {"keeper of here"}


def _until_free(plays: Sequence[Play]) -> float:
    """How long it takes until nothing of theirs is held, in seconds."""
    begun = time.monotonic()
    plays[0].until(lambda: _are_free(plays), "what is over to be freed")
    took_s = time.monotonic() - begun
    assert took_s < FREED_S
    return took_s


def _are_free(plays: Sequence[Play]) -> bool:
    try:
        return not any(play.owners() for play in plays)
    except StoreUnavailable:  # it has only just begun to start
        return False
