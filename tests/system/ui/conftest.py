"""A real API server on a real ZooKeeper with live locks. ``make test-ui`` runs this folder; ``make test`` does not."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import connect
from tests.support.servers import ZooKeeperServer
from tests.support.servers.server import free_port
from tests.system.ui import scene
from tests.system.ui.browser import sign_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from playwright.sync_api import Browser

    from airflow_hivelock.locks import Lease, LockManager
    from tests.support.airflow_server import AirflowServer
    from tests.system.ui.browser import Tab

CROWD = "crowd"
"""The connection, and the namespace in ZooKeeper, of :mod:`tests.system.ui.test_crowd`."""

collect_ignore_glob = [] if os.environ.get("HIVELOCK_UI") else ["test_*.py"]


@dataclass(frozen=True)
class Stage:
    """The page in the browser."""

    airflow: AirflowServer
    zookeeper: ZooKeeperServer
    manager: LockManager
    leases: dict[str, Lease]
    browser: Browser

    def sign_in(self, user: str | None, **how: Any) -> AbstractContextManager[Tab]:
        return sign_in(self.browser, self.airflow, user, **how)


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Stage]:
    workdir = tmp_path_factory.mktemp("page")
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer(workdir))
        manager = stack.enter_context(connect(zookeeper.url))
        hive = scene.hive_lock(zookeeper)
        stack.callback(hive.close)
        stack.callback(hive.stop)
        leases = scene.play(manager)
        nowhere = scene.connection(zookeeper) | {"host": f"127.0.0.1:{free_port()}"}
        more = {
            "crowd": scene.connection(zookeeper, CROWD, root=f"/{CROWD}_leases"),
            "away": nowhere,
            "metastore_away": nowhere | {"schema": "", "extra": {**nowhere["extra"], "backend": "metastore"}},
        }
        airflow = stack.enter_context(scene.api_server(workdir, zookeeper, **more))
        scene.tell(airflow.database_url)
        yield Stage(airflow, zookeeper, manager, leases, browser)
