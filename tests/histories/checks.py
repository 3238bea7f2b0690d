"""What must hold of a history, whatever happened."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hivelock.locks import LockMode
from airflow_hivelock.locks.backends.zookeeper.client import Children, Get
from airflow_hivelock.locks.backends.zookeeper.record import Record, State

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend


@dataclass(frozen=True)
class Held:
    """From the transaction that made its lock nodes to the one that took them away, in ZooKeeper's order."""

    owner: str
    first_zxid: int
    last_zxid: int
    mode: LockMode


def granted(backend: ZooKeeperBackend) -> list[Record]:
    """The records of all requests that were ever granted."""
    (listing,) = backend.client.submit(Children(backend.layout.records))
    records = []
    for start in range(0, len(listing.names), 500):
        paths = [backend.layout.record(key) for key in listing.names[start : start + 500]]
        nodes = backend.client.submit(*map(Get, paths))
        records += [Record.decode(node, path) for node, path in zip(nodes, paths, strict=True) if node]
    return [record for record in records if record.token]


def overlaps(records: list[Record]) -> list[tuple[str, Held, Held]]:
    """Pairs of conflicting locks that were held at once."""
    held: defaultdict[str, list[Held]] = defaultdict(list)
    for record in records:
        assert record.stat
        last = record.stat.mzxid if record.state is State.TOMBSTONE else 1 << 62
        for lock in record.locks:
            held[str(lock.object)].append(Held(record.owner, record.token, last, lock.mode))
    return [
        (name, one, other)
        for name, all_ in held.items()
        for one, other in _neighbours(sorted(all_, key=lambda one: one.first_zxid))
        if LockMode.EXCLUSIVE in (one.mode, other.mode)
    ]


def _neighbours(held: list[Held]) -> list[tuple[Held, Held]]:
    """Pairs that overlap, by a sweep in the order of their beginnings."""
    pairs, open_ = [], list[Held]()
    for one in held:
        open_ = [other for other in open_ if other.last_zxid > one.first_zxid]
        pairs += [(other, one) for other in open_]
        open_.append(one)
    return pairs


def lost_updates(directory: Path) -> dict[str, tuple[int, int]]:
    """Counters that are lower than the number of updates that were logged: name to value and log."""
    logged = Counter(name for log in directory.glob("log-*") for name in log.read_text().split())
    values = {name: int((directory / name).read_text()) for name in logged}
    return {name: (values[name], logged[name]) for name in logged if values[name] < logged[name]}
