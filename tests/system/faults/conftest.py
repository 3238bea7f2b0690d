"""A lock store behind a proxy, and the same one without."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import StoreUnavailable, connect
from tests.support import patience
from tests.system.faults.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_hivelock.locks import LockManager

FULL = bool(os.environ.get("FAULTS"))
"""Every fault; else those that take seconds."""

WHOLE = pytest.mark.skipif(not FULL, reason="make test-faults")
"""What takes longer."""

DAY = "dw.delays/dt=2013-01-01"

SESSION_S = 4
STORES = ("zookeeper", "postgresql")


again = partial(patience.again, bears=StoreUnavailable)
"""What a call gives, once the store answers."""


@dataclass(frozen=True)
class Site:
    """One lock store.

    :param near: straight to it.
    :param far: through the proxy.
    """

    proxy: Proxy
    url: str
    near: LockManager
    far: LockManager


def open_site(proxy: Proxy, near_url: str, far_url: str) -> Iterator[Site]:
    with proxy, connect(near_url) as near, connect(far_url) as far:
        yield Site(proxy, far_url, near, far)


@pytest.fixture(params=STORES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A store of its own on a server that all share."""
    name = tmp_path.name.replace("-", "_")
    if request.param == "zookeeper":
        server = request.getfixturevalue("zookeeper")
        proxy = Proxy.of_zookeeper(server.port)
        where = f"hive-{name}?root=/hivelock-{name}&timeout_s={SESSION_S}"
        yield from open_site(
            proxy, f"zookeeper://{server.hosts}/{where}", f"zookeeper://127.0.0.1:{proxy.port}/{where}"
        )
    else:
        server = request.getfixturevalue("postgres")
        proxy = Proxy.of_postgresql(server.port)
        where = f"postgres?schema={name[-40:].lower()}&timeout_s={SESSION_S}&sslmode=disable&gssencmode=disable"
        user = "postgresql://postgres@127.0.0.1"
        yield from open_site(proxy, f"{user}:{server.port}/{where}", f"{user}:{proxy.port}/{where}")
