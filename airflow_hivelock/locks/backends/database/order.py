"""Whose turn it is: a pure decision, of what is known of those that conflict, and of those in the same group.

PostgreSQL's function ``grant`` decides the same; see :mod:`.functions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_hivelock.locks import rules, validate
from airflow_hivelock.locks.backends.database.record import Record, State, decode
from airflow_hivelock.locks.errors import StoreCorrupted
from airflow_hivelock.locks.model import Blocker, LockMode, LockObject
from airflow_hivelock.locks.model.object import unescape_level

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Order = tuple[int, int, int]
"""Turn, priority downwards, place: of two requests in one queue, the smaller goes first."""


@dataclass(frozen=True)
class Ahead:
    """A request that is in the way, and where.

    :param end_us: when its lease ends; None while it waits.
    """

    place: int
    end_us: int | None
    blocker: Blocker


class Outcome(NamedTuple):
    """How an attempt at the grant has left the request.

    :param ahead: of what lives and is in the way, the nearest and the first; nothing of a lease.
    :param behind: the places for any of which it waits; and whether such a one is itself parked, and no longer when it
        is no longer that.
    :param void: places of what alone is in the way, for nothing: dead waiters, and expired leases where those are free.
        Until they are taken away, the request is as it was.
    """

    record: Record
    now_us: int
    ahead: Sequence[Ahead] = ()
    behind: Mapping[int, bool] = {}
    void: Sequence[int] = ()


class Other(NamedTuple):
    """Another request, as it stands in one of the queues."""

    place: int
    state: str
    priority: int
    turn: int
    turn_us: int
    void: bool
    row: Mapping[str, Any]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Other:
        place, state, priority, turn, turn_us = (row[name] for name in cls._fields[:5])
        return cls(place, state, priority, turn, turn_us, bool(row["void"]), row)

    @property
    def held(self) -> bool:
        return self.state == State.GRANTED.value

    @property
    def order(self) -> Order:
        return self.turn, -self.priority, self.place


class Attempt(NamedTuple):
    """An attempt at the grant: the time, a number larger than any before, and how it is to go.

    :param waits: the request takes a place where it does not get its locks, or keeps the one that it has.
    :param late: it steps aside where it could have them.
    :param passing_us: for how long a place is passed.
    """

    now_us: int
    number: int
    waits: bool
    late: bool
    passing_us: int


def decide(mine: Record, attempt: Attempt, conflicting: Sequence[Other], group: Sequence[Other]) -> Outcome:
    """Whether *mine* gets its locks, and where it waits if not.

    :param conflicting: who waits for or holds conflicting locks.
    :param group: who waits for or has a lease of its group.
    """
    found = mine.placed(attempt.number, attempt.now_us)
    if found.group_key is not None and (outcome := _for_lease(mine, found, found.group_key, attempt, group)):
        return outcome
    if not mine.place or mine.state is State.PARKED:
        turn = _turn(found, attempt.number, attempt.now_us, conflicting, attempt)
        found = found._replace(state=State.WAITING, turn=turn[0], turn_us=turn[1])
    before = _before((found.turn, -found.priority, found.place), conflicting)
    living = [one for one in before if not one.void]
    if living:
        nearest = living[0].place
        found = found._replace(ahead=nearest) if attempt.waits else found._replace(state=State.FREE)
        ends = (nearest, living[-1].place)
        ahead = [on_lock(one.row) for one in living if one.place in ends]
        return Outcome(found, attempt.now_us, ahead, {nearest: False})
    if before:
        return Outcome(mine, attempt.now_us, void=[one.place for one in before])
    record = found.aside() if attempt.late else found.granted(attempt.number, attempt.now_us)
    return Outcome(record, attempt.now_us)


def _for_lease(mine: Record, found: Record, key: int, attempt: Attempt, group: Sequence[Other]) -> Outcome | None:
    """How it waits for a lease of its group; None: there is one for it."""
    turn = found.group_turn, found.group_turn_us
    if not found.group_turn:
        turn = _turn(found, found.place, found.asked_us, group, attempt)
    parked = [one for one in _before((turn[0], -found.priority, found.place), group) if not one.held]
    nearest = next((one for one in parked if not one.void), None)
    holding = [one for one in group if one.held]
    living = sorted((one for one in holding if not one.void), key=lambda one: one.row["end_us"])
    full = len(living) >= found.most_leases
    if not full and not nearest:
        kept = holding if len(holding) >= found.most_leases else []
        void = [one.place for one in (*parked, *kept) if one.void]
        return Outcome(mine, attempt.now_us, void=void) if void else None
    ahead = [in_group(one.row, found.lease_group) for one in (living[0] if full else None, nearest) if one]
    if not attempt.waits:
        return Outcome(found._replace(state=State.FREE), attempt.now_us, ahead)
    waits_for = nearest.place if nearest else -key
    found = found._replace(state=State.PARKED, turn=0, group_turn=turn[0], group_turn_us=turn[1], ahead=waits_for)
    behind = {nearest.place: True} if nearest else {one.place: False for one in living}
    return Outcome(found, attempt.now_us, ahead, behind)


def _turn(mine: Record, turn: int, turn_us: int, others: Iterable[Other], attempt: Attempt) -> tuple[int, int]:
    """A turn of its own, with its age; or, claimed, that of the first that it passes."""
    own, oldest_us = (turn, -mine.priority, mine.place), attempt.now_us - attempt.passing_us
    waiting = [one for one in others if not one.held and not one.void and one.order < own]
    waiting.sort(key=lambda one: one.order)
    passed = rules.passed(waiting, mine.priority, lambda one: one.turn_us > oldest_us)
    return (passed.turn, passed.turn_us) if passed else (turn, turn_us)


def _before(mine: Order, others: Iterable[Other]) -> list[Other]:
    """Whoever holds, and whoever waits and goes first; the nearest first."""
    found = [one for one in others if one.held or one.order < mine]
    return sorted(found, key=lambda one: one.order, reverse=True)


def on_lock(row: Mapping[str, Any]) -> Ahead:
    """A row of a lock that conflicts, with its request's."""
    try:
        validate.texts(row, ("db_name", "table_name", "partition_name", "owner"))
        levels = tuple(unescape_level(level) for level in row["partition_name"].split("/") if level)
        target = LockObject(row["db_name"], row["table_name"], levels)
    except (TypeError, ValueError) as error:
        raise StoreCorrupted(
            f"{dict(row)!r:.200} is no lock of airflow-hivelock's ({error}); somebody else wrote it"
        ) from error
    mode = LockMode.EXCLUSIVE if row["lease_type"] == "x" else LockMode.SHARED
    waiting = row["state"] == State.WAITING.value
    return Ahead(row["place"], None if waiting else row["end_us"], Blocker(row["owner"], target, mode, waiting))


def in_group(row: Mapping[str, Any], group: str) -> Ahead:
    """The row of a request that has, or waits for, a lease of the *group*."""
    lock = decode(row["locks"], row["owner"])[-1]
    waiting = row["state"] == State.PARKED.value
    blocker = Blocker(row["owner"], lock.object, lock.mode, waiting, group)
    return Ahead(row["place"], None if waiting else row["end_us"], blocker)
