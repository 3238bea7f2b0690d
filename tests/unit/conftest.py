"""Hypothesis: the same examples at every run in CI, and a blob to repeat a failure with. A clock for what waits."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest
from hypothesis import settings

settings.register_profile("unit", derandomize="CI" in os.environ, print_blob=True, deadline=None)
settings.load_profile("unit")


@dataclass
class Clock:
    """A clock in seconds. Only the test moves it."""

    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()
