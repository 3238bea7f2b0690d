"""Measured times, and their summaries."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True)
class Samples:
    """Times of one repeated step, in milliseconds, in the order of measurement."""

    ms: tuple[float, ...]

    @classmethod
    def of(cls, ms: Iterable[float]) -> Samples:
        return cls(tuple(ms))

    @property
    def median(self) -> float:
        return statistics.median(self.ms)

    @property
    def low(self) -> float:
        return min(self.ms)

    @property
    def high(self) -> float:
        return max(self.ms)

    @property
    def p99(self) -> float:
        """The smallest time that 99 of 100 do not exceed; of fewer than 100, the largest."""
        return sorted(self.ms)[-1 - len(self.ms) // 100]

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
