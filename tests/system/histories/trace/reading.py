"""Reads transactions as steps: a step has the state of one owner before and after a transaction."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backends.zookeeper.layout import Layout, LockData, LockNode
from airflow_hivelock.locks.model import LockObject, owner_key
from tests.conformance.priority import unclaimed
from tests.system.histories.trace.state import ABSENT, INVITED, NOTHING, Life, Node, Owner, Record, State, Step, Ticket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.histories.transactions import Transaction, Write


@dataclass
class Reader:
    """The state after the transactions so far, and the owner of each node."""

    layout: Layout
    state: State = field(default_factory=State)
    _locks: dict[str, tuple[str, Node]] = field(default_factory=dict)
    _permits: dict[str, str] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def steps(self, transaction: Transaction) -> Iterator[Step]:
        """The steps of one transaction, before it is applied: one for each owner that it touches."""
        change = _Change(self, transaction)
        for write in transaction.writes:
            change.add(write)
        made, gone = frozenset(change.made), frozenset(change.gone)
        others = made or gone or change.hives_made or change.hives_gone or change.limited
        for key in change.owners or ([""] if others else []):
            before, after = self.state.of(key), change.owners.get(key, NOTHING)
            yield Step(
                key,
                transaction.zxid,
                transaction.time_ms,
                transaction.session,
                self.state,
                before,
                after,
                made,
                gone,
                bool(change.hives_made),
                bool(change.hives_gone),
                change.audited,
                key in change.wrote,
                change.limited,
            )
        self._apply(change, transaction.zxid)

    def _apply(self, change: _Change, zxid: int) -> None:
        state = self.state
        for key, owner in change.owners.items():
            state.put(key, owner, zxid)
        state.objects = change.objects
        state.hives = change.hives
        state.limits = change.limits

    def name_of(self, key: str) -> str:
        """The owner's name; its key if no record has told the name."""
        return self._names.get(key, key)

    def lease(self, lease_id: str) -> tuple[str, int]:
        """The owner and the ``ticket_epoch`` of a lease."""
        key, _, epoch = lease_id.partition("-")
        return key, int(epoch)


