"""The owner's record: the state of one owner's last request, as in its row.

::

             ┌▶ WAITING ─┬▶ GRANTED ──▶ ENDED
    FREE ────┤    ▲▼     ├▶ INVITED ──▶ AWAY
             └▶ PARKED ──┴▶ AWAY

Each state leads back to FREE when the request is withdrawn or made again. INVITED also leads to GRANTED and WAITING.

- WAITING: it waits for locks. PARKED: it waits for a permit of its group, and has no rows of locks.
- INVITED: a deferred request that waits for a worker slot. It keeps its rows of locks, its position and its
  permit. It has no process.
- AWAY: a deferred request out of the queue: its invitation has ended, or it got none. It has no rows of locks.
- FREE, AWAY and ENDED keep attempt and beginning, so that a slow earlier process does not acquire again. ENDED is also
  the history of the lease.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from airflow_hivelock.locks import formats, permits, rules, validate
from airflow_hivelock.locks.backends.database.values import (
    MOST_US,
    decode,
    decode_objects,
    decode_request,
    decode_works,
    encode,
    encode_works,
    foreign,
    instant,
    later,
)
from airflow_hivelock.locks.calls import Call, Earlier
from airflow_hivelock.locks.errors import LeaseMismatch
from airflow_hivelock.locks.model import (
    MAX_LEASE_S,
    Lease,
    Lock,
    LockObject,
    LockRequest,
    Tenure,
    Work,
    in_order,
    put_work,
    token_of,
)
from airflow_hivelock.locks.model.group import MAX_WEIGHT
from airflow_hivelock.locks.queueing import Position, Ruling, TimedPosition, Undecided

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from airflow_hivelock.locks.model import DeferredGrant, Group
    from airflow_hivelock.locks.queueing import Decision

BY_WAITERS, BY_OTHERS = 1, 2
"""The watchers of a request: its waiters; also other processes, which verify its lease or watch an object. 0: none."""

CLIENT_LENGTH = 16
"""The name of an acquisition begins with its client's name, of this length."""


class State(enum.StrEnum):
    FREE = "free"
    WAITING = "waiting"
    PARKED = "parked"
    INVITED = "invited"
    AWAY = "away"
    GRANTED = "granted"
    ENDED = "ended"


HAS_LOCKS = (State.WAITING, State.INVITED, State.GRANTED)
"""The states of a request that has rows of locks."""


