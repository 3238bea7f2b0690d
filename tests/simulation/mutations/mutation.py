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
    from tests.simulation.themes import Theme

    Apply = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutation:
    """A change of the code, and the way to see its harm: by a script, or by chance from a seed on. Only ``python -m
    tests.simulation --mutations`` searches by chance for all of them.

    :param theme: of the runs in which chance searches; None: of all themes.
    """

    apply: Apply
    script: Script | None
    seed: int
    theme: Theme | None


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


def mutation(script: Script | None = None, *, seed: int = 0, theme: Theme | None = None) -> Callable[[Apply], Apply]:
    """Enter a mutation."""

    def enter(apply: Apply) -> Apply:
        MUTATIONS[apply.__name__] = Mutation(apply, script, seed, theme)
        return apply

    return enter
