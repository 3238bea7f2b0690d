"""A mutation: one rule of the protocol taken away, and what shows the harm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.simulation.stage import Script

    Apply = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutation:
    """What is done to the code, and how the harm is seen: by a script, or by chance, from a seed on."""

    apply: Apply
    script: Script | None
    seed: int


MUTATIONS: dict[str, Mutation] = {}


def mutation(script: Script | None = None, *, seed: int = 0) -> Callable[[Apply], Apply]:
    """Enter a mutation."""

    def enter(apply: Apply) -> Apply:
        MUTATIONS[apply.__name__] = Mutation(apply, script, seed)
        return apply

    return enter
