"""The data about a task's wait that its workers and triggers pass to each other.

A task can ask for its locks several times: on a worker, in the triggerer, and again on a worker. They pass on a
:class:`Round`. It has the time when the task first asked, the part of the wait that counts, and the number of workers
without an answer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from airflow_hivelock.locks import invitations
from airflow_hivelock.locks.durations import span
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.invalid import printable

if TYPE_CHECKING:
    from airflow_hivelock.locks.model import DeferredGrant

MOST_SHOWN = 5
"""The largest number of locks, and of blockers, in a log line."""

RESUME_S = 10.0
"""The shortest time from the start of a trigger to the resumption of a task that a worker has deferred, in seconds.

Airflow's scheduler fails a resumed task if it learns only afterwards that the worker has ended. On a busy machine it
learns that 2 s (median) to 7 s after the deferral.
"""

LONGEST_PAUSE_S = 120.0
"""The longest pause after a worker that got no answer from the lock store, in seconds."""

MOST_UNANSWERED = 8
"""The largest number of workers in a row without an answer. With the pauses that takes at least ten minutes."""


_MOST_S = 1e11
"""The upper limit of times in seconds. datetime accepts every smaller number."""


def resume_s(unanswered: int) -> float:
    """The time after its start at which a trigger resumes a task that a worker has deferred, in seconds.

    :param unanswered: the number of workers in a row without an answer from the lock store. The time grows with it.
    """
    return float(min(RESUME_S * 2 ** max(0, unanswered - 1), LONGEST_PAUSE_S))


@dataclass(frozen=True)
class Round:
    """One wait of a deferred request in the triggerer, with the sums of all rounds so far.

    :param number: the number of the round, from 1. In the first ROUNDS rounds the trigger acquires no locks. 0 means
        that the trigger always acquires them.
    :param waited_s: the time since the task first asked, in seconds.
    :param waited_for: the owners of the blockers.
    :param slot_s: the part of *waited_s* in which the task waited for a worker slot, in seconds. Time-outs do not count
        this part.
    :param asked_s: the time when the task first asked, in seconds since 1970 by the lock store's clock. 0 if the store
        has not answered yet.
    :param unanswered: the number of workers in a row without an answer from the lock store.
    :param until_s: the end of the invitation, in seconds since 1970 by the lock store's clock. 0 without one.
    """

    number: int = 0
    waited_s: float = 0.0
    waited_for: tuple[str, ...] = ()
    slot_s: float = 0.0
    asked_s: float = 0.0
    unanswered: int = 0
    until_s: float = 0.0

    def __post_init__(self) -> None:
        """Check the values.

        :raises InvalidRequest: a value is invalid, because another version wrote it.
        """
        for name in ("number", "unanswered"):
            if not isinstance(getattr(self, name), int):
                raise InvalidRequest(f"{name}={getattr(self, name)!r:.80} of a round: must be a number")
        for name in ("waited_s", "slot_s", "asked_s", "until_s"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < _MOST_S:
                raise InvalidRequest(f"{name}={value!r:.80} of a round: must be seconds")
        names = self.waited_for
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise InvalidRequest(f"waited_for={names!r:.80}: must be a list of names")
        object.__setattr__(self, "waited_for", tuple(names[:MOST_SHOWN]))

    def deferred(self, invitation_s: float) -> DeferredGrant | None:
        """The deferred grant of this round. None if the trigger acquires the locks, and keeps them for the task.

        :param invitation_s: the duration of an invitation, in seconds.
        """
        return invitations.of_round(self.number - 1, invitation_s) if self.number else None

    @property
    def last(self) -> bool:
        """Whether the trigger acquires the locks in this round, because no invitation has led to a lease."""
        return self.number > invitations.ROUNDS

    @property
    def asked(self) -> datetime | None:
        """The time when the task first asked, by the lock store's clock. None if the store has not answered yet."""
        return datetime.fromtimestamp(self.asked_s, UTC) if self.asked_s else None

    @property
    def past(self) -> str:
        """A text with the total wait, and the owners of the blockers."""
        return f"{span(self.waited_s)}{_for(self.waited_for)}"

    def with_wait(self, waited_s: float, waited_for: tuple[str, ...], asked: datetime | None) -> Round:
        """A copy of this round with the wait up to now."""
        asked_s = self.asked_s or (asked.timestamp() if asked else 0.0)
        return replace(self, waited_s=waited_s, waited_for=waited_for, asked_s=asked_s)

    def next(self, *, answered: bool = True) -> Round:
        """The round after a worker has asked without a grant.

        :param answered: False if the lock store did not answer the worker. Then the number stays the same.
        """
        if answered:
            return replace(self, number=self.number + 1, unanswered=0, until_s=0.0)
        return replace(self, number=self.number or 1, unanswered=self.unanswered + 1, until_s=0.0)

    def without_deferred_grant(self) -> Round:
        """A copy of this round. In it, the trigger acquires the locks and keeps them for the task."""
        return replace(self, number=0)

    def arguments(self) -> dict[str, Any]:
        """This round as arguments of a trigger."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "until_s"}
        return {"round_number": values.pop("number"), **values, "waited_for": list(self.waited_for) or None}

    @classmethod
    def of_trigger(cls, trigger: Any) -> Self:
        """The round in the attributes of a trigger: the inverse of :meth:`arguments`."""
        values = {name: getattr(trigger, name) for name in FIRST.arguments()}
        return cls(**values | {"number": values.pop("round_number"), "waited_for": values["waited_for"] or ()})

    def lease_event(self) -> dict[str, Any]:
        """The part of the worker's event that comes with the trigger's lease."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "number"}
        return values | {"waited_for": list(self.waited_for), "until_s": 0.0}

    def turn_event(self, until: datetime | None) -> dict[str, Any]:
        """The worker's event at the request's turn. The trigger has acquired no locks.

        :param until: the end of the invitation. None without one.
        """
        until_s = until.timestamp() if until else 0.0
        return {"free": self.number, "at_s": time.time(), **self.lease_event(), "until_s": until_s}

    @classmethod
    def of_turn(cls, event: Any) -> Self | None:
        """The round in an event of :meth:`turn_event`, plus the wait for the worker slot. None for any other event."""
        return cls.of_event(event) if isinstance(event, dict) and "free" in event else None

    @classmethod
    def of_event(cls, event: Any) -> Self:
        """The round in an event with or without a lease."""
        given = event if isinstance(event, dict) else {}
        values = {each.name: given[each.name] for each in fields(cls) if each.name in given}
        found = cls(**values | {"number": given.get("free", 0)})
        at_s = given.get("at_s")
        slot_s = max(0.0, time.time() - at_s) if isinstance(at_s, int | float) else 0.0
        return replace(found, waited_s=found.waited_s + slot_s, slot_s=found.slot_s + slot_s)

    def __str__(self) -> str:
        return f"round {self.number} of {invitations.ROUNDS}"


FIRST = Round()
"""The round of a task that has not asked yet."""


def _for(names: tuple[str, ...]) -> str:
    return f", for {' and '.join(map(printable, names))}" if names else ""
