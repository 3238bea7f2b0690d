"""How a client that polls a database finds changes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from airflow_hivelock.locks.backends.database import dialect
from airflow_hivelock.locks.backends.database.dialect import Listener

if TYPE_CHECKING:
    import pytest

MOST_JITTER = 1.5
LATE = 0.11
"""Which part of a wait may pass before a change is found."""


class Clock:
    """A clock that a pause moves forward."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, pause_s: float) -> bool:
        self.now_s += pause_s
        return False


def test_a_change_is_found_late_by_a_small_part_of_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looks = Clock(), list[float]()
    monkeypatch.setattr(dialect, "time", clock)
    monkeypatch.setattr(dialect, "jitter", lambda: MOST_JITTER)
    listener = Listener(1.0)
    monkeypatch.setattr(listener, "_rung", clock)
    monkeypatch.setattr(listener, "changed", lambda: looks.append(clock.now_s))
    listener.wait(60.0)
    pauses = [(before, after - before) for before, after in itertools.pairwise(looks)]
    assert all(pause <= MOST_JITTER * Listener.FIRST_S + LATE * waited for waited, pause in pauses)
    assert max(pause for _, pause in pauses) <= MOST_JITTER
    assert len(looks) < 110, "in the end it polls about once a second"
