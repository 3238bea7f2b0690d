"""The rules of the lock manager, each stated once: pure functions over plain values, without input, output or state.

A store loads the candidates, calls :func:`decide` or one of the smaller functions, and writes the decision. The rules are:

- *Conflict*: two locks on one object exclude each other unless both are SHARED.
- *Order*: requests that conflict are served by :class:`Position`. It is fixed when a request joins the queue.
- *Overtaking*: a new arrival passes waiting requests of lower priority, but only while these have waited less than a bound.
- *Permits*: a group has a limited number of leases. A request without a permit waits in its group's queue and in no other.
- *Late requests*: a late request steps aside at the moment when another request would be granted.
- *Take-over*: of two calls of one owner, only the later one can act.

All numbers and times come from the store: numbers only grow, and times are by the store's clock, in one unit.
"""

from __future__ import annotations

import enum
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from airflow_hivelock.locks.model import LockMode, LockType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from airflow_hivelock.locks.model import Lock, LockObject

# Conflict.


def conflict(one: LockMode, other: LockMode) -> bool:
    """Whether two modes on the same object exclude each other: SHARED excludes EXCLUSIVE, EXCLUSIVE excludes both."""
    return LockMode.EXCLUSIVE in (one, other)


def excluded_by(mode: LockMode) -> tuple[LockMode, ...]:
    """The modes that a lock of that *mode* excludes: what a store has to look for."""
    return tuple(other for other in LockMode if conflict(mode, other))


def types_conflict(one: LockType, other: LockType, *, excl_write: bool) -> bool:
    """Whether two types of Hive's transactional manager exclude each other, on one object or one above the other.

    TxnHandler.checkLock, Hive 2.3 to 4.2; measured on 2.3.10, 3.1.3, 4.0.1, 4.1.0 and 4.2.1.

    :param excl_write: whether the server has EXCL_WRITE. If so, two SHARED_WRITE do not conflict, and EXCL_WRITE excludes
        SHARED_WRITE.
    """
    pair = (one, other)
    if LockType.EXCLUSIVE in pair:
        return True
    return LockType.SHARED_READ not in pair and (not excl_write or LockType.EXCL_WRITE in pair)


def conflicts(mine: Iterable[Lock], theirs: Iterable[Lock]) -> list[Lock]:
    """Those locks among *theirs* that exclude one of *mine*."""
    modes = {lock.object: lock.mode for lock in mine}
    return [lock for lock in theirs if excludes(modes, (lock,))]


def excludes(modes: Mapping[LockObject, LockMode], theirs: Iterable[Lock]) -> bool:
    """Whether one of *theirs* conflicts with the mode that *modes* has for the same object."""
    return any(lock.object in modes and conflict(modes[lock.object], lock.mode) for lock in theirs)


# Order and overtaking.


class Position(NamedTuple):
    """A position in a queue. Of two, the smaller goes first. It never changes.

    :param turn: the request's own number; or, claimed, the turn of the first request that it has passed.
    :param rank: the priority, negated.
    :param arrival: the request's own number, unique.
    """

    turn: int
    rank: int
    arrival: int

    @classmethod
    def newcomer(cls, priority: int) -> Position:
        """The position of a request that has no number yet: behind all others."""
        return cls(_LAST, -priority, _LAST)

    def claiming(self, claimed: QueuePlace | None) -> Position:
        """This position with the turn of the *claimed* place; None: unchanged."""
        return self if claimed is None else self._replace(turn=claimed.position.turn)

    def passed(self, other: Position) -> bool:
        """Whether this request has passed *other*, which arrived earlier and may have been granted before it was passed."""
        return self < other and other.arrival < self.arrival


_LAST = 1 << 63


class QueuePlace(NamedTuple):
    """A position, and when its turn was taken first: a claimed turn is as old as the one that it was claimed from."""

    position: Position
    since: int


def may_overtake(own: Position, waiting: Iterable[Position]) -> bool:
    """Whether one of the requests *waiting* has a lower priority, so that :func:`claim` may pass it."""
    return any(other.rank > own.rank for other in waiting)


def claim(own: Position, waiting: Iterable[QueuePlace], oldest: int) -> QueuePlace | None:
    """The place whose turn a new arrival claims; None: it passes no request and keeps its *own* turn.

    From the end of the queue it passes the requests of lower priority. It stops at the first other, and at the first whose
    turn is no younger than *oldest*: so no request is passed for longer than that.
    """
    claimed = None
    for place in sorted((place for place in waiting if place.position < own), reverse=True):
        if place.position.rank <= own.rank or place.since <= oldest:
            break
        claimed = place
    return claimed


