"""The owner's record: the state of one owner's request, and the compare-and-set that every step goes through.

``docs/architecture.md`` has the states, and what a request has in each. A TOMBSTONE keeps a slow first process of the owner
from acquiring again after the release, and is the history of the lease.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import rules, validate
from airflow_hivelock.locks.errors import StoreCorrupted
from airflow_hivelock.locks.model import (
    MAX_LEASE_S,
    MAX_PRIORITY,
    Lease,
    Lock,
    LockObject,
    LockRequest,
    Tenure,
    Work,
    in_order,
    locks_from_json,
    locks_to_json,
    owner_key,
    put_work,
    token_of,
)
from airflow_hivelock.locks.queueing import Call, Earlier

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.client import Node, Stat

FORMAT = 2
"""Raised when the record changes so that an older version would misread it; a newer record is left untouched."""


ALIVE, ASIDE, TICKETS, PERMIT, PLACE = "alive", "aside", "tickets", "permit", "place"
"""What a request can have, apart from its record and its lock nodes: see :attr:`Record.belongings`."""


class State(enum.StrEnum):
    FREE = "free"
    WAITING = "waiting"
    PARKED = "parked"
    GRANTED = "granted"
    LOST = "lost"
    AWAY = "away"
    TOMBSTONE = "tombstone"


class Share(NamedTuple):
    """A request's part in its group of leases.

    :param most: how many leases of *group* may stand, its own included.
    :param permit: the number of its permit, which it has from the grant to the end of the lease; None: it has none.
    :param ticket: its node in the group's queue; ``""``: it has none there.
    :param place: its constant place in that queue, chosen when it is parked first, at *placed_ms*; 0 before.
    """

    group: str
    most: int
    permit: int | None = None
    ticket: str = ""
    place: int = 0
    placed_ms: int = 0

    def check(self) -> None:
        """:raises ValueError: no record of ours contains this."""
        validate.texts(self._asdict(), ("group", "ticket"))
        validate.numbers(self._asdict(), ("most", "place"))
        validate.number(self.placed_ms, "placed_ms", validate.MOST_MS)
        if self.permit is not None:
            validate.number(self.permit, "permit")
        if not self.group or not self.most or "/" in self.ticket:
            raise ValueError("no group of leases")


@dataclass(frozen=True)
class Record:
    """What the record's node contains, with the stat that it was read with.

    :param process: the acquisition that acts for the owner.
    :param epoch: raised by every take-over and fresh start; larger than any that the owner had before.
    :param begin: the store's zxid when the acting call began; with *attempt*, the order of the owner's calls.
    :param ticket_epoch: the epoch of the fresh start; names the tickets and the lease.
    :param entry: how often it has entered the tables' queues, each time with new tickets.
    :param written: the zxid of the transaction that created the lock nodes, which identifies them; 0 while it is the record's own.
    :param placeholders: objects on which a waiter has a lock node among Hive's clients, each with the zxid that created the
        node; 0 for one that was created with this very record.
    :param token: the zxid that granted it, took it over, or last started work under it; 0, here and in *works*, while it is
        the record's own.
    :param asked_ms: when its tickets were created, by the store's clock; 0 before it was granted, parked, or stepped aside.
    :param first_ms: when its owner first asked, by the store's clock, where that was before this arrival; else 0.
    :param since_ms: when it was granted, by the store's clock; 0 while that is the record's own time.
    :param whole: what is SHARED for its own sake, though other locks are below it.
    :param lost: of LOST, the objects on which others have found its node gone. Each is a write of its own: it refuses a
        release that has found that node before.
    :param given: what its lease has held and has given back.
    """

    owner: str
    state: State
    process: str
    epoch: int
    attempt: int
    begin: int
    ticket_epoch: int = 0
    wait: bool = True
    locks: tuple[Lock, ...] = ()
    lease_s: float = 0.0
    query: str = ""
    named: str = ""
    priority: int = 1
    entry: int = 0
    written: int = 0
    placeholders: tuple[tuple[str, int], ...] = ()
    token: int = 0
    works: tuple[Work, ...] = ()
    asked_ms: int = 0
    since_ms: int = 0
    share: Share | None = None
    whole: frozenset[LockObject] = frozenset()
    given: tuple[Lock, ...] = ()
    lost: tuple[str, ...] = ()
    first_ms: int = 0
    stat: Stat | None = None

    @property
    def key(self) -> str:
        return owner_key(self.owner)

    @property
    def lease_id(self) -> str:
        return f"{self.key}-{self.ticket_epoch}"

    @property
    def earlier(self) -> Earlier:
        """What it tells of the owner's last call: of a lease that has ended, the end counts."""
        ended = self.state is State.TOMBSTONE
        zxid = self.stat.mzxid if ended and self.stat else self.begin
        call = Call(self.attempt, zxid, "" if ended else self.process)
        return Earlier(call, self.waits or self.holds, ended, self.locks, self.named, bool(self.given))

    @property
    def holds(self) -> bool:
        """Whether its lease is held, even if Hive has unlocked a part of it: it is no other request's turn yet."""
        return self.state in (State.GRANTED, State.LOST)

    @property
    def queued(self) -> bool:
        """Whether it waits with tickets in the tables' queues."""
        return self.state is State.WAITING

    @property
    def parked(self) -> bool:
        """Whether it waits for a permit of its group."""
        return self.state is State.PARKED

    @property
    def waits(self) -> bool:
        return self.queued or self.parked

    @property
    def aside(self) -> bool:
        """Whether it has stepped aside: its owner asks again."""
        return self.state is State.AWAY

    @property
    def has_tickets(self) -> bool:
        return self.queued or self.holds

    @property
    def belongings(self) -> frozenset[tuple[str, object]]:
        """The nodes that the request has in this state, apart from its lock nodes. A transaction that writes a record also
        deletes those that only the old record has, and creates those that only the new one has."""
        has: list[tuple[str, object]] = []
        if self.waits:
            has.append((ALIVE, self.epoch))  # each process that takes over creates one in its own session
        if self.aside:
            has.append((ASIDE, ""))
        if self.has_tickets:
            has.append((TICKETS, self.entry))
        if self.share and self.holds and self.share.permit is not None:
            has.append((PERMIT, self.share.permit))
        if self.share and self.waits and self.share.ticket:
            has.append((PLACE, self.share.ticket))
        return frozenset(has)

    def at(self, stat: Stat) -> Record:
        """This record as it was written: what it says of *this very* write gets that write's zxid."""
        placeholders = tuple((name, zxid or stat.mzxid) for name, zxid in self.placeholders)
        own, own_ms = (stat.mzxid, stat.mtime_ms) if self.holds else (0, 0)
        return replace(
            self,
            stat=stat,
            placeholders=placeholders,
            written=self.written or own,
            token=self.token or own,
            works=tuple(work if work.token else replace(work, token=stat.mzxid) for work in self.works),
            asked_ms=self.asked_ms or (stat.mtime_ms if self.state in (State.AWAY, State.PARKED) else own_ms),
            since_ms=self.since_ms or own_ms,
        )

    def starting(self, name: str, application: str) -> Record:
        """This record with new work, which gets the zxid of its write as token."""
        return replace(self, token=0, works=put_work(self.works, name, application, 0))

    def recording(self, name: str, application: str | None) -> Record:
        """This record with what runs under that name by now."""
        token = token_of(self.works, name, self.token)
        return replace(self, works=put_work(self.works, name, application, token))

    @property
    def node_zxids(self) -> frozenset[int]:
        """The zxids that created its lock nodes; empty if it has none."""
        return frozenset(zxid for zxid in (self.written, *(zxid for _, zxid in self.placeholders)) if zxid)

    def made(self, target: LockObject) -> int:
        """The zxid that created its lock node on *target*; 0 if it has none there."""
        return dict(self.placeholders).get(str(target), self.written)

    @property
    def has_nodes(self) -> bool:
        """Whether it has lock nodes: it holds, or has a placeholder among Hive's clients."""
        return self.has_tickets and bool(self.node_zxids)

    @property
    def version(self) -> int:
        return self.stat.version if self.stat else -1

    def lease(self) -> Lease:
        return Lease(
            id=self.lease_id,
            token=self.token,
            attempt=self.attempt,
            epoch=self.epoch,
            owner=self.owner,
            locks=self.locks,
            lease_s=self.lease_s,
            since=instant(self.since_ms),
            works=self.works,
            expires=instant(self.stat.mtime_ms if self.stat else 0) + timedelta(seconds=self.lease_s),
            given=self.given,
            whole=self.whole,
        )

    def without(self, left: tuple[Lock, ...]) -> Record:
        """This record once all but *left* has been given back."""
        names = {str(lock.object) for lock in left}
        placeholders = tuple(entry for entry in self.placeholders if entry[0] in names)
        kept = set(left)
        given = tuple(lock for lock in self.locks if lock not in kept)
        return replace(self, locks=left, placeholders=placeholders, given=in_order((*self.given, *given)))

    def tenure(self) -> Tenure | None:
        """Its history, once it has been granted."""
        if self.stat is None or not (self.holds or self.state is State.TOMBSTONE):
            return None
        ended = instant(self.stat.mtime_ms) if self.state is State.TOMBSTONE else None
        held = in_order((*self.locks, *self.given))
        asked = instant(min(self.first_ms or self.asked_ms, self.since_ms))
        return Tenure(self.lease_id, self.owner, held, asked, instant(self.since_ms), ended)

    def outside(self) -> Record:
        """This record without a permit, and without a place among those that wait for one."""
        return replace(self, share=self.share._replace(permit=None, ticket="")) if self.share else self

    def freed(self) -> Record:
        """FREE, keeping order and epoch: an older call of the owner is still refused."""
        return Record(self.owner, State.FREE, self.process, self.epoch, self.attempt, self.begin)

    def encode(self) -> bytes:
        data = {"format": FORMAT} | vars(self)
        del data["stat"]
        data["locks"], data["given"] = locks_to_json(self.locks), locks_to_json(self.given)
        data["works"] = [(work.name, work.application, work.token) for work in self.works]
        data["whole"] = sorted(map(str, self.whole))
        for name in _OPTIONAL:
            if not data[name]:
                del data[name]
        return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()

    def _check(self, path: str) -> None:
        """:raises ValueError: no record of ours contains this, and it would break its reader later on."""
        said = vars(self)
        validate.texts(said, _TEXTS)
        validate.numbers(said, _NUMBERS)
        validate.numbers(said, _TIMES_MS, validate.MOST_MS)
        validate.number(abs(self.priority), "priority", MAX_PRIORITY)
        validate.seconds(self.lease_s, "lease_s", MAX_LEASE_S)
        objects = {lock.object for lock in self.locks}
        if (self.aside or self.waits or self.holds) and not objects:
            raise ValueError("no locks")
        if any(lock.object.parent not in objects for lock in self.locks if lock.object.parent):
            raise ValueError("locks without those above them")
        for name, zxid in self.placeholders:
            validate.number(zxid, "zxid")
            if name not in map(str, objects):
                raise ValueError("a placeholder where no lock is")
        if self.share:
            self.share.check()
        if self.key != path.rpartition("/")[2]:
            raise ValueError(f"{self.owner!r:.80} is not the owner whose record this is")

    @classmethod
    def decode(cls, node: Node, path: str) -> Record:
        """:raises StoreCorrupted: not a record, or one of a newer format."""
        try:
            data = validate.load(node.data)
            found = validate.number(data.pop("format"), "format")
            if found != FORMAT:
                newer, older = "upgrade airflow-hivelock here too", "stop what runs the older one, and delete it"
                next_step = newer if found > FORMAT else older
                raise StoreCorrupted(f"{path} has format {found}, this version reads {FORMAT}: {next_step}")
            data |= {
                "state": State(data["state"]),
                "locks": locks_from_json(data["locks"]),
                "placeholders": tuple((name, zxid) for name, zxid in data["placeholders"]),
                "works": tuple(Work(*work) for work in data["works"]),
                "share": Share(*data["share"]) if "share" in data else None,
                "whole": frozenset(map(LockObject.parse, data.get("whole", ()))),
                "given": locks_from_json(data.get("given", {})),
                "lost": tuple(validate.text(name, "lost") for name in data.get("lost", ())),
            }
            record = cls(**data)
            record._check(path)
            return record.at(node.stat)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreCorrupted(
                f"{path} is not a record of airflow-hivelock's: {node.data[:80]!r} ({error}); somebody else wrote it"
            ) from error


