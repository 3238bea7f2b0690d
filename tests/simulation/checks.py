"""What must hold. Looked at after every write, at the leader, where there is one truth; and when a client believes.

Everything is told from the raw nodes, not by the code under test.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.model import LockObject
from tests.simulation.hive import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.model import Lease
    from tests.simulation.hive import HiveLock
    from tests.simulation.model import Change, Write, Znode
    from tests.simulation.session import SimulatedSession

ROOT = "/airflow_hivelock"
QUEUED = ("waiting", "trying")
HOLDING = ("granted", "lost")
_LOCK = re.compile(r"(.*)/LOCK-(SHARED|EXCLUSIVE)-([0-9]+)")


class Violation(AssertionError):
    """The protocol broke a promise."""


@dataclass(frozen=True)
class State:
    """An owner's record, as far as the checks care."""

    owner: str
    state: str
    process: str
    epoch: int
    order: tuple[int, int]
    ticket_epoch: int
    wait: bool
    modes: dict[str, str]
    lock_zxid: int
    token: int

    @property
    def holds(self) -> bool:
        return self.state in HOLDING

    @property
    def queued(self) -> bool:
        return self.state in QUEUED

    def conflict(self, other: State) -> str | None:
        """An object on which the two exclude each other."""
        return next(
            (name for name, mode in self.modes.items() if name in other.modes and "X" in (mode, other.modes[name])), None
        )