def join(own: QueuePlace, waiting: Iterable[QueuePlace], oldest: int) -> QueuePlace:
    """The place that a new arrival takes: its *own*, or one with the turn that it claims."""
    claimed = claim(own.position, waiting, oldest)
    return QueuePlace(own.position.claiming(claimed), claimed.since) if claimed else own


class _Queued(Protocol):
    @property
    def position(self) -> Position: ...

    @property
    def holds(self) -> bool: ...


Queued = TypeVar("Queued", bound=_Queued)
"""Another request in a queue: its position, and whether it holds what it asked for."""

Ahead = TypeVar("Ahead")
Key = TypeVar("Key")


def in_the_way(mine: Position, others: Iterable[Queued]) -> list[Queued]:
    """The conflicting requests that keep one at *mine* waiting, nearest first: all that hold, and all that wait before it.

    A request that holds is in the way although it was passed: it was granted before that.
    """
    found = [other for other in others if other.holds or other.position < mine]
    return sorted(found, key=lambda other: other.position, reverse=True)


def watched(ahead: Sequence[Ahead]) -> tuple[Ahead, Ahead]:
    """What a waiter watches among the requests *ahead*: the nearest, whose end lets it advance, and the first in line."""
    return ahead[0], ahead[-1]


def earlier(mine: Position, waiting: Mapping[Key, Position]) -> list[Key]:
    """The keys of the requests that wait before *mine*, in their order."""
    return sorted((key for key, position in waiting.items() if position < mine), key=lambda key: waiting[key])


# Permits.


def permit_free(mine: Position, most_leases: int, held: int, waiting: Iterable[Position]) -> bool:
    """Whether a request may take one of its group's permits: one is free, and no request of the group waits before it.

    :param most_leases: the limit that this request gives.
    :param held: how many permits of the group are taken.
    :param waiting: the positions of the others in the group's queue.
    """
    return held < most_leases and not any(other < mine for other in waiting)


def free_number(taken: Collection[int]) -> int:
    """The smallest number of a permit that is not *taken*."""
    return next(number for number in count() if number not in taken)


def in_the_way_of_permit(mine: Position, most_leases: int, group: Iterable[Queued]) -> list[Queued]:
    """The requests of the group that keep one at *mine* from a permit: all holders, if no permit is free; then the requests
    that wait before it, nearest first."""
    others = list(group)
    holding = [other for other in others if other.holds]
    waiting = in_the_way(mine, [other for other in others if not other.holds])
    return [*(holding if len(holding) >= most_leases else ()), *waiting]


# Take-over.


class Call(NamedTuple):
    """A call of an owner. Of two, the larger is the later.

    :param attempt: the owner's attempt, which orders the calls first.
    :param began: the store's number when the call began.
    :param process: distinguishes two calls that began at once.
    """

    attempt: int
    began: int
    process: str = ""


def stale(call: Call, other: Call, *, ended: bool = False) -> bool:
    """Whether *call* must stop, since *other* of the same owner came later.

    :param ended: the lease of *other* has ended: then a call that came no later must not acquire again.
    """
    return call <= other if ended else call < other


class Earlier(NamedTuple):
    """What a store has of an owner's last call.

    :param call: the call that acted last; where the store numbers the ends of leases, *began* is that of the end.
    :param active: its request waits or holds.
    :param ended: its lease has ended.
    :param locks: what the request asked for.
    :param named: what these were planned from; "": the request named them itself.
    :param gave_back: a part of the lease was given back.
    """

    call: Call
    active: bool
    ended: bool
    locks: Collection[Lock]
    named: str = ""
    gave_back: bool = False


class Start(enum.Enum):
    """How a call starts, with the reason."""

    FRESH = "the owner has no request: this is a new one"
    TAKE_OVER = "the owner's request is the same: this call goes on with it"
    STALE = "a later call acts for the owner, or has released: this call must stop"
    MISMATCH = "the owner waits for or holds other locks"


