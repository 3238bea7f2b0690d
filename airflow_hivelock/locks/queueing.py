"""The rules of the queue. Each rule is one pure function over plain values.

A store loads the candidates, calls :func:`decide` or a smaller function, and writes the decision. The rules:

- *Conflict*: two locks on one object exclude each other unless both are SHARED.
- *Order*: requests that conflict go in the order of their :class:`Position`. A request gets its position when it joins
  the queue. If a person changes its priority, it joins the queue again.
- *Overtaking*: a new arrival overtakes waiters of lower priority that have not yet waited for the limit on overtaking.
  Requests of priority 0 or less are in the background: they come after all others, and their limit is
  :data:`BACKGROUND` times as long.
- *Permits*: a group has a limited number of leases (:mod:`.permits`). A request without its permits is only in its
  group's queue.
- *Deferred grant*: at its turn, a deferred request is invited or goes away (:mod:`.invitations`).
- *Take-over*: of two calls of one owner, only the later one can act (:mod:`.calls`).

All numbers and times come from the store. Numbers only grow. Times are by the store's clock, in one unit.
"""

from __future__ import annotations

import enum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from airflow_hivelock.locks import permits
from airflow_hivelock.locks.model import LockMode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_hivelock.locks.model import DeferredGrant, Lock, LockObject

# Conflict.


def conflict(one: LockMode, other: LockMode) -> bool:
    """Whether two modes on the same object exclude each other."""
    return LockMode.EXCLUSIVE in (one, other)


def excluded_by(mode: LockMode) -> tuple[LockMode, ...]:
    """The modes that a lock of this *mode* excludes. A store looks for locks with these modes."""
    return tuple(other for other in LockMode if conflict(mode, other))


def conflicts(mine: Iterable[Lock], theirs: Iterable[Lock]) -> list[Lock]:
    """The locks in *theirs* that conflict with a lock in *mine*."""
    modes = {lock.object: lock.mode for lock in mine}
    return [lock for lock in theirs if excludes(modes, (lock,))]


def excludes(modes: Mapping[LockObject, LockMode], theirs: Iterable[Lock]) -> bool:
    """Whether a lock in *theirs* conflicts with the mode that *modes* has for the same object."""
    for lock in theirs:
        mode = modes.get(lock.object)
        if mode is not None and conflict(mode, lock.mode):
            return True
    return False


# Order and overtaking.

PASSING_S = 3600.0
"""The default limit on overtaking: how long requests of higher priority may overtake a waiter, in seconds."""

BACKGROUND = 168
"""How many times as long others may overtake a request of priority 0 or less: for a week by default.
A daily run must go before a rerun that takes a weekend. But the rerun must end, so its requests also have a limit.
"""

BEHIND = 1 << 62
"""Added to the number of a request in the background: it is larger than each number that a store draws.
So requests that overtake the background keep their own numbers. If they claimed a number there, all of them would share
it, and a still more urgent request could not go between them.
"""


class Position(NamedTuple):
    """A queue position. The smaller one goes first. It changes only with the priority.

    :param number: the request's own number, larger by :data:`BEHIND` in the background. If it has overtaken other
        requests: the smaller one of that and the number of the first of them.
    :param rank: the negated priority.
    :param arrival: the request's own number. No other request has it.
    """

    number: int
    rank: int
    arrival: int

    @classmethod
    def unclaimed(cls, number: int, priority: int, arrival: int) -> Position:
        """The position of a request that draws this *number* and claims no other."""
        return cls(number if priority > 0 else BEHIND + number, -priority, arrival)

    @classmethod
    def newcomer(cls, priority: int) -> Position:
        """The last position, in the background or before it, of a request that has no number yet."""
        return cls.unclaimed(BEHIND - 1, priority, _LAST)

    def reranked(self, priority: int) -> Position:
        """This position after a person has changed the priority. With that, it can leave or enter the background."""
        stays = (self.rank < 0) == (priority > 0)
        return self._replace(rank=-priority) if stays else self.unclaimed(self.number % BEHIND, priority, self.arrival)

    def passed(self, other: Position) -> bool:
        """Whether this request has overtaken *other*. That one arrived earlier, and may already hold its locks."""
        return self < other and other.arrival < self.arrival


_LAST = 1 << 192  # An arrival in a group's queue of ZooKeeper has 128 bits.
_BEFORE_ALL, AFTER_ALL = Position(-1, 0, 0), Position(2 * BEHIND, 0, _LAST)


class TimedPosition(NamedTuple):
    """A position, and the time when its limit on overtaking began."""

    position: Position
    since: int

    def claiming(self, number: int, passed: Iterable[TimedPosition], limit: OvertakingLimit) -> TimedPosition:
        """This position with that *number*.

        It reaches the *limit* no later than any of the *passed*: a request that overtakes this one also delays them.
        """
        position = self.position._replace(number=number)
        since = (one.since + limit.of(one.position) - limit.of(position) for one in passed)
        return TimedPosition(position, min((self.since, *since)))


