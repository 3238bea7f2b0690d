"""Runs a program as another user, and has it end (SIGINT) when standard input does: ``tether.py UID PROGRAM ARGUMENT…``.

The program takes this process's place, so that its pid is the one that was started. An empty UID: as it is. One that ends by
another signal has its name in the environment: ``TETHER_SIGNAL=SIGTERM``.
"""

from __future__ import annotations

import os
import signal
import sys


def main(user: str, program: list[str]) -> None:
    if user:
        os.setgroups([])
        os.setuid(int(user))
    pid, end = os.getpid(), signal.Signals[os.environ.get("TETHER_SIGNAL", "SIGINT")]
    if os.fork() == 0:
        if os.fork() == 0:  # not the program's child, which it would have to wait for
            sys.stdin.buffer.read()
            os.kill(pid, end)
        os._exit(0)
    os.wait()
    os.execv(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
