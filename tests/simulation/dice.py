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


class Names:
    """Stands in for :mod:`uuid` where acquisitions name themselves."""

    def __init__(self) -> None:
        self._given = 0

    def uuid4(self) -> Names:
        self._given += 1
        return self

    @property
    def hex(self) -> str:
        return f"process{self._given}"
