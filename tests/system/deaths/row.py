"""The rows of the table: an event, what is done for it to happen, and who has to free the lock then."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.system.deaths import steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.system.deaths.play import Play
    from tests.system.deaths.steps import Step

    Act = Callable[[Play], None]

FORCE = "force release"
KEEPER = "keeper"
TASK, UNLOCK = "task", "unlock task"
NOBODY = ""
"""There is no lock to free."""


class Row(NamedTuple):
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


class Rows(list[Row]):
    """The rows of one kind of event."""

    def add(self, name: str, event: str, by: str | tuple[str, ...], act: Act) -> None:
        self.append(Row(event, (by,) if isinstance(by, str) else by, act, name))

    def at_work(self, name: str, event: str, by: str | tuple[str, ...], dag_id: str, *then: Step) -> None:
        self.add(name, event, by, steps.at_work(dag_id, *then))

    def waiting(self, name: str, event: str, by: str | tuple[str, ...], dag_id: str, *then: Step) -> None:
        self.add(name, event, by, steps.waiting(dag_id, *then))

    def of(self, event: str, *by: str) -> Callable[[Act], Act]:
        """The function is the act of a row, and has its name."""

        def add(act: Act) -> Act:
            self.add(act.__name__, event, by, act)
            return act

        return add
