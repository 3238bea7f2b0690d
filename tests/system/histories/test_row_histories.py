"""Real processes under faults, on the rows of a database: each transaction must be a step of the specification.

``HISTORY_SECONDS`` and ``HISTORY_SEED`` make it long, or again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LeaseLimit, LockManager, WaitsFor, connect
from airflow_hivelock.locks.backends.database import candidate, notifier
from tests.support.servers import MariaDBServer, PostgresServer
from tests.system.histories.chaos import Chaos, free_of
from tests.system.histories.checks import lost_updates
from tests.system.histories.row_worker import DEAD_S, hurry
from tests.system.histories.test_histories import PASSING_S, SECONDS, SEED, enough
from tests.system.histories.test_rows import LOGGED, audited
from tests.system.histories.trace.validate import returned_leases, validate_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.histories.trace.audit import Audit

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600)]

OPTIONS = f"timeout_s=2&passing_s={PASSING_S}"
WORKER = "tests.system.histories.row_worker"
TAKEN = ("enter", "grant", "queue", "invite", "release")


@pytest.fixture(autouse=True)
def _as_quick_as_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((candidate, "DEAD_US"), (notifier, "LOOK_S")):
        monkeypatch.setattr(module, name, getattr(module, name))  # put back at the end
    hurry()


def judge(manager: LockManager, chaos: Chaos, audit: Audit) -> None:
    """All that must hold once every process has ended."""
    processes = [int(log.name.partition("-")[2]) for log in chaos.directory.glob("returned-*")]
    for process in processes:
        free_of(
            manager, process
        )  # a process that lost its store at the last moment leaves its lease, as a dead one does
    last = manager.acquire(owner="last", writes=["dw"], limit=LeaseLimit("few", 1), timeout_s=60)
    assert manager.release(last), f"seed {chaos.seed}"
    for waiter in manager.waiters():
        if waiter.waits_for is WaitsFor.SLOT:
            manager.forget_deferred(waiter.owner, waiter.attempt)
    trace = validate_rows(audit.transactions(), returned_leases(chaos.directory), passing_s=PASSING_S, dead_s=DEAD_S)
    trace.processes = len(processes)
    print(f"seed {chaos.seed}: {trace}, {dict(chaos.done)}")
    assert not trace.wrong, f"seed {chaos.seed}\n" + "\n".join(trace.wrong)
    assert lost_updates(chaos.directory) == {}, f"seed {chaos.seed}"
    assert (manager.show(), manager.waiters()) == ([], []), f"seed {chaos.seed}"
    assert trace.actions["grant"] > SECONDS / 2, f"too little happened to prove anything, with seed {chaos.seed}"
    assert not [name for name in TAKEN if not trace.actions[name]], f"seed {chaos.seed}"


def test_processes_that_are_killed_and_stopped_on_a_postgresql_that_restarts(tmp_path: Path) -> None:
    with PostgresServer(tmp_path) as server:

        def restart() -> None:
            server.kill()
            server.start()

        url = f"{server.url}?{OPTIONS}"
        with connect(url) as manager:
            audit = audited(manager)
            chaos = Chaos(url, tmp_path, SEED, faults=[restart], program=WORKER)
            chaos.run(manager, enough(tmp_path))
            judge(manager, chaos, audit)


def test_processes_that_are_killed_and_stopped_on_a_file_of_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/leases.db?{OPTIONS}"
    with connect(url) as manager:
        audit = audited(manager)
        chaos = Chaos(url, tmp_path, SEED, program=WORKER)
        chaos.run(manager, enough(tmp_path))
        judge(manager, chaos, audit)


def test_processes_that_are_killed_and_stopped_on_a_mysql_that_restarts(
    mariadb_asked_for: None, tmp_path: Path
) -> None:
    with MariaDBServer(tmp_path, config=LOGGED) as server:

        def restart() -> None:
            server.kill()
            server.start()

        url = f"{server.url}?{OPTIONS}"
        with connect(url) as manager:
            audit = audited(manager)
            chaos = Chaos(url, tmp_path, SEED, faults=[restart], program=WORKER)
            chaos.run(manager, enough(tmp_path))
            judge(manager, chaos, audit)
