"""Measured values, and their summaries."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True)
class Samples:
    """Values of one repeated step, for example milliseconds, in the order of measurement."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Samples:
        return cls(tuple(values))

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    @property
    def p99(self) -> float:
        """The smallest value that 99 of 100 do not exceed; of fewer than 100, the largest."""
        return self.at(0.99)

    def at(self, share: float) -> float:
        """The smallest value that this share does not exceed."""
        return sorted(self.values)[math.ceil(share * len(self.values)) - 1]

    def to(self, others: Samples) -> Samples:
        """The ratios to *others*, round by round."""
        return Samples.of(one / other for one, other in zip(self.values, others.values, strict=True))

    def __str__(self) -> str:
        return f"{number(self.median)} ({number(self.low)}–{number(self.high)})"


def number(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def timed(call: Callable[[], object]) -> float:
    """How long *call* takes, in milliseconds."""
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1e3
