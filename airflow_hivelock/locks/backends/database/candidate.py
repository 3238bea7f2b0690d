"""The other requests that a decision is made of: each a row of what waits or holds, and where it is in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.backends.database.record import MOST_US, State
from airflow_hivelock.locks.errors import StoreCorrupted
from airflow_hivelock.locks.model import Blocker
from airflow_hivelock.locks.queueing import Other, Position, QueuePlace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_hivelock.locks.model import Lock

DEAD_US = 30_000_000
"""How long after its last sign of life a waiter keeps others waiting."""


class Candidate(NamedTuple):
    """Another request, as it is in one of the queues.

    :param seen_us: the last sign of life of a waiter.
    :param end_us: when its lease ends; None while it waits.
    :param lock: its lock that is in the way; or, where its lease is in the way, the last of its locks.
    :param group: whose leases are waited for; "": locks are.
    """

    place: int
    state: str
    owner: str
    queue_place: QueuePlace
    seen_us: int
    end_us: int | None
    lock: Lock
    group: str

    @classmethod
    def of(cls, row: Mapping[str, Any], lock: Lock, group: str = "") -> Self:
        """:raises StoreCorrupted: another program wrote the row."""
        try:
            validate.texts(row, ("owner",))
            turn, since = ("group_turn", "group_turn_us") if group else ("turn", "turn_us")
            validate.numbers(row, ("place", turn))
            validate.numbers(row, (since, "seen_us"), MOST_US)
            validate.number(abs(row["priority"]), "priority")
            held = row["state"] == State.GRANTED.value
            end_us = validate.number(row["end_us"], "end_us", MOST_US) if held else None
        except (TypeError, ValueError) as error:
            raise StoreCorrupted(
                f"{dict(row)!r:.200} is not a request of airflow-hivelock's ({error}); another program wrote it"
            ) from error
        position = Position(row[turn], -row["priority"], row["place"])
        place = QueuePlace(position, row[since])
        return cls(row["place"], row["state"], row["owner"], place, row["seen_us"], end_us, lock, group)

    def other(self, now_us: int, *, frees: bool) -> Other:
        """What it is to the decision.

        :param frees: an expired lease keeps no request waiting.
        """
        end_us = self.end_us
        gone = self.seen_us < now_us - DEAD_US if end_us is None else frees and end_us <= now_us
        return Other(self.place, self.queue_place, holds=end_us is not None, gone=gone)

    @property
    def parked(self) -> bool:
        """Whether it waits for a lease of its group."""
        return self.state == State.PARKED.value

    @property
    def blocker(self) -> Blocker:
        waits = self.end_us is None
        return Blocker(self.owner, self.lock.object, self.lock.mode, waiting=waits, group=self.group)
