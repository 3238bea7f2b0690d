"""Waits with a deadline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, most_s: float = 120.0, pause_s: float = 0.05) -> T:
    """Return the first true value of the condition.

    :raises AssertionError: it has had none after *most_s*.
    """
    deadline = time.monotonic() + most_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {most_s:g} s for {what}"
        time.sleep(pause_s)
    return value


def again(call: Callable[[], T], bears: type[Exception], most_s: float = 120.0, pause_s: float = 0.1) -> T:
    """Call until it returns. Return the result.

    :param bears: the error after which to call again; raised if it still occurs after *most_s*.
    """
    deadline = time.monotonic() + most_s
    while True:
        try:
            return call()
        except bears:
            if time.monotonic() > deadline:
                raise
            time.sleep(pause_s)
