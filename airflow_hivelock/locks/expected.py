"""The expected wait of a request, from earlier holds of the tasks ahead. These functions ask no store and no clock.

A hold is expected to last as long as earlier holds of the same table by the same task, less the time that has already
passed. If n earlier holds and this one are in random order, this one is shorter than the k-th shortest with a
probability of k / (n + 1). That is true for each distribution, so the range of one hold needs no model.
``python -m tests.bench.expected`` replays a history, and prints how often the range was right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks.durations import between
from airflow_hivelock.locks.model import WaitsFor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from airflow_hivelock.locks.model import Blocker, Lease, Tenure, Waiter

    Table = tuple[str, ...]

OUTSIDE = 0.1
"""The share of holds that are shorter than the range of one hold, and the share that are longer. Four of five are
inside."""

FEWEST = 5
"""A task with fewer earlier holds has no range. With 5 holds, two of three end inside it; with 9, four of five."""

MOST_READ = 5_000
"""The most past leases that a reader of the history reads."""

MOST_NEAR = 100
"""The most blockers of a request that count, nearest first."""

DEEPEST = 100
"""The depth of the search for the blockers of blockers. A listing begins with the first waiters, so the search is
short. The limit is for a listing that was read during a change: there, two requests can wait for each other."""


class WaitRange(NamedTuple):
    """A range in seconds from now."""

    least_s: float
    most_s: float

    def __str__(self) -> str:
        return f"probably {between(self.least_s, self.most_s)} more"


NOW = WaitRange(0.0, 0.0)


def task_of(owner: str) -> str | None:
    """The part of an owner that is the same in all runs of its task. None: the owner is not a task.

    The owner of a task is ``installation/dag/run/task/map index``. The name of a ``hold()`` can follow.
    """
    parts = owner.split("/")
    return "/".join((*parts[:2], parts[3], *parts[5:])) if len(parts) in (5, 6) else None


class PastHolds:
    """How long each task has held each table.

    :param tenures: past leases. Leases that are still held do not count.
    """

    def __init__(self, tenures: Iterable[Tenure]) -> None:
        held: defaultdict[tuple[str, Table], list[float]] = defaultdict(list)
        for tenure in tenures:
            if tenure.ended is not None and (task := task_of(tenure.owner)):
                for table in {lock.object.path[:2] for lock in tenure.locks}:
                    held[task, table].append((tenure.ended - tenure.granted).total_seconds())
        self._held_s: Mapping[tuple[str, Table], list[float]] = {key: sorted(all_s) for key, all_s in held.items()}

    def left(self, owner: str, table: Table, held_s: float = 0.0) -> WaitRange | None:
        """The range of the time that the owner's task will still hold the table. None: too few earlier holds were as
        long.

        :param held_s: how long the task has already held the table, in seconds.
        """
        all_s = self._held_s.get((task_of(owner) or "", table), [])
        longer_s = all_s[bisect_left(all_s, held_s) :]
        if (n := len(longer_s)) < FEWEST:
            return None
        outside = max(1, int((n + 1) * OUTSIDE))
        return WaitRange(longer_s[outside - 1] - held_s, longer_s[n - outside] - held_s)


def expected_waits(
    past: PastHolds, leases: Iterable[Lease], waiters: Iterable[Waiter], now: datetime
) -> dict[str, WaitRange]:
    """The expected wait of each waiter, by owner. A waiter is left out if a task ahead has too little history.

    :param leases: all held leases.
    :param waiters: all waiters, from the same snapshot.
    :param now: the time of that snapshot, by the store's clock.
    """
    queue = _Queue(past, {lease.owner: lease for lease in leases}, {waiter.owner: waiter for waiter in waiters}, now)
    found = {owner: queue.start(owner) for owner in queue.waiters}
    waits = (owner for owner, waiter in queue.waiters.items() if waiter.waits_for is WaitsFor.LOCK)
    return {owner: wait for owner in waits if (wait := found[owner]) and wait.most_s > 0}


class _Queue:
    def __init__(
        self, past: PastHolds, leases: Mapping[str, Lease], waiters: Mapping[str, Waiter], now: datetime
    ) -> None:
        self.past, self.leases, self.waiters, self.now = past, leases, waiters, now
        self._starts: dict[str, WaitRange | None] = {}
        self._ends: dict[tuple[str, Table], WaitRange | None] = {}

    def start(self, owner: str, depth: int = 0) -> WaitRange | None:
        """When *owner* gets its locks: at the end of its last direct blocker."""
        if owner not in self._starts:
            if depth > DEEPEST:
                return None
            self._starts[owner] = self._after_blockers(self.waiters[owner], depth)
        return self._starts[owner]

    def _after_blockers(self, waiter: Waiter, depth: int) -> WaitRange | None:
        near = waiter.blocked_by[:MOST_NEAR]
        if len(waiter.blocked_by) > MOST_NEAR and not near[-1].waiting:
            return None  # there are more holders than MOST_NEAR
        ends = [self._end(blocker.owner, blocker.object.path[:2], depth) for blocker in self._direct(near)]
        known = [end for end in ends if end is not None]
        return WaitRange(*map(max, zip(NOW, *known, strict=True))) if len(known) == len(ends) else None

    def _direct(self, near: Iterable[Blocker]) -> Iterator[Blocker]:
        """The blockers in *near* that block no other blocker in *near*."""
        passed: set[str] = set()
        for blocker in near:
            if blocker.owner not in passed:
                yield blocker
                passed.add(blocker.owner)
                if ahead := self.waiters.get(blocker.owner):
                    passed.update(each.owner for each in ahead.blocked_by[:MOST_NEAR])

    def _end(self, owner: str, table: Table, depth: int) -> WaitRange | None:
        """When *owner* no longer blocks the table."""
        if (owner, table) not in self._ends:
            self._ends[owner, table] = self._end_of(owner, table, depth)
        return self._ends[owner, table]

    def _end_of(self, owner: str, table: Table, depth: int) -> WaitRange | None:
        if lease := self.leases.get(owner):
            return self.past.left(owner, table, max(0.0, (self.now - lease.since).total_seconds()))
        if owner not in self.waiters:
            return None
        start, hold = self.start(owner, depth + 1), self.past.left(owner, table)
        # The bounds are added. On a slow day all holds are long, so long and short holds do not average out.
        return WaitRange(start.least_s + hold.least_s, start.most_s + hold.most_s) if start and hold else None
