"""What must hold of a history, whatever happened: replayed from ZooKeeper's transaction log, write by write."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_hivelock.locks.backends.zookeeper.layout import LockData, LockNode
from airflow_hivelock.locks.model import locks_from_json, owner_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from tests.system.histories.transactions import Transaction

HOLDING = {"granted", "lost"}
"""The states of a request that has lock nodes: all of them. In every other it has none. A lease that is granted is returned to
its caller later, once it has been verified, or is given back."""

ASKING = {"waiting", "parked", *HOLDING}

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


@dataclass(eq=False)
class Episode:
    """From a grant until its lock nodes are deleted.

    :param given_back: its lease was not returned.
    :param contended: a conflicting lock had been in the way.
    :param passed: how many requests before it waited meanwhile.
    :param unfair: the promises that the grant broke, if its lease was returned.
    """

    key: str
    lease_id: str
    nodes: Nodes
    since: int
    until: float = math.inf
    given_back: bool = False
    contended: bool = False
    passed: int = 0
    unfair: list[str] = field(default_factory=list)


@dataclass
class History:
    """One run, as far as it has been replayed. Only for our own clients.

    Two conflicting requests may have lock nodes at the same time: the later one has not been verified, and gives them
    back. So only the leases that were *returned* to their callers show a conflict.

    :param returned: their ids; None: all that were not given back.
    :param passing_s: for how long more urgent requests may pass a waiter.
    :param halves: every transaction after which a request had a part of its locks, or a group too many leases.
    :param away: how many requests have gone away.
    :param most: the largest number of leases of a group that were held at a time, by group.
    """

    layout: Layout
    returned: Collection[str] | None = None
    passing_s: float = HOUR_S
    away: int = 0
    most: Counter[str] = field(default_factory=Counter)
    halves: list[str] = field(default_factory=list)
    _episodes: list[Episode] = field(default_factory=list)
    _current: dict[str, Episode] = field(default_factory=dict)
    _requests: dict[str, tuple[str, int, Nodes]] = field(default_factory=dict)
    _held: defaultdict[str, Nodes] = field(default_factory=lambda: defaultdict(set))
    _locked: defaultdict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    _owners: dict[str, str] = field(default_factory=dict)
    _freed: dict[tuple[str, str], int] = field(default_factory=dict)
    _places: dict[str, Place] = field(default_factory=dict)
    _alive: dict[str, int] = field(default_factory=dict)
    _counted: defaultdict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    _limits: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        transactions: Iterable[Transaction],
        layout: Layout,
        returned: Collection[str] | None = None,
        passing_s: float = HOUR_S,
    ) -> History:
        history = cls(layout, returned, passing_s)
        for transaction in transactions:
            history.replay(transaction)
        return history

    @property
    def leases(self) -> list[Episode]:
        """Those that were returned: the last grant of each id, for what was returned is never given back."""
        last = {episode.lease_id: episode for episode in self._episodes}
        if self.returned is None:
            return [episode for episode in last.values() if not episode.given_back]
        return [last[lease_id] for lease_id in self.returned if lease_id in last]

    @property
    def given_back(self) -> int:
        """How many grants were not returned."""
        return sum(episode.given_back for episode in self._episodes)

    @property
    def broken(self) -> list[str]:
        """Every promise that was broken, with the zxid of the transaction that broke it."""
        leases = self.leases
        return [*self.halves, *(line for lease in leases for line in lease.unfair), *_overlaps(leases)]

    @property
    def left_behind(self) -> list[str]:
        """The remaining lock nodes."""
        return sorted(f"{target}/{name}" for target, nodes in self._locked.items() for name in nodes)

    def replay(self, transaction: Transaction) -> None:
        """After each transaction: each owner has all of its locks or none, and a group no more leases than it may have.

        For each grant it notes which requests it has passed, and whether one had waited for longer than the bound.
        """
        touched = set()
        for write in transaction.writes:
            parent, _, name = write.path.rpartition("/")
            if parent == self.layout.records and write.data:
                self._request(name, json.loads(write.data), transaction)
                touched.add(name)
            elif write.path == self.layout.limit(parent.rpartition("/")[2]):
                self._limits[parent.rpartition("/")[2]] = json.loads(write.data)["leases"] if write.data else 0
            elif write.path == self.layout.alive(name):
                self._life(name, transaction.zxid, ended=write.data is None)
            elif LockNode.parse(name):
                touched.add(self._lock(parent, name, write.data, transaction.zxid))
        for key in touched:
            state, _, wanted = self._requests.get(key, ("absent", 0, set()))
            if self._held[key] != (wanted if state in HOLDING else set()):
                self.halves.append(
                    f"{transaction.zxid:#x}: {key} is {state}, wants {sorted(wanted)} and has {sorted(self._held[key])}"
                )

    def _request(self, key: str, record: dict[str, Any], transaction: Transaction) -> None:
        zxid = transaction.zxid
        before, asked, _ = self._requests.get(key, ("absent", 0, set()))
        state, locks = str(record["state"]), record["locks"]
        wanted = {(self.layout.object(lock.object), lock.mode.value) for lock in locks_from_json(locks)}
        if state in ASKING and before not in ASKING:
            asked = zxid
        self._requests[key] = state, asked, wanted
        self.away += state == "away" != before
        if state in HOLDING and before not in HOLDING:
            self._grant(key, f"{key}-{record.get('ticket_epoch', 0)}", asked, record["priority"], transaction)
        elif state not in HOLDING and before in HOLDING:
            ended = self._current.pop(key)
            ended.until, ended.given_back = zxid, state != "tombstone"
        if state in ("waiting", "invited"):
            self._places.setdefault(key, Place(zxid, transaction.time_ms, record["priority"]))
        elif state != "granted" and not record.get("old_turn"):  # these two can wait again at their old place
            self._places.pop(key, None)
        self._count(key, state, record.get("share"), 1 + len(record.get("permits", ())), zxid)

    def _grant(self, key: str, lease_id: str, asked: int, priority: int, transaction: Transaction) -> None:
        """A request got all its lock nodes."""
        episode = Episode(key, lease_id, self._requests[key][2], transaction.zxid)
        self._episodes.append(episode)
        self._current[key] = episode
        rivals = [(target, mode) for target, mode in self._freed if self._freed[target, mode] > asked]
        episode.contended = any(
            target == other and "EXCLUSIVE" in (mode, others)
            for other, others in rivals
            for target, mode in episode.nodes
        )
        mine = self._places.setdefault(key, Place(transaction.zxid, transaction.time_ms, priority))
        for other, place in self._places.items():
            if place.zxid >= mine.zxid or self._requests[other][0] != "waiting" or not self._conflict(key, other):
                continue
            episode.passed += 1
            may_pass_s = self.passing_s if place.priority < mine.priority else 0.0
            waited_s = (mine.at_ms - place.at_ms) / 1000
            if waited_s > may_pass_s + STALE_S and self._alive.get(other, mine.zxid) <= place.zxid:
                episode.unfair.append(
                    f"{transaction.zxid:#x}: {key} of priority {mine.priority} was granted what {other} of priority "
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

    def _count(self, key: str, state: str, share: Sequence[Any] | None, weight: int, zxid: int) -> None:
        """A lease came among those of its group, or went. A limit that became smaller meanwhile takes none from a holder."""
        if state not in HOLDING or share is None:
            for leases in self._counted.values():
                leases.pop(key, None)
            return
        group, most = share[:2]
        came = key not in self._counted[group]
        self._counted[group][key] = weight
        held, most = sum(self._counted[group].values()), self._limits.get(owner_key(group)) or most
        self.most[group] = max(self.most[group], held)
        if came and held > most:
            self.halves.append(f"{zxid:#x}: {held} leases of {group!r} stand, and {most} may")

    def _lock(self, target: str, name: str, data: bytes | None, zxid: int) -> str:
        """Note that a lock node was created, or deleted if *data* is None, and its owner."""
        mode, path, nodes = name.split("-")[1], f"{target}/{name}", self._locked[target]
        if data is None:
            key = self._owners.pop(path)
            del nodes[name]
            self._held[key].discard((target, mode))
            self._freed[target, mode] = zxid
            return key
        key = self._owners[path] = LockData.decode(data).owner_key
        nodes[name] = mode
        self._held[key].add((target, mode))
        return key


def _overlaps(leases: Iterable[Episode]) -> list[str]:
    """The leases that were granted while a conflicting one was held."""
    found: list[str] = []
    standing: defaultdict[str, list[tuple[str, Episode]]] = defaultdict(list)
    for lease in sorted(leases, key=lambda lease: lease.since):
        for target, mode in sorted(lease.nodes):
            standing[target] = [entry for entry in standing[target] if entry[1].until > lease.since]
            found += [
                f"{lease.since:#x}: {lease.lease_id} was returned {mode} on {target} beside {other.lease_id}"
                for others, other in standing[target]
                if "EXCLUSIVE" in (mode, others)
            ]
            standing[target].append((mode, lease))
    return found


def returned(directory: Path) -> set[str]:
    """The ids of the leases that workers got, as far as they could log it."""
    return {lease_id for log in directory.glob("returned-*") for lease_id in log.read_text().split()[::2]}


def lost_updates(directory: Path) -> dict[str, tuple[int, int]]:
    """Counters that are lower than the number of updates that were logged: name to value and log."""
    logged = Counter(name for log in directory.glob("log-*") for name in log.read_text().split())
    values = {name: int((directory / name).read_text()) for name in logged}
    return {name: (values[name], logged[name]) for name in logged if values[name] < logged[name]}
