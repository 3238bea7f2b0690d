"""A day's work: ``job.py NOTES DAY SECONDS PARTITION`` writes the file PARTITION, and notes when it begins and ends.

A script, run without site-packages: cheap to start, and it knows nothing of Airflow or of locks.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path


def note(notes: Path, what: str, day: str) -> None:
    """Append a line: what, the day, and the time in seconds since 1970."""
    with notes.open("a") as lines:
        lines.write(f"{what} {day} {time.time():.3f}\n")


def main(notes: Path, day: str, seconds: float, partition: Path) -> None:
    note(notes, "begin", day)
    time.sleep(seconds)
    partition.parent.mkdir(parents=True, exist_ok=True)
    partition.write_text(day)
    note(notes, "end", day)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), Path(sys.argv[4]))
