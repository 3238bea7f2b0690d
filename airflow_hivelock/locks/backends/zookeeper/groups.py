"""Groups of leases: how many of them stand is bounded, whoever's they are. A counting semaphore beside the locks.

A lease that is counted has a *permit*: a node under a number that was free, made in the very transaction that makes its lock
nodes and named by its record, so that whatever takes the one away takes the other. That transaction also compares and raises
the version of the node above the permits, so that of two which have seen the same one is refused. Numbers alone would do where
all requests of a group give the same bound; but one of a smaller bound could take number 0 that has just become free, beside
another that had seen it taken and takes number 1.

A request that finds none free, or somebody before it, is *parked*: it has no ticket that lock requests wait behind, and holds
nothing. Its place is the epoch of its fresh start, and stays the same however often it parks. Exclusion does not rest on that
queue, as it does on the tables': so a place may be taken before others that have looked already, and all that is lost is a turn.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backends.zookeeper.client import (
    Check,
    Client,
    Commit,
    Create,
    Delete,
    Exists,
    Get,
    Names,
    Refused,
    SetData,
)
from airflow_hivelock.locks.backends.zookeeper.record import Record, State
from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.locks.model import Blocker, LockMode, owner_key
from airflow_hivelock.locks.queueing import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_hivelock.locks.backends.zookeeper.client import Node, Op
    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from airflow_hivelock.locks.backends.zookeeper.share import Share

_NAME = re.compile(r"([0-9a-f]{16})-([0-9]{1,19})-[0-9]{1,10}-([0-9]{1,19})-(-?[0-9]{1,10})-([0-9]{1,15})")
"""A place's node: the owner's key, the epoch, a version of the record, the place, the priority, when it was first taken."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_LEASE_ID = re.compile(r"[0-9a-f]{16}-[0-9]{1,19}")


class Parked(NamedTuple):
    """A place in a group's queue, told whole by its node's name. They sort as they are served.

    :param rank: the priority, negated.
    :param placed_ms: when the place was first taken; 0: when the node was made.
    """

    place: int
    rank: int
    epoch: int
    key: str
    name: str
    placed_ms: int = 0

    @property
    def position(self) -> Position:
        # Two requests that began at once have the same epoch, and no other number of their own: their keys order them.
        return Position(self.place, self.rank, self.epoch << 64 | int(self.key, 16))

    @classmethod
    def parse(cls, name: str) -> Parked | None:
        """None for what is nobody's place."""
        if not (found := _NAME.fullmatch(name)):
            return None
        return cls(int(found[3]), -int(found[4]), int(found[2]), found[1], name, int(found[5]))

    @classmethod
    def of(cls, record: Record) -> Parked:
        """The place that *record*'s request takes if it parks now. No name is ever given twice."""
        assert record.share is not None
        place = record.share.place or record.ticket_epoch
        placed_ms = record.share.placed_ms or record.asked_ms
        name = f"{record.lease_id}-{record.version + 1}-{place}-{record.priority}-{placed_ms}"
        return cls(place, -record.priority, record.ticket_epoch, record.key, name, placed_ms)


class GroupLook(NamedTuple):
    """A group as it was seen.

    :param version: of the node above the permits, read before they were.
    :param numbers: the permits that are taken.
    :param parked: who waits for one, in order.
    """

    version: int
    numbers: frozenset[int]
    parked: tuple[Parked, ...]

    def ahead(self, mine: Parked) -> list[Parked]:
        """The requests that wait before *mine*, in order."""
        waiting = {other: other.position for other in self.parked if other.key != mine.key}
        return queueing.earlier(mine.position, waiting)

    def free(self, mine: Record, place: Parked | None) -> int | None:
        """The number of the permit that *mine* may take; None: none is free, or a request waits before *place*.

        :param place: None for a newcomer, which comes after all that wait.
        """
        assert mine.share is not None
        position = place.position if place else Position.newcomer(mine.priority)
        waiting = [other.position for other in self.parked if other.key != mine.key]
        may = queueing.permit_free(position, mine.share.most, len(self.numbers), waiting)
        return queueing.free_number(self.numbers) if may else None


