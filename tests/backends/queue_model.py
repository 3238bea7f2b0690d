"""The answers that the lock manager must give, as a plain model: one list, first come, first served."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_hivelock.locks import Lease, LeaseMismatch, Lock, LockMode, LockObject, Superseded

if TYPE_CHECKING:
    from collections.abc import Sequence

Locks = tuple[Lock, ...]


def exclude(one: Locks, other: Locks) -> bool:
    return any(a.object == b.object and LockMode.EXCLUSIVE in (a.mode, b.mode) for a in one for b in other)


def _in(target: LockObject, other: LockObject) -> bool:
    return target == other or target.is_below(other)


@dataclass(eq=False)
class Place:
    """An owner's place in the queue, kept while it holds.

    :param whole: what it reads for its own sake, though it also asks for something in it.
    :param given: what it has given back.
    """

    owner: str
    locks: Locks
    call: object
    whole: frozenset[LockObject] = frozenset()
    lease: Lease | None = None
    given: Locks = ()


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

    def give_back(self, mine: Place, objects: Sequence[LockObject]) -> None:
        """Release everything below *objects*. Then release each parent that was locked only for them, the lowest first."""
        held = mine.locks
        kept = [lock for lock in held if not any(_in(lock.object, target) for target in objects)]
        for lock in sorted(kept, key=lambda lock: -len(lock.object.path)):
            had, has = (
                any(other.object.is_below(lock.object) for other in locks if other.object != lock.object)
                for locks in (held, kept)
            )
            if lock.mode is LockMode.SHARED and had and not has and lock.object not in mine.whole:
                kept.remove(lock)
        mine.given += tuple(lock for lock in held if lock not in kept)
        mine.locks = tuple(kept)
        if not kept:
            self.queue.remove(mine)

    def enter(
        self, owner: str, locks: Locks, attempt: int, call: object, whole: frozenset[LockObject] = frozenset()
    ) -> Place:
        """A new place at the end, or the owner's own, taken over.

        :raises Superseded: :raises LeaseMismatch: as the lock manager must.
        """
        if attempt < self.attempts.get(owner, 0):
            raise Superseded
        mine = self.place(owner)
        if mine is None:
            mine = Place(owner, locks, call, whole)
            self.queue.append(mine)
        elif mine.locks != locks:
            raise LeaseMismatch
        self.attempts[owner], mine.call = attempt, call
        mine.whole |= whole  # what an earlier attempt has started may run on
        return mine
