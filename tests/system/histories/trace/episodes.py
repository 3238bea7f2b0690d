"""What a look at two owners shows of ZooKeeper's log: leases that overlap, and requests that are passed for too long.

An episode is from the creation of lock nodes to their deletion. Two conflicting ones can overlap: the later grant has not
been verified, and is given back. So only leases that were returned to their callers show a conflict.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from tests.conformance.priority import BACKGROUND
from tests.support.spans import Span, overlaps
from tests.system.histories.trace.state import GRANTED, INVITED, TOMBSTONE, WAITING, conflict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tests.system.histories.trace.state import Step

STALE_S = 4.0
"""How old at most what a request saw may be when it takes its place. A process can be stopped in between, but not for longer than
its session lives."""


class Place(NamedTuple):
    """When a request took its place among those that wait for locks."""

    zxid: int
    at_ms: int
    priority: int


@dataclass
class Episodes:
    """The episodes so far.

    :param passing_s: for how long more urgent requests may pass a waiter.
    :ivar counted: how many grants took a permit of their group.
    :ivar passed: how often a request that waited was passed.
    """

    passing_s: float
    counted: int = 0
    passed: int = 0
    _held: dict[str, list[Span]] = field(default_factory=dict)
    _places: dict[str, Place] = field(default_factory=dict)
    _alive: dict[str, int] = field(default_factory=dict)

    def note(self, step: Step) -> Iterator[str]:
        """Note the step. Yield the requests that it has passed for too long."""
        key, old, new = step.key, step.old, step.new
        if step.after.alive:
            self._alive.setdefault(key, step.zxid)
        else:
            self._alive.pop(key, None)
        if new.holds and not old.holds:
            lease_id = f"{key}-{new.ticket_epoch}"
            modes = new.locks.items()
            self._held[lease_id] = [Span(step.zxid, who=lease_id, on=on, shared=mode == "S") for on, mode in modes]
            self.counted += bool(step.after.permits)
            yield from self._passes(step)
        elif old.holds and not new.holds:
            spans = self._held.pop(lease_id := f"{key}-{old.ticket_epoch}")
            if new.state == TOMBSTONE:  # otherwise it is given back
                self._held[lease_id] = [replace(span, ended=step.zxid) for span in spans]
        if new.priority != old.priority:  # a person has changed it: it joins the queue again
            self._places.pop(key, None)
        if new.state in (WAITING, INVITED):
            self._places.setdefault(key, Place(step.zxid, step.time_ms, new.priority))
        elif new.state != GRANTED and not new.kept:  # these two can wait again at their old place
            self._places.pop(key, None)

    def overlaps(self, returned: Collection[str] | None) -> list[str]:
        """The leases that were granted while a conflicting one was held.

        :param returned: the ids of the leases that callers got. None: all that were not given back.
        """
        spans = [
            span for lease_id, held in self._held.items() if returned is None or lease_id in returned for span in held
        ]
        return [
            f"{int(one.begun):#x}: NoTwoConflictingLeases: {one.who} was returned beside {other.who}, on {one.on}"
            for one, other in overlaps(spans)
        ]

    def _passes(self, step: Step) -> Iterator[str]:
        mine = self._places.setdefault(step.key, Place(step.zxid, step.time_ms, step.new.priority))
        for key, place in self._places.items():
            other = step.world.of(key).record
            if place.zxid >= mine.zxid or other.state != WAITING or not conflict(step.new.locks, other.locks):
                continue
            self.passed += 1
            may_pass_s = self.passing_s if place.priority < mine.priority else 0.0
            may_pass_s *= BACKGROUND if place.priority <= 0 else 1
            waited_s = (mine.at_ms - place.at_ms) / 1000
            if waited_s > may_pass_s + STALE_S and self._alive.get(key, mine.zxid) <= place.zxid:
                yield (
                    f"PassingIsBounded: {key} of priority {place.priority} had waited for {waited_s:.1f} s longer, and it "
                    f"has priority {mine.priority}"
                )
