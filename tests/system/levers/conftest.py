"""A real Airflow with both lock stores, a mailbox, and a browser. ``make test-ui`` runs this folder; ``make test`` does not."""

from __future__ import annotations

import itertools
import os
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import connect
from airflow_hivelock.spec import Owner
from tests.support.airflow_server import AirflowServer, locks_in
from tests.system.levers.mailbox import Mailbox
from tests.system.levers.stores import INSTALLATION, STORES
from tests.system.ui.browser import sign_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from playwright.sync_api import Browser

    from airflow_hivelock.locks import Lease, LockManager
    from tests.support.servers import PostgresServer, ZooKeeperServer
    from tests.system.ui.browser import Tab

collect_ignore_glob = [] if os.environ.get("HIVELOCK_UI") else ["test_*.py"]

PICTURES = os.environ.get("PICTURES")
SIZE = (1400, 640)
PATIENCE_S = 300.0
_numbers = itertools.count(10)


@dataclass(frozen=True)
class Task:
    """A task of a run. *gate* lets it end its work."""

    owner: str
    run: str
    dag: str
    gate: Path


@dataclass(frozen=True)
class Store:
    """A part of the warehouse, and the lock store of its tasks.

    :ivar past: leases that end when there is enough history.
    """

    name: str
    manager: LockManager
    airflow: AirflowServer
    browser: Browser
    past: Sequence[Lease]

    @property
    def conn_id(self) -> str:
        return STORES[self.name]

    def start(self, kind: str, target: str, *, gated: bool = False) -> Task:
        """Trigger a run whose task wants *target*."""
        dag, run = f"{self.name}_{kind}", f"week-{next(_numbers)}"
        gate = self.airflow.home / "gates" / run
        conf = {"object": target, "gate": str(gate) if gated else ""}
        self.airflow.trigger(dag, conf=conf, run_id=run)
        return Task(owner(dag, run), run, dag, gate)

    def waiting(self, *kinds: str, target: str) -> list[Task]:
        """A task of each kind that waits for *target*, in this order."""
        tasks = []
        for kind in kinds:
            tasks.append(self.start(kind, target))
            self.until(lambda: self.waiters(target) == {task.owner for task in tasks}, "the task to wait")
        return tasks

    def waiters(self, target: str) -> set[str]:
        return {waiter.owner for waiter in self.manager.waiters(target)}

    def holders(self, target: str) -> set[str]:
        return {holder.owner for holder in self.manager.show(target)}

    def until(self, condition: Callable[[], Any], what: str) -> None:
        self.airflow.wait(condition, PATIENCE_S, what)

    def ends(self, task: Task, state: str) -> None:
        """Wait until the task is over, and so."""
        self.until(lambda: self.airflow.task(task.dag, task.run, "load").state == state, f"{task} to be {state}")

    def logs(self, task: Task, text: str) -> None:
        """Wait until the task's log has the text."""
        self.until(lambda: text in self.airflow.task_log(task.dag, task.run, "load"), f"{text!r} in the log of {task}")

    def cli(self, *arguments: str) -> str:
        """What ``airflow hivelock`` prints for Ann."""
        return self.airflow.cli("hivelock", "--conn-id", self.conn_id, "--user", "ann", *arguments)

    def get(self, route: str, **parameters: str) -> Any:
        """The HTTP API's answer for the operator."""
        answer = self.airflow.api_as("operator").client.get(
            f"/hivelock/api/v1/{self.conn_id}/{route}", params=parameters
        )
        return answer.raise_for_status().json()

    def post(self, route: str, **body: Any) -> Any:
        """The same of a change."""
        client = self.airflow.api_as("operator").client
        headers = {"X-Hivelock": "release"}
        answer = client.post(f"/hivelock/api/v1/{self.conn_id}/{route}", json=body, headers=headers)
        return answer.raise_for_status().json()

    def page(self) -> AbstractContextManager[Tab]:
        """A tab of the operator's."""
        return sign_in(self.browser, self.airflow, "operator", size=SIZE)

    def shoot(self, tab: Tab, lever: str, height: int = SIZE[1]) -> None:
        """Take a picture of the page down to *height*, if pictures are wanted."""
        if PICTURES:
            path = Path(PICTURES) / f"{lever}-{self.name}.png"
            tab.page.screenshot(path=path, clip={"x": 0, "y": 0, "width": SIZE[0], "height": height})

    @contextmanager
    def held(self, target: str) -> Iterator[None]:
        """Bob works on *target*."""
        lease = self.manager.acquire(owner=f"cli:bob:{uuid.uuid4()}", writes=[target])
        try:
            yield
        finally:
            self.manager.release(lease)


def owner(dag: str, run: str) -> str:
    """The owner that the task ``load`` of a run is."""
    return str(Owner(INSTALLATION, dag, run, "load"))


def past_of(name: str, manager: LockManager) -> list[Lease]:
    """Leases of earlier runs of the daily task on different days of a table."""
    return [
        manager.acquire(owner=owner(f"{name}_daily", f"week-{number}"), writes=[f"dw.{name}/week={number}"])
        for number in range(1, 8)
    ]


@pytest.fixture(scope="session")
def mailbox() -> Iterator[Mailbox]:
    with Mailbox() as mailbox:
        yield mailbox


@pytest.fixture(scope="session")
def stores(
    tmp_path_factory: pytest.TempPathFactory,
    zookeeper: ZooKeeperServer,
    postgres: PostgresServer,
    mailbox: Mailbox,
    browser: Browser,
) -> Iterator[dict[str, Store]]:
    """By name. The leases of the past begin before Airflow starts, so that they are long."""
    urls = {"sales": f"zookeeper://{zookeeper.hosts}/levers?root=/levers_leases", "orders": postgres.url}
    mail = {"conn_type": "smtp", "host": "127.0.0.1", "port": mailbox.port}
    connections: dict[str, dict[str, Any]] = {
        "hivelock_default": locks_in(urls["sales"], INSTALLATION),
        "orders_locks": locks_in(urls["orders"], INSTALLATION),
        "smtp_default": mail | {"extra": {"disable_ssl": True, "disable_tls": True}},
    }
    with ExitStack() as stack:
        managers = {name: stack.enter_context(connect(url)) for name, url in urls.items()}
        past = {name: past_of(name, manager) for name, manager in managers.items()}
        airflow = AirflowServer(
            tmp_path_factory.mktemp("levers") / "airflow",
            Path(__file__).parent / "dags",
            connections=connections,
            users={"operator": "op"},
        )
        stack.enter_context(airflow)
        (airflow.home / "gates").mkdir()
        for name in managers:
            for kind in ("daily", "spark", "heavy"):
                airflow.unpause(f"{name}_{kind}", PATIENCE_S)
        yield {name: Store(name, manager, airflow, browser, past[name]) for name, manager in managers.items()}


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest, stores: dict[str, Store]) -> Store:
    return stores[request.param]
