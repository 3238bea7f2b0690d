"""How long a rerun closes its days to others, by the way in which it locks: ``python -m tests.bench.waiting rerun``."""

from __future__ import annotations

from tests.bench.rerun.measure import STORES, measure

__all__ = ["STORES", "measure"]
