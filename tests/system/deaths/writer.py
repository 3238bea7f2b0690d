"""The work under a lock: it writes a note regularly until a gate opens, and ends with the status that the gate
contains.

A script, run without site-packages: it starts fast, and knows neither Airflow nor locks. A line is a note: its process
id, and the time in ns.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

BEAT_S = 0.02
LONGEST_S = 600.0


def main(beats: Path, *gates: Path) -> int:
    until = time.monotonic() + LONGEST_S
    with beats.open("a", buffering=1) as notes:
        while time.monotonic() < until:
            notes.write(f"{os.getpid()} {time.time_ns()}\n")
            for gate in gates:
                if gate.exists():
                    return int(gate.read_text())
            time.sleep(BEAT_S)
    return 3


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
