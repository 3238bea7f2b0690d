"""Requests in a queue, as the rules see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.model import DeferredGrant
from airflow_hivelock.locks.queueing import Other, OvertakingLimit, Position, TimedPosition, Undecided

if TYPE_CHECKING:
    from collections.abc import Sequence


HOUR = 3_600
WEEK = 7 * 24 * HOUR
NOW = 10_000_000
LIMIT = OvertakingLimit(NOW, HOUR)
AWAY_GRANT, INVITED_GRANT, SLOT = DeferredGrant(), DeferredGrant(20.0), DeferredGrant(20.0, has_slot=True)


def at(turn: int, priority: int = 1, arrival: int | None = None) -> Position:
    return Position.unclaimed(turn, priority, turn if arrival is None else arrival)


def waits(turn: int, priority: int = 1, *, age: int = 1, gone: bool = False, arrival: int | None = None) -> Other:
    return Other(f"w{turn}", TimedPosition(at(turn, priority, arrival), NOW - age), holds=False, gone=gone)


def holds(turn: int, *, gone: bool = False) -> Other:
    return Other(f"h{turn}", TimedPosition(at(turn), NOW - 1), holds=True, gone=gone)


def invited(turn: int, *, over: bool = False) -> Other:
    return Other(f"i{turn}", TimedPosition(at(turn), NOW - 1), holds=False, invited=True, over=over)


def permitted(turn: int, *, over: bool = False) -> Other:
    """An invited request, as it is in the queue of its group."""
    return invited(turn, over=over)._replace(holds=True)


def asking(number: int = 50, priority: int = 1, **more: object) -> Undecided:
    own = TimedPosition(at(number, priority), NOW)
    return Undecided(own, own, **more)  # type: ignore[arg-type]


def decide(mine: Undecided, conflicting: Sequence[Other] = (), group: Sequence[Other] = ()) -> queueing.Decision:
    return queueing.decide(mine, conflicting, group, LIMIT)


def keys(others: tuple[Other, ...]) -> list[object]:
    return [other.key for other in others]
