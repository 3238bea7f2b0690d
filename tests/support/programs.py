"""Programs that run to their end."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(
    command: Sequence[str | Path],
    timeout_s: float | None = None,
    raises: type[Exception] = RuntimeError,
    **options: Any,
) -> str:
    """What the program has printed.

    :param raises: the error if it fails.
    :param options: further options of ``subprocess.run``.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, **options)
    if done.returncode:
        words = " ".join([Path(command[0]).name, *map(str, command[1:])])
        raise raises(f"{words[:400]}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return str(done.stdout)
