"""Two triggerers, two schedulers, three ZooKeeper servers, and not a line of a DAG changed: one of each is killed.

With LocalExecutor, and with CeleryExecutor over Redis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from tests.support.servers import Ensemble, RedisServer
from tests.system.deaths.play import DAY, WAIT_S, Play, Stage
from tests.system.deaths.stage import force_release, staged
from tests.system.deaths.verdict import judge, locks_on
from tests.system.histories.trace.validate import validate
from tests.system.histories.transactions import transactions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from tests.support.servers import ZooKeeperServer

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(1800)]

RUNS = 6
"""On each of two tables. Chains, because their order is the queue's: an invited task is passed once its invitation is over."""


@pytest.fixture(params=["LocalExecutor", "CeleryExecutor"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str | None]:
    """None for LocalExecutor."""
    if request.param == "LocalExecutor":
        yield None
        return
    pytest.importorskip("airflow.providers.celery", reason="`make test-airflow` installs what CeleryExecutor needs")
    with RedisServer(tmp_path) as redis:
        yield redis.url


def test_a_dozen_runs_get_their_turns_although_a_triggerer_a_leader_and_a_scheduler_die(
    tmp_path: Path, broker: str | None
) -> None:
    with (
        Ensemble(tmp_path / "zookeeper") as ensemble,
        staged(tmp_path, ensemble, broker) as stage,
    ):
        stage.af.start("scheduler", "second scheduler")
        plays = [Play(stage, "one"), Play(stage, "two")]
        for play in plays:
            play.hold()
            for number in range(RUNS):
                play.start("chained")
                play.await_waiters(number + 1)  # so that their order is known
        asked = [play.waiters() for play in plays]

        before = waiting_sessions(ensemble)
        assert len(before) == 2 * RUNS
        stage.af.start("triggerer", "second triggerer")
        stage.af.process("triggerer").kill()
        stage.af.wait(
            lambda: len(now := waiting_sessions(ensemble)) == 2 * RUNS and not set(now) & set(before),
            WAIT_S,
            "the other triggerer to wait for all",
        )
        assert [play.waiters() for play in plays] == asked
        leader = ensemble.leader()
        assert leader
        leader.kill()
        leader.start()
        for play in plays:
            stage.manager.release(play.rivals[0])

        for turn in range(RUNS):
            for play in plays:
                play.writing(turn + 1)
                play.runs[turn].open()
            if turn == 1:
                first = stage.af.process("scheduler")
                first.kill(first.pid)
        for play in plays:
            play.settle(frees_itself=False)
            assert all(stage.af.run(run.dag_id, run.run_id).state == "success" for run in play.runs)
        force_release(stage)
        assert [granted(play, ensemble.members) for play in plays] == asked
        trace = validate(transactions(ensemble.members), layout(stage))
        print(trace)
        assert trace.wrong == []
        assert stage.manager.show() == []
        for play in plays:
            verdict = judge(play, transactions(ensemble.members), layout(stage), stage.af.home)
            print(verdict)
            assert verdict.wrong == ()


def waiting_sessions(ensemble: Ensemble) -> list[str]:
    """The session of each waiter."""
    leader = ensemble.leader()
    nodes = leader.ephemerals() if leader else {}
    return [session for path, session in nodes.items() if path.startswith("/hivelock-deaths/alive/")]


def granted(play: Play, servers: Sequence[ZooKeeperServer]) -> list[str]:
    """Who held the lock, in order; the next try of a task that was killed with its scheduler is the same owner."""
    held = sorted(
        locks_on(f"{play.table}/{DAY}", transactions(servers), layout(play.stage)), key=lambda lock: lock.from_ms
    )
    return [lock.owner for lock in held if not lock.owner.startswith("rival")]


def layout(stage: Stage) -> Layout:
    assert isinstance(stage.manager.backend, ZooKeeperBackend)
    return stage.manager.backend.store.layout
