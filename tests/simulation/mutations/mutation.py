"""A mutation: one rule of the protocol taken away, and what shows the harm."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.simulation.stage import Script

    Apply = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutation:
    """What is done to the code, and how the harm is seen: by a script, or by chance, from a seed on; where that takes long,
    there is none, and ``python -m tests.simulation --mutations`` looks for it."""

    apply: Apply
    script: Script | None
    seed: int | None


def edit(patch: pytest.MonkeyPatch, owner: object, name: str, old: str, new: str) -> None:
    """Put *new* in the place of *old*, which is there once, in the source of a function of *owner*'s, a class or module."""
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{name} has {old!r} {source.count(old)} times"
    made: dict[str, Any] = {}
    text = f"from __future__ import annotations\n{source.replace(old, new)}"
    exec(compile(text, f"<{name}, mutated>", "exec"), function.__globals__, made)
    patch.setattr(owner, name, made[name])


MUTATIONS: dict[str, Mutation] = {}


def mutation(script: Script | None = None, *, seed: int | None = 0) -> Callable[[Apply], Apply]:
    """Enter a mutation."""

    def enter(apply: Apply) -> Apply:
        MUTATIONS[apply.__name__] = Mutation(apply, script, seed)
        return apply

    return enter
