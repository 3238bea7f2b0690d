"""Operating-system sessions: their processes, and how to end all of them. Linux only: it reads /proc.

Every component leads a session of its own. A process group is not enough: Airflow moves each task into a group of its
own, with a task's `spark-submit`. But all of them stay in the session.

As a script this is the guard. It reads `+SID` and `-SID` lines. At the end of the file, which comes when its parent
dies, it kills the rest of the listed sessions.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

_PROC = Path("/proc")


def members(sid: int) -> list[int]:
    """The process ids of the session, its leader first, zombies left out."""
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    return sorted((pid for pid in pids if _belongs(pid, sid)), key=lambda pid: (pid != sid, pid))


def parent(pid: int) -> int:
    """The parent's process id. Raises ProcessLookupError when there is no such process."""
    return int(_stat(pid)[1])


def memory_bytes(pid: int) -> int:
    """Proportional set size: a page that n processes share counts 1/n for each."""
    for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has no memory any more")


def kill(sid: int, timeout_s: float = 10) -> None:
    """SIGKILL every member, and those forked meanwhile. Raises TimeoutError when some are left."""
    deadline = time.monotonic() + timeout_s
    while left := members(sid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"session {sid} outlives SIGKILL: {left}")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _belongs(pid: int, sid: int) -> bool:
    try:
        state, _, _, session, *_ = _stat(pid)
    except ProcessLookupError:
        return False
    return int(session) == sid and state != "Z"


def _stat(pid: int) -> list[str]:
    """State, parent, group, session and so on; the name before them may hold blanks and brackets."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessLookupError(f"no process {pid}") from error


def _guard() -> None:
    sids: set[int] = set()
    for line in sys.stdin:
        change = sids.add if line[0] == "+" else sids.discard
        change(int(line[1:]))
    for sid in sids:
        kill(sid)


if __name__ == "__main__":
    _guard()
