"""Checks the new places in a queue, after an arrival or a change of priority."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.priority import BACKGROUND, BEHIND, unclaimed
from tests.simulation.claims import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.checks import Checks, Place
    from tests.simulation.state import State

SLACK_MS = 5_000
"""How far behind the store's clock a process may think it is: for as long as the reply to its last write took to reach it."""


class OrderChecks:
    """Checks the new places, told from the raw tickets.

    :param passing_s: requests of higher priority overtake no place that is older, in seconds.
    """

    def __init__(self, checks: Checks, passing_s: float) -> None:
        self._checks = checks
        self._passing_ms = passing_s * 1000
        self._asked: dict[str, tuple[int, int, int]] = {}

    def changes(self, owner: str, priority: int, zxid: int, at_ms: int) -> None:
        """A person begins to change the priority of the owner's request. It reads the store as of *zxid*, or later."""
        self._asked[owner] = priority, zxid, at_ms

    def arrives(self, key: str, mine: State, before: State | None) -> None:
        """A request arrives with new tickets. One that was away can have its earlier turn again."""
        tickets = self._checks.tickets[key]
        place = min(tickets.values(), default=None)
        if place is None or place.czxid != mine.zxid:
            raise Violation(f"{mine.owner} arrives at {mine.zxid} with tickets of before: {tickets}")
        if place.at % BEHIND > place.czxid:
            raise Violation(f"{mine.owner} claims {place}, which is no place")
        seen, seen_ms = self._checks.claims.began(mine.process)
        back = before is not None and before.old_turn == place.at
        # Without a claim, it counts from the creation of its tickets, a little later than from the look.
        slack_ms = SLACK_MS if place.at == unclaimed(place.czxid, -place.before) else 0
        for other, theirs in self._others(key, mine):
            later_ms = place.since_ms + self._passing(place.before) - theirs.since_ms - self._passing(theirs.before)
            if theirs > place and max(theirs.czxid, other.zxid) < seen and later_ms > slack_ms:
                raise Violation(f"{mine.owner} has {place}, and passes {other.owner}, which has {theirs}")
            if theirs > place and theirs.czxid < seen and theirs.before <= place.before - back:
                raise Violation(f"{mine.owner} ({place}) passes {other.owner} ({theirs}), which is as urgent")
            if place < theirs and theirs.czxid < place.czxid:
                self._check_limit(mine, place, other, theirs, seen_ms)

    def changed(self, key: str, before: State, after: State, old: Place, new: Place) -> None:
        """A waiting request has new tickets."""
        priority, seen, seen_ms = self._asked.get(after.owner, (None, 0, 0))
        if after.priority != priority:
            raise Violation(f"{after.owner} has new tickets with priority {after.priority}, and no person asked for it")
        kept = before._replace(priority=after.priority, places={}, share=after.share, token=after.token)
        if after != kept._replace(zxid=after.zxid, written_ms=after.written_ms):
            raise Violation(f"{after.owner} has another priority, and more has changed: {before} {after}")
        raised = after.priority > before.priority
        for other, theirs in self._others(key, after):
            if raised and old < theirs < new:
                raise Violation(
                    f"{after.owner} is raised, and loses its place ({old}, {new}) to {other.owner} ({theirs})"
                )
            if not new < theirs or theirs.czxid >= seen or (raised and old < theirs):
                continue
            if theirs.before <= new.before:
                raise Violation(f"{after.owner} ({new}) passes {other.owner} ({theirs}), which is as urgent")
            self._check_limit(after, new, other, theirs, seen_ms)

    def is_over(self, rank: int, since_ms: int, now_ms: float) -> bool:
        """Whether a request of priority -*rank* must not be overtaken any more."""
        return now_ms > since_ms + self._passing(rank) + SLACK_MS

    def _others(self, key: str, mine: State) -> Iterator[tuple[State, Place]]:
        """The other requests in the queue that conflict, each with its place."""
        for other_key, other in self._checks.states.items():
            if (
                other_key != key
                and other.in_line
                and mine.conflict(other)
                and (tickets := self._checks.tickets[other_key])
            ):
                yield other, min(tickets.values())

    def _check_limit(self, mine: State, place: Place, other: State, theirs: Place, now_ms: float) -> None:
        """*mine* passes *other*, which must not have reached the limit on overtaking."""
        if self.is_over(theirs.before, theirs.since_ms, now_ms):
            raise Violation(
                f"{mine.owner} ({place}) passes {other.owner} ({theirs}), which has been passed long enough"
            )

    def _passing(self, rank: int) -> float:
        """For how long a request of priority -*rank* can be overtaken, in milliseconds."""
        return self._passing_ms * (1 if rank < 0 else BACKGROUND)
