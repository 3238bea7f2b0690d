"""The cost of a grant in a database with thousands of other leases, and in an empty one: ZooKeeper and PostgreSQL.

Both are on the same server, and are measured alternately, because the machine's speed changes from minute to minute.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from airflow_hivelock.locks import connect as connect_url
from tests.bench.contenders import connect
from tests.bench.runner import rounds, say
from tests.bench.samples import Samples, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow_hivelock.locks import LockManager
    from tests.support.servers import PostgresServer, ZooKeeperServer

TABLES = 50


@dataclass(frozen=True)
class Beside:
    """An acquire with its release, in milliseconds.

    :param leases: how many others hold leases of the same tables, in the second case.
    """

    leases: int
    alone: Samples
    crowded: Samples


def measure(zookeeper: ZooKeeperServer, postgres: PostgresServer, leases: int, times: int) -> Mapping[str, Beside]:
    stores: dict[str, Callable[[str], LockManager]] = {
        "ZooKeeper": lambda name: connect(zookeeper.hosts, f"hive-{name}"),
        "PostgreSQL": lambda name: connect_url(f"{postgres.url}?prefix={name}_"),
    }
    found = {}
    for store, opened in stores.items():
        say(f"{store}: a grant beside {leases:,} leases")
        with opened("alone") as alone, opened("crowd") as crowd:
            for nth in range(leases):
                crowd.acquire(owner=f"holder-{nth}", writes=[f"dw.table_{nth % TABLES:02d}/n={nth}"])
            ways = {"alone": partial(_cycle, alone, count()), "crowd": partial(_cycle, crowd, count())}
            taken = rounds(ways, times, warm_up=times)
            found[store] = Beside(leases, *(Samples.of(taken[way]) for way in ways))
    return found


def _cycle(manager: LockManager, numbers: Iterator[int]) -> float:
    nth = next(numbers)
    partition = f"dw.table_{nth % TABLES:02d}/n=mine"
    return timed(lambda: manager.release(manager.acquire(owner=f"mine-{os.getpid()}-{nth}", writes=[partition])))
