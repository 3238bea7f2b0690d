"""The rules of the lock manager, each stated once: pure functions over plain values, without input, output or state.

A store loads the candidates, calls :func:`decide` or one of the smaller functions, and writes the decision. The rules:

- *Conflict*: two locks on one object exclude each other unless both are SHARED.
- *Order*: requests that conflict are served by :class:`Position`. It is fixed when a request joins the queue. If a
  person changes the priority, the request joins the queue again.
- *Overtaking*: a new arrival overtakes waiters of lower priority, if these have waited less than a bound.
- *Permits*: a group has a limited number of leases (:mod:`.permits`). A request without its permits is in its group's
  queue only.
- *Deferred grant*: at its turn a deferred request goes away or is invited (:mod:`.invitations`).
- *Take-over*: of two calls of one owner, only the later one can act.

All numbers and times come from the store: numbers only grow, and times are by the store's clock, in one unit.
"""

from __future__ import annotations

import enum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from airflow_hivelock.locks import permits
from airflow_hivelock.locks.model import LockMode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from airflow_hivelock.locks.model import DeferredGrant, Lock, LockObject

# Conflict.


def conflict(one: LockMode, other: LockMode) -> bool:
    """Whether two modes on the same object exclude each other: SHARED excludes EXCLUSIVE, EXCLUSIVE excludes both."""
    return LockMode.EXCLUSIVE in (one, other)


def excluded_by(mode: LockMode) -> tuple[LockMode, ...]:
    """The modes that a lock of that *mode* excludes: the ones that a store has to look for."""
    return tuple(other for other in LockMode if conflict(mode, other))


def conflicts(mine: Iterable[Lock], theirs: Iterable[Lock]) -> list[Lock]:
    """The locks among *theirs* that exclude one of *mine*."""
    modes = {lock.object: lock.mode for lock in mine}
    return [lock for lock in theirs if excludes(modes, (lock,))]


def excludes(modes: Mapping[LockObject, LockMode], theirs: Iterable[Lock]) -> bool:
    """Whether one of *theirs* conflicts with the mode in *modes* for the same object."""
    for lock in theirs:
        mode = modes.get(lock.object)
        if mode is not None and conflict(mode, lock.mode):
            return True
    return False


# Order and overtaking.


class Position(NamedTuple):
    """A queue position. The smaller of two goes first. It never changes.

    :param turn: the request's own number; or, claimed, the turn of the first request that it has overtaken.
    :param rank: the priority, negated.
    :param arrival: the request's own number, unique.
    """

    turn: int
    rank: int
    arrival: int

    @classmethod
    def newcomer(cls, priority: int) -> Position:
        """The position of a request that has no number yet: after all others."""
        return cls(_LAST, -priority, _LAST)

    def passed(self, other: Position) -> bool:
        """Whether this request has overtaken *other*, which arrived earlier and may have been granted before that."""
        return self < other and other.arrival < self.arrival


_LAST = 1 << 63


class QueuePlace(NamedTuple):
    """A position, and when its turn was first taken. A claimed turn keeps the time of the place that it comes from."""

    position: Position
    since: int

    def claiming(self, other: QueuePlace) -> QueuePlace:
        """This place with the turn of the *other*."""
        return QueuePlace(self.position._replace(turn=other.position.turn), other.since)


def may_overtake(own: Position, waiting: Iterable[Position]) -> bool:
    """Whether one of the requests *waiting* has a lower priority, so that :func:`join` may overtake it."""
    return any(other.rank > own.rank for other in waiting)


def may_pass(own: Position, place: QueuePlace, oldest: int, *, equals: bool = False) -> bool:
    """Whether a request may overtake one at *place* of lower (*equals*: or the same) priority, younger than *oldest*."""
    return (place.position.rank > own.rank - equals) and place.since > oldest


def join(own: QueuePlace, waiting: Iterable[QueuePlace], oldest: int) -> QueuePlace:
    """The place of a new arrival: its *own*, or the turn that it claims.

    From the end of the queue it overtakes the requests of lower priority. It stops at the first other, and at the first
    that took its turn at *oldest* or before. So no request is overtaken for longer than that.
    """
    passed: list[QueuePlace] = []
    for place in sorted((place for place in waiting if place.position < own.position), reverse=True):
        if not may_pass(own.position, place, oldest):
            # A request that was parked has an old number. With the same turn it would come before that place.
            passed = [one for one in passed if own.claiming(one).position > place.position]
            break
        passed.append(place)
    return own.claiming(passed[-1]) if passed else own


