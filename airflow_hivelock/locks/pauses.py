"""Pauses between tries: the only back-off."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_random = random.SystemRandom()
"""A random generator without a state.

To draw from the module's generator would disturb a program that has seeded it. Forked workers with one state would pause
for the same times.
"""


def pauses(first_s: float, most_s: float, factor: float = 2.0) -> Iterator[float]:
    """Yield growing pauses without end, in seconds: each is *factor* times the previous one, and at most *most_s*."""
    pause_s = first_s
    while True:
        yield pause_s
        pause_s = min(factor * pause_s, most_s)


def jitter() -> float:
    """A factor for a pause, so that clients which wait for each other do not all ask at once."""
    return _random.uniform(0.5, 1.5)
