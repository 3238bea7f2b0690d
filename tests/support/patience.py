"""Waits that come to an end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, most_s: float = 120.0, pause_s: float = 0.05) -> T:
    """The first true value of the condition.

    :raises AssertionError: there is none in that time.
    """
    deadline = time.monotonic() + most_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {most_s:g} s for {what}"
        time.sleep(pause_s)
    return value


def again(call: Callable[[], T], bears: type[Exception], most_s: float = 120.0, pause_s: float = 0.1) -> T:
    """What *call* gives, once it raises that error no more, or the error after that time."""
    deadline = time.monotonic() + most_s
    while True:
        try:
            return call()
        except bears:
            if time.monotonic() > deadline:
                raise
            time.sleep(pause_s)
