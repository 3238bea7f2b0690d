"""Events that end a worker's host: its tasks have a host name of their own, on which no other process can check."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from airflow_hivelock.work.hosts import declare_gone, on_host
from tests.system.deaths.row import FORCE, KEEPER, Rows

if TYPE_CHECKING:
    from tests.system.deaths.play import Play, Run

ROWS = Rows()


@ROWS.of("worker's host gone with its processes; a user declares it gone", KEEPER)
def host_declared_gone(play: Play) -> None:
    run = _dies_with_its_host(play)
    manager = play.stage.manager
    mine = manager.lease_of(run.owner())
    assert mine
    (work,) = on_host(_host_of(run), [mine])
    assert declare_gone(manager, [work], reason="burnt down", user="ops") == [work]
    play.until(lambda: not play.owners(), "the keeper to free it")


@ROWS.of("worker's host gone with its processes; no user declares it gone", FORCE)
def host_gone(play: Play) -> None:
    _dies_with_its_host(play)
    play.start("named").await_end()


def _dies_with_its_host(play: Play) -> Run:
    run = play.start("own_on_worker")
    pid = play.writing()
    run.kill()
    os.kill(pid, signal.SIGKILL)
    run.await_end()
    play.force_release()
    assert play.owners() == [run.owner()], "freed, and nobody could know"
    return run


def _host_of(run: Run) -> str:
    """What :func:`tests.system.deaths.dags.writers.on_worker` has called it."""
    return f"worker-of-{run.run_id.replace('_', '-')}"[:60]
