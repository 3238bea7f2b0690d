"""A worker that breaks one promise, to show that a history tells."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_hivelock.locks import LeaseLimit, permits, queueing
from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace
from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
from tests.system.histories import worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from airflow_hivelock.locks.backends.zookeeper.client import Create


def conflicts_ignored() -> None:
    """Everything goes with everything."""
    queueing.conflict = lambda one, other: False


def half_acquired() -> None:
    """The last lock of each request is put on the object of the first."""
    original = Namespace.lock_nodes

    def lock_nodes(self: Namespace, locks: Any, *args: Any) -> Sequence[Create]:
        nodes = [create for create in original(self, locks, *args) if create.sequential]
        return [*original(self, list(locks)[:-1], *args), nodes[0]]

    Namespace.lock_nodes = lock_nodes  # type: ignore[method-assign, assignment]


def half_released() -> None:
    """One lock node of each lease stays."""
    original = ZooKeeperStore.known_nodes

    def known_nodes(self: ZooKeeperStore, record: Any) -> Any:
        known = original(self, record)
        return known and known._replace(paths=dict(list(known.paths.items())[1:]))

    ZooKeeperStore.known_nodes = known_nodes  # type: ignore[method-assign]


def limits_ignored() -> None:
    """There is always one more lease of a group, though it bears but one."""
    worker.FEW, worker.CHANGES = LeaseLimit("few", 1), 0.0
    permits.free = lambda *_: True


WAYS = {way.__name__: way for way in (conflicts_ignored, half_acquired, half_released, limits_ignored)}

if __name__ == "__main__":
    WAYS[sys.argv[4]]()
    worker.main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
