"""The rows of the table: an event, what is done for it to happen, and who has to free the lock then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.system.deaths.play import Play

    Act = Callable[[Play], None]

FORCE = "force release"
KEEPER = "keeper"
NOBODY = ""
"""There is no lock to free."""


@dataclass(frozen=True)
class Row:
    """One event.

    :param by: who frees the lock; several where it depends on who comes first.
    :param name: of its table, and of its test.
    """

    event: str
    by: tuple[str, ...]
    act: Act
    name: str

    @property
    def frees_itself(self) -> bool:
        return FORCE not in self.by


def row(rows: list[Row], event: str, *by: str) -> Callable[[Act], Act]:
    """Add the function to *rows*."""

    def add(act: Act) -> Act:
        rows.append(Row(event, by, act, act.__name__))
        return act

    return add
