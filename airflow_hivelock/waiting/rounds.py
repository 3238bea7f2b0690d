"""The data that a task's workers and triggers pass on about its wait: rounds, and since when it has asked.

A task may ask for its locks several times: on a worker, in the triggerer, and again on a worker. A :class:`Round` goes
with it. Only the round knows when the task first asked, which part of the wait counts, and how often workers got no
answer.
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
"""How many locks and how many blockers the log names."""

RESUME_S = 10.0
"""The shortest time from the start of a trigger to the resumption of a task that a worker has deferred, in seconds.

Airflow's scheduler fails a resumed task if only then it learns that the worker had ended. That takes 2 s (median) to 7
s after the deferral on a busy machine.
"""

LONGEST_PAUSE_S = 120.0
"""The longest time between two workers that ask a lock store without an answer, in seconds."""

MOST_UNANSWERED = 8
"""How many workers in a row may get no answer. With the pauses between them that takes ten minutes at least."""


_MOST_S = 1e11
"""More seconds than any wait lasts, or any clock has; datetime accepts every smaller number."""


def resume_s(unanswered: int) -> float:
    """How long after its start a trigger resumes a task that a worker has deferred, in seconds.

    :param unanswered: how many workers in a row have got no answer from the lock store. Each one makes the pause
        longer.
    """
    return float(min(RESUME_S * 2 ** max(0, unanswered - 1), LONGEST_PAUSE_S))


@dataclass(frozen=True)
class Round:
    """How often a task has waited in the triggerer until it could have its locks, and for how long.

    :param number: from 1 on. In the first ROUNDS its trigger takes no locks. 0: the trigger always takes them.
    :param waited_s: how long it has waited since it first asked, in seconds.
    :param waited_for: the owners of its blockers.
    :param slot_s: the part of *waited_s* that it waited for a worker slot, in seconds. A time-out does not count this
        part.
    :param asked_s: when it first asked, in seconds since 1970 by the lock store's clock; 0 if the store has not
        answered yet.
    :param unanswered: how many workers in a row have got no answer from the lock store.
    :param until_s: when its invitation ends, in seconds since 1970 by the lock store's clock; 0 if it has none.
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

        :raises InvalidRequest: they are invalid, because another version wrote them.
        """
        for name in ("number", "unanswered"):
            if not isinstance(getattr(self, name), int):
                raise InvalidRequest(f"{name}={getattr(self, name)!r:.80} of a round: give a number")
        for name in ("waited_s", "slot_s", "asked_s", "until_s"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < _MOST_S:
                raise InvalidRequest(f"{name}={value!r:.80} of a round: give seconds")
        names = self.waited_for
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise InvalidRequest(f"waited_for={names!r:.80}: give a list of names")
        object.__setattr__(self, "waited_for", tuple(names[:MOST_SHOWN]))

    def deferred(self, invitation_s: float) -> DeferredGrant | None:
        """The deferred grant of this round; None: its trigger takes the locks at its turn, and keeps them until there
        is a worker slot.

        :param invitation_s: how long an invitation lasts, in seconds.
        """
        return invitations.of_round(self.number - 1, invitation_s) if self.number else None

    @property
    def last(self) -> bool:
        """Whether its trigger takes the locks, because no invitation has led to a lease."""
        return self.number > invitations.ROUNDS

    @property
    def asked(self) -> datetime | None:
        """When it first asked, by the lock store's clock; None if the store has not answered yet."""
        return datetime.fromtimestamp(self.asked_s, UTC) if self.asked_s else None

    @property
    def past(self) -> str:
        """How long it has waited in all, and the owners that it waited for."""
        return f"{span(self.waited_s)}{_for(self.waited_for)}"

    def until(self, waited_s: float, waited_for: tuple[str, ...], asked: datetime | None) -> Round:
        """This round with the wait up to now."""
        asked_s = self.asked_s or (asked.timestamp() if asked else 0.0)
        return replace(self, waited_s=waited_s, waited_for=waited_for, asked_s=asked_s)

    def next(self, *, answered: bool = True) -> Round:
        """The next round, after a worker has asked and has got nothing.

        :param answered: False if the lock store did not answer the worker: then the round stays the same.
        """
        if answered:
            return replace(self, number=self.number + 1, unanswered=0, until_s=0.0)
        return replace(self, number=self.number or 1, unanswered=self.unanswered + 1, until_s=0.0)

    def to_event(self, *, free: bool, until: datetime | None = None) -> dict[str, Any]:
        """The event for the worker.

        :param free: the locks could be had, and the trigger has taken none; False: the event also contains a lease.
        :param until: when its invitation ends.
        """
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "number"}
        values |= {"waited_for": list(self.waited_for), "until_s": until.timestamp() if until else 0.0}
        return {"free": self.number, "at_s": time.time(), **values} if free else values

    @classmethod
    def of(cls, event: Any) -> Self | None:
        """The inverse of :meth:`to_event`, plus the wait for the worker slot; None for any other event."""
        return cls.with_lease(event) if isinstance(event, dict) and "free" in event else None

    @classmethod
    def with_lease(cls, event: Any) -> Self:
        """The round in an event, which may contain a lease."""
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
