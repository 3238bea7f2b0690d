"""Runs of these tests with another release of a server or of a library, chosen by a variable of the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
END_BYTES = 2_000


def run(variable: str, release: str | None, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a module of Python's. Print the end of its output to stderr, or all of it if it fails: seeds are in it.

    :param release: the value of *variable*; None for the release of this environment, without that variable.
    """
    environment = {name: value for name, value in os.environ.items() if name != variable}
    if release:
        environment[variable] = release
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, timeout=timeout_s, check=False
    )
    said = done.stdout if done.returncode else done.stdout[-END_BYTES:]
    print(f"{variable}={release or ''}", *arguments, said, sep="\n", file=sys.stderr, flush=True)
    return done
