"""Hypothesis: the same examples at every run in CI, and a blob to repeat a failure with."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("unit", derandomize="CI" in os.environ, print_blob=True, deadline=None)
settings.load_profile("unit")
