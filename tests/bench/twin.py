"""Another process with contenders of its own, told what to lock a line at a time: ``python -m tests.bench.twin HOSTS``.

It takes the times itself, so that the pipe is in none of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.contenders import Floor, Ours, Recipes, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.bench.contenders import Contender

END_S = 30.0


class Twin:
    """The process, with the contenders that are not in a JVM."""

    def __init__(self, hosts: str) -> None:
        command = [sys.executable, "-m", "tests.bench.twin", hosts]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def contender(self, name: str) -> Contender:
        """The one of that name, in that process."""
        return _There(name, self)

    def ask(self, name: str, writes: Sequence[str] | None) -> float:
        """Have the contender lock *writes*, or unlock; how long that took it, in milliseconds."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([name, writes]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, "the other process failed; its traceback is above"
        return float(answer)

    def close(self) -> None:
        try:
            self._process.communicate(timeout=END_S)
        finally:
            self._process.kill()


@dataclass(frozen=True)
class _There:
    name: str
    _twin: Twin

    def lock(self, writes: Sequence[str]) -> float:
        return self._twin.ask(self.name, writes)

    def unlock(self) -> float:
        return self._twin.ask(self.name, None)

    def close(self) -> None:
        """The process closes its own at its end."""


def main(hosts: str) -> None:
    kinds: tuple[Callable[[str], Contender], ...] = (Ours, Recipes, Steps, Floor)
    contenders = {contender.name: contender for contender in (kind(hosts) for kind in kinds)}
    for line in sys.stdin:
        name, writes = json.loads(line)
        print(contenders[name].unlock() if writes is None else contenders[name].lock(writes), flush=True)
    for contender in contenders.values():
        contender.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
