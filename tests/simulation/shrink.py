"""Makes a failing history shorter: fewer choices, more of them dull, the same kind of failure at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import Outcome


def shrink(first: Outcome, play: Callable[[list[int]], Outcome], seconds: float) -> Outcome:
    """The shortest failing history found within *seconds*, starting from *first*.

    :param play: a run from recorded choices.
    """
    deadline = time.monotonic() + seconds
    best = first

    def better(choices: list[int]) -> bool:
        nonlocal best
        if choices == best.drawn:
            return False
        outcome = play(choices)
        if type(outcome.failure) is not type(first.failure) or _size(outcome) >= _size(best):
            return False
        best = outcome
        return True

    size = max(1, len(best.drawn) // 2)
    while size and time.monotonic() < deadline:
        improved = False
        for change in (_without, _dulled):
            start = 0
            while start < len(best.drawn) and time.monotonic() < deadline:
                if better(change(best.drawn, start, size)):
                    improved = True
                else:
                    start += size
        if not improved:
            size //= 2
    return best


def _without(choices: list[int], start: int, size: int) -> list[int]:
    return choices[:start] + choices[start + size :]


def _dulled(choices: list[int], start: int, size: int) -> list[int]:
    return choices[:start] + [0] * len(choices[start : start + size]) + choices[start + size :]


def _size(outcome: Outcome) -> tuple[int, int, int]:
    return len(outcome.trace), sum(map(bool, outcome.drawn)), sum(outcome.drawn)
