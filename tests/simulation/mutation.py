"""A mutation: one rule of the protocol taken away, to see that the simulation would miss it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    Apply = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutation:
    """What is done to the code, and from which seed on to look for the harm; None if none has been seen."""

    apply: Apply
    seed: int | None


MUTATIONS: dict[str, Mutation] = {}


def mutation(seed: int | None) -> Callable[[Apply], Apply]:
    """Enter a mutation."""

    def enter(apply: Apply) -> Apply:
        MUTATIONS[apply.__name__] = Mutation(apply, seed)
        return apply

    return enter
