"""What must hold when a person changes the priority of a request that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.claims import Violation

if TYPE_CHECKING:
    from tests.simulation.checks import Checks, Place
    from tests.simulation.state import State


class PriorityChecks:
    """Checks the new places, told from the raw tickets."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._asked: dict[str, tuple[int, int, int]] = {}

    def changes(self, owner: str, priority: int, zxid: int, at_ms: int) -> None:
        """A person begins to change the priority of the owner's request. Whatever it looks at is at least of *zxid*."""
        self._asked[owner] = priority, zxid, at_ms

    def check(self, key: str, before: State, after: State, old: Place, new: Place) -> None:
        """A request that waits has new tickets."""
        priority, seen, seen_ms = self._asked.get(after.owner, (None, 0, 0))
        if after.priority != priority:
            raise Violation(f"{after.owner} has new tickets with priority {after.priority}, and no person asked for it")
        kept = before._replace(priority=after.priority, places={}, share=after.share, token=after.token)
        if after != kept._replace(zxid=after.zxid, written_ms=after.written_ms):
            raise Violation(f"{after.owner} has another priority, and more has changed: {before} {after}")
        raised = after.priority > before.priority
        for other_key, other in self._checks.states.items():
            if other_key == key or not other.in_line or not after.conflict(other):
                continue
            theirs = min(self._checks.tickets[other_key].values())
            if raised and old < theirs < new:
                raise Violation(
                    f"{after.owner} is raised, and loses its place ({old}, {new}) to {other.owner} ({theirs})"
                )
            if not new < theirs or theirs.czxid >= seen or (raised and old < theirs):
                continue
            if theirs.before <= new.before:
                raise Violation(f"{after.owner} ({new}) passes {other.owner} ({theirs}), which is as urgent")
            if self._checks.is_over(theirs.before, theirs.since_ms, seen_ms):
                raise Violation(
                    f"{after.owner} ({new}) passes {other.owner} ({theirs}), which has been passed long enough"
                )