class Groups:
    """Reads and changes what lies in the groups' nodes."""

    def __init__(self, client: Client, layout: Layout) -> None:
        self._client = client
        self._layout = layout

    def look(self, share: Share, wake: Callable[[], None] | None = None) -> GroupLook:
        """Look at the group, which is made on demand.

        :param wake: called once a permit is taken or given back.
        """
        key = owner_key(share.group)
        if (found := self.look_at(key, wake)) is None:
            self._make(share.group)
            found = self.look_at(key, wake)
        if found is None:
            raise StoreUnavailable(f"{self._layout.groups} is gone from ZooKeeper; connect again")
        return found

    def look_at(self, key: str, wake: Callable[[], None] | None = None) -> GroupLook | None:
        """The same for a group by its key; None: there is none."""
        above, permits = Get(self._layout.permits(key)), Names(self._layout.permits(key), wake)
        root, taken, parked = self._client.submit(above, permits, Names(self._layout.parked(key)))
        if root is None or taken is None or parked is None:
            return None
        numbers = frozenset(int(name) for name in taken.names if _NUMBER.fullmatch(name))
        places = sorted(place for name in parked.names if (place := Parked.parse(name)))
        return GroupLook(root.stat.version, numbers, tuple(places))

    def _make(self, group: str) -> None:
        key = owner_key(group)
        top = f"{self._layout.groups}/{key}"
        creates = [Create(self._layout.groups), Create(top, group.encode())]
        creates += [Create(self._layout.permits(key)), Create(self._layout.parked(key))]
        self._client.submit(*(Commit((create,)) for create in creates))  # refused where somebody else was quicker

    def park(self, record: Record) -> tuple[Record, Create]:
        """*record* as it parks, and the operation that takes its place in its group's queue."""
        assert record.share is not None
        place = Parked.of(record)
        share = record.share._replace(permit=None, ticket=place.name, place=place.place)
        parked = replace(record, state=State.PARKED, written=0, placeholders=(), share=share)
        return parked, Create(f"{self._layout.parked(owner_key(share.group))}/{place.name}")

    def placed_ms(self, key: str, places: Iterable[Parked]) -> list[int]:
        """When *places* were first taken."""
        queue, given = self._layout.parked(key), list(places)
        stats = self._client.submit(*(Exists(f"{queue}/{place.name}") for place in given))
        return [place.placed_ms or (stat.ctime_ms if stat else 0) for place, stat in zip(given, stats, strict=True)]

    def permitted(self, record: Record, look: GroupLook | None = None) -> tuple[Record, list[Op]] | None:
        """*record*, which has a limit, with a free permit, and the operations that take it: refused if anybody has taken one
        since. Its place in the group's queue goes with them. None: it has to wait for one.

        :param look: a newcomer's, which comes after all that wait.
        """
        share = record.share
        assert share is not None
        place = None if look else Parked.of(record)
        look = look or self.look(share)
        if (number := look.free(record, place)) is None:
            return None
        permits = self._layout.permits(owner_key(share.group))
        count_it: list[Op] = [SetData(permits, b"", look.version)]
        take = Create(f"{permits}/{number}", record.lease_id.encode())
        permitted = replace(record, share=share._replace(permit=number, ticket=""))
        return permitted, [*count_it, take, *gives_back(self._layout, record)]

    def leases(self, key: str, numbers: Iterable[int]) -> dict[int, str]:
        """Whose the permits *numbers* are: lease ids by number; ``""`` where that is none."""
        permits, given = self._layout.permits(key), sorted(numbers)
        nodes = self._client.submit(*(Get(f"{permits}/{number}") for number in given))
        return {number: _lease_id(node) for number, node in zip(given, nodes, strict=True) if node is not None}

    def strike(self, key: str, look: GroupLook, void: Iterable[int]) -> int:
        """Delete permits that are no standing request's, unless any has been taken since *look*; how many there were."""
        permits = self._layout.permits(key)
        unchanged = Check(permits, look.version)
        gone = self._client.submit(*(Commit((unchanged, Delete(f"{permits}/{number}"))) for number in void))
        return sum(not isinstance(outcome, Refused) for outcome in gone)

    def leave(self, key: str, names: Iterable[str]) -> int:
        """Delete places in the queue that no request stands at; how many there were."""
        queue = self._layout.parked(key)
        gone = self._client.submit(*(Commit((Delete(f"{queue}/{name}"),)) for name in names))
        return sum(not isinstance(outcome, Refused) for outcome in gone)

    def listed(self) -> list[str]:
        """The keys of all groups that there ever were."""
        listing = self._client.submit(Names(self._layout.groups))[0]
        return sorted(listing.names) if listing else []


def gives_back(layout: Layout, record: Record) -> list[Delete]:
    """The operations that give back what *record*'s request has in its group."""
    if (share := record.share) is None:
        return []
    key, found = owner_key(share.group), []
    if share.permit is not None and record.holds:
        found.append(Delete(f"{layout.permits(key)}/{share.permit}"))
    if share.ticket and record.waits:
        found.append(Delete(f"{layout.parked(key)}/{share.ticket}"))
    return found


def has(record: Record | None, number: int, lease_id: str) -> bool:
    """Whether the permit *number*, which says that it is *lease_id*'s, is *record*'s."""
    if record is None or record.share is None or record.lease_id != lease_id:
        return False
    return record.share.permit == number and record.holds


def stands_at(record: Record | None, place: Parked) -> bool:
    """Whether *record*'s request stands at *place*."""
    return record is not None and record.share is not None and record.waits and record.share.ticket == place.name


def blocker(record: Record, waiting: bool) -> Blocker:
    """A request in the way of others of its group, by the strongest of its locks."""
    assert record.share is not None
    lock = max(record.locks, key=lambda lock: (lock.mode is LockMode.EXCLUSIVE, len(lock.object.path)))
    return Blocker(record.owner, lock.object, lock.mode, waiting, record.share.group)


def _lease_id(node: Node) -> str:
    said = node.data.decode("utf-8", "replace")
    return said if _LEASE_ID.fullmatch(said) else ""
