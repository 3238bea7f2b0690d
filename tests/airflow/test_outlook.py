"""The expected waits for the logs: read once for all waiters of a process."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from airflow_hivelock.locks import LockManager, StoreUnavailable, rules
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.waiting.outlook import FRESH_S, PAST_S, Outlook

if TYPE_CHECKING:
    from collections.abc import Callable

START = datetime(2013, 1, 15, tzinfo=UTC)
HELD_S = 600.0
WAITERS = [f"prod/dag/run {number}/waits/-1" for number in range(20)]


class Store:
    """A lock store with a history of five holds of ten minutes, one holder, and twenty waiters."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock_s = 0.0
        self.asked: list[str] = []
        self.manager = LockManager(MemoryBackend())
        self._patch = monkeypatch
        monkeypatch.setattr(self.manager.backend, "now", lambda: START + timedelta(seconds=self.clock_s))
        for number in range(5):
            lease = self.hold(f"run {number}")
            self.clock_s += HELD_S
            self.manager.release(lease)
        self.lease = self.hold("now")
        for owner in WAITERS:
            self.manager.begin(rules.request(owner, reads=["dw.t"]), lambda: None).poll()
        for name in ("history", "requests"):
            self.before(name, lambda name=name: self.asked.append(name))  # type: ignore[misc]

    def hold(self, run: str) -> Any:
        return self.manager.acquire(owner=f"prod/dag/{run}/job/-1", writes=["dw.t"])

    def before(self, name: str, act: Callable[[], object]) -> None:
        """Do *act* before each call of the backend's method *name*."""
        method = getattr(self.manager.backend, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            act()
            return method(*args, **kwargs)

        self._patch.setattr(self.manager.backend, name, called)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    return Store(monkeypatch)


def test_all_waiters_share_one_read_of_the_history(store: Store) -> None:
    outlook = Outlook(lambda: store.clock_s)
    began_s = store.clock_s
    for _ in range(3):
        assert {outlook.of(store.manager, owner) for owner in WAITERS} == {(HELD_S, HELD_S)}
    assert sorted(store.asked) == ["history", "requests"]
    store.clock_s = began_s + FRESH_S + 1
    assert {outlook.of(store.manager, owner) for owner in WAITERS} == {(HELD_S - FRESH_S - 1, HELD_S - FRESH_S - 1)}
    assert store.asked.count("history") == 1
    store.clock_s = began_s + PAST_S + 1
    outlook.of(store.manager, WAITERS[0])
    assert store.asked.count("history") == 2


def test_between_two_reads_the_time_goes_on(store: Store) -> None:
    outlook = Outlook(lambda: store.clock_s)
    outlook.of(store.manager, WAITERS[0])
    store.clock_s += FRESH_S / 2
    assert outlook.of(store.manager, WAITERS[0]) == (HELD_S - FRESH_S / 2, HELD_S - FRESH_S / 2)
    assert store.asked.count("requests") == 1


def test_a_slow_read_is_waited_for_by_one_thread_only(store: Store) -> None:
    outlook = Outlook(lambda: store.clock_s)
    reading, go_on = threading.Event(), threading.Event()

    def is_slow() -> None:
        reading.set()
        go_on.wait(30)

    store.before("history", is_slow)
    thread = threading.Thread(target=outlook.of, args=(store.manager, WAITERS[0]))
    thread.start()
    assert reading.wait(30)
    assert outlook.of(store.manager, WAITERS[1]) is None
    go_on.set()
    thread.join()
    assert outlook.of(store.manager, WAITERS[1]) == (HELD_S, HELD_S)


def test_a_costly_read_rests(store: Store) -> None:
    outlook = Outlook(lambda: store.clock_s)

    def takes_ten_seconds() -> None:
        store.clock_s += 10

    store.before("requests", takes_ten_seconds)
    for _ in range(20):
        outlook.of(store.manager, WAITERS[0])
        store.clock_s += FRESH_S
    assert store.asked.count("requests") == 2


def test_a_store_that_does_not_answer_takes_nothing_from_the_wait(store: Store) -> None:
    outlook = Outlook(lambda: store.clock_s)
    store.before("requests", Mock(side_effect=StoreUnavailable("away")))
    for _ in range(3):
        assert outlook.of(store.manager, WAITERS[0]) is None
    assert store.asked.count("history") == 1, "it is not asked again at once"


def test_an_owner_that_does_not_wait_has_no_expected_wait(store: Store) -> None:
    outlook = Outlook(lambda: store.clock_s)
    assert outlook.of(store.manager, store.lease.owner) is None
    assert outlook.of(store.manager, "cli:ann:1") is None
