"""One Airflow for all rows, and the table that they fill."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.system.deaths.stage import staged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import ZooKeeperServer
    from tests.system.deaths.play import Stage


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("deaths"), zookeeper) as stage:
        yield stage
