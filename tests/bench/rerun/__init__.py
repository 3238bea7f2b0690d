"""For how long a rerun locks its days, by its way to lock: ``python -m tests.bench.waiting rerun``."""

from __future__ import annotations

from tests.bench.rerun.measure import STORES, measure

__all__ = ["STORES", "measure"]
