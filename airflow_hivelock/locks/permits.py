"""The rules for a group's permits, as pure functions over plain values.

- *Limit*: the limit in the lock store counts. Without it, each request has its own limit.
- *Permits*: a request takes all its permits at once, as many as its weight. It takes them if enough are free and no
  other request of the group waits before it. So light requests cannot starve a heavy one.
- A smaller limit takes no permit from a holder.
"""

from __future__ import annotations

from itertools import count, islice
from typing import TYPE_CHECKING

from airflow_hivelock.locks.invalid import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from airflow_hivelock.locks.model import Group

    Position = tuple[int, int, int]
    """See :class:`.queueing.Position`. The smaller position goes first."""


def limit(own: int, stored: Group | None) -> int:
    """How many leases of its group may be held at a time, according to a request.

    :param own: the request's own limit.
    :param stored: the settings of the group in the lock store; None: there are none.
    """
    return own if stored is None else stored.leases


def weight(own: int, stored: Group | None) -> int:
    """How many permits a request takes.

    :param own: the request's own weight; 0: it has none.
    :param stored: as in :func:`limit`.
    """
    return own or (1 if stored is None else stored.weight)


def fit(weight: int, most_leases: int, held: int) -> bool:
    """Whether *weight* permits are free.

    :param held: how many permits of the group are taken.
    """
    return held + weight <= most_leases


def free(mine: Position, weight: int, most_leases: int, held: int, waiting: Iterable[Position]) -> bool:
    """Whether a request may take its permits: enough are free, and no request of the group waits before it.

    :param waiting: the positions of the other requests in the group's queue.
    """
    return fit(weight, most_leases, held) and not any(other < mine for other in waiting)


def possible(weight: int, most_leases: int) -> bool:
    """Whether a request could have its permits if no other request had any."""
    return fit(weight, most_leases, 0)


def numbers(taken: Collection[int], weight: int) -> tuple[int, ...]:
    """The smallest *weight* numbers of permits that are not *taken*."""
    return tuple(islice((number for number in count() if number not in taken), weight))


def check(owner: str, group: str, weight: int, most_leases: int) -> None:
    """Refuse a request that can never have its permits, before it takes anything.

    :raises InvalidRequest: its weight is above the limit of its group.
    """
    if not possible(weight, most_leases):
        raise InvalidRequest(
            f"{owner} weighs {weight}, but the limit of its group {group!r} is {most_leases}, so it would wait for ever."
            f" Give it a smaller weight, or raise the limit: hivelock group set {group!r} --leases {weight}"
        )