@dataclass
class Checks:
    """Follows the store.

    :param session_of: the client behind a session's id.
    """

    session_of: Callable[[int], SimulatedSession]
    tree: dict[str, Znode] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    tickets: defaultdict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    nodes: defaultdict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    foreign: dict[str, int] = field(default_factory=dict)
    hive: dict[str, HiveLock] = field(default_factory=dict)
    robbed: set[tuple[int, str]] = field(default_factory=set)
    holding: dict[tuple[str, int], Lease] = field(default_factory=dict)
    releasing: set[tuple[str, int]] = field(default_factory=set)
    forced: set[str] = field(default_factory=set)
    withdrawing: set[str] = field(default_factory=set)
    grants: int = 0
    granted_to: dict[str, str] = field(default_factory=dict)
    granted_tokens: defaultdict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))

    # Called by the model

    def observe(self, write: Write) -> None:
        """A write has been made."""
        before: dict[str, State | None] = {}
        touched: dict[str, None] = {}
        for change in write.changes:
            path = change.path
            if path.startswith(f"{ROOT}/requests/"):
                key = path.rpartition("/")[2]
                before[key] = self.states.get(key)
                touched[key] = None
                if change.after is not None:
                    self.states[key] = _state(change.after)
            elif path.startswith(f"{ROOT}/queue/") and path.count("/") == 4:
                key = path.rpartition("/")[2].split("-")[0]
                touched[key] = None
                _follow(self.tickets[key], change)
            elif path.startswith(NAMESPACE) and (match := _LOCK.fullmatch(path)):
                if len(match[3]) == 10:
                    self._foreign_changed(write, change)
                    continue
                data = (change.after or change.before).data  # type: ignore[union-attr]
                key = data.decode().split(":")[5]
                touched[key] = None
                _follow(self.nodes[key], change)
                if change.before is not None:
                    self._own_deleted(write, key, change, match[1][len(NAMESPACE) + 1 :])
        for key in touched:
            self._check_key(key, write.zxid)
        for key, earlier in before.items():
            self._check_step(key, earlier, self.states[key])

    def _foreign_changed(self, write: Write, change: Change) -> None:
        _follow(self.foreign, change)
        if change.after is None:
            self.hive.pop(change.path, None)
            by = self.session_of(write.session).name
            if not by.startswith("hive"):
                raise Violation(f"{by} deleted Hive's {change.path}")

    def _own_deleted(self, write: Write, key: str, change: Change, target: str) -> None:
        assert change.before is not None
        client = self.session_of(write.session)
        if client.robber:
            self.robbed.add((change.before.czxid, target))
        elif client.name.startswith("hive"):
            raise Violation(f"{client.name} deleted {change.path}, which is not its own")
        else:
            state = self.states[key]
            if (state.holds or state.state == "trying") and state.lock_zxid == change.before.czxid:
                raise Violation(f"{client.name} deleted {change.path} of {state.owner}, which is {state.state}")

    # Invariants of one owner

    def _check_key(self, key: str, zxid: int) -> None:
        state = self.states.get(key)
        if state is None:
            raise Violation(f"{key} has tickets or lock nodes, and no record")
        nodes = self.nodes[key]
        if state.holds or state.state == "trying":
            if strange := [path for path, czxid in nodes.items() if czxid != state.lock_zxid]:
                raise Violation(f"{state.owner} is {state.state} with nodes of {state.lock_zxid}, and {strange} too")
            robbed = sum(czxid == state.lock_zxid for czxid, _ in self.robbed)
            if len(nodes) + robbed != len(state.modes):
                raise Violation(f"{state.owner} is {state.state} with {len(nodes)} of its {len(state.modes)} nodes")
        elif nodes:
            raise Violation(f"{state.owner} is {state.state} and has lock nodes: {list(nodes)}")
        tickets = self.tickets[key]
        if state.queued or state.holds:
            if not tickets:
                raise Violation(f"{state.owner} is {state.state} without a ticket")
            if strange := [path for path in tickets if f"/{key}-{state.ticket_epoch}-" not in path]:
                raise Violation(f"{state.owner} has tickets of another epoch: {strange}")
            if len(set(tickets.values())) > 1:
                raise Violation(f"{state.owner} has tickets of several transactions")
        elif tickets:
            raise Violation(f"{state.owner} is {state.state} and has tickets: {list(tickets)}")

    # Invariants of one owner's step

    def _check_step(self, key: str, before: State | None, after: State) -> None:
        if before is not None:
            if after.epoch < before.epoch or (after.order < before.order and before.state != "tombstone"):
                raise Violation(f"{after.owner} goes back from {before} to {after}")
            if before.holds and not after.holds:
                self._check_end(key, before)
        was = before.state if before else "free"
        if after.state == "trying" and was != "trying":
            self._check_turn(key, after)
        if after.state == "granted" and was != "granted":
            self._check_grant(key, after)
        if after.state == "lost" and not self._robbed(after):
            raise Violation(f"{after.owner} is written LOST, and nobody robbed it")

    def _check_end(self, key: str, before: State) -> None:
        lease_id = f"{key}-{before.ticket_epoch}"
        wanted = lease_id in self.forced or (lease_id, before.epoch) in self.releasing or before.state == "lost"
        if not wanted and self.granted_to[key] not in self.withdrawing:
            raise Violation(f"{before.owner}: {lease_id} is freed, and nobody asked for it")
        self.holding.pop((lease_id, before.epoch), None)

    def _check_turn(self, key: str, mine: State) -> None:
        place = min(self.tickets[key].values())
        for other_key, other in self.states.items():
            if other_key != key and (other.queued or other.holds) and (target := mine.conflict(other)):
                theirs = min(self.tickets[other_key].values(), default=0)
                if theirs < place:
                    raise Violation(
                        f"{mine.owner} (ticket {place}) tries, and {other.owner} (ticket {theirs}) is {other.state} on {target}"
                    )

    def _check_grant(self, key: str, mine: State) -> None:
        self.grants += 1
        self.granted_to[key] = mine.process
        for other_key, other in self.states.items():
            if other_key != key and other.holds and (target := mine.conflict(other)):
                raise Violation(f"{mine.owner} and {other.owner} both hold {target}")
        for target, mode in mine.modes.items():
            against = [(target, "X")] if mode == "S" else [(target, "S"), (target, "X")]
            if any(self.granted_tokens[other] >= mine.token for other in against):
                raise Violation(f"{mine.owner} has token {mine.token} on {target}, no larger than one before it")
            self.granted_tokens[target, mode] = max(self.granted_tokens[target, mode], mine.token)
        self._check_hive_saw(mine)

    def _check_hive_saw(self, mine: State) -> None:
        """Nothing of Hive's that was there before the try, and still is, excludes the grant."""
        for path, czxid in self.foreign.items():
            match = _LOCK.fullmatch(path)
            assert match
            target, mode = match[1][len(NAMESPACE) + 1 :], match[2][0].replace("E", "X")
            verified = path in self.hive
            if target in mine.modes and "X" in (mode, mine.modes[target]):
                if (verified or czxid < mine.token) and (mine.token, target) not in self.robbed:
                    raise Violation(f"{mine.owner} is granted {target}, and Hive holds {path}")
            elif czxid < mine.token and any(
                above_mode == "X" and target.startswith(f"{above}/") and (mine.token, above) not in self.robbed
                for above, above_mode in mine.modes.items()
            ):
                raise Violation(f"{mine.owner} is granted X above {path}, which Hive had before")

    def _robbed(self, state: State) -> bool:
        return any(czxid == state.lock_zxid for czxid, _ in self.robbed)

    # Called by Hive's clients

    def hive_locked(self, lock: HiveLock) -> None:
        """A client of Hive's believes to hold *lock*."""
        if lock.path not in self.foreign:
            return  # unlocked behind its back; it does not look
        self.hive[lock.path] = lock
        mode = lock.mode[0].replace("E", "X")
        for state in self.states.values():
            if state.state == "granted" and lock.object in state.modes and "X" in (mode, state.modes[lock.object]):
                if (state.lock_zxid, lock.object) not in self.robbed:
                    raise Violation(f"Hive holds {lock.path} beside {state.owner}")

    def hive_unlocks(self, path: str) -> None:
        """It starts to give it back."""
        self.hive.pop(path, None)

    # Called by our processes

    def granted(self, lease: Lease, key: str) -> None:
        """A process has got *lease*."""
        state = self.states[key]
        if self.stands(lease, key):
            if {str_path(str(lock.object)): lock.mode.value[0].replace("E", "X") for lock in lease.locks} != state.modes:
                raise Violation(f"{lease.owner} got other locks than the record has")
            self.holding[lease.id, lease.epoch] = lease
        elif state.epoch <= lease.epoch and lease.id not in self.forced:
            raise Violation(f"{lease.owner} got {lease.id}, which does not stand: {state}")

    def stands(self, lease: Lease, key: str) -> bool:
        """Whether the store still has this grant, for this process."""
        state = self.states[key]
        return state.holds and (f"{key}-{state.ticket_epoch}", state.epoch) == (lease.id, lease.epoch)

    def releases(self, lease: Lease) -> None:
        """A process begins to release; it no longer thinks that it holds."""
        self.holding.pop((lease.id, lease.epoch), None)
        self.releasing.add((lease.id, lease.epoch))

    def forces(self, lease_id: str) -> None:
        """Somebody begins to free a lease by force; its holder's work has been stopped."""
        self.forced.add(lease_id)
        self.holding = {held: lease for held, lease in self.holding.items() if lease.id != lease_id}

    def released(self, lease: Lease, key: str) -> None:
        """A release has returned."""
        if self.stands(lease, key):
            raise Violation(f"{lease.owner}: {lease.id} was released, and stands")

    def lost(self, lease: Lease, key: str) -> None:
        """A process has been told that its lease is lost."""
        state = self.states[key]
        if self.stands(lease, key) and state.state != "lost" and not self._robbed(state):
            raise Violation(f"{lease.owner} is told that {lease.id} is lost, and it stands")

    def withdraws(self, process: str) -> None:
        """A process begins to give up a request that it has no lease from yet."""
        self.withdrawing.add(process)

    def withdrawn(self, key: str, process: str) -> None:
        """A process has given up its request. A lease that it only took over may stand: its work may go on."""
        state = self.states.get(key)
        if state and state.process == process and (state.queued or (state.holds and self.granted_to[key] == process)):
            raise Violation(f"{state.owner} has withdrawn, and is {state.state}")

    def left(self) -> list[str]:
        """What should not be there when all have ended and been cleaned up after."""
        left = [path for paths in (*self.nodes.values(), *self.tickets.values()) for path in paths]
        return [*left, *self.foreign, *(path for path in self.tree if path.startswith(f"{ROOT}/alive/"))]

    def at_rest(self) -> None:
        """All is over."""
        if left := self.left():
            raise Violation(f"left at the end: {left}")


@lru_cache(maxsize=None)
def str_path(name: str) -> str:
    """An object's path below Hive's namespace."""
    return "/".join(LockObject.parse(name).path)


def _state(node: Znode) -> State:
    data: dict[str, Any] = json.loads(node.data)
    written = data["written"] or (node.mzxid if data["state"] == "trying" else 0)
    return State(
        data["owner"],
        data["state"],
        data["process"],
        data["epoch"],
        (data["attempt"], data["begin"]),
        data["ticket_epoch"],
        data["wait"],
        {str_path(name): mode for name, mode in data["locks"].items()},
        written,
        data["token"],
    )


def _follow(index: dict[str, int], change: Change) -> None:
    if change.after is None:
        index.pop(change.path, None)
    else:
        index[change.path] = change.after.czxid