_OPTIONAL = ("share", "whole", "lost", "given", "first_ms")
_TEXTS = ("owner", "process", "query", "named")
_NUMBERS = ("epoch", "attempt", "begin", "ticket_epoch", "entry", "written", "token")
_TIMES_MS = ("asked_ms", "first_ms", "since_ms")


def start(existing: Record | None, request: LockRequest, process: str, begin: int) -> Record:
    """The record with which *process* starts the owner's request: WAITING, with a new ``ticket_epoch``; or takes it over.

    :raises Superseded: a later call acts for the owner, or has released since this one began.
    :raises LeaseMismatch: the owner waits for or holds other locks.
    """
    epoch = begin if existing is None else max(existing.epoch + 1, begin)
    held, given = (existing.holds, existing.given) if existing else (False, ())
    call = Call(request.attempt, begin, process)
    if rules.takes_over(call, request, existing.earlier if existing else None, held=held, given=given):
        assert existing is not None
        # Not verified yet, perhaps: a lease that was returned since may have a larger token than the grant.
        share, limit = existing.share, request.limit
        if share and limit and limit.group == share.group:
            share = share._replace(most=limit.most)
        unverified = existing.state is State.GRANTED
        return replace(
            existing,
            process=process,
            epoch=epoch,
            attempt=request.attempt,
            begin=begin,
            wait=request.wait,
            lease_s=request.lease_s,
            share=share,
            whole=existing.whole | request.whole,  # what an earlier attempt has started may run on
            token=0 if unverified else existing.token,
        )
    return Record(
        request.owner,
        State.WAITING,
        process,
        epoch,
        request.attempt,
        begin,
        ticket_epoch=epoch,
        wait=request.wait,
        locks=request.locks,
        lease_s=request.lease_s,
        query=request.query,
        named=request.named,
        priority=request.priority,
        share=Share(request.limit.group, request.limit.most) if request.limit else None,
        whole=request.whole,
        first_ms=round(request.asked.timestamp() * 1000) if request.asked else 0,
    )


def instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
