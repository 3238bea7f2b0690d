"""The requests that a transaction or the notifier reads: each is a row that waits or holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from airflow_hivelock.locks import formats, invitations, validate
from airflow_hivelock.locks.backends.database.record import State
from airflow_hivelock.locks.backends.database.values import MOST_US, foreign, instant
from airflow_hivelock.locks.model import Blocker
from airflow_hivelock.locks.model.group import MAX_WEIGHT
from airflow_hivelock.locks.queueing import Other, Position, TimedPosition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_hivelock.locks.backends.database.record import Record
    from airflow_hivelock.locks.model import Group, Lock

DEAD_US = 30_000_000
"""How long after its last sign of life a waiter still blocks others, in microseconds."""


class Candidate(NamedTuple):
    """Another request, as it is in one of the queues.

    :param seen_us: the last sign of life of a waiter.
    :param end_us: when its lease ends; None while it waits.
    :param until_us: when its invitation ends; None: it is not invited.
    :param lock: its conflicting lock; if it blocks by its group, the last of its locks.
    :param group: the group if this is the queue for its leases; "": the queue for locks.
    :param weight: how many permits it has, if it has any.
    """

    place: int
    state: str
    owner: str
    timed: TimedPosition
    seen_us: int
    end_us: int | None
    until_us: int | None
    lock: Lock
    group: str
    weight: int = 1

    @classmethod
    def of(cls, row: Mapping[str, Any], lock: Lock, group: str = "") -> Self:
        """Read a row.

        :raises StoreCorrupted: another program wrote the row.
        :raises UpgradeNeeded: it is for readers of a later format.
        """
        try:
            formats.take_text(row["more"], f"the request of {row['owner']!r:.80}")
            validate.texts(row, ("owner",))
            turn, since = ("group_turn", "group_turn_us") if group else ("turn", "turn_us")
            validate.numbers(row, ("place", turn))
            validate.numbers(row, (since, "seen_us"), MOST_US)
            validate.number(abs(row["priority"]), "priority")
            held, invited = (row["state"] == state.value for state in (State.GRANTED, State.INVITED))
            end_us = validate.number(row["end_us"], "end_us", MOST_US) if held else None
            until_us = validate.number(row["until_us"], "until_us", MOST_US) if invited else None
            weight = validate.number(row["weight"] or 1, "weight", MAX_WEIGHT)
        except (TypeError, ValueError) as error:
            raise foreign(row, "a request", error) from error
        position = Position(row[turn], -row["priority"], row["place"])
        timed = TimedPosition(position, row[since])
        return cls(
            row["place"], row["state"], row["owner"], timed, row["seen_us"], end_us, until_us, lock, group, weight
        )

    def other(self, now_us: int, *, frees: bool) -> Other:
        """Return this request as the decision sees it.

        :param frees: an expired lease blocks no request.
        """
        end_us, until_us = self.end_us, self.until_us
        if until_us is not None:
            over = invitations.is_over(until_us, now_us)
            return Other(self.place, self.timed, self.holds, invited=True, over=over, weight=self.weight)
        gone = self.seen_us < now_us - DEAD_US if end_us is None else frees and end_us <= now_us
        return Other(self.place, self.timed, self.holds, gone, weight=self.weight)

    @property
    def holds(self) -> bool:
        """Whether it holds what the queue is for. In its group's queue an invited request holds its permit."""
        return self.end_us is not None or (self.until_us is not None and bool(self.group))

    @property
    def parked(self) -> bool:
        """Whether it waits for a permit of its group."""
        return self.state == State.PARKED.value

    @property
    def phase(self) -> str:
        return phase(self.state)

    @property
    def blocker(self) -> Blocker:
        until = None if self.until_us is None else instant(self.until_us)
        return Blocker(self.owner, self.lock.object, self.lock.mode, not self.holds, self.group, until)


class Entered(NamedTuple):
    """The data that a transaction reads after it has kept out all others that matter.

    :param number: larger than any before.
    :param record: the owner's.
    :param conflicting: the requests that wait for or hold what the owner's locks exclude.
    :param group: the requests of the group that wait for or have a lease.
    :param stored: the settings of the group.
    """

    now_us: int
    number: int
    record: Record | None
    conflicting: Sequence[Candidate] = ()
    group: Sequence[Candidate] = ()
    stored: Group | None = None


class Living(NamedTuple):
    """A request that blocks others.

    :param phase: see :func:`phase`.
    :param waits: it waits for another request, and no partial release has ended that wait.
    :param watched: other processes are notified when it ends.
    """

    epoch: int
    phase: str
    waits: bool
    watched: bool


def phase(state: str) -> str:
    """The part of a blocker's state that a waiter remembers, to try again when it changes: parked, invited, or ""."""
    return state if state in (State.PARKED.value, State.INVITED.value) else ""
