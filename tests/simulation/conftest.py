"""The scripts' asserts say what they saw, as those of tests do."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.simulation.mutations")
