"""What must hold of a history, whatever happened: replayed from ZooKeeper's transaction log, write by write."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_hivelock.locks.backends.zookeeper.layout import LockData, LockNode
from airflow_hivelock.locks.model import locks_from_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from tests.system.histories.transactions import Transaction

HOLDING = {"trying", "granted", "lost"}
"""The states of a request that has lock nodes: all of them. In every other it has none."""

ASKING = {"waiting", *HOLDING}

Nodes = set[tuple[str, str]]
"""Path of the object and mode of each."""


@dataclass
class History:
    """One run, as far as it has been replayed. Only for our own clients: among them no two lock nodes ever conflict.

    :param broken: every promise that a transaction broke, with its zxid.
    :param contended: grants to whom a conflicting lock had been in the way.
    """

    layout: Layout
    granted: int = 0
    contended: int = 0
    broken: list[str] = field(default_factory=list)
    _requests: dict[str, tuple[str, int, Nodes]] = field(default_factory=dict)
    _held: defaultdict[str, Nodes] = field(default_factory=lambda: defaultdict(set))
    _locked: defaultdict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    _owners: dict[str, str] = field(default_factory=dict)
    _freed: dict[tuple[str, str], int] = field(default_factory=dict)

    @classmethod
    def of(cls, transactions: Iterable[Transaction], layout: Layout) -> History:
        history = cls(layout)
        for transaction in transactions:
            history.replay(transaction)
        return history

    @property
    def left_behind(self) -> list[str]:
        """The lock nodes that still stand."""
        return sorted(f"{target}/{name}" for target, nodes in self._locked.items() for name in nodes)

    def replay(self, transaction: Transaction) -> None:
        """After each transaction: no two locks that conflict, and each owner with all that it asks for or nothing."""
        touched = set()
        for write in transaction.writes:
            parent, _, name = write.path.rpartition("/")
            if parent == self.layout.records and write.data:
                self._request(name, json.loads(write.data), transaction.zxid)
                touched.add(name)
            elif LockNode.parse(name):
                touched.add(self._lock(parent, name, write.data, transaction.zxid))
        for key in touched:
            state, _, wanted = self._requests.get(key, ("absent", 0, set()))
            if self._held[key] != (wanted if state in HOLDING else set()):
                self.broken.append(
                    f"{transaction.zxid:#x}: {key} is {state}, wants {sorted(wanted)} and has {sorted(self._held[key])}"
                )

    def _request(self, key: str, record: dict[str, object], zxid: int) -> None:
        before, asked, _ = self._requests.get(key, ("absent", 0, set()))
        state, locks = str(record["state"]), record["locks"]
        assert isinstance(locks, dict)
        wanted = {(self.layout.object(lock.object), lock.mode.value) for lock in locks_from_json(locks)}
        if state in ASKING and before not in ASKING:
            asked = zxid
        if state == "granted" != before:
            self.granted += 1
            rivals = ((target, mode) for target, mode in self._freed if self._freed[target, mode] > asked)
            self.contended += any(
                target == other and "EXCLUSIVE" in (mode, others) for other, others in rivals for target, mode in wanted
            )
        self._requests[key] = state, asked, wanted

    def _lock(self, target: str, name: str, data: bytes | None, zxid: int) -> str:
        """A lock node came, or went where *data* is None; whose it is."""
        mode, path, nodes = name.split("-")[1], f"{target}/{name}", self._locked[target]
        if data is None:
            key = self._owners.pop(path)
            del nodes[name]
            self._held[key].discard((target, mode))
            self._freed[target, mode] = zxid
            return key
        for other, others in nodes.items():
            if "EXCLUSIVE" in (mode, others):
                self.broken.append(f"{zxid:#x}: {path} was made beside {other}")
        key = self._owners[path] = LockData.decode(data).owner_key
        nodes[name] = mode
        self._held[key].add((target, mode))
        return key


def lost_updates(directory: Path) -> dict[str, tuple[int, int]]:
    """Counters that are lower than the number of updates that were logged: name to value and log."""
    logged = Counter(name for log in directory.glob("log-*") for name in log.read_text().split())
    values = {name: int((directory / name).read_text()) for name in logged}
    return {name: (values[name], logged[name]) for name in logged if values[name] < logged[name]}
