"""The rules of invitations: at its turn, a deferred request keeps its queue position while it gets a worker slot.

These are pure functions over plain values, like :mod:`.queueing`. The states of a deferred request are::

    WAITING ──▶ INVITED ──▶ GRANTED
       ▲           │ └──────▶ AWAY ──▶ a new arrival, perhaps at its old position
       └───────────┘ (its worker found another request in the way)

- *Invited*: the request keeps its tickets and its permit. It has no lock node and no process. It blocks the same
  requests as a waiting one.
- *End*: an invitation lasts ``invitation_s``, by the store's clock. After that, the first waiter behind it writes AWAY.
  A worker that asks before this write still gets the locks.
- *Away*: the request has no tickets and no permit, and blocks no request. Its record keeps its old position.
- *Rounds*: an invitation without a grant is a round. After :data:`ROUNDS` rounds, the triggerer takes the locks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.model import DeferredGrant

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from airflow_hivelock.locks.calls import Call
    from airflow_hivelock.locks.model import Lock, LockObject
    from airflow_hivelock.locks.queueing import OvertakingLimit, TimedPosition

INVITATION_S = 20.0
"""The default length of an invitation, in seconds."""

ROUNDS = 3
"""The most rounds of a request. Without this limit, two requests can keep each other out forever."""

SHARE = 4
"""A request that comes back may overtake another one if they conflict on at least a quarter of the objects that the
other names."""


def of_round(rounds: int, invitation_s: float) -> DeferredGrant | None:
    """The deferred grant that a trigger asks for. None: the trigger takes the locks at its turn.

    :param rounds: how many rounds its request has already had.
    :param invitation_s: as in :class:`~airflow_hivelock.locks.model.DeferredGrant`.
    """
    return DeferredGrant(invitation_s) if rounds < ROUNDS else None


def is_over(end: int, now: int) -> bool:
    """Whether an invitation that ends at *end* is over. Both times are by the store's clock."""
    return end <= now


def next_end(ends: Iterable[int | None]) -> int | None:
    """When a request behind invitations has to look again: at the first of their *ends*. None: there are none."""
    return min((end for end in ends if end is not None), default=None)


class Passed(NamedTuple):
    """A waiting or invited request that a request coming back would overtake.

    :param named: the objects that the overtaken request names itself, without their parents.
    :param met: the objects on which the two requests conflict.
    """

    timed: TimedPosition
    named: Collection[LockObject]
    met: Collection[LockObject]


def passed(timed: TimedPosition, named: Collection[LockObject], mine: Iterable[Lock], theirs: Iterable[Lock]) -> Passed:
    """Describe the request at *timed* for the locks *theirs*, for one that would overtake it and wants the locks
    *mine*."""
    return Passed(timed, named, [lock.object for lock in queueing.conflicts(mine, theirs)])


def may_pass(own: TimedPosition, named: Collection[LockObject], other: Passed, limit: OvertakingLimit) -> bool:
    """Whether a request that comes back may overtake *other*.

    - *other* must have the same or a lower priority, and must not have waited for the limit on overtaking.
    - A quarter of the objects of *other* must conflict. So a partition does not overtake a request for its whole table,
      or a report over many partitions. Such a request would otherwise wait for each partition of a rerun.

    :param named: the objects that the request coming back names itself.
    """
    meet = [target for target in other.met if target in named]
    return queueing.may_pass(own.position, other.timed, limit, equals=True) and SHARE * len(meet) >= len(other.named)


def come_back(
    own: TimedPosition,
    old: TimedPosition,
    named: Collection[LockObject],
    others: Iterable[Passed],
    limit: OvertakingLimit,
) -> TimedPosition | None:
    """The position of a request that comes back: it has the number of its *old* one. None: it is a new arrival.

    :param own: its position as a new arrival.
    :param named: the objects that it names itself.
    :param others: the conflicting requests that wait or are invited.
    :param limit: no request overtakes one that has reached it.
    """
    number = old.position.number
    back = own.position._replace(number=number)
    overtaken = [other for other in others if not queueing.earlier(back, {0: other.timed.position})]
    if not all(may_pass(own, named, other, limit) for other in overtaken):
        return None
    return own.claiming(number, [*(other.timed for other in overtaken), old], limit)


def keeps_position(call: Call, away: Call, locks: Collection[Lock], away_locks: Collection[Lock]) -> bool:
    """Whether *call* may take the old position of its owner's request that is away.

    It may if it is of the same attempt and for the same locks. A new attempt is a new arrival.

    :param away: the call that was invited.
    """
    return call.attempt == away.attempt and tuple(locks) == tuple(away_locks)
