"""The owner's record: what became of one owner's last request, as its row says.

::

             ┌▶ WAITING ─┬▶ GRANTED ──▶ ENDED
    FREE ────┤    ▲▼     │                │
     ▲       └▶ PARKED ──┴▶ AWAY          │
     └──────────────┴──────────┴──────────┘  (withdrawn, or asked again)

WAITING is for locks, PARKED for a lease of its group, in no lock's way: it has no rows of locks. AWAY is a late request
that has stepped aside. FREE, AWAY and ENDED keep attempt and beginning, so that a slow first process of the owner does
not acquire again; ENDED is the history of the lease, too.
"""

from __future__ import annotations

import enum
import json
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_type_hints

from airflow_hivelock.locks import rules, validate
from airflow_hivelock.locks.errors import LeaseMismatch, StoreCorrupted
from airflow_hivelock.locks.model import (
    MAX_LEASE_S,
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
from airflow_hivelock.locks.queueing import Call, Earlier, Position, QueuePlace, Ruling, Undecided

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_hivelock.locks.queueing import Decision

Read = TypeVar("Read")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

BY_WAITERS, BY_OTHERS = 1, 2
"""By whom a request is watched: its waiters; also other processes, which verify its lease or watch an object. 0: by none."""

CLIENT_LENGTH = 16
"""What the name of an acquisition begins with is its client's."""


class State(enum.StrEnum):
    FREE = "free"
    WAITING = "waiting"
    PARKED = "parked"
    AWAY = "away"
    GRANTED = "granted"
    ENDED = "ended"


class Record(NamedTuple):
    """A row of the request table.

    :param process: the acquisition that acts for the owner.
    :param epoch: raised by every take-over and fresh start; larger than any that the owner had before.
    :param began: the store's number when the acting call began; with *attempt*, the order of the owner's calls.
    :param place: the store's number when the request was made. 0: it has none yet.
    :param ahead: the place of the request that it waits for; or its group's key, below 0, for any lease of that.
    :param watched: who is notified when it ends. They write this, and its owner does not.
    :param locks: :func:`encode`'s.
    :param given: what its lease has held and has given back, likewise; "": nothing.
    :param whole: what is SHARED for its own sake though other locks lie below it, a name a line.
    :param works: as JSON.
    :param turn: among requests that conflict, their order, with priority and place: the store's number when it began to
        wait for locks; or, claimed, the turn of the first that it passed. 0: it does not wait for locks.
    :param turn_us: how old the turn is: one that is claimed was there before.
    :param lease_group: of whose leases it is one; "": of no group's.
    :param most_leases: how many of them may be out.
    :param group_key: the group's, while it counts there.
    :param group_turn: and *group_turn_us*, as *turn*, among those of the group that wait for a lease; kept from the first
        time that it is one of them. 0: it was none yet.
    :param seen_us: the last sign of life of a waiter.
    :param end_us: when the lease ends unless it is renewed.
    :param ended_us: when it was released, or taken away.
    """

    owner_key: str
    owner: str
    state: State
    process: str
    epoch: int
    attempt: int
    began: int
    place: int
    token: int
    lease_s: float
    locks: str
    works: str
    query: str
    named: str
    priority: int
    lease_group: str
    most_leases: int
    asked_us: int
    seen_us: int
    turn: int = 0
    turn_us: int = 0
    group_key: int | None = None
    group_turn: int = 0
    group_turn_us: int = 0
    ahead: int | None = None
    watched: int = 0
    granted_us: int | None = None
    end_us: int | None = None
    ended_us: int | None = None
    given: str = ""
    whole: str = ""

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> Record:
        """:raises StoreCorrupted: another program wrote it."""
        try:
            values = {name: row[name] for name in cls._fields}
            validate.texts(values, _TEXTS)
            validate.numbers(values, _NUMBERS)
            validate.numbers(values, [name for name in _TIMES if values[name] is not None], MOST_US)
            validate.number(abs(values["priority"]), "priority")
            validate.seconds(values["lease_s"], "lease_s", MAX_LEASE_S)
            return cls(**values | {"state": State(values["state"])})
        except (KeyError, ValueError, TypeError) as error:
            raise StoreCorrupted(
                f"{dict(row)!r:.200} is not a request of airflow-hivelock's ({error}); somebody else wrote it"
            ) from error

    @property
    def queued(self) -> bool:
        """Whether it waits, for locks or for a lease of its group."""
        return self.state in (State.WAITING, State.PARKED)

    @property
    def holds(self) -> bool:
        return self.state is State.GRANTED

    @property
    def active(self) -> bool:
        """Whether it waits or holds."""
        return self.queued or self.holds

    @property
    def position(self) -> Position:
        """Its position in the queue that it is in."""
        turn = self.group_turn if self.state is State.PARKED else self.turn
        return self._place(turn, 0).position

    def undecided(self, number: int, now_us: int, late: bool) -> Undecided:
        """What is to be decided of it, which has a place: now, with the next *number*."""
        parked = self._place(self.group_turn, self.group_turn_us) if self.group_turn else None
        waits = self._place(self.turn, self.turn_us) if self.turn else None
        # In no queue yet, it arrives now, whenever its owner first asked.
        arrival, joins = self._place(self.place, now_us), self._place(number, now_us)
        return Undecided(arrival, joins, waits, parked, self.most_leases if self.group_key is not None else 0, late)

    def _place(self, turn: int, since_us: int) -> QueuePlace:
        return QueuePlace(Position(turn, -self.priority, self.place), since_us)

    @property
    def lease_id(self) -> str:
        return str(self.place)

    @property
    def locked(self) -> tuple[Lock, ...]:
        """:raises StoreCorrupted: another program wrote them."""
        return decode(self.locks, self.owner)

    @property
    def worked(self) -> tuple[Work, ...]:
        """:raises StoreCorrupted: another program wrote them."""
        return _read(_decoded_works, self.works, f"what runs under the lease of {self.owner}")

    @property
    def lease(self) -> Lease:
        return self.lease_of(self.locked)

    def lease_of(self, locks: tuple[Lock, ...]) -> Lease:
        """The lease, whose *locks* are known."""
        return Lease(
            id=self.lease_id,
            token=self.token,
            attempt=self.attempt,
            epoch=self.epoch,
            owner=self.owner,
            locks=locks,
            lease_s=self.lease_s,
            since=instant(self.granted_us or 0),
            works=self.worked,
            expires=instant(self.end_us or 0),
            given=self.gave,
            whole=self.by_themselves,
        )

    @property
    def gave(self) -> tuple[Lock, ...]:
        """:raises StoreCorrupted: another program wrote them."""
        return decode(self.given, self.owner) if self.given else ()

    @property
    def by_themselves(self) -> frozenset[LockObject]:
        """:raises StoreCorrupted: another program wrote them."""
        return _read(_objects, self.whole, f"what {self.owner} reads for its own sake")

    def without(self, left: tuple[Lock, ...]) -> Record:
        """This record once all but *left* has been given back."""
        kept = set(left)
        given = (*self.gave, *(lock for lock in self.locked if lock not in kept))
        return self._replace(locks=encode(left), given=encode(in_order(given)))

    @property
    def tenure(self) -> Tenure:
        ended = None if self.ended_us is None else instant(self.ended_us)
        held = in_order((*self.locked, *self.gave))
        return Tenure(self.lease_id, self.owner, held, instant(self.asked_us), instant(self.granted_us or 0), ended)

    def takes_over(self, request: LockRequest, call: Call, expired_us: int) -> bool:
        """Whether *call* takes over this record; False: it starts afresh.

        :param expired_us: a lease that ended by then is no obstacle to other locks.
        """
        own, ended = Call(self.attempt, self.began, self.process), self.state is State.ENDED
        earlier = Earlier(own, self.active, ended, self.locked if self.active else (), self.named, bool(self.given))
        held = self.state is State.GRANTED
        try:
            return rules.takes_over(call, request, earlier, held=held, given=self.gave)
        except LeaseMismatch:
            if held and self.expired(expired_us):
                return False
            raise

    def decided(self, decision: Decision, number: int, now_us: int) -> Record:
        """This record as the *decision* leaves it, with the next *number*."""
        waits, parked = decision.among_locks, decision.in_group
        ahead = int(decision.watch[0].key) if decision.watch else None
        placed = self._replace(
            turn=waits.position.turn if waits else 0,
            turn_us=waits.since if waits else self.turn_us,
            group_turn=parked.position.turn if parked else 0,
            group_turn_us=parked.since if parked else 0,
            ahead=ahead,
        )
        match decision.ruling:
            case Ruling.GRANT:
                end_us = later(now_us, self.lease_s)
                return placed._replace(state=State.GRANTED, token=number, granted_us=now_us, end_us=end_us)
            case Ruling.STEP_ASIDE:
                return placed._replace(state=State.AWAY, turn=0, group_turn=0, group_key=None)
            case Ruling.PARK:
                assert self.group_key is not None
                any_lease = decision.watch[0].holds
                return placed._replace(state=State.PARKED, ahead=-self.group_key if any_lease else ahead)
            case _:
                return placed._replace(state=State.WAITING)

    def starting(self, name: str, application: str, token: int) -> Record:
        """This record with new work, shut off by *token* from what had that name."""
        return self._replace(token=token, works=_works(put_work(self.worked, name, application, token)))

    def recording(self, name: str, application: str | None) -> Record:
        """This record with what runs under that name by now."""
        token = token_of(self.worked, name, self.token)
        return self._replace(works=_works(put_work(self.worked, name, application, token)))

    def is_of(self, lease: Lease) -> bool:
        """Whether it is this very grant, in the hands of this very process."""
        return self.state is State.GRANTED and (self.lease_id, self.epoch) == (lease.id, lease.epoch)

    def expired(self, now_us: int) -> bool:
        return self.end_us is not None and self.end_us <= now_us


MOST_US = validate.MOST_MS * 1000
COLUMNS = get_type_hints(Record)
"""The columns of the request table, each with its type."""

_TEXTS = [name for name, kind in COLUMNS.items() if kind is str]
_TIMES = [name for name in COLUMNS if name.endswith("_us")]
_NUMBERS = [name for name, kind in COLUMNS.items() if kind is int and name not in {*_TIMES, "priority"}]


def start(
    existing: Record | None,
    request: LockRequest,
    wanted: str,
    process: str,
    number: int,
    began: int,
    now_us: int,
    frees: bool,
    group_key: int | None,
) -> Record:
    """The record with which *process* starts, or takes over, the owner's request.

    :param wanted: the request's locks, as :func:`encode` has them.
    :param frees: an expired lease may be replaced by a request for other locks.
    :param group_key: of the request's limit.
    :return: WAITING, in a place of its own but in no queue, for a fresh start; else the existing record, taken over. That
        keeps its priority and its group.
    :raises Superseded: a later call acts for the owner.
    :raises LeaseMismatch: the owner waits for or holds other locks.
    """
    if existing is not None and existing.takes_over(
        request, Call(request.attempt, began, process), now_us if frees else 0
    ):
        taken = existing._replace(process=process, epoch=number, attempt=request.attempt, began=began)
        end_us = later(now_us, request.lease_s) if existing.state is State.GRANTED else None
        whole = _lines(existing.by_themselves | request.whole)  # what an earlier attempt has started may run on
        return taken._replace(lease_s=request.lease_s, seen_us=now_us, end_us=end_us, whole=whole)
    return Record(
        owner_key=owner_key(request.owner),
        owner=request.owner,
        state=State.WAITING,
        process=process,
        epoch=number,
        attempt=request.attempt,
        began=began,
        place=number,
        token=0,
        lease_s=request.lease_s,
        locks=wanted,
        works="[]",
        query=request.query,
        named=request.named,
        priority=request.priority,
        lease_group=request.limit.group if request.limit else "",
        most_leases=request.limit.most if request.limit else 0,
        group_key=group_key,
        asked_us=min(now_us, microseconds(request.asked)) if request.asked else now_us,
        seen_us=now_us,
        whole=_lines(request.whole),
    )


def _lines(objects: Iterable[LockObject]) -> str:
    return "\n".join(sorted(map(str, objects)))


def encode(locks: Iterable[Lock]) -> str:
    return compact(locks_to_json(locks))


compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def _works(works: Iterable[Work]) -> str:
    return json.dumps([(work.name, work.application, work.token) for work in works])


def decode(text: str, whose: str) -> tuple[Lock, ...]:
    """:raises StoreCorrupted: another program wrote them."""
    return _read(_decoded, text, f"the locks of {whose}")


def _read(parse: Callable[[str], Read], text: str, what: str) -> Read:
    try:
        return parse(text)
    except (TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
        raise StoreCorrupted(f"{what}, {text[:80]!r}, were not written by airflow-hivelock") from error


def _objects(text: str) -> frozenset[LockObject]:
    return frozenset(map(LockObject.parse, text.splitlines()))


@lru_cache(maxsize=128)  # a process that renews leases reads the same ones over and over
def _decoded(text: str) -> tuple[Lock, ...]:
    return locks_from_json(validate.load(text))


@lru_cache(maxsize=128)
def _decoded_works(text: str) -> tuple[Work, ...]:
    return tuple(Work(*work) for work in json.loads(text))


def instant(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


def microseconds(at: datetime) -> int:
    """The inverse of :func:`instant`."""
    return (at - EPOCH) // timedelta(microseconds=1)


def later(us: int, seconds: float) -> int:
    return us + round(seconds * 1_000_000)
