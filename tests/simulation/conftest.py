"""The search for failing seeds, with and without each rule, takes many minutes: ``FULL=1`` runs it."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("FULL") else ["test_simulation.py"]
