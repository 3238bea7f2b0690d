"""What a task's workers and triggers tell each other about its wait: rounds, and since when it has asked.

A task may ask for its locks several times: on a worker, in the triggerer, and again on a worker. A :class:`Round` goes with it.
It is the one place that knows when the task first asked, which part of the wait counts, and how often a worker got no answer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Self

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.invalid import printable

MOST_SHOWN = 5
"""How many locks and how many blockers the log names."""

ROUNDS = 3
"""How often a task steps aside once it could have its locks, and asks anew with its worker slot in hand. If it has been
outrun each time, its trigger takes the locks and keeps them until the slot comes."""

RESUME_S = 10.0
"""How long after its start at least a trigger resumes what a worker has deferred. Airflow's scheduler fails a resumed task
if it hears only then that the worker had ended: 2 s (median) to 7 s after the deferral on a busy machine."""

LONGEST_PAUSE_S = 120.0
"""The longest time between two workers that ask a lock store which did not answer the worker before."""

MOST_UNANSWERED = 8
"""How many workers in a row may get no answer. With the pauses between them that takes ten minutes at least."""


_MOST_S = 1e11
"""More seconds than any wait lasts, or any clock has: datetime takes all that is less."""


def span(waited_s: float) -> str:
    """How long something took, as people write it: ``12 min 3 s``."""
    minutes, seconds = divmod(int(waited_s), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    first = next((at for at, (count, _) in enumerate(parts) if count), 3)
    shown = parts[first : first + 2] if parts[-1][0] or first < 2 else parts[first : first + 1]
    return " ".join(f"{count} {unit}" for count, unit in shown)


def resume_s(unanswered: int) -> float:
    """How long after its start a trigger resumes what a worker has deferred, in seconds.

    :param unanswered: how many workers in a row have got no answer from the lock store. Each one makes the pause longer.
    """
    return float(min(RESUME_S * 2 ** max(0, unanswered - 1), LONGEST_PAUSE_S))


@dataclass(frozen=True)
class Round:
    """How often a task has waited in the triggerer until it could have its locks, and for how long.

    :param number: from 1 on; in the first ROUNDS its trigger steps aside. 0 for a task that never does.
    :param waited_s: how long it has waited since it first asked, in seconds.
    :param waited_for: the owners that were in its way.
    :param slot_s: how much of *waited_s* it waited for a worker slot, in seconds. A time-out does not count this part.
    :param asked_s: when it first asked, in seconds since 1970 by the lock store's clock; 0 if the store has not answered yet.
    :param unanswered: how many workers in a row have got no answer from the lock store.
    """

    number: int = 0
    waited_s: float = 0.0
    waited_for: tuple[str, ...] = ()
    slot_s: float = 0.0
    asked_s: float = 0.0
    unanswered: int = 0

    def __post_init__(self) -> None:
        """:raises InvalidRequest: what another version's trigger was given."""
        for name in ("number", "unanswered"):
            if not isinstance(getattr(self, name), int):
                raise InvalidRequest(f"{name}={getattr(self, name)!r:.80} of a round: give a number")
        for name in ("waited_s", "slot_s", "asked_s"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < _MOST_S:
                raise InvalidRequest(f"{name}={value!r:.80} of a round: give seconds")
        names = self.waited_for
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise InvalidRequest(f"waited_for={names!r:.80}: give a list of names")
        object.__setattr__(self, "waited_for", tuple(names[:MOST_SHOWN]))

    @property
    def late(self) -> bool:
        """Whether the trigger steps aside, and the worker asks anew."""
        return 1 <= self.number <= ROUNDS

    @property
    def asked(self) -> datetime | None:
        """When it first asked, by the lock store's clock; None if the store has not answered yet."""
        return datetime.fromtimestamp(self.asked_s, UTC) if self.asked_s else None

    @property
    def past(self) -> str:
        """How long it has waited in all, and for which owners."""
        return f"{span(self.waited_s)}{_for(self.waited_for)}"

    def until(self, waited_s: float, waited_for: tuple[str, ...], asked: datetime | None) -> Round:
        """This round with what is known of the wait by now."""
        asked_s = self.asked_s or (asked.timestamp() if asked else 0.0)
        return replace(self, waited_s=waited_s, waited_for=waited_for, asked_s=asked_s)

    def next(self, *, answered: bool = True) -> Round:
        """The round that follows when a worker has asked and has got nothing.

        :param answered: False if the lock store did not answer the worker: that is no round of its own.
        """
        if answered:
            return replace(self, number=self.number + 1, unanswered=0)
        return replace(self, number=self.number or 1, unanswered=self.unanswered + 1)

    def to_event(self, *, free: bool) -> dict[str, Any]:
        """What the trigger tells the worker.

        :param free: it has stepped aside; otherwise it tells this with a lease.
        """
        told = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "number"}
        told |= {"waited_for": list(self.waited_for)}
        return {"free": self.number, "at_s": time.time(), **told} if free else told

    @classmethod
    def of(cls, event: Any) -> Self | None:
        """The inverse of :meth:`to_event`, with the wait for the worker slot; None for an event of a lease, or of none."""
        return cls.with_lease(event) if isinstance(event, dict) and "free" in event else None

    @classmethod
    def with_lease(cls, event: Any) -> Self:
        """The round in an event, which may contain a lease."""
        given = event if isinstance(event, dict) else {}
        told = {each.name: given[each.name] for each in fields(cls) if each.name in given}
        found = cls(**told | {"number": given.get("free", 0)})
        at_s = given.get("at_s")
        slot_s = max(0.0, time.time() - at_s) if isinstance(at_s, int | float) else 0.0
        return replace(found, waited_s=found.waited_s + slot_s, slot_s=found.slot_s + slot_s)

    def __str__(self) -> str:
        return f"round {self.number} of {ROUNDS}"


FIRST = Round()
"""The round of a task that has not asked yet."""


def _for(names: tuple[str, ...]) -> str:
    return f", for {' and '.join(map(printable, names))}" if names else ""