def reprioritized(place: QueuePlace, own: QueuePlace, waiting: Iterable[QueuePlace], oldest: int) -> QueuePlace | None:
    """The place of a request that waits at *place*, after a person has changed its priority.

    With a lower priority it is a new arrival. With a higher one it overtakes others from its turn, as a new arrival does
    from the end. None: it took its turn at *oldest* or before, and so did all requests before it.

    :param own: its place as a new arrival of the new priority.
    """
    if own.position.rank > place.position.rank:
        return join(own, waiting, oldest)
    return join(own.claiming(place), waiting, oldest) if place.since > oldest else None


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
    """The conflicting requests that block one at *mine*, nearest first: each that holds, or waits before it.

    A holder blocks even if it was overtaken, because it was granted before that.
    """
    found = [other for other in others if other.holds or other.position < mine]
    return sorted(found, key=lambda other: other.position, reverse=True)


def watched(ahead: Sequence[Ahead]) -> tuple[Ahead, Ahead]:
    """The two requests *ahead* that a waiter watches: the nearest one, and the first in line."""
    return ahead[0], ahead[-1]


def earlier(mine: Position, waiting: Mapping[Key, Position]) -> list[Key]:
    """The keys of the requests that wait before *mine*, in their order."""
    return sorted((key for key, position in waiting.items() if position < mine), key=lambda key: waiting[key])


# Permits.


def in_the_way_of_permit(mine: Position, weight: int, most_leases: int, group: Iterable[Other]) -> list[Other]:
    """The requests that keep one at *mine* from its permits, nearest first: the holders if too few are free, and earlier
    ones."""
    others = list(group)
    holding = [other for other in others if other.holds]
    waiting = in_the_way(mine, [other for other in others if not other.holds])
    fit = permits.fit(weight, most_leases, sum(other.weight for other in holding))
    return [*(() if fit else holding), *waiting]


# Take-over.


class Call(NamedTuple):
    """A call of an owner. The larger of two is the later.

    :param attempt: the owner's attempt, which orders the calls first.
    :param began: the store's number when the call began.
    :param process: distinguishes two calls that began at once.
    """

    attempt: int
    began: int
    process: str = ""


def stale(call: Call, other: Call, *, ended: bool = False) -> bool:
    """Whether *call* must stop because *other*, of the same owner, came later.

    :param ended: the lease of *other* has ended: then a call that came no later must not acquire again.
    """
    return call <= other if ended else call < other


class Earlier(NamedTuple):
    """The store's data about an owner's last call.

    :param call: the call that acted last; where the store numbers the ends of leases, *began* is that of the end.
    :param active: its request waits or holds.
    :param ended: its lease has ended.
    :param locks: the locks that it asked for.
    :param named: the text that these were planned from; "": the request named them itself.
    :param gave_back: a part of the lease was released.
    :param withdrawn: it has *ended* without a lease: a person withdrew the request while it waited.
    """

    call: Call
    active: bool
    ended: bool
    locks: Collection[Lock]
    named: str = ""
    gave_back: bool = False
    withdrawn: bool = False


class Start(enum.Enum):
    """How a call starts, with the reason."""

    FRESH = "the owner has no request: this is a new one"
    TAKE_OVER = "the owner's request is the same: this call continues it"
    STALE = "a later call acts for the owner, or has released: this call must stop"
    MISMATCH = "the owner waits for or holds other locks"


def take_over(call: Call, locks: Collection[Lock], named: str, earlier: Earlier | None) -> Start:
    """How a *call* for *locks* starts if its owner's last call was *earlier*.

    A request planned from a statement or a pattern is the same if the text is the same: a table may have more
    partitions at the second attempt. After a partial release, only equal locks make it the same.
    """
    if earlier is not None and stale(call, earlier.call, ended=earlier.ended):
        return Start.STALE
    if earlier is None or not earlier.active:
        return Start.FRESH
    same = named == earlier.named if named and not earlier.gave_back else tuple(locks) == tuple(earlier.locks)
    return Start.TAKE_OVER if same else Start.MISMATCH


# The decision.


class Other(NamedTuple):
    """Another request, as it is in one of the queues.

    :param key: the store's name for it.
    :param gone: it has no claim any more: a waiter with a dead process, or an expired lease where expiry releases it.
    :param invited: it waits for its worker slot. It holds its permits, in the group's queue, and no locks.
    :param over: its invitation is over, by the store's clock.
    :param weight: in the group's queue, how many permits it holds or waits for.
    """

    key: int | str
    place: QueuePlace
    holds: bool
    gone: bool = False
    invited: bool = False
    over: bool = False
    weight: int = 1

    @property
    def position(self) -> Position:
        return self.place.position