class OvertakingLimit(NamedTuple):
    """The limit on overtaking, at one time.

    :param now: the time by the store's clock.
    :param passing: how long a request of a priority above 0 can be overtaken; 0: never.
    """

    now: int
    passing: int

    def of(self, position: Position) -> int:
        """How long a request at *position* can be overtaken."""
        return self.passing if position.rank < 0 else BACKGROUND * self.passing

    def reached(self, other: TimedPosition) -> bool:
        """Whether no request overtakes the *other* any more."""
        return self.now - other.since >= self.of(other.position)


def may_claim(own: Position, waiting: Iterable[Position]) -> bool:
    """Whether :func:`join` can find another position than its *own*."""
    return any(other.rank > own.rank or other.number >= BEHIND > own.number for other in waiting)


def may_pass(own: Position, other: TimedPosition, limit: OvertakingLimit, *, equals: bool = False) -> bool:
    """Whether *own* may overtake the *other*, of lower (*equals*: or the same) priority, within the *limit*."""
    return (other.position.rank > own.rank - equals) and not limit.reached(other)


def join(own: TimedPosition, waiting: Iterable[TimedPosition], limit: OvertakingLimit) -> TimedPosition:
    """The position of a new arrival: its *own*, with the number that it claims, if it claims one.

    It starts at the end of the queue, and overtakes one request after the other. It stops at the first that does not have
    a lower priority, or that has reached the *limit*.
    """
    mine = own.position
    behind = range(BEHIND, BEHIND + mine.number) if mine.number < BEHIND else ()  # in the background, and earlier
    ahead = [other for other in waiting if other.position < mine or other.position.number in behind]
    return _overtaking(own, [], ahead, limit) or own.claiming(max(ahead).position.number + 1, [], limit)


def _overtaking(
    own: TimedPosition, passed: list[TimedPosition], ahead: Iterable[TimedPosition], limit: OvertakingLimit
) -> TimedPosition | None:
    """The first position after the request that stops it. None: there is none.

    :param passed: the requests that it has overtaken already.
    :param ahead: those that it can overtake. It meets the last of them first.
    """
    passed, stop = list(passed), _BEFORE_ALL
    for other in sorted(ahead, reverse=True):
        if not may_pass(own.position, other, limit):
            stop = other.position
            break
        passed.append(other)
    # Several requests can have one number. With that of a passed one, it could come before the one that stops it.
    numbers = (own.position.number, *(one.position.number for one in passed))
    places = (own.position._replace(number=number) for number in numbers)
    joined = min((place for place in places if place > stop), default=None)
    return joined and own.claiming(joined.number, [one for one in passed if joined < one.position], limit)


def reprioritized(
    before: TimedPosition, own: TimedPosition, waiting: Iterable[TimedPosition], limit: OvertakingLimit
) -> TimedPosition | None:
    """The new position of a waiter after a person has changed its priority.

    A lowered request is a new arrival. A raised one overtakes others as a new arrival does, but it starts at its
    position *before*. None: it can overtake no request, and would gain nothing else.

    :param own: its position as a new arrival of the new priority.
    """
    if own.position.rank > before.position.rank:
        return join(own, waiting, limit)
    passed = [] if limit.reached(before) else [before]
    moved = _overtaking(own, passed, [other for other in waiting if other.position < before.position], limit)
    if moved is None or moved.position > before.position:
        return None
    return moved.claiming(moved.position.number, [before], limit)  # it keeps the limit that it has reached


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
    """The blockers of a request at *mine*: the holders, and the earlier waiters, of the *others* that conflict with it.

    The nearest comes first. A holder blocks even if the request has overtaken it, because its grant came first. Such
    a holder comes last: otherwise each waiter would watch it.
    """
    found = [other for other in others if other.holds or other.position < mine]
    return sorted(found, key=lambda other: (other.position < mine, other.position), reverse=True)


def watched(ahead: Sequence[Ahead]) -> tuple[Ahead, Ahead]:
    """The two requests *ahead* that a waiter watches: the nearest one, and the first in the queue."""
    return ahead[0], ahead[-1]


def earlier(mine: Position, waiting: Mapping[Key, Position]) -> list[Key]:
    """The keys of the requests that wait before *mine*, in queue order."""
    return sorted((key for key, position in waiting.items() if position < mine), key=lambda key: waiting[key])


# Permits.


def in_the_way_of_permit(mine: Position, weight: int, most_leases: int, group: Iterable[Other]) -> list[Other]:
    """The requests that keep one at *mine* from its permits: all holders if too few permits are free, then all that
    wait before it."""
    others = list(group)
    holding = [other for other in others if other.holds]
    waiting = in_the_way(mine, [other for other in others if not other.holds])
    fit = permits.fit(weight, most_leases, sum(other.weight for other in holding))
    return [*(() if fit else holding), *waiting]


# The decision.


