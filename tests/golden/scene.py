"""One of each kind of request, with every optional field set somewhere."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import Blocked, LeaseLimit, LockLost, rules
from airflow_hivelock.locks.backend import NeedsSlot
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create, Delete
from airflow_hivelock.locks.model import DeferredGrant, LockObject, owner_key

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager

DAYS = [f"dw.flights/dt=2013-01-0{day}" for day in (1, 2, 3)]
LIMIT = LeaseLimit("rerun", 1)
HIVES = b"ann_20130101:1357000000000:IMPLICIT:INSERT OVERWRITE TABLE dw.hives SELECT 1:10.0.0.1"


def owner(name: str) -> str:
    return f"here/dag/run/{name}/-1"


def begin(manager: LockManager, name: str, outcome: type, **given: Any) -> Any:
    """Begin a request, and look once; it stays in the store."""
    wanted = {"lease_s": 3600.0, "attempt": 2, "query": f"INSERT … for {name}", "priority": 1, **given}
    pending = manager.begin(
        rules.request(owner(name), wanted.pop("reads", ()), wanted.pop("writes", ()), **wanted), _ignore
    )
    found = pending.poll()
    assert isinstance(found, outcome), (name, found)
    return pending


def make(manager: LockManager) -> None:
    """Fill an empty store."""
    held = manager.acquire(
        owner=owner("holds"),
        reads=["dw", "dw.airports"],
        writes=DAYS[:2],
        lease_s=1800.0,
        attempt=3,
        query="INSERT OVERWRITE TABLE dw.flights",
        priority=7,
        limit=LIMIT,
    )
    held = manager.start_work(held, "job", '{"kind":"process"}')
    assert manager.release(held, objects=[DAYS[1]])
    asked = datetime(2013, 1, 2, 3, 4, 5, tzinfo=UTC)
    begin(manager, "waits", Blocked, writes=DAYS[:1], priority=5, asked=asked, named="writes a day")
    begin(manager, "waits-urgently", Blocked, writes=DAYS[:1], priority=9)
    begin(manager, "parked", Blocked, writes=["dw.parked"], limit=LIMIT)
    manager.set_group("spark-prod", 3, weight=2, comment="as many as the cluster runs", user="ops")
    manager.acquire(owner=owner("heavy"), writes=["dw.heavy"], limit=LeaseLimit("spark-prod", weight=3))
    begin(manager, "heavy-by-default", Blocked, writes=["dw.heavy_too"], limit=LeaseLimit("spark-prod"))
    begin(manager, "invited", NeedsSlot, writes=["dw.invited"], deferred=DeferredGrant(invitation_s=3600.0))
    begin(manager, "away", NeedsSlot, writes=["dw.away"], deferred=DeferredGrant())
    begin(manager, "was-invited", NeedsSlot, writes=["dw.busy"], deferred=DeferredGrant(invitation_s=0.001))
    manager.acquire(owner=owner("takes-its-turn"), writes=["dw.busy"], timeout_s=10)
    manager.release(manager.acquire(owner=owner("ended"), reads=["dw.ended"], lease_s=60.0))
    forced = manager.acquire(owner=owner("forced"), writes=["dw.forced"])
    assert manager.force_release(forced.id, reason="its host is gone", user="ops")
    if isinstance(manager.backend, ZooKeeperBackend):
        _on_zookeeper(manager, manager.backend)


def _on_zookeeper(manager: LockManager, backend: ZooKeeperBackend) -> None:
    store = backend.store
    lost = manager.acquire(owner=owner("lost"), writes=["dw.lost"])
    node = next(each for each in store.namespace.below(LockObject.parse("dw.lost")))
    store.client.submit(Commit((Delete(node.path),)))
    with pytest.raises(LockLost):
        manager.verify(lost)
    record = store.read(owner_key(lost.owner))
    assert record is not None
    assert store.rewrite(record, replace(record, lost=("dw.lost",)))  # as a request does that gets its path
    hives = store.layout.object(LockObject.parse("dw.hives"))
    nodes = (Create(hives), Create(f"{hives}/LOCK-EXCLUSIVE-", HIVES, sequential=True))
    store.client.submit(Commit(nodes))
    backend.patience_s = 0.0
    waits = begin(manager, "among-hives", Blocked, writes=["dw.hives"])
    waits.poll()


def _ignore() -> None:
    """A wake-up without a waiter."""