class Undecided(NamedTuple):
    """The request to decide.

    :param arrival: its place by its own number and time: where it joins the group's queue.
    :param now: the place that it gets if it joins the queue for its locks at this moment.
    :param among_locks: its place in the queue for its locks; None: it is not in that queue.
    :param in_group: its place in the group's queue, kept from the first time that it waited there; None: it never has.
    :param most: how many leases of its group may be held; 0: it is in no group.
    :param deferred: its deferred grant; None: it takes its locks at its turn.
    :param invited: it is invited, and has its permits.
    :param weight: how many permits it takes.
    """

    arrival: QueuePlace
    now: QueuePlace
    among_locks: QueuePlace | None = None
    in_group: QueuePlace | None = None
    most: int = 0
    deferred: DeferredGrant | None = None
    invited: bool = False
    weight: int = 1

    @property
    def has_slot(self) -> bool:
        """Whether the worker calls. Then the request does not wait."""
        return self.deferred is not None and self.deferred.has_slot


class Ruling(enum.Enum):
    """The decision about a request, with the reason."""

    GRANT = "no request is in the way"
    GO_AWAY = "no request is in the way of this deferred request"
    INVITE = "no request is in the way of this deferred request: it keeps its position while it gets a worker slot"
    GIVE_SLOT_BACK = "requests are in the way of a worker: it writes nothing, and its trigger waits"
    WAIT = "requests that conflict hold, or wait before it"
    PARK = "too few leases of its group are free, or requests of the group wait before it"
    CLEAR = "only requests without a claim are in the way: remove them, then decide again"


class Decision(NamedTuple):
    """A ruling with its details.

    :param among_locks: its place in the queue for its locks from now on; None: it is not in that queue.
    :param in_group: its place in the group's queue.
    :param ahead: the blockers, nearest first; for a permit, its holders come first.
    :param watch: a change of one of these is worth another look.
    :param remove: the requests that have no claim; empty unless the ruling is CLEAR.
    :param away: requests with an ended invitation. They block no request any more: the store writes AWAY.
    """

    ruling: Ruling
    among_locks: QueuePlace | None
    in_group: QueuePlace | None
    ahead: tuple[Other, ...] = ()
    watch: tuple[Other, ...] = ()
    remove: tuple[Other, ...] = ()
    away: tuple[Other, ...] = ()


def at_turn(deferred: DeferredGrant | None) -> Ruling:
    """The ruling for a request without blockers."""
    if deferred is None or deferred.has_slot:
        return Ruling.GRANT
    return Ruling.INVITE if deferred.invitation_s > 0 else Ruling.GO_AWAY


def reads_decide(deferred: DeferredGrant | None) -> bool:
    """Whether a request's reads decide, without a verification afterwards. Then they must be fresh and complete."""
    return deferred is not None


def decide(asking: Undecided, conflicting: Iterable[Other], group: Iterable[Other], oldest: int) -> Decision:
    """Decide a request that holds nothing.

    First it needs its permits of its group, then its locks. It is in one queue at a time. With its permits, it joins the
    queue for its locks as a new arrival. It keeps its place in the group's queue. An invited request has its permits.

    :param conflicting: the other requests that wait for or hold conflicting locks.
    :param group: the other requests of its group that wait for or have a lease.
    :param oldest: requests that took their turn by then are no longer overtaken.
    """
    in_group, away = asking.in_group, tuple[Other, ...]()
    if asking.most and not asking.invited:
        others = list(group)
        joined = in_group or join(asking.arrival, living_places(others), oldest)
        before = partial(in_the_way_of_permit, joined.position, asking.weight, asking.most)
        living = before(other for other in others if not other.gone)
        if all(other.holds for other in living):  # the first in its group ends the invitations there
            away = tuple(other for other in living if other.over)
            others = [other for other in others if other not in away]
            living = before(other for other in others if not other.gone)
        if living:
            waiting = tuple(other for other in living if not other.holds)
            ruling = Ruling.GIVE_SLOT_BACK if asking.has_slot else Ruling.PARK
            return Decision(ruling, None, joined, tuple(living), waiting[:1] or tuple(living), away=away)
        if remove := tuple(other for other in before(others) if other.gone):
            return Decision(Ruling.CLEAR, asking.among_locks, in_group, remove=remove)
    candidates = [other for other in conflicting if other not in away]
    place = asking.among_locks or join(asking.now, living_places(candidates), oldest)
    ahead = in_the_way(place.position, candidates)
    away += tuple(other for other in ahead if other.over)
    if living := [other for other in ahead if not other.gone and not other.over]:
        ruling = Ruling.GIVE_SLOT_BACK if asking.has_slot else Ruling.WAIT
        return Decision(ruling, place, in_group, tuple(living), watched(living)[:1], away=away)
    if remove := tuple(other for other in ahead if other.gone):
        return Decision(Ruling.CLEAR, asking.among_locks, in_group, remove=remove)
    return Decision(at_turn(asking.deferred), place, in_group, away=away)


def living_places(others: Iterable[Other]) -> list[QueuePlace]:
    """The places of the requests that wait and may be overtaken."""
    return [other.place for other in others if not other.holds and not other.gone and not other.over]