class Other(NamedTuple):
    """Another request in one of the queues.

    :param key: the store's name for it.
    :param holds: it holds what the queue is for: its locks, or its permits.
    :param gone: it no longer counts: its process is dead while it waits, or its lease has expired in a store that frees
        expired leases.
    :param invited: it is invited. It holds its permits but no locks.
    :param over: its invitation has ended, by the store's clock.
    :param weight: how many permits it holds or waits for, in the group's queue.
    """

    key: int | str
    timed: TimedPosition
    holds: bool
    gone: bool = False
    invited: bool = False
    over: bool = False
    weight: int = 1

    @property
    def position(self) -> Position:
        return self.timed.position


class Undecided(NamedTuple):
    """The request to decide.

    :param arrival: its position by its own number and time. It joins the group's queue there.
    :param now: its position if it now joins the queue for its locks.
    :param among_locks: its position in the queue for its locks; None: it is not in that queue.
    :param in_group: its position in the group's queue. It keeps that from its first wait there. None: it never waited.
    :param most: how many leases of its group may be held; 0: it is in no group.
    :param deferred: its deferred grant; None: it takes its locks at its turn.
    :param invited: it is invited, so it has its permits.
    :param weight: how many permits it takes.
    """

    arrival: TimedPosition
    now: TimedPosition
    among_locks: TimedPosition | None = None
    in_group: TimedPosition | None = None
    most: int = 0
    deferred: DeferredGrant | None = None
    invited: bool = False
    weight: int = 1

    @property
    def has_slot(self) -> bool:
        """Whether the task's worker asks. Then the request does not wait."""
        return self.deferred is not None and self.deferred.has_slot


class Ruling(enum.Enum):
    """The decision about a request, with the reason."""

    GRANT = "no request is in the way"
    GO_AWAY = "no request is in the way of this deferred request: it leaves the queue while it gets a worker slot"
    INVITE = "no request is in the way of this deferred request: it keeps its position while it gets a worker slot"
    GIVE_SLOT_BACK = "requests are in the way of a worker: it writes nothing, and its trigger waits"
    WAIT = "requests that conflict hold their locks, or wait before it"
    PARK = "too few permits of its group are free, or requests of the group wait before it"
    CLEAR = "only requests that no longer count are in the way: remove them, then decide again"


class Decision(NamedTuple):
    """A ruling with its details.

    :param among_locks: the request's new position in the queue for its locks; None: it is not in that queue.
    :param in_group: its position in the group's queue.
    :param ahead: the blockers, nearest first. For permits: the holders first.
    :param watch: the request looks again when one of these changes.
    :param remove: the requests that no longer count; empty unless the ruling is CLEAR.
    :param away: the requests whose invitation has ended. They block no request. The store writes AWAY for them.
    """

    ruling: Ruling
    among_locks: TimedPosition | None
    in_group: TimedPosition | None
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
    """Whether the reads before a decision must be fresh and complete, because no verification follows them."""
    return deferred is not None


def decide(asking: Undecided, conflicting: Iterable[Other], group: Iterable[Other], limit: OvertakingLimit) -> Decision:
    """Decide a request that holds nothing.

    The request needs its permits first, and then its locks. It is in one queue at a time. When it gets its permits, it
    joins the queue for its locks as a new arrival, and keeps its position in the group's queue.

    :param conflicting: the other requests that hold conflicting locks or wait for them.
    :param group: the other requests of its group that hold permits or wait for them.
    """
    in_group, away = asking.in_group, tuple[Other, ...]()
    if asking.most and not asking.invited:
        others = list(group)
        joined = in_group or join(asking.arrival, overtakable(others), limit)
        before = partial(in_the_way_of_permit, joined.position, asking.weight, asking.most)
        living = before(other for other in others if not other.gone)
        if all(other.holds for other in living):  # the first in its group's queue ends the group's invitations
            away = tuple(other for other in living if other.over)
            others = [other for other in others if other not in away]
            living = before(other for other in others if not other.gone)
        if living:
            waiting = tuple(other for other in living if not other.holds)
            ruling = Ruling.GIVE_SLOT_BACK if asking.has_slot else Ruling.PARK
            return Decision(ruling, None, joined, tuple(living), waiting[:1] or tuple(living), away=away)
        if remove := tuple(other for other in before(others) if other.gone):
            return Decision(Ruling.CLEAR, asking.among_locks, in_group, remove=remove)
    ended = {other.key for other in away}
    candidates = [other for other in conflicting if other.key not in ended]
    joins = asking.among_locks or join(asking.now, overtakable(candidates), limit)
    ahead = in_the_way(joins.position, candidates)
    away += tuple(other for other in ahead if other.over)
    if living := [other for other in ahead if not other.gone and not other.over]:
        ruling = Ruling.GIVE_SLOT_BACK if asking.has_slot else Ruling.WAIT
        return Decision(ruling, joins, in_group, tuple(living), watched(living)[:1], away=away)
    if remove := tuple(other for other in ahead if other.gone):
        return Decision(Ruling.CLEAR, asking.among_locks, in_group, remove=remove)
    return Decision(at_turn(asking.deferred), joins, in_group, away=away)


def overtakable(others: Iterable[Other]) -> list[TimedPosition]:
    """The positions of the waiting requests that can be overtaken. A request without a process can get another one."""
    return [other.timed for other in others if not other.holds and not other.over]
