"""The times when a worker used an object, and the pairs that overlap."""

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
    """The time from *begun* to *ended*. All times are from the clock of one machine or one store.

    :param ended: infinite while it continues.
    :param shared: it may overlap other shared spans.
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
    """The pairs of spans on the same object that overlap, the later span first. A span that begins when another ends does not
    overlap it."""
    found: list[tuple[Span, Span]] = []
    there: defaultdict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.begun):
        there[span.on] = [other for other in there[span.on] if other.ended > span.begun]
        found += [(span, other) for other in there[span.on] if not (span.shared and other.shared)]
        there[span.on].append(span)
    return found


def noted(path: Path) -> list[str]:
    """The complete lines of a file that processes append to. Empty if there is no file."""
    return path.read_text().split("\n")[:-1] if path.exists() else []
