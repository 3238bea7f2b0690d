"""The orders for a resident Spark, and its answers. Each is a line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Order:
    """SQL statements to run in order, as one job.

    :param owner: the owner of the locks.
    :param settings: Spark's SQL settings. They stay until the next order changes them.
    :param locks_url: the lock store for ``reads`` and ``writes``, or for ``lease``. None: the job takes no locks.
    :param reads: the data to lock SHARED for the time of the job.
    :param writes: the data to lock EXCLUSIVE for the time of the job.
    :param lease: the id and the token of the owner's lease.
    :param overwrites: the data that the guard overwrites with the rows of the last statement. Empty: the reply contains
        the rows.
    :param by_session: the session locks for each statement, in place of ``reads`` and ``writes``.
    :param pause_at: the step at which the job sends a reply and waits for a line. Empty: it does not pause.
    """

    owner: str
    statements: tuple[str, ...]
    settings: dict[str, str] = field(default_factory=dict)
    locks_url: str | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    lease: tuple[str, int] | None = None
    overwrites: str = ""
    by_session: bool = False
    pause_at: str = ""

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Order:
        return cls(**json.loads(line))


@dataclass(frozen=True)
class Reply:
    """The rows of an order's last statement, or its error, or the step at which it pauses."""

    rows: tuple[tuple[Any, ...], ...] = ()
    error: str | None = None
    paused_at: str | None = None

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Reply:
        data = json.loads(line)
        return cls(tuple(map(tuple, data["rows"])), data["error"], data["paused_at"])