def take_over(call: Call, locks: Collection[Lock], named: str, earlier: Earlier | None) -> Start:
    """How a *call* for *locks* starts, of an owner whose last call was *earlier*.

    A request that was planned from a statement or a pattern is the same if it was planned from the same text: a table may
    have more partitions at the second attempt. After a part was given back, only the locks tell.
    """
    if earlier is None:
        return Start.FRESH
    if stale(call, earlier.call, ended=earlier.ended):
        return Start.STALE
    if not earlier.active:
        return Start.FRESH
    same = named == earlier.named if named and not earlier.gave_back else tuple(locks) == tuple(earlier.locks)
    return Start.TAKE_OVER if same else Start.MISMATCH


# The decision.


class Other(NamedTuple):
    """Another request, as it is in one of the queues.

    :param key: the store's name for it.
    :param gone: it has no claim any more: a waiter whose process is dead, or an expired lease where expiry frees.
    """

    key: int | str
    place: QueuePlace
    holds: bool
    gone: bool = False

    @property
    def position(self) -> Position:
        return self.place.position


class Undecided(NamedTuple):
    """The request that is decided.

    :param arrival: its place by its own number and time: where it joins the group's queue.
    :param now: the place that it gets if it joins the queue for its locks at this moment.
    :param among_locks: its place in the queue for its locks; None: it is not in that queue.
    :param in_group: its place in the group's queue, kept from the first time that it waited there; None: it never has.
    :param most: how many leases of its group may be held; 0: it has no limit.
    :param late: it steps aside instead of being granted.
    """

    arrival: QueuePlace
    now: QueuePlace
    among_locks: QueuePlace | None = None
    in_group: QueuePlace | None = None
    most: int = 0
    late: bool = False


class Ruling(enum.Enum):
    """What becomes of a request, with the reason."""

    GRANT = "no request is in the way"
    STEP_ASIDE = "no request is in the way of this late request"
    WAIT = "requests that conflict hold, or wait before it"
    PARK = "no lease of its group is free, or requests of the group wait before it"
    CLEAR = "only requests without a claim are in the way: remove them, then decide again"


class Decision(NamedTuple):
    """What becomes of a request, and why.

    :param among_locks: its place in the queue for its locks from now on; None: it is not in that queue.
    :param in_group: its place in the group's queue.
    :param ahead: the requests in the way, nearest first; for a permit, its holders before those.
    :param watch: a change of one of these is worth another look.
    :param remove: the requests that have no claim; empty unless the ruling is CLEAR.
    """

    ruling: Ruling
    among_locks: QueuePlace | None
    in_group: QueuePlace | None
    ahead: tuple[Other, ...] = ()
    watch: tuple[Other, ...] = ()
    remove: tuple[Other, ...] = ()

    @property
    def reason(self) -> str:
        return self.ruling.value


def at_turn(late: bool) -> Ruling:
    """What becomes of a request that no other is in the way of."""
    return Ruling.STEP_ASIDE if late else Ruling.GRANT


def decide(asking: Undecided, conflicting: Iterable[Other], group: Iterable[Other], oldest: int) -> Decision:
    """What becomes of a request that holds nothing.

    First it needs a permit of its group, then its locks. It is in one queue at a time. When it gets its permit, it joins the
    queue for its locks as a new arrival; its place in the group's queue it keeps.

    :param conflicting: the other requests that wait for or hold conflicting locks.
    :param group: the other requests of its group that wait for or have a lease.
    :param oldest: requests whose turn was taken by then are no longer passed.
    """
    in_group = asking.in_group
    if asking.most:
        others = list(group)
        joined = in_group or join(asking.arrival, _living_places(others), oldest)
        before = in_the_way_of_permit(joined.position, asking.most, others)
        living = in_the_way_of_permit(joined.position, asking.most, [other for other in others if not other.gone])
        if living:
            waiting = tuple(other for other in living if not other.holds)
            return Decision(Ruling.PARK, None, joined, tuple(living), waiting[:1] or tuple(living))
        if remove := tuple(other for other in before if other.gone):
            return Decision(Ruling.CLEAR, asking.among_locks, in_group, remove=remove)
    candidates = list(conflicting)
    place = asking.among_locks or join(asking.now, _living_places(candidates), oldest)
    before = in_the_way(place.position, candidates)
    if living := [other for other in before if not other.gone]:
        return Decision(Ruling.WAIT, place, in_group, tuple(living), watched(living)[:1])
    if before:
        return Decision(Ruling.CLEAR, asking.among_locks, in_group, remove=tuple(before))
    return Decision(at_turn(asking.late), place, in_group)


def _living_places(others: Iterable[Other]) -> list[QueuePlace]:
    """The places of the requests that wait and may be passed."""
    return [other.place for other in others if not other.holds and not other.gone]