class Record(NamedTuple):
    """A row of the request table.

    :param process: the acquisition that acts for the owner.
    :param epoch: raised by every take-over and new request; larger than any that the owner had before.
    :param began: the store's number when the acting call began; with *attempt*, the order of the owner's calls.
    :param place: the request's own number, which the store drew when the request was made. 0: it has none yet.
    :param ahead: the place of the request that it waits for; for any lease of its group, the group's key, below 0.
    :param watched: who is notified when it ends. The watchers write this, and its owner does not.
    :param locks: as :func:`encode` writes them.
    :param given: the locks that partial releases have given back, as *locks*; "": none.
    :param whole: objects that are SHARED for their own sake although other locks are below them, one name per line.
    :param works: the work, as JSON.
    :param turn: :attr:`.Position.number` in the queue for its locks: the store's number when it began to wait there, larger
        in the background, or a claimed one. 0: it does not wait for locks. AWAY keeps the turn that it had while it was
        invited.
    :param turn_us: when *turn* was first taken; a claimed one is older than the request.
    :param old_turn: and *old_turn_us*: the turn that it had when its invitation ended, which it may take again. 0:
        none.
    :param until_us: when its invitation ends.
    :param lease_group: the group that counts its lease; "": none.
    :param most_leases: how many leases of that group may be held, unless the store has a limit of the group.
    :param group_key: the group's key while the request counts there.
    :param group_turn: and *group_turn_us*, as *turn*, in the queue for a permit of its group; kept from the first time
        that it joins that queue. 0: it has not joined it yet.
    :param seen_us: the last sign of life of a waiter.
    :param end_us: when the lease ends unless it is renewed.
    :param ended_us: when it was released or removed.
    :param weight: how many permits it takes; 0: the group's default. A request that has permits has this number. None:
        an earlier version made it.
    :param more: the stamp of the version that made the request, with the fields that have no column, as
        :meth:`.Stamp.text` writes them. Later writes keep it.
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
    old_turn: int = 0
    old_turn_us: int = 0
    until_us: int | None = None
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
    more: str | None = None
    weight: int | None = None

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> Record:
        """Read a row.

        :raises StoreCorrupted: another program wrote it.
        :raises UpgradeNeeded: it is for readers of a later format.
        """
        try:
            values = {name: row[name] for name in cls._fields}
            formats.take_text(values["more"], f"the request of {values['owner']!r:.80}")
            validate.texts(values, _TEXTS)
            validate.numbers(values, _NUMBERS)
            validate.numbers(values, [name for name in _TIMES if values[name] is not None], MOST_US)
            validate.number(abs(values["priority"]), "priority")
            validate.number(values["weight"] or 0, "weight", MAX_WEIGHT)
            validate.seconds(values["lease_s"], "lease_s", MAX_LEASE_S)
            return cls(**values | {"state": State(values["state"])})
        except (KeyError, ValueError, TypeError) as error:
            raise foreign(row, "a request", error) from error

    @property
    def queued(self) -> bool:
        """Whether it waits, for locks or for a permit of its group."""
        return self.state in (State.WAITING, State.PARKED)

    @property
    def holds(self) -> bool:
        return self.state is State.GRANTED

    @property
    def active(self) -> bool:
        """Whether it waits, is invited or holds."""
        return self.queued or self.invited or self.holds

    @property
    def invited(self) -> bool:
        return self.state is State.INVITED

    @property
    def until(self) -> datetime | None:
        """When its invitation ends; None: it is not invited."""
        return instant(self.until_us or 0) if self.invited else None

    @property
    def leaves(self) -> frozenset[LockObject]:
        """The objects that it names itself."""
        request = LockRequest(self.owner, self.locked, whole=self.by_themselves)
        return frozenset(lock.object for lock in rules.leaves(request))

    @property
    def position(self) -> Position:
        """Its position in the queue that it is in."""
        return self.timed(self.group_turn if self.state is State.PARKED else self.turn, 0).position

    def timed(self, number: int, since_us: int) -> TimedPosition:
        """Its position with that *number*, first taken then."""
        return TimedPosition(Position(number, -self.priority, self.place), since_us)

    def joining(self, number: int, since_us: int) -> TimedPosition:
        """Its position if it joins a queue with that *number*, drawn for it."""
        return TimedPosition(Position.unclaimed(number, self.priority, self.place), since_us)

    @property
    def old(self) -> TimedPosition | None:
        """The position that it had when its invitation ended, unless it waits for its locks again."""
        return self.timed(self.old_turn, self.old_turn_us) if self.old_turn and not self.turn else None

    def undecided(
        self, now: TimedPosition, now_us: int, deferred: DeferredGrant | None, stored: Group | None
    ) -> Undecided:
        """Return this request for a decision.

        :param now: its position if it joins the queue for its locks.
        :param stored: the settings of its group in the store.
        :raises InvalidRequest: it weighs more than its group may hold.
        """
        parked = self.timed(self.group_turn, self.group_turn_us) if self.group_turn else None
        waits = self.timed(self.turn, self.turn_us) if self.turn else None
        # In no queue yet, it arrives now, no matter when its owner first asked. Its wait for locks counts for the limit on
        # overtaking.
        arrival, (most, weight) = self.joining(self.place, self.turn_us if self.turn else now_us), self.terms(stored)
        if most and not self.invited:
            permits.check(self.owner, self.lease_group, weight, most)
        return Undecided(arrival, now, waits, parked, most, deferred, self.invited, weight)

    def terms(self, stored: Group | None) -> tuple[int, int]:
        """How many leases its group may hold, and how many permits it takes or has; 0: it is in no group.

        :param stored: the settings of its group in the store.
        """
        if self.group_key is None:
            return 0, 0
        own = self.weight or 0
        has = own or 1 if self.holds or self.invited else permits.weight(own, stored)
        return permits.limit(self.most_leases, stored), has

    @property
    def lease_id(self) -> str:
        return str(self.place)

    @property
    def locked(self) -> tuple[Lock, ...]:
        """Its locks. Raises StoreCorrupted if another program wrote them."""
        return decode_request(self.locks, self.owner)

    @property
    def worked(self) -> tuple[Work, ...]:
        """The work under its lease. Raises StoreCorrupted if another program wrote it."""
        return decode_works(self.works, self.owner)

    @property
    def lease(self) -> Lease:
        return Lease(
            id=self.lease_id,
            token=self.token,
            attempt=self.attempt,
            epoch=self.epoch,
            owner=self.owner,
            locks=self.locked,
            lease_s=self.lease_s,
            since=instant(self.granted_us or 0),
            works=self.worked,
            expires=instant(self.end_us or 0),
            released=self.gave,
            whole=self.by_themselves,
        )

    @property
    def gave(self) -> tuple[Lock, ...]:
        """The locks that partial releases have given back. Raises StoreCorrupted if another program wrote them."""
        return decode(self.given, self.owner) if self.given else ()

    @property
    def by_themselves(self) -> frozenset[LockObject]:
        """The objects that are SHARED for their own sake. Raises StoreCorrupted if another program wrote them."""
        return decode_objects(self.whole, self.owner)

    def without(self, left: tuple[Lock, ...]) -> Record:
        """This record after a partial release of all locks except *left*."""
        kept = set(left)
        given = (*self.gave, *(lock for lock in self.locked if lock not in kept))
        return self._replace(locks=encode(left), given=encode(in_order(given)))

    @property
    def tenure(self) -> Tenure:
        ended, held = instant(self.ended_us) if self.ended_us else None, in_order((*self.locked, *self.gave))
        return Tenure(self.lease_id, self.owner, held, instant(self.asked_us), instant(self.granted_us or 0), ended)

    @property
    def withdrawn(self) -> bool:
        """Whether a person has withdrawn the request while it waited."""
        return self.state is State.ENDED and self.granted_us is None

    def takes_over(self, request: LockRequest, call: Call, expired_us: int) -> bool:
        """Whether *call* takes over this record; False: it starts a new request.

        :param expired_us: a lease that ended by then does not block its owner's request for other locks. An invitation
            never does.
        """
        own, ended = Call(self.attempt, self.began, self.process), self.state is State.ENDED
        locks = self.locked if self.active else ()
        earlier = Earlier(own, self.active, ended, locks, self.named, bool(self.given), self.withdrawn)
        try:
            return rules.takes_over(call, request, earlier, held=self.holds, released=self.gave)
        except LeaseMismatch:
            if self.invited or (self.holds and self.expired(expired_us)):
                return False
            raise

    def decided(
        self, decision: Decision, number: int, now_us: int, deferred: DeferredGrant | None, weight: int
    ) -> Record:
        """This record as the *decision* leaves it, with the next *number*.

        :param weight: how many permits it takes.
        """
        waits, parked = decision.among_locks, decision.in_group
        ahead = int(decision.watch[0].key) if decision.watch else None
        placed = self._replace(
            turn=waits.position.number if waits else 0,
            turn_us=waits.since if waits else self.turn_us,
            group_turn=parked.position.number if parked else 0,
            group_turn_us=parked.since if parked else 0,
            ahead=ahead,
            until_us=None,
        )
        match decision.ruling:
            case Ruling.GRANT:
                placed = placed._replace(granted_us=now_us, end_us=later(now_us, self.lease_s), weight=weight)
                return placed._replace(state=State.GRANTED, token=number)
            case Ruling.INVITE:
                assert deferred is not None
                until_us = later(now_us, deferred.invitation_s)
                return placed._replace(state=State.INVITED, until_us=until_us, old_turn=0, weight=weight)
            case Ruling.GO_AWAY:
                return placed._replace(state=State.AWAY, turn=0, group_turn=0, group_key=None)
            case Ruling.PARK:
                assert self.group_key is not None
                return placed._replace(state=State.PARKED, ahead=-self.group_key if decision.watch[0].holds else ahead)
            case _:
                return placed._replace(state=State.WAITING)

    def starting(self, name: str, application: str, token: int) -> Record:
        """This record with new work. *token* makes the guard refuse the earlier work of that name."""
        return self._replace(token=token, works=encode_works(put_work(self.worked, name, application, token)))

    def recording(self, name: str, application: str | None) -> Record:
        """This record with a new description of the work with that name."""
        token = token_of(self.worked, name, self.token)
        return self._replace(works=encode_works(put_work(self.worked, name, application, token)))

    def is_of(self, lease: Lease) -> bool:
        """Whether it is exactly this grant, and the same process still acts for the owner."""
        return self.state is State.GRANTED and (self.lease_id, self.epoch) == (lease.id, lease.epoch)

    def expired(self, now_us: int) -> bool:
        return self.end_us is not None and self.end_us <= now_us


COLUMNS = get_type_hints(Record)
"""The columns of the request table, each with its type."""

_TEXTS = [name for name, kind in COLUMNS.items() if kind is str]
_TIMES = [name for name in COLUMNS if name.endswith("_us")]
_NUMBERS = [name for name, kind in COLUMNS.items() if kind is int and name not in {*_TIMES, "priority"}]
