"""What must hold of a history, whatever happened: replayed from ZooKeeper's transaction log, write by write."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_hivelock.locks.backends.zookeeper.layout import LockData, LockNode
from airflow_hivelock.locks.model import locks_from_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from tests.system.histories.transactions import Transaction

HOLDING = {"trying", "granted", "lost"}
"""The states of a request that has lock nodes: all of them. In every other it has none."""

ASKING = {"waiting", "parked", *HOLDING}

STANDING = {"granted", "lost"}
"""The states of a request whose lease is counted among those of its group."""

HOUR_S = 3600.0
"""The bound on passing, unless a connection gives another one."""

STALE_S = 4.0
"""How old at most what a request saw may be when it takes its place: a process may stand still in between, though not for longer
than its session lives."""

Nodes = set[tuple[str, str]]
"""Path of the object and mode of each."""


class Place(NamedTuple):
    """When a request took its place among those that wait for locks."""

    zxid: int
    at_ms: int
    priority: int


@dataclass
class History:
    """One run, as far as it has been replayed. Only for our own clients: among them no two lock nodes ever conflict.

    :param broken: every promise that a transaction broke, with its zxid.
    :param passing_s: for how long a request that waits may be passed by more urgent ones.
    :param contended: grants to whom a conflicting lock had been in the way.
    :param passed: how often one that waited was passed.
    :param aside: how many requests have stepped aside.
    :param most: how many leases of a group stood at a time, by group.
    """

    layout: Layout
    passing_s: float = HOUR_S
    granted: int = 0
    contended: int = 0
    passed: int = 0
    aside: int = 0
    most: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    _requests: dict[str, tuple[str, int, Nodes]] = field(default_factory=dict)
    _held: defaultdict[str, Nodes] = field(default_factory=lambda: defaultdict(set))
    _locked: defaultdict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    _owners: dict[str, str] = field(default_factory=dict)
    _freed: dict[tuple[str, str], int] = field(default_factory=dict)
    _places: dict[str, Place] = field(default_factory=dict)
    _alive: dict[str, int] = field(default_factory=dict)
    _counted: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, transactions: Iterable[Transaction], layout: Layout, passing_s: float = HOUR_S) -> History:
        history = cls(layout, passing_s)
        for transaction in transactions:
            history.replay(transaction)
        return history

    @property
    def left_behind(self) -> list[str]:
        """The lock nodes that still stand."""
        return sorted(f"{target}/{name}" for target, nodes in self._locked.items() for name in nodes)

    def replay(self, transaction: Transaction) -> None:
        """After each transaction: no two locks that conflict, each owner with all that it asks for or nothing, no more leases
        of a group than it bears; and nobody granted what another has waited for longer than the bound on passing."""
        touched = set()
        for write in transaction.writes:
            parent, _, name = write.path.rpartition("/")
            if parent == self.layout.records and write.data:
                self._request(name, json.loads(write.data), transaction)
                touched.add(name)
            elif write.path == self.layout.alive(name):
                self._life(name, transaction.zxid, ended=write.data is None)
            elif LockNode.parse(name):
                touched.add(self._lock(parent, name, write.data, transaction.zxid))
        for key in touched:
            state, _, wanted = self._requests.get(key, ("absent", 0, set()))
            if self._held[key] != (wanted if state in HOLDING else set()):
                self.broken.append(
                    f"{transaction.zxid:#x}: {key} is {state}, wants {sorted(wanted)} and has {sorted(self._held[key])}"
                )

    def _request(self, key: str, record: dict[str, Any], transaction: Transaction) -> None:
        zxid = transaction.zxid
        before, asked, _ = self._requests.get(key, ("absent", 0, set()))
        state, locks = str(record["state"]), record["locks"]
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
        self.aside += state == "away" != before
        self._stand(key, before, state, record["priority"], transaction)
        self._count(key, state, record.get("share"), zxid)

    def _stand(self, key: str, before: str, state: str, priority: int, transaction: Transaction) -> None:
        """A request takes its place among those that wait for locks, keeps it, or leaves it."""
        now = Place(transaction.zxid, transaction.time_ms, priority)
        if state in ("waiting", "trying"):
            self._places.setdefault(key, now)
            return
        mine = self._places.pop(key, now)
        if state != "granted" or before == state:
            return
        for other, place in self._places.items():
            if place.zxid > mine.zxid or not self._conflict(key, other):
                continue
            self.passed += 1
            may_pass_s = self.passing_s if place.priority < mine.priority else 0.0
            waited_s = (mine.at_ms - place.at_ms) / 1000
            if waited_s > may_pass_s + STALE_S and self._alive.get(other, now.zxid) <= place.zxid:
                self.broken.append(
                    f"{now.zxid:#x}: {key} of priority {mine.priority} was granted what {other} of priority "
                    f"{place.priority} had waited for {waited_s:.1f} s longer"
                )

    def _conflict(self, one: str, other: str) -> bool:
        """Whether the requests of two owners exclude each other."""
        mine, theirs = self._requests[one][2], dict(self._requests[other][2])
        return any(target in theirs and "EXCLUSIVE" in (mode, theirs[target]) for target, mode in mine)

    def _life(self, key: str, zxid: int, *, ended: bool) -> None:
        """The sign of life of one that waits came, or went."""
        if ended:
            self._alive.pop(key, None)
        else:
            self._alive.setdefault(key, zxid)

    def _count(self, key: str, state: str, share: Sequence[Any] | None, zxid: int) -> None:
        """A lease came among those of its group, or went."""
        if state not in STANDING or share is None:
            for leases in self._counted.values():
                leases.discard(key)
            return
        group, most = share[:2]
        self._counted[group].add(key)
        self.most[group] = max(self.most[group], len(self._counted[group]))
        if len(self._counted[group]) > most:
            self.broken.append(f"{zxid:#x}: {len(self._counted[group])} leases of {group!r} stand, and {most} may")

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
