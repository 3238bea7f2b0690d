"""An owner's record, as the checks read it: from the raw node, not by the code under test."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_hivelock.locks.model import LockObject

if TYPE_CHECKING:
    from tests.simulation.model import Znode

NAMESPACE = "/hive_zookeeper_namespace"
ROOT = "/airflow_hivelock"
QUEUED = ("waiting",)
HOLDING = ("granted", "lost")


class Share(NamedTuple):
    """A record's part about its request's group of leases."""

    group: str
    most: int
    permit: int | None
    ticket: str
    place: int
    placed_ms: int


class State(NamedTuple):
    """The contents of a record.

    :param modes: ``"S"`` or ``"X"`` by the object's path below Hive's namespace.
    :param places: the objects on which it has lock nodes, with the zxid that created each.
    :param zxid: of the write that set its state.
    :param until_ms: when its invitation ends; 0: it is not invited.
    :param old_turn: the turn that it had when its invitation ended.
    :param weight: how many permits it asks for; 0: the default.
    :param permits: the numbers of all its permits.
    """

    owner: str
    state: str
    process: str
    epoch: int
    order: tuple[int, int]
    ticket_epoch: int
    wait: bool
    modes: dict[str, str]
    places: dict[str, int]
    token: int
    zxid: int
    share: Share | None = None
    priority: int = 1
    until_ms: int = 0
    old_turn: int = 0
    written_ms: int = 0
    weight: int = 0
    permits: tuple[int, ...] = ()

    @classmethod
    def of(cls, node: Znode) -> State:
        data: dict[str, Any] = json.loads(node.data)
        zxid, state = node.stat.mzxid, data["state"]
        modes = modes_of(data["locks"])
        share = Share(*data["share"]) if "share" in data else None
        places: dict[str, int] = {}
        if state in HOLDING:
            places = dict.fromkeys(modes, data["written"] or zxid)
        if state in HOLDING or state == "waiting":
            places |= {path_of(name): made or zxid for name, made in data["placeholders"]}
        return cls(
            data["owner"],
            state,
            data["process"],
            data["epoch"],
            (data["attempt"], data["begin"] or zxid),
            data["ticket_epoch"],
            data["wait"],
            modes,
            places,
            data["token"] or zxid,
            zxid,
            share,
            data["priority"],
            node.stat.mtime_ms + round(data.get("invitation_s", 0) * 1000) if state == "invited" else 0,
            data.get("old_turn", 0),
            node.stat.mtime_ms,
            data.get("weight", 0),
            () if share is None or share.permit is None else (share.permit, *data.get("permits", ())),
        )

    @property
    def holds(self) -> bool:
        return self.state in HOLDING

    @property
    def queued(self) -> bool:
        return self.state in QUEUED

    @property
    def parked(self) -> bool:
        return self.state == "parked"

    @property
    def invited(self) -> bool:
        return self.state == "invited"

    @property
    def in_line(self) -> bool:
        """Whether its tickets keep the requests behind them waiting, and it holds nothing."""
        return self.queued or self.invited

    @property
    def waits(self) -> bool:
        return self.queued or self.parked

    @property
    def away(self) -> bool:
        return self.state == "away"

    def conflict(self, other: State) -> str | None:
        """An object on which the two exclude each other."""
        modes = other.modes
        for name, mode in self.modes.items():
            if name in modes and "X" in (mode, modes[name]):
                return name
        return None


def modes_of(locks: dict[str, str]) -> dict[str, str]:
    """``"S"`` or ``"X"`` by the object's path, of locks as they are stored."""
    return {path_of(name): mode for name, mode in locks.items()}


@cache
def path_of(name: str) -> str:
    """An object's path below Hive's namespace."""
    return "/".join(LockObject.parse(name).path)
