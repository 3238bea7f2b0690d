"""What all benchmarks share: rounds in turn, the command line, the machine, targets, and the report."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from tests.bench.samples import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")

started = time.monotonic()
load_before = os.getloadavg()[0]


def parser(module: str, text: str | None) -> argparse.ArgumentParser:
    """The command line of a benchmark, with the first line of *text*."""
    made = argparse.ArgumentParser(prog=f"python -m {module}", description=(text or "").partition("\n")[0])
    made.add_argument("--output", type=Path, default=Path("bench-output"), help="directory; default: %(default)s")
    made.add_argument("--quick", action="store_true", help="with small numbers: does it work?")
    return made


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder for the time of the measurement. SIGTERM, too, stops what was started in it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    with TemporaryDirectory(prefix="bench-") as folder:
        yield Path(folder)


def rounds(ways: Mapping[str, Callable[[], T]], times: int, warm_up: int = 0) -> dict[str, list[T]]:
    """Do each way once a round, because the speed of a machine changes from minute to minute: the results by way.

    Another way begins each round.

    :param warm_up: how many rounds come before, and do not count: a JVM compiles what it runs often.
    """
    found: dict[str, list[T]] = {name: [] for name in ways}
    names = list(ways)
    for turn in range(-warm_up, times):
        first = turn % len(names)
        for name in (*names[first:], *names[:first]):
            result = ways[name]()
            if turn >= 0:
                found[name].append(result)
    return found


def say(text: str) -> None:
    """Tell the user how far it is."""
    print(f"{time.monotonic() - started:5.0f} s  {text}", file=sys.stderr, flush=True)


def machine() -> str:
    """Where it was measured."""
    return (
        f"{os.cpu_count()} cores (load {load_before:.1f} before, {os.getloadavg()[0]:.1f} after), "
        f"Python {platform.python_version()}"
    )


def publish(folder: Path, name: str, text: str) -> None:
    """Write a report, and print it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    print(text)
    say(f"written to {folder / name}")


@dataclass(frozen=True)
class Target:
    """A figure, and what it must not exceed, or fall short of if it is *wanted* high."""

    what: str
    value: float
    limit: float
    unit: str = ""
    wanted: str = "≤"

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.wanted == "≥" else self.value <= self.limit

    @property
    def row(self) -> Sequence[str]:
        met = "met" if self.met else "**not met**"
        return self.what, f"{number(self.value)}{self.unit}", f"{self.wanted} {number(self.limit)}{self.unit}", met


TARGETS = ("what", "measured", "target", "")
"""The head of a table of targets."""
