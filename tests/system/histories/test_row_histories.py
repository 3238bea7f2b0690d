"""Real processes under faults, on the rows of a database: each transaction must be a step of the specification.

``HISTORY_SECONDS`` and ``HISTORY_SEED`` make it long, or again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import connect
from airflow_hivelock.locks.backends.database import candidate, notifier
from tests.support.servers import MariaDBServer, PostgresServer
from tests.system.histories.chaos import Chaos
from tests.system.histories.judge import PASSING_S, SEED, enough, judge
from tests.system.histories.row_worker import DEAD_S, hurry
from tests.system.histories.test_rows import LOGGED, audited
from tests.system.histories.trace.validate import validate_rows

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600)]

OPTIONS = f"timeout_s=2&passing_s={PASSING_S}"
WORKER = "tests.system.histories.row_worker"
TAKEN = ("enter", "grant", "queue", "invite", "release")


@pytest.fixture(autouse=True)
def _as_quick_as_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((candidate, "DEAD_US"), (notifier, "LOOK_S")):
        monkeypatch.setattr(module, name, getattr(module, name))  # put back at the end
    hurry()


def play(url: str, directory: Path, server: PostgresServer | MariaDBServer | None = None) -> None:
    """Workers on one set of tables, and the judgement. The server restarts."""

    def restart() -> None:
        assert server
        server.kill()
        server.start()

    with connect(f"{url}?{OPTIONS}") as manager:
        audit = audited(manager)
        chaos = Chaos(f"{url}?{OPTIONS}", directory, SEED, faults=[restart] if server else [], program=WORKER)
        chaos.run(manager, enough(directory))
        times = {"passing_s": PASSING_S, "dead_s": DEAD_S}
        judge(manager, chaos, lambda returned: validate_rows(audit.transactions(), returned, **times), TAKEN)


def test_processes_that_are_killed_and_stopped_on_a_postgresql_that_restarts(tmp_path: Path) -> None:
    with PostgresServer(tmp_path) as server:
        play(server.url, tmp_path, server)


def test_processes_that_are_killed_and_stopped_on_a_file_of_sqlite(tmp_path: Path) -> None:
    play(f"sqlite:///{tmp_path}/leases.db", tmp_path)


def test_processes_that_are_killed_and_stopped_on_a_mysql_that_restarts(
    mariadb_asked_for: None, tmp_path: Path
) -> None:
    with MariaDBServer(tmp_path, config=LOGGED) as server:
        play(server.url, tmp_path, server)
