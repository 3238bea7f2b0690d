"""Stretches of time in which somebody works on something, and what must not be: two at once."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True)
class Span:
    """A stretch of time. The clock of one machine or one store gives all times.

    :param ended: infinite for one that goes on.
    :param shared: it bears another one that is shared, too.
    """

    begun: float
    ended: float = math.inf
    who: str = ""
    on: str = ""
    shared: bool = False

    @property
    def seconds(self) -> float:
        return self.ended - self.begun

    def meets(self, other: Span) -> bool:
        return self.begun <= other.ended and other.begun <= self.ended


def overlaps(spans: Iterable[Span]) -> list[tuple[Span, Span]]:
    """The pairs that were on one thing at once, the later one first. One that begins as another ends is not beside it."""
    found: list[tuple[Span, Span]] = []
    there: defaultdict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.begun):
        there[span.on] = [other for other in there[span.on] if other.ended > span.begun]
        found += [(span, other) for other in there[span.on] if not (span.shared and other.shared)]
        there[span.on].append(span)
    return found


def noted(path: Path) -> list[str]:
    """The notes in a file that processes append to; none without a file. The last line may be half written."""
    return path.read_text().split("\n")[:-1] if path.exists() else []
