"""How a client that polls a database finds changes."""

from __future__ import annotations

import itertools
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backends.database import dialect, notifier
from airflow_hivelock.locks.backends.database.dialect import Listener
from airflow_hivelock.locks.backends.database.notifier import Notifier
from airflow_hivelock.locks.errors import StoreUnavailable

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


def test_an_outage_is_logged_once_and_the_next_one_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A waiter printed a line a second for as long as its database was away."""
    answers = iter([False, False, True, False, False])

    def listen(_: str) -> Any:
        answered = next(answers, None)
        if answered is None:
            waker._over.set()
        if not answered:
            raise StoreUnavailable("pg1 is down")
        return SimpleNamespace(wait=lost, close=lambda: None)

    def lost(_: float) -> None:
        raise StoreUnavailable("pg1 has ended the session")

    monkeypatch.setattr(notifier, "RECONNECT_S", 0.0)
    store: Any = SimpleNamespace(listener=listen, sign=lambda _: None)
    waker = Notifier(store)
    monkeypatch.setattr(waker, "_look", lambda: None)
    with caplog.at_level(logging.WARNING):
        waker._run()
    assert [message.partition(".")[0] for message in caplog.messages] == ["pg1 is down", "pg1 has ended the session"]
