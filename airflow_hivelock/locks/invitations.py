"""The rules of invitations: at its turn, a deferred request keeps its queue position while it gets a worker slot.

Pure functions over plain values, like :mod:`.queueing`. The states of a deferred request are::

    WAITING ──▶ INVITED ──▶ GRANTED
       ▲           │ └──────▶ AWAY ──▶ a new arrival, perhaps at its old position
       └───────────┘ (its worker found another request in the way)

- *Invited*: it keeps its tickets and its permit, and has no lock node and no process. It blocks what a waiting request
  blocks.
- *End*: an invitation lasts ``invitation_s``, by the store's clock. The first waiter behind it that finds it over
  writes AWAY. A worker that comes before that is granted all the same.
- *Away*: it has no tickets and no permit, and blocks no request. Its record keeps its old place.
- *Rounds*: an invitation that does not end in a grant is a round. After :data:`ROUNDS` the triggerer takes the locks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.model import DeferredGrant

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from airflow_hivelock.locks.model import Lock, LockObject
    from airflow_hivelock.locks.queueing import Call, QueuePlace

INVITATION_S = 20.0
"""The default length of an invitation, in seconds."""

ROUNDS = 3
"""The most rounds of a request. Without a bound, two requests can keep each other out forever."""

SHARE = 4
"""A request that comes back may overtake another only if they conflict in at least one in so many of the other's named
objects."""


def of_round(rounds: int, invitation_s: float) -> DeferredGrant | None:
    """The deferred grant that a trigger asks for; None: it takes the locks at its turn.

    :param rounds: how many rounds it has had.
    :param invitation_s: as in :class:`~airflow_hivelock.locks.model.DeferredGrant`.
    """
    return DeferredGrant(invitation_s) if rounds < ROUNDS else None


def is_over(end: int, now: int) -> bool:
    """Whether an invitation that ends at *end* is over, both by the store's clock."""
    return end <= now


def next_end(ends: Iterable[int | None]) -> int | None:
    """When a request that waits behind invitations has to look again; None: none of its blockers is invited."""
    return min((end for end in ends if end is not None), default=None)


class Passed(NamedTuple):
    """A waiting or invited request that one coming back would overtake.

    :param named: the objects that it names itself: its locks without those that it needs only as parents.
    :param met: the objects on which the two requests conflict.
    """

    place: QueuePlace
    named: Collection[LockObject]
    met: Collection[LockObject]


def passed(place: QueuePlace, named: Collection[LockObject], mine: Iterable[Lock], theirs: Iterable[Lock]) -> Passed:
    """The request at *place* for the locks *theirs*, if one for the locks *mine* would overtake it."""
    return Passed(place, named, [lock.object for lock in queueing.conflicts(mine, theirs)])


def may_pass(own: QueuePlace, named: Collection[LockObject], other: Passed, oldest: int) -> bool:
    """Whether a request that comes back may overtake *other*.

    *other* must have the same or a lower priority, and must wait for little else. It must not have waited for the
    bound. So partitions do not overtake a request for their whole table, or a report over many partitions. Otherwise
    that request would wait for all of them.

    :param named: the objects that the request that comes back names itself.
    """
    meet = [target for target in other.met if target in named]
    return queueing.may_pass(own.position, other.place, oldest, equals=True) and SHARE * len(meet) >= len(other.named)


def come_back(
    own: QueuePlace, old: QueuePlace, named: Collection[LockObject], others: Iterable[Passed], oldest: int
) -> QueuePlace | None:
    """The place of a request that comes back, with the turn of its *old* one; None: it is a new arrival.

    :param own: the place that it has as a new arrival.
    :param named: the objects that it names itself.
    :param others: the conflicting requests that wait or are invited.
    :param oldest: requests that took their turn by then are not overtaken.
    """
    place = own.claiming(old)
    overtaken = [other for other in others if not queueing.earlier(place.position, {0: other.place.position})]
    return place if all(may_pass(own, named, other, oldest) for other in overtaken) else None


def keeps_place(call: Call, away: Call, locks: Collection[Lock], away_locks: Collection[Lock]) -> bool:
    """Whether *call* may come back to the place of a request that is away: it is the same attempt, for the same locks.

    A new attempt is a new arrival.

    :param away: the owner's call that was invited.
    """
    return call.attempt == away.attempt and tuple(locks) == tuple(away_locks)