class _Change:
    """What one transaction does, write by write."""

    def __init__(self, reader: Reader, transaction: Transaction) -> None:
        self.reader, self.layout = reader, reader.layout
        self.zxid, self.time_ms, self.session = transaction.zxid, transaction.time_ms, transaction.session
        self.owners: dict[str, Owner] = {}
        self.objects, self.hives = reader.state.objects, reader.state.hives
        self.made: set[str] = set()
        self.gone: set[str] = set()
        self.wrote: set[str] = set()
        self.audited = self.limited = False
        self.limits = dict(reader.state.limits)
        self.hives_made: list[Node] = []
        self.hives_gone: list[Node] = []

    def add(self, write: Write) -> None:
        layout, (parent, _, name) = self.layout, write.path.rpartition("/")
        if write.path.startswith(f"{layout.namespace}/"):
            self._namespace(parent.removeprefix(layout.namespace).strip("/"), name, write)
        elif parent == layout.records:
            self._record(name, write)
        elif write.path == layout.alive(name):
            self._set(name, alive=Life(write.data.decode(), self.session) if write.data is not None else None)
        elif write.path == layout.away(name):
            self._set(name, away=write.data is not None)
        elif parent.startswith(f"{layout.queues}/"):
            self._ticket(parent.rpartition("/")[2], name, write)
        elif parent.startswith(f"{layout.groups}/"):
            self._group(*parent.removeprefix(f"{layout.groups}/").partition("/")[::2], name, write)
        elif parent == layout.audit and write.data is not None:
            self.audited = True

    def _of(self, key: str) -> Owner:
        return self.owners.get(key) or self.reader.state.of(key)

    def _set(self, key: str, **fields: Any) -> None:
        self.owners[key] = replace(self._of(key), **fields)

    def _record(self, key: str, write: Write) -> None:
        self.wrote.add(key)
        if write.data is None:
            self._set(key, record=Record())
        elif write.data:  # a new record is created empty, and written by the next operation
            data = json.loads(write.data)
            self.reader._names[key] = data["owner"]
            self._set(key, record=read_record(data, self.zxid, self.time_ms))

    def _ticket(self, unit: str, name: str, write: Write) -> None:
        key = name.partition("-")[0]
        tickets = dict(self._of(key).tickets)
        if write.data is None:
            del tickets[unit]
        else:
            data = json.loads(write.data)
            made = tickets[unit].made if unit in tickets else self.zxid
            tickets[unit] = Ticket(
                made,
                data.get("place", unclaimed(made, data.get("priority", 1))),
                tuple(sorted(read_locks(data["locks"]).items())),
            )
        self._set(key, tickets=tickets)

    def _group(self, group: str, kind: str, name: str, write: Write) -> None:
        if kind == "permits":
            if write.data is not None:
                self.reader._permits[write.path] = write.data.decode().partition("-")[0]
            key = self.reader._permits[write.path]
            one = frozenset([(group, int(name))])
            held = self._of(key).permits
            self._set(key, permits=held | one if write.data is not None else held - one)
        elif (kind, name) == ("", "limit"):
            self.limited = True
            self.limits.pop(group, None)
            if write.data is not None:
                data = json.loads(write.data)
                self.limits[group] = data["leases"], data["weight"]
        elif kind == "queue":
            key = name.partition("-")[0]
            places = self._of(key).parked
            self._set(key, parked=places | {name} if write.data is not None else places - {name})

    def _namespace(self, on: str, name: str, write: Write) -> None:
        if not (lock := LockNode.parse(name)):
            path = f"{on}/{name}".strip("/")
            self.objects = dict(self.objects)
            if write.data is None:
                self.objects.pop(path, None)
                self.gone.add(path)
            else:
                self.objects[path] = self.zxid
                self.made.add(path)
            return
        mode = "X" if lock.mode.value == "EXCLUSIVE" else "S"
        if write.data is not None:
            key = LockData.decode(write.data).owner_key if lock.ours else ""
            self.reader._locks[write.path] = key, Node(on, mode, lock.sequence, self.zxid)
        key, node = self.reader._locks[write.path]
        if write.data is None:
            del self.reader._locks[write.path]
        one = frozenset([node])
        if lock.ours:
            nodes = self._of(key).nodes
            self._set(key, nodes=nodes - one if write.data is None else nodes | one)
        else:
            (self.hives_gone if write.data is None else self.hives_made).append(node)
            self.hives = self.hives - one if write.data is None else self.hives | one


def read_record(data: dict[str, Any], zxid: int, time_ms: int) -> Record:
    """Read the record that was written at *zxid*. If it contains 0 for its own zxid, the result has *zxid*."""
    holds = data["state"] in ("granted", "lost")
    share = data.get("share") or ["", 0, None, ""]
    invited = data["state"] == INVITED
    ended = data["state"] in ("free", "tombstone", ABSENT)
    return Record(
        state=data["state"],
        process=data["process"],
        epoch=data["epoch"],
        ticket_epoch=data["ticket_epoch"],
        begin=data["begin"],
        attempt=data["attempt"],
        entry=data["entry"],
        priority=data["priority"],
        locks=read_locks(data["locks"]),
        given=read_locks(data.get("given", {})),
        since=data["written"] or (zxid if holds else 0),
        places={} if ended else {_on(name): made or zxid for name, made in data["placeholders"]},
        lost=frozenset(map(_on, data.get("lost", ()))),
        group=owner_key(share[0]) if share[0] else "",
        most=share[1],
        weight=data.get("weight", 0),
        permits=() if share[2] is None else (share[2], *data.get("permits", ())),
        parked=share[3],
        kept=data.get("old_turn", 0),
        token=data["token"] or (zxid if holds else 0),
        until_ms=time_ms + round(data.get("invitation_s", 0) * 1000) if invited else 0,
    )


def _on(name: str) -> str:
    return "/".join(LockObject.parse(name).path)


def read_locks(data: dict[str, str]) -> dict[str, str]:
    return {_on(name): mode for name, mode in data.items()}
