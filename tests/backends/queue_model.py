"""What the lock manager must answer, said once more and as plainly as can be: one list, first come, first served."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_hivelock.locks import Lease, LeaseMismatch, Lock, LockMode, Superseded

Locks = tuple[Lock, ...]


def exclude(one: Locks, other: Locks) -> bool:
    return any(a.object == b.object and LockMode.EXCLUSIVE in (a.mode, b.mode) for a in one for b in other)


@dataclass(eq=False)
class Place:
    """An owner's place in the queue, kept while it holds."""

    owner: str
    locks: Locks
    call: object
    lease: Lease | None = None


@dataclass
class Model:
    """What must happen.

    :param queue: first come, first served among those that conflict.
    :param attempts: the latest of each owner.
    :param hive: what Hive's own sessions hold, by query.
    """

    queue: list[Place] = field(default_factory=list)
    attempts: dict[str, int] = field(default_factory=dict)
    hive: dict[str, Lock] = field(default_factory=dict)

    def place(self, owner: str) -> Place | None:
        return next((place for place in self.queue if place.owner == owner), None)

    def ahead(self, mine: Place) -> list[Place]:
        """Who came before and conflicts, nearest first."""
        return [place for place in self.queue[: self.queue.index(mine)] if exclude(place.locks, mine.locks)][::-1]

    def hives_ahead(self, locks: Locks) -> list[str]:
        """The queries of Hive's in the way; also those that lock something below what is written."""
        return [
            query
            for query, its in self.hive.items()
            if exclude((its,), locks)
            or any(lock.mode is LockMode.EXCLUSIVE and its.object.is_below(lock.object) for lock in locks)
        ]

    def free(self, mine: Place) -> bool:
        return not self.ahead(mine) and not self.hives_ahead(mine.locks)

    def enter(self, owner: str, locks: Locks, attempt: int, call: object) -> Place:
        """A new place at the end, or the owner's own, taken over.

        :raises Superseded: :raises LeaseMismatch: as the lock manager must.
        """
        if attempt < self.attempts.get(owner, 0):
            raise Superseded
        mine = self.place(owner)
        if mine is None:
            mine = Place(owner, locks, call)
            self.queue.append(mine)
        elif mine.locks != locks:
            raise LeaseMismatch
        self.attempts[owner], mine.call = attempt, call
        return mine
