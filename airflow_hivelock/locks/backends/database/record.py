"""The owner's record: what became of one owner's last request, as its row says.

::

    FREE ──▶ WAITING ──▶ GRANTED ──▶ ENDED
     ▲          │                      │
     └──────────┘◀─────────────────────┘  (asked again)

FREE and ENDED keep attempt and beginning, so that a slow first process of the owner does not acquire again; ENDED is
the history of the lease, too.
"""

from __future__ import annotations

import enum
import json
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_hivelock.locks import rules, validate
from airflow_hivelock.locks.errors import StoreCorrupted, Superseded
from airflow_hivelock.locks.model import (
    MAX_LEASE_S,
    Lease,
    Lock,
    LockRequest,
    Tenure,
    Work,
    locks_from_json,
    locks_to_json,
    owner_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

NOBODY, THOSE_BEHIND, EVERYBODY = 0, 1, 2
"""Audiences of a request's end: none; its waiters; and every process that verifies or watches it."""

CLIENT_LENGTH = 16
"""What the name of an acquisition begins with is its client's."""


class State(enum.StrEnum):
    FREE = "free"
    WAITING = "waiting"
    GRANTED = "granted"
    ENDED = "ended"


class Record(NamedTuple):
    """A row of the request table.

    :param process: the acquisition that acts for the owner.
    :param epoch: raised by every take-over and fresh start; larger than any that the owner had before. Of a request that
        has no row yet, the one of the row that it replaces; 0: there is none.
    :param began: the store's number when the acting call began; with *attempt*, the order of the owner's calls.
    :param place: the store's number when the request was made; among requests that conflict, their order. 0: it has none
        yet.
    :param ahead: the place of the request that it waits for.
    :param audience: what is to be told when it is gone; written by those, and not by its owner.
    :param locks: :func:`encode`'s.
    :param works: as JSON.
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
    asked_us: int
    seen_us: int
    ahead: int | None = None
    audience: int = NOBODY
    granted_us: int | None = None
    end_us: int | None = None
    ended_us: int | None = None

    @classmethod
    def of(cls, row: Any) -> Record:
        """:raises StoreCorrupted: somebody else wrote it."""
        try:
            values = {name: getattr(row, name) for name in cls._fields}
            validate.texts(values, _TEXTS)
            validate.numbers(values, _NUMBERS)
            validate.numbers(values, [name for name in _TIMES if values[name] is not None], MOST_US)
            validate.seconds(values["lease_s"], "lease_s", MAX_LEASE_S)
            return cls(**values | {"state": State(values["state"])})
        except (AttributeError, ValueError, TypeError) as error:
            raise StoreCorrupted(
                f"{row!r:.200} is not a request of airflow-hivelock's ({error}); somebody else wrote it"
            ) from error

    @property
    def lease_id(self) -> str:
        return f"{self.owner_key}-{self.place}"

    @property
    def locked(self) -> tuple[Lock, ...]:
        """:raises StoreCorrupted: somebody else wrote them."""
        return decode(self.locks, self.owner)

    @property
    def worked(self) -> tuple[Work, ...]:
        """:raises StoreCorrupted: somebody else wrote what runs."""
        try:
            return _decoded_works(self.works)
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreCorrupted(
                f"what runs under the lease of {self.owner}, {self.works[:80]!r}, was not written by airflow-hivelock"
            ) from error

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
        )

    @property
    def tenure(self) -> Tenure:
        ended = None if self.ended_us is None else instant(self.ended_us)
        return Tenure(
            self.lease_id, self.owner, self.locked, instant(self.asked_us), instant(self.granted_us or 0), ended
        )

    def tried(self, number: int, now_us: int, ahead: int | None, *, waits: bool) -> Record:
        """This record after an attempt at the grant: with the place *ahead* in the way, or with its locks.

        :param waits: it takes a place where it does not get its locks, or keeps the one that it has.
        """
        mine = self
        if not mine.place:
            began = mine.began or number
            mine = mine._replace(place=number, epoch=number, began=began, asked_us=now_us, seen_us=now_us)
        if ahead is not None:
            return mine._replace(ahead=ahead) if waits else mine._replace(state=State.FREE)
        end_us = later(now_us, mine.lease_s)
        return mine._replace(state=State.GRANTED, token=number, granted_us=now_us, end_us=end_us, ahead=None)

    def again(self) -> Record:
        """This record, which is over, for one more attempt: a fresh place, if nothing else is written meanwhile."""
        return self._replace(state=State.WAITING, place=0)

    def starting(self, name: str, application: str, token: int) -> Record:
        """This record with new work, shut off by *token* from what had that name."""
        others = (work for work in self.worked if work.name != name)
        return self._replace(token=token, works=_works((*others, Work(name, application, token))))

    def recording(self, name: str, application: str | None) -> Record:
        """This record with what runs under that name by now."""
        token = next((work.token for work in self.worked if work.name == name), self.token)
        now = () if application is None else (Work(name, application, token),)
        return self._replace(works=_works((*(work for work in self.worked if work.name != name), *now)))

    def is_of(self, lease: Lease) -> bool:
        """Whether it is this very grant, in the hands of this very process."""
        return self.state is State.GRANTED and (self.lease_id, self.epoch) == (lease.id, lease.epoch)

    def expired(self, now_us: int) -> bool:
        return self.end_us is not None and self.end_us <= now_us

    def changes(self, since: Record) -> dict[str, Any]:
        """The columns that are not as in *since*."""
        return {name: value for name, value in self._asdict().items() if value != getattr(since, name)}


MOST_US = validate.MOST_MS * 1000
_TEXTS = ("owner_key", "owner", "process", "locks", "works", "query", "named")
_NUMBERS = ("epoch", "attempt", "began", "place", "token", "audience")
_TIMES = ("asked_us", "seen_us", "granted_us", "end_us", "ended_us")


def start(
    existing: Record | None,
    request: LockRequest,
    wanted: str,
    process: str,
    number: int,
    began: int,
    now_us: int,
    frees: bool,
) -> Record:
    """The record with which *process* starts, or takes over, the owner's request: a pure decision.

    :param wanted: the request's locks, as :func:`encode` has them.
    :param frees: an expired lease may be replaced by a request for other locks.
    :return: WAITING, without a place, for a fresh start; else the existing state, taken over.
    :raises Superseded: a later call acts for the owner.
    :raises LeaseMismatch: the owner waits for or holds other locks.
    """
    if existing is not None:
        taken_for_dead = existing.state is State.FREE and existing.process == process
        if not taken_for_dead and (request.attempt, began) <= (existing.attempt, existing.began):
            raise Superseded(
                f"{request.owner}: attempt {existing.attempt} came later than this call (attempt {request.attempt}) "
                f"and is {existing.state.value}; this one must stop"
            )
        if existing.state in (State.WAITING, State.GRANTED):
            if existing.named == request.named if request.named else existing.locks == wanted:
                taken = existing._replace(process=process, epoch=number, attempt=request.attempt, began=began)
                end_us = later(now_us, request.lease_s) if existing.state is State.GRANTED else None
                return taken._replace(lease_s=request.lease_s, seen_us=now_us, end_us=end_us)
            if not (frees and existing.expired(now_us)):
                held = existing.state is State.GRANTED
                raise rules.mismatch(request.owner, existing.locked, request.locks, held=held)
    return Record(
        owner_key=owner_key(request.owner),
        owner=request.owner,
        state=State.WAITING,
        process=process,
        epoch=existing.epoch if existing else 0,
        attempt=request.attempt,
        began=began,
        place=0,
        token=0,
        lease_s=request.lease_s,
        locks=wanted,
        works="[]",
        query=request.query,
        named=request.named,
        asked_us=now_us,
        seen_us=now_us,
    )


def encode(locks: Iterable[Lock]) -> str:
    return compact(locks_to_json(locks))


compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def _works(works: Iterable[Work]) -> str:
    return json.dumps([(work.name, work.application, work.token) for work in works])


def decode(text: str, whose: str) -> tuple[Lock, ...]:
    try:
        return _decoded(text)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise StoreCorrupted(f"the locks of {whose}, {text[:80]!r}, were not written by airflow-hivelock") from error


@lru_cache(maxsize=128)  # a process that renews leases reads the same ones over and over
def _decoded(text: str) -> tuple[Lock, ...]:
    return locks_from_json(validate.load(text))


@lru_cache(maxsize=128)
def _decoded_works(text: str) -> tuple[Work, ...]:
    return tuple(Work(*work) for work in json.loads(text))


def instant(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


def later(us: int, seconds: float) -> int:
    return us + round(seconds * 1_000_000)
