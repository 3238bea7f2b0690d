"""The cost of a grant in a database with thousands of other leases, and in an empty one: ZooKeeper and PostgreSQL.

Both are on the same server, and are measured alternately, because the machine's speed changes from minute to minute.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hivelock.locks import connect as connect_url
from tests.bench.contenders import connect
from tests.bench.samples import Samples, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


def measure(
    zookeeper: ZooKeeperServer, postgres: PostgresServer, leases: int, rounds: int, say: Callable[[str], None]
) -> Mapping[str, Beside]:
    stores: dict[str, tuple[Callable[[], LockManager], Callable[[], LockManager]]] = {
        "ZooKeeper": (lambda: connect(zookeeper.hosts, "hive-alone"), lambda: connect(zookeeper.hosts, "hive-crowd")),
        "PostgreSQL": (
            lambda: connect_url(f"{postgres.url}?prefix=alone_"),
            lambda: connect_url(f"{postgres.url}?prefix=crowd_"),
        ),
    }
    found = {}
    for store, (alone, crowded) in stores.items():
        say(f"{store}: a grant beside {leases:,} leases")
        with ExitStack() as stack:
            managers = [stack.enter_context(open_()) for open_ in (alone, crowded)]
            for nth in range(leases):
                managers[1].acquire(owner=f"holder-{nth}", writes=[f"dw.table_{nth % TABLES:02d}/n={nth}"])
            times: tuple[list[float], list[float]] = ([], [])
            for nth in range(-rounds, rounds):  # the first half warms up
                for manager, taken in zip(managers, times, strict=True):
                    taken.append(timed(lambda: _cycle(manager, nth)))  # noqa: B023
            found[store] = Beside(leases, *(Samples.of(taken[rounds:]) for taken in times))
    return found


def _cycle(manager: LockManager, nth: int) -> None:
    partition = f"dw.table_{nth % TABLES:02d}/n=mine"
    manager.release(manager.acquire(owner=f"mine-{os.getpid()}-{nth}", writes=[partition]))
