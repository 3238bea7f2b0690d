"""One Airflow for all rows, and the table that they fill."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.deaths.stage import staged
from tests.servers import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.deaths.play import Stage
    from tests.servers import ZooKeeperServer


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("deaths")
    with PostgresServer(directory) as database, staged(directory, zookeeper, database) as stage:
        yield stage
