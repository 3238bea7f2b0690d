"""The pauses between tries. No other module has a back-off."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_random = random.SystemRandom()
"""A random generator without a state. The generator of ``random`` has two disadvantages:

- A program may have seeded it, and expects its numbers.
- Forked workers share its state, and would all pause for the same time.
"""


def pauses(first_s: float, most_s: float, factor: float = 2.0) -> Iterator[float]:
    """Yield pauses in seconds, without end. Each is *factor* times the previous one, and at most *most_s*."""
    pause_s = first_s
    while True:
        yield pause_s
        pause_s = min(factor * pause_s, most_s)


def tries(most: int) -> Iterator[int]:
    """Yield 0, 1, … for at most *most* tries. Sleep before the third try and each later one, for about 1 to 10 ms.

    Use it for a step that fails only because another client was first. The second try has no pause, because that client
    has finished. The pauses grow, so many clients do not make one another fail each time.
    """
    pause_s = pauses(0.001, 0.01)
    for number in range(most):
        if number > 1:
            time.sleep(jitter() * next(pause_s))
        yield number


def jitter() -> float:
    """A random factor for a pause, so that clients which wait for each other do not ask at the same time."""
    return _random.uniform(0.5, 1.5)
