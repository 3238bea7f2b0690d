"""The only source of chance: one seed, one history."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


class Dice:
    """Numbers from *seed*."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, limit: int) -> int:
        """A whole number from 0 to *limit* - 1."""
        return int(self._random() * limit)

    def chance(self, probability: float) -> bool:
        """True with *probability*."""
        return self._random() < probability

    def pick(self, choices: Sequence[T]) -> T:
        """One of *choices*."""
        return choices[int(self._random() * len(choices))]
