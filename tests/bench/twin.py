"""Another process with contenders of its own: ``python -m tests.bench.twin HOSTS``.

It takes the times itself, so that the pipe is in none of them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.contenders import Floor, Ours, Recipes, Steps
from tests.support.fleet import answer, orders

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.bench.contenders import Contender
    from tests.support.fleet import Worker

KINDS: tuple[Callable[[str], Contender], ...] = (Ours, Recipes, Steps, Floor)
"""Those that are not in a JVM."""


@dataclass(frozen=True)
class There:
    """The contender of that name in the process *twin*, which closes it at its end."""

    name: str
    twin: Worker

    def lock(self, writes: Sequence[str]) -> float:
        return float(self.twin.ask(self.name, writes))

    def unlock(self) -> float:
        return float(self.twin.ask(self.name, None))

    def close(self) -> None:
        pass


def main(hosts: str) -> None:
    contenders = {contender.name: contender for contender in (kind(hosts) for kind in KINDS)}
    for name, writes in orders():
        answer(contenders[name].unlock() if writes is None else contenders[name].lock(writes))
    for contender in contenders.values():
        contender.close()


if __name__ == "__main__":
    main(sys.argv[1])
