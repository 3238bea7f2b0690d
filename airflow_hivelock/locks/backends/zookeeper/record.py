"""The owner's record: the state of one owner's request, which every step compares and sets.

``docs/architecture.md`` has the states, and a request's nodes in each. A TOMBSTONE keeps a slow earlier process of the
owner from acquiring again after the release. It is also the history of the lease.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import formats, validate
from airflow_hivelock.locks.backends.zookeeper.client import cached_latest
from airflow_hivelock.locks.calls import Call, Earlier
from airflow_hivelock.locks.errors import StoreCorrupted
from airflow_hivelock.locks.model import (
    MAX_INVITATION_S,
    MAX_LEASE_S,
    MAX_PRIORITY,
    Lease,
    Lock,
    LockObject,
    Tenure,
    Work,
    in_order,
    locks_from_json,
    locks_to_json,
    owner_key,
    put_work,
    token_of,
)
from airflow_hivelock.locks.model.group import MAX_WEIGHT
from airflow_hivelock.locks.queueing import Position, TimedPosition

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.client import Node, Stat

ALIVE, AWAY, TICKETS, PERMIT, PARKED = "alive", "away", "tickets", "permit", "parked"
"""The kinds of nodes of a request, apart from its record and its lock nodes: see :attr:`Record.belongings`."""


class State(enum.StrEnum):
    FREE = "free"
    WAITING = "waiting"
    PARKED = "parked"
    GRANTED = "granted"
    LOST = "lost"
    INVITED = "invited"
    AWAY = "away"
    TOMBSTONE = "tombstone"


ENDED = (State.FREE, State.TOMBSTONE)


class Share(NamedTuple):
    """A request's part in its group of leases.

    :param most: how many leases of *group* may be held, its own included, unless the store has a limit of the group.
    :param permit: the number of its permit, from the invitation or grant to the end of the lease; None: it has none. A
        heavy request has more of them (:attr:`.Record.permits`).
    :param ticket: the name of its entry in the group's queue; "": it has none.
    :param place: :attr:`.Position.number` in that queue, chosen when it is first parked, at *placed_ms*; 0 before.
    """

    group: str
    most: int
    permit: int | None = None
    ticket: str = ""
    place: int = 0
    placed_ms: int = 0


@dataclass(frozen=True)
class Record:
    """The content of the record's node, with its stat.

    :param process: the acquisition that acts for the owner.
    :param epoch: raised by every take-over and new request; larger than any that the owner had before.
    :param begin: the store's zxid when the acting call began. With *attempt*, it orders the owner's calls.
    :param ticket_epoch: the epoch of the new request; names the tickets and the lease.
    :param entry: how often it has entered the tables' queues, each time with new tickets.
    :param written: the zxid of the transaction that created the lock nodes, which identifies them; 0 while it is the
        record's own.
    :param placeholders: objects on which a waiter has a placeholder, each with the zxid that created that node; 0 while
        it is the record's own.
    :param token: the zxid that granted it, took it over, or last started work under it; 0, here and in *works*, while
        it is the record's own.
    :param asked_ms: when its tickets were created, by the store's clock; 0 before it was granted, parked, invited or
        away.
    :param first_ms: when its owner first asked, by the store's clock, if that was before this arrival; else 0.
    :param since_ms: when it was granted, by the store's clock; 0 while that is the record's own time.
    :param whole: objects that are SHARED for their own sake, although other locks are below them.
    :param lost: in LOST, the objects on which other requests have found its node missing. Each has its own write, which
        refuses a release that has found that node before.
    :param given: the locks that partial releases have given back.
    :param invitation_s: in INVITED, how long the invitation lasts from this write, by the store's clock.
    :param old_turn: the number of its position when its invitation ended, first taken at *old_since_ms*; 0: none.
    :param weight: how many permits of its group it asks for; 0: the group's default.
    :param permits: the numbers of its permits in addition to the one in *share*.
    :param stamp: of the version that made the request. Later writes keep it.
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
    invitation_s: float = 0.0
    old_turn: int = 0
    old_since_ms: int = 0
    weight: int = 0
    permits: tuple[int, ...] = ()
    stamp: formats.Stamp = field(default=formats.WRITES, hash=False)
    stat: Stat | None = None

    @property
    def key(self) -> str:
        return owner_key(self.owner)

    @property
    def lease_id(self) -> str:
        return f"{self.key}-{self.ticket_epoch}"

    @property
    def earlier(self) -> Earlier:
        """The owner's last call according to this record. For an ended lease, the time of the end counts."""
        ended = self.state is State.TOMBSTONE
        zxid = self.stat.mzxid if ended and self.stat else self.begin
        call = Call(self.attempt, zxid, "" if ended else self.process)
        active = self.waits or self.invited or self.holds
        return Earlier(call, active, ended, self.locks, self.named, bool(self.given), ended and not self.since_ms)

    @property
    def holds(self) -> bool:
        """Whether its lease is held. A lease that has lost a lock is held, too: it blocks others until its release."""
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
    def away(self) -> bool:
        """Whether it is out of the queue until its owner asks again."""
        return self.state is State.AWAY

    @property
    def invited(self) -> bool:
        """Whether it keeps its position while its task gets a worker slot."""
        return self.state is State.INVITED

    @property
    def until_ms(self) -> int | None:
        """When its invitation ends, by the store's clock; None: it is not invited."""
        return self.stat.mtime_ms + round(self.invitation_s * 1000) if self.invited and self.stat else None

    @property
    def until(self) -> datetime | None:
        return instant(self.until_ms) if self.until_ms else None

    @property
    def old(self) -> TimedPosition | None:
        """Its position when its invitation ended."""
        if not self.old_turn:
            return None
        return TimedPosition(Position(self.old_turn, -self.priority, self.old_turn), self.old_since_ms)

    @property
    def has_tickets(self) -> bool:
        return self.queued or self.invited or self.holds

    @property
    def belongings(self) -> frozenset[tuple[str, object]]:
        """The nodes that the request has in this state, apart from its lock nodes.

        A transaction that writes a record also deletes the nodes that only the old record has. It creates those that
        only the new one has.
        """
        has: list[tuple[str, object]] = []
        if self.waits:
            has.append((ALIVE, self.epoch))  # each process that takes over creates one in its own session
        if self.away:
            has.append((AWAY, ""))
        if self.has_tickets:
            has.append((TICKETS, self.entry))
        if self.share and (self.holds or self.invited) and self.share.permit is not None:
            has += [(PERMIT, number) for number in (self.share.permit, *self.permits)]
        if self.share and self.waits and self.share.ticket:
            has.append((PARKED, self.share.ticket))
        return frozenset(has)

    def at(self, stat: Stat) -> Record:
        """This record after its write. Fields that are the write's own zxid or time get these."""
        own, own_ms = (stat.mzxid, stat.mtime_ms) if self.holds else (0, 0)
        return self.but(
            stat=stat,
            placeholders=tuple((name, zxid or stat.mzxid) for name, zxid in self.placeholders),
            written=self.written or own,
            token=self.token or own,
            works=tuple(work if work.token else replace(work, token=stat.mzxid) for work in self.works),
            asked_ms=self.asked_ms or (stat.mtime_ms if self.away or self.parked or self.invited else own_ms),
            since_ms=self.since_ms or own_ms,
        )

    def but(self, **changes: object) -> Record:
        """A copy with *changes*. ``replace()`` takes five times as long; a grant and its release make seven copies."""
        assert changes.keys() <= vars(self).keys(), changes
        copy = object.__new__(Record)
        vars(copy).update(vars(self), **changes)
        return copy

    def starting(self, name: str, application: str) -> Record:
        """This record with new work, which gets the zxid of its write as token."""
        return self.but(token=0, works=put_work(self.works, name, application, 0))

    def recording(self, name: str, application: str | None) -> Record:
        """This record with a new description of the work with that name."""
        return self.but(works=put_work(self.works, name, application, token_of(self.works, name, self.token)))

    @property
    def node_zxids(self) -> frozenset[int]:
        """The zxids that created its lock nodes; empty if it has none."""
        return frozenset(zxid for zxid in (self.written, *(zxid for _, zxid in self.placeholders)) if zxid)

    def made(self, target: LockObject) -> int:
        """The zxid that created its lock node on *target*; 0 if it has none there."""
        return dict(self.placeholders).get(str(target), self.written)

    @property
    def has_nodes(self) -> bool:
        """Whether it has lock nodes: it holds, or has a placeholder."""
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
            released=self.given,
            whole=self.whole,
        )

    def without(self, left: tuple[Lock, ...]) -> Record:
        """This record after a partial release of all locks except *left*."""
        names = {str(lock.object) for lock in left}
        placeholders = tuple(entry for entry in self.placeholders if entry[0] in names)
        kept = set(left)
        given = tuple(lock for lock in self.locks if lock not in kept)
        return self.but(locks=left, placeholders=placeholders, given=in_order((*self.given, *given)))

    def tenure(self) -> Tenure | None:
        """Its history, once it has been granted."""
        if self.stat is None or not (self.holds or (self.state is State.TOMBSTONE and self.since_ms)):
            return None
        ended = instant(self.stat.mtime_ms) if self.state is State.TOMBSTONE else None
        held = in_order((*self.locks, *self.given))
        asked = instant(min(self.first_ms or self.asked_ms, self.since_ms))
        return Tenure(self.lease_id, self.owner, held, asked, instant(self.since_ms), ended)

    def outside(self) -> Record:
        """This record without permits, and without an entry in the queue for them."""
        return self.but(share=self.share._replace(permit=None, ticket=""), permits=()) if self.share else self

    def freed(self) -> Record:
        """This record as FREE. It keeps order and epoch, so that an older call of the owner is still refused."""
        return Record(self.owner, State.FREE, self.process, self.epoch, self.attempt, self.begin)

    def encode(self) -> bytes:
        data = self.stamp.fields() | vars(self)
        del data["stat"], data["stamp"]
        data["locks"], data["given"] = locks_to_json(self.locks), locks_to_json(self.given)
        data["works"] = [(work.name, work.application, work.token) for work in self.works]
        data["whole"] = sorted(map(str, self.whole))
        for name in _OPTIONAL:
            if not data[name]:
                del data[name]
        return formats.dump(data).encode()

    def _check(self, path: str) -> None:
        """Check the values.

        :raises ValueError: this package writes no such record, and it would break its reader later.
        """
        values = vars(self)
        validate.texts(values, _TEXTS)
        validate.numbers(values, _NUMBERS)
        validate.numbers(values, _TIMES_MS, validate.MOST_MS)
        validate.number(abs(self.priority), "priority", MAX_PRIORITY)
        validate.seconds(self.lease_s, "lease_s", MAX_LEASE_S)
        validate.seconds(self.invitation_s, "invitation_s", MAX_INVITATION_S)
        objects = {lock.object for lock in self.locks}
        if (self.away or self.parked or self.has_tickets) and not objects:
            raise ValueError("no locks")
        if any(lock.object.parent not in objects for lock in self.locks if lock.object.parent):
            raise ValueError("locks without their parents' locks")
        for name, zxid in self.placeholders:
            validate.number(zxid, "zxid")
            if name not in map(str, objects):
                raise ValueError("a placeholder on an object without a lock")
        validate.number(self.weight, "weight", MAX_WEIGHT)
        for number in self.permits:
            validate.number(number, "permit")
        if share := self.share:
            validate.texts(share._asdict(), ("group", "ticket"))
            validate.numbers(share._asdict(), ("most", "place"))
            validate.number(share.placed_ms, "placed_ms", validate.MOST_MS)
            if share.permit is not None:
                validate.number(share.permit, "permit")
            if not share.group or not share.most or "/" in share.ticket:
                raise ValueError("not a group of leases")
        if self.key != path.rpartition("/")[2]:
            raise ValueError(f"this is the record of another owner than {self.owner!r:.80}")

    @classmethod
    @cached_latest  # waiters and listings read the same records again and again
    def decode(cls, node: Node, path: str) -> Record:
        """Parse a record.

        :raises StoreCorrupted: it is not a record, or its format is too old.
        :raises UpgradeNeeded: it is for readers of a later format.
        """
        try:
            data = validate.load(node.data)
            data["stamp"] = formats.take(data, _FIELDS, path)
            data |= {
                "state": State(data["state"]),
                "locks": locks_from_json(data["locks"]),
                "placeholders": tuple((name, zxid) for name, zxid in data["placeholders"]),
                "works": tuple(Work(*work) for work in data["works"]),
                "share": Share(*data["share"]) if "share" in data else None,
                "whole": frozenset(map(LockObject.parse, data.get("whole", ()))),
                "given": locks_from_json(data.get("given", {})),
                "permits": tuple(data.get("permits", ())),
                "lost": tuple(validate.text(name, "lost") for name in data.get("lost", ())),
            }
            record = cls(**data)
            record._check(path)
            return record.at(node.stat)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreCorrupted(
                f"{path} is not a record of airflow-hivelock: {node.data[:80]!r} ({error}). Another program wrote it"
            ) from error


_FIELDS = frozenset(each.name for each in fields(Record)) - {"stat", "stamp"}
_OPTIONAL = (
    *("share", "whole", "lost", "given", "first_ms", "invitation_s", "old_turn", "old_since_ms"),
    *("weight", "permits"),
)
_TEXTS = ("owner", "process", "query", "named")
_NUMBERS = ("epoch", "attempt", "begin", "ticket_epoch", "entry", "written", "token", "old_turn")
_TIMES_MS = ("asked_ms", "first_ms", "since_ms", "old_since_ms")


def instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
