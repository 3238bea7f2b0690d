"""Tries in vain: how far apart they are, and when they end."""

from __future__ import annotations

import pytest

from airflow_hivelock.locks.backends.zookeeper.store import AT_ONCE, GIVE_UP_S, LONGEST_S, Retry
from airflow_hivelock.locks.errors import StoreUnavailable


def test_tries_in_vain_are_ever_farther_apart_and_end() -> None:
    now_s, pauses = 0.0, []

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        pauses.append(seconds)

    def clock() -> float:
        nonlocal now_s
        now_s += 0.001  # what a turn takes
        return now_s

    retry = Retry(clock, sleep, "it changed")

    def take_turns() -> None:
        for _ in range(1_000):
            retry.again()

    with pytest.raises(StoreUnavailable, match="it changed, ") as error:
        take_turns()
    assert GIVE_UP_S <= now_s < GIVE_UP_S + LONGEST_S + 1
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_S
    assert f"{len(pauses) + AT_ONCE} times" in str(error.value), "the first few are taken at once"
