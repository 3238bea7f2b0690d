"""The only source of chance. All that it gives is noted, so that a history can be played again, and made shorter.

Zero is always the dullest choice: no fault, the same client goes on, the first of a list. A history with more zeros
in it is a simpler one, and that is how :mod:`.shrink` knows.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


class Dice:
    """Numbers from *seed*; or those of *recorded*, and zeros when they are used up."""

    def __init__(self, seed: int = 0, recorded: Sequence[int] | None = None) -> None:
        self.drawn: list[int] = []
        self._random = random.Random(seed).random
        self._recorded = recorded

    def below(self, limit: int) -> int:
        """A whole number from 0 to *limit* - 1."""
        if limit <= 1:
            return 0
        if self._recorded is None:
            value = int(self._random() * limit)
        else:
            value = self._replayed() % limit
        self.drawn.append(value)
        return value

    def chance(self, probability: float) -> bool:
        """True with *probability*."""
        if probability <= 0:
            return False
        value = int(self._random() < probability) if self._recorded is None else self._replayed() % 2
        self.drawn.append(value)
        return value == 1

    def pick(self, choices: Sequence[T]) -> T:
        """One of *choices*, the first being the dullest."""
        return choices[self.below(len(choices))]

    def _replayed(self) -> int:
        assert self._recorded is not None
        place = len(self.drawn)
        return self._recorded[place] if place < len(self._recorded) else 0
