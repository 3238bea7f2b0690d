"""Requests in ZooKeeper that could not leave the queue: when that is tried again, and when no longer."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import StoreUnavailable
from airflow_hivelock.locks.backends.zookeeper.abandoned import AbandonedRequests, in_thread

if TYPE_CHECKING:
    from collections.abc import Callable


class Later:
    """A stand-in for the timer, which a test moves on."""

    def __init__(self) -> None:
        self.paused_s: list[float] = []
        self.acts: list[Callable[[], None]] = []

    def __call__(self, pause_s: float, act: Callable[[], None]) -> Callable[[], None]:
        self.paused_s.append(pause_s)
        self.acts.append(act)
        return self.acts.clear

    def pass_pauses(self, most: int) -> None:
        while self.acts and most:
            self.acts.pop()()
            most -= 1


class Ending:
    """The end of a request, which fails at first."""

    def __init__(self, fails: int, error: type[Exception] = StoreUnavailable) -> None:
        self.left, self.tried, self._error = fails, 0, error

    def __call__(self) -> None:
        self.tried += 1
        if self.left:
            self.left -= 1
            raise self._error("away")


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def abandoned(later: Later) -> AbandonedRequests:
    return AbandonedRequests(later)


def test_the_pauses_grow_to_a_bound_while_the_store_is_away(abandoned: AbandonedRequests, later: Later) -> None:
    abandoned.add("p", Ending(1_000))
    later.pass_pauses(8)
    assert later.paused_s == [1, 2, 4, 8, 16, 30, 30, 30, 30]


def test_a_request_that_cannot_leave_holds_up_no_other(abandoned: AbandonedRequests, later: Later) -> None:
    stays, leaves = Ending(1_000), Ending(0)
    abandoned.add("p", stays)
    abandoned.add("q", leaves)
    later.pass_pauses(3)
    assert (stays.tried, leaves.tried) == (3, 1)


def test_it_rests_when_all_have_left_and_begins_again_with_the_next(abandoned: AbandonedRequests, later: Later) -> None:
    abandoned.add("p", Ending(2))
    later.pass_pauses(100)
    assert later.paused_s == [1, 2, 4]
    abandoned.add("q", Ending(1))
    later.pass_pauses(100)
    assert later.paused_s == [1, 2, 4, 1, 2]


def test_an_error_that_no_wait_can_help_is_logged_and_not_met_again(
    abandoned: AbandonedRequests, later: Later, caplog: pytest.LogCaptureFixture
) -> None:
    breaks, leaves = Ending(1_000, ValueError), Ending(1)
    abandoned.add("p", breaks)
    abandoned.add("q", leaves)
    later.pass_pauses(100)
    assert (breaks.tried, leaves.tried) == (1, 2)
    assert "could not leave the queue" in caplog.text


def test_one_that_is_abandoned_during_a_try_is_not_forgotten(abandoned: AbandonedRequests, later: Later) -> None:
    second = Ending(0)
    abandoned.add("p", partial(abandoned.add, "p", second))
    later.pass_pauses(100)
    assert second.tried == 1


def test_nothing_is_tried_after_the_close(abandoned: AbandonedRequests, later: Later) -> None:
    first, second = Ending(0), Ending(0)
    abandoned.add("p", abandoned.close)
    abandoned.add("q", first)
    later.pass_pauses(100)
    abandoned.add("q", second)
    assert (first.tried, second.tried, later.acts) == (0, 0, [])


def test_its_thread_ends_at_the_close() -> None:
    abandoned = AbandonedRequests(in_thread)
    abandoned.add("p", Ending(1_000))
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    (thread,) = [timer for timer in timers if timer.function == abandoned._try]
    assert thread.daemon, "a process ends although the store is away"
    abandoned.close()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork beside threads, which is what this is about
def test_a_forked_process_ends_no_request_of_its_parent() -> None:
    abandoned = AbandonedRequests(in_thread)
    abandoned.add("p", Ending(1_000))
    if not (child := os.fork()):
        abandoned.add("q", Ending(0))
        os._exit(threading.active_count() != 1)
    _, status = os.waitpid(child, 0)
    abandoned.close()
    assert status == 0
