"""spark-submit, which notes when each job under a lease begins and when it has ended.

``spark_submit.py NOTES SPARK_SUBMIT …`` runs ``SPARK_SUBMIT …``. The demo has it on its path in the place of the real one, so
that the jobs are those that a user would write. A script, run without site-packages: it costs next to nothing.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

LEASE = "spark.hivelock.lease="
"""What a locked job is told in its configuration."""


def main(notes: Path, command: list[str]) -> int:
    lease = next((argument.removeprefix(LEASE) for argument in command if argument.startswith(LEASE)), "-")
    _note(notes, "begin", lease)
    with subprocess.Popen(command) as job:
        signal.signal(signal.SIGTERM, lambda *_: job.terminate())
        code = job.wait()
    _note(notes, "end", lease)
    return code


def _note(notes: Path, what: str, lease: str) -> None:
    """Append a line: the event, the lease, and the time in seconds since 1970."""
    with notes.open("a") as lines:
        lines.write(f"{what} {lease} {time.time():.3f}\n")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
