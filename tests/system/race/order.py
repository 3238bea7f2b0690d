"""The orders for a resident Spark, and its answers: a line of JSON each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Order:
    """SQL statements to run in order, as one job.

    :param locks_url: where to lock ``reads`` and ``writes`` for the time of the job, or where ``lease`` is; None: nowhere.
    :param settings: Spark's SQL settings, which stay until the next order's.
    :param lease: id and token of the lease that the owner works under.
    :param overwrites: what to overwrite, under that lease, with the rows of the last statement, by way of the guard;
        empty: they are the answer.
    :param by_session: have the session lock for each statement, in place of ``reads`` and ``writes``.
    :param pause_at: where to say so, and wait for a line; empty: nowhere.
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
    """The rows of an order's last statement, or its error, or where it pauses."""

    rows: tuple[tuple[Any, ...], ...] = ()
    error: str | None = None
    paused_at: str | None = None

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Reply:
        data = json.loads(line)
        return cls(tuple(map(tuple, data["rows"])), data["error"], data["paused_at"])
