"""A real Airflow whose components have two versions. The metadata and the locks are in one PostgreSQL."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from airflow_hivelock.locks import LockManager, connect
from tests.support.airflow_server import AirflowServer, Run, locks_in
from tests.support.servers import free_port
from tests.system.upgrade.scenes import Row
from tests.system.upgrade.table import AIRFLOW

if TYPE_CHECKING:
    from tests.support.airflow_server.server import Kind

DAG = "versions"
SOON_S, FREED_S = 180.0, 300.0


class Mixed:
    """The components, each of one version."""

    def __init__(self, server: AirflowServer, targets: dict[str, Path], gates: Path, manager: LockManager) -> None:
        self.server, self.targets, self.gates, self.manager = server, targets, gates, manager
        self._now: dict[Kind, str] = {kind: kind for kind in server.kinds}
        self._pages = [server.api.client]
        self._runs = 0

    def replace(self, kind: Kind, version: str) -> None:
        """The component is killed, and comes back in this version."""
        self.server.process(self._now[kind]).kill()
        name = self._now[kind] = f"{kind}-{version}-{len(os.listdir(self.server.home))}"
        self.server.start(kind, name, self._of(version))

    def _of(self, version: str) -> dict[str, str]:
        """The environment of a component of that version."""
        return {"PYTHONPATH": os.pathsep.join([str(self.targets[version]), self.server.env["PYTHONPATH"]])}

    def run(self) -> Run:
        self._runs += 1
        return Run(self.server, DAG, self.server.trigger(DAG, run_id=f"run{self._runs}"))

    def waits(self, run: Run) -> None:
        """In the triggerer, in the queue."""
        run.reach("deferred")
        run.until(lambda: run.owner() in [each.owner for each in self.manager.waiters()], "it to wait")

    def second_page(self, version: str) -> None:
        """One more API server. The first one stays: Airflow ends a task that cannot reach its API server."""
        port = str(free_port())
        self.server.start("api-server", f"api-server-{version}", {**self._of(version), "AIRFLOW__API__PORT": port})
        headers = self.server.api.client.headers
        self._pages.append(httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False))

    def listed(self) -> list[list[int]]:
        """How many leases and waiters each API server's page shows."""
        answers = [self.server.wait(partial(_answer, page), SOON_S, "a page") for page in self._pages]
        return [[len(answer["leases"]), len(answer["waiters"])] for answer in answers]

    def open(self, run: Run) -> None:
        (self.gates / run.run_id).touch()

    def holds(self, run: Run) -> None:
        """It works, and its lease is the only one."""
        run.reach("running")
        run.until(lambda: self.held() == [run.owner()], "it to hold")

    def held(self) -> list[str]:
        return [lease.owner for lease in self.manager.leases()]


def _answer(client: httpx.Client) -> Any:
    """What the page gets; None: the server is not up yet."""
    try:
        return client.get("/hivelock/api/v1/hivelock_default/current", timeout=60).raise_for_status().json()
    except httpx.TransportError:
        return None


def play(mixed: Mixed, workers: str, other: str) -> list[Row]:
    """Tasks run on workers of one version. Their triggerer and their page become the other's."""
    server, rows = mixed.server, list[Row]()

    def row(component: str, event: str, outcome: str) -> None:
        rows.append(Row(component, AIRFLOW, event, outcome))

    first = mixed.run()
    mixed.holds(first)
    second = mixed.run()
    mixed.waits(second)
    assert mixed.listed() == [[1, 1], [1, 1]]
    row(
        "page",
        f"API servers of {workers} and {other} list the lease and the waiter of {workers}",
        "the same",
    )
    mixed.replace("triggerer", other)
    mixed.waits(second)
    mixed.open(first)
    first.reach("success")
    mixed.holds(second)
    mixed.open(second)
    second.reach("success")
    server.wait(lambda: mixed.held() == [], SOON_S, "no lease")
    row(
        "triggerer",
        f"a worker of {workers} defers; the triggerer is killed; one of {other} grants",
        "both runs succeed",
    )
    third = mixed.run()
    mixed.holds(third)
    third.kill()
    third.reach("failed")
    server.wait(lambda: mixed.held() == [], FREED_S, "the keeper to free the lease of the killed task")
    row("keeper", f"a task on a worker of {workers} is killed; the keeper of {other} frees its lease", "freed")
    return rows


def scenes(url: str, targets: dict[str, Path], folder: Path) -> list[Row]:
    """Both directions, on one Airflow. It begins with the version of the checkout, 0.1.0."""
    gates = folder / "gates"
    gates.mkdir(parents=True)
    dags = shutil.copytree(Path(__file__).with_name("dags"), folder / "dags")
    rows: list[Row] = []
    with (
        connect(url) as manager,
        AirflowServer(
            folder / "home",
            dags,
            connections={"hivelock_default": locks_in(url)},
            connections_in="db",
            variables={"gates": str(gates)},
            config={("core", "parallelism"): "2", ("workers", "socket_cleanup_timeout"): "2"},
        ) as server,
    ):
        mixed = Mixed(server, targets, gates, manager)
        server.unpause(DAG)
        mixed.second_page("0.2.0")
        rows += play(mixed, "0.1.0", "0.2.0")
        for kind, version in (("dag-processor", "0.2.0"), ("scheduler", "0.2.0"), ("triggerer", "0.2.0")):
            mixed.replace(kind, version)  # type: ignore[arg-type]
        rows += play(mixed, "0.2.0", "0.1.0")
    return rows
