"""What a request waits for: the tickets before its own, and a permit of its group. Whom it overtakes, and what it watches.

A request that was overtaken may have looked before, and be about to try. If the claim is older than its lock nodes, its
verification sees the claim, and it gives back. If not, the request that claimed sees those nodes at its turn: it reads the
records of all requests that it has overtaken.

The transaction that creates a permit also compares and raises the version of the node above the permits: of two requests that
have seen the same permits one is refused. Exclusion does not depend on a group's queue, so a late claim there can only cost a
turn.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import nodes
from airflow_hivelock.locks.backends.zookeeper.client import (
    Check,
    Commit,
    Create,
    Delete,
    Exists,
    Get,
    Names,
    Refused,
    SetData,
    Sync,
)
from airflow_hivelock.locks.backends.zookeeper.queue import Claim, Ticket
from airflow_hivelock.locks.backends.zookeeper.record import PERMIT, Record, Share, State
from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.locks.model import Blocker, LockMode, owner_key
from airflow_hivelock.locks.queueing import Position, QueuePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Node, Stat
    from airflow_hivelock.locks.backends.zookeeper.queue import Listings
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore

DEAD_RECHECK_S = 5.0
"""How often a request that waits for a dead waiter looks whether any other request is still in the way."""

MOST_SAID = 3
"""How many holders of permits a waiter is told."""

_NAME = re.compile(r"([0-9a-f]{16})-([0-9]{1,19})-[0-9]{1,10}-([0-9]{1,19})-(-?[0-9]{1,10})-([0-9]{1,15})")
"""A place's node: the owner's key, the epoch, a version of the record, the place, the priority, when it was first taken."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_LEASE_ID = re.compile(r"[0-9a-f]{16}-[0-9]{1,19}")


class _Ahead(NamedTuple):
    """A node in a queue that is in the way, and whether a record is of the request that it belongs to."""

    path: str
    key: str
    of: Callable[[Record], bool]


class _Front(NamedTuple):
    """A request ahead: its record, the stat of its node in the queue, and whether it waits although its process is dead."""

    record: Record
    stat: Stat
    dead: bool


class Lookout(NamedTuple):
    """A request that waits. *check_mine* raises if its record is no longer *record*."""

    store: ZooKeeperStore
    record: Record
    wake: Callable[[], None]
    check_mine: Callable[[Stat | None], None]

    def front(self, nearest: _Ahead, first: _Ahead, *, passed: bool = False) -> list[_Front]:
        """Read, and watch, the nearest request ahead, and read the first in line. Empty: look again."""
        layout, wake, submit = self.store.layout, self.wake, self.store.client.submit
        # A liveness node is read after the record: missing while that waits means dead. It is watched while the owner holds,
        # too: a grant that its verification refuses goes back to waiting, and creates it. If the nearest one was passed,
        # only its record tells when it has given its lock nodes back.
        mine, stat, node, life, leading, head, leaders_life = submit(
            Exists(layout.record(self.record.key), wake),
            Exists(nearest.path, wake),
            Get(layout.record(nearest.key), wake if passed else None),
            Exists(layout.alive(nearest.key), wake),
            Exists(first.path),
            Get(layout.record(first.key)),
            Exists(layout.alive(first.key)),
        )
        self.check_mine(mine)
        if stat is None or leading is None:
            return []
        found = []
        for ahead, at, read, alive in ((nearest, stat, node, life), (first, leading, head, leaders_life)):
            if (record := _owner(self.store, ahead, read)) is None:
                submit(Commit((Delete(ahead.path),)))  # it belongs to no request
                return []
            found.append(_Front(record, at, record.waits and alive is None))
        return found


def _owner(store: ZooKeeperStore, ahead: _Ahead, node: Node | None) -> Record | None:
    """The record in *node*, read after the node *ahead*. None: that node belongs to no request, because both are written
    together, and no session reads backwards."""
    record = Record.decode(node, store.layout.record(ahead.key)) if node else None
    return record if record is not None and ahead.of(record) else None


# Tickets.


def claim(store: ZooKeeperStore, mine: Record, tickets: Sequence[Ticket], passing_s: float) -> Claim | None:
    """The turn that *mine* claims, which is about to queue; None: it goes after all *tickets* that conflict."""
    if not queueing.may_overtake(Position.newcomer(mine.priority), [ticket.position for ticket in tickets]):
        return None
    # A look may be old, and so lack a request that it may not overtake.
    _, *listings = store.client.submit(Sync(), *store.queues.reads(mine.locks))
    tickets = store.queues.conflicting(mine, store.queues.named(mine.locks, listings))
    records = store.read_all([ticket.key for ticket in tickets])
    waiting = [
        ticket.place
        for ticket, record in zip(tickets, records, strict=True)
        if record is not None and record.queued and record.ticket_epoch == ticket.epoch
    ]
    return _claimed(store, mine.priority, waiting, passing_s)


def _claimed(store: ZooKeeperStore, priority: int, waiting: Iterable[QueuePlace], passing_s: float) -> Claim | None:
    oldest_ms = store.time_ms() - int(passing_s * 1000)
    found = queueing.claim(Position.newcomer(priority), waiting, oldest_ms)
    return Claim(found.position.turn, found.since) if found else None


def in_the_way(store: ZooKeeperStore, record: Record, position: Position, queues: Listings) -> list[Ticket]:
    """The tickets that keep a request at *position* from its turn, the nearest first: those before it, and those that it has
    overtaken and that have lock nodes all the same. A request that comes behind it later sees its ticket."""
    tickets = store.queues.conflicting(record, queues)
    passed = [ticket for ticket in tickets if position.passed(ticket.position)]
    found = store.client.submit(*(Get(store.layout.record(ticket.key)) for ticket in passed))
    owners = {ticket.path: _owner(store, _of_ticket(ticket), node) for ticket, node in zip(passed, found, strict=True)}
    holding = {path for path, owner in owners.items() if owner is not None and owner.has_nodes}
    return queueing.in_the_way(position, [replace(one, holds=one.path in holding) for one in tickets])


def _of_ticket(ticket: Ticket) -> _Ahead:
    return _Ahead(ticket.path, ticket.key, lambda record: record.has_tickets and record.ticket_epoch == ticket.epoch)


def wait(lookout: Lookout, position: Position, nearest: Ticket, first: Ticket) -> Blocked | None:
    """Watch the *nearest* ticket in the way. None: look again.

    A dead waiter is broken where it is *first* in the queue. Behind others it keeps its position, and is looked at again.
    """
    store, record = lookout.store, lookout.record
    front = lookout.front(_of_ticket(nearest), _of_ticket(first), passed=position.passed(nearest.position))
    both = list(zip((nearest, first), front, strict=False))
    if not both or store.queues.forget_changed((ticket, at.stat) for ticket, at in both):
        return None
    if any(position.passed(ticket.position) and not at.record.has_nodes for ticket, at in both):
        return None
    other, leader = front
    if other.dead and (leader.dead or other.record.node_zxids):
        # A dead one may be about to come back, as all waiters of a triggerer are when that restarts: it keeps its position
        # while another request is in the way anyhow. Lock nodes block Hive, and do not stay.
        nodes.free(store, leader.record if leader.dead else other.record)
        return None
    by = {}
    for ticket, at in both:
        lock = queueing.conflicts(record.locks, ticket.locks)[0]
        by[ticket.path] = Blocker(ticket.owner, lock.object, lock.mode, at.record.queued)
    return _blocked(by.values(), other, passing=other.record.queued and not other.record.wait)


def _blocked(by: Iterable[Blocker], nearest: _Front, *, passing: bool) -> Blocked:
    return Blocked(tuple(by), passing=passing, recheck_s=DEAD_RECHECK_S if nearest.dead else None)


# Permits.


class Parked(NamedTuple):
    """A place in a group's queue, first taken at *placed_ms*: its node's name tells all of it. Places sort as they are served."""

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
        """None for a node that is no place."""
        if not (found := _NAME.fullmatch(name)):
            return None
        return cls(int(found[3]), -int(found[4]), int(found[2]), found[1], name, int(found[5]))

    @classmethod
    def of(cls, record: Record) -> Parked:
        """The place of *record*'s request, which takes it by the next write. No name is ever used twice."""
        assert record.share is not None
        place, placed_ms = record.share.place or record.ticket_epoch, record.share.placed_ms
        name = f"{record.lease_id}-{record.version + 1}-{place}-{record.priority}-{placed_ms}"
        return cls(place, -record.priority, record.ticket_epoch, record.key, name, placed_ms)

    def has(self, record: Record) -> bool:
        """Whether it is *record*'s place."""
        return record.share is not None and record.waits and record.share.ticket == self.name


class GroupLook(NamedTuple):
    """A group as it was seen: its permits (*numbers*), and the places of the requests that wait for one, in order.

    :param version: of the node above the permits, read before they were.
    """

    key: str
    version: int
    numbers: frozenset[int]
    parked: tuple[Parked, ...]

    def ahead(self, mine: Parked) -> list[Parked]:
        """The places before *mine*, in order."""
        waiting = {other: other.position for other in self.parked if other.key != mine.key}
        return queueing.earlier(mine.position, waiting)

    def free(self, mine: Record, place: Parked | None) -> int | None:
        """The number of the permit that *mine* may take; None: none is free, or a request waits before *place*. A newcomer
        has no place, and comes after all that wait."""
        assert mine.share is not None
        position = place.position if place else Position.newcomer(mine.priority)
        waiting = [other.position for other in self.parked if other.key != mine.key]
        may = queueing.permit_free(position, mine.share.most, len(self.numbers), waiting)
        return queueing.free_number(self.numbers) if may else None


def look(store: ZooKeeperStore, share: Share, wake: Callable[[], None] | None = None) -> GroupLook:
    """Look at the group, whose nodes are created on demand.

    :param wake: called once a permit is taken or given back.
    """
    key, layout = owner_key(share.group), store.layout
    for _ in range(2):
        if found := look_at(store, key, wake):
            return found
        creates = [Create(layout.groups), Create(f"{layout.groups}/{key}", share.group.encode())]
        creates += [Create(layout.permits(key)), Create(layout.parked(key))]
        store.client.submit(*(Commit((create,)) for create in creates))  # refused where another client was quicker
    raise StoreUnavailable(f"{layout.groups} is gone from ZooKeeper; connect again")


def look_at(store: ZooKeeperStore, key: str, wake: Callable[[], None] | None = None) -> GroupLook | None:
    """The same for a group by its key; None: there is none."""
    permits = store.layout.permits(key)
    root, taken, parked = store.client.submit(Get(permits), Names(permits, wake), Names(store.layout.parked(key)))
    if root is None or taken is None or parked is None:
        return None
    numbers = frozenset(int(name) for name in taken.names if _NUMBER.fullmatch(name))
    places = sorted(place for name in parked.names if (place := Parked.parse(name)))
    return GroupLook(key, root.stat.version, numbers, tuple(places))


def permitted(store: ZooKeeperStore, record: Record, seen: GroupLook | None = None) -> tuple[Record, SetData] | None:
    """*record* with a free permit, and the operation that is refused if another request has taken one since. None: it waits.

    :param seen: the look of a newcomer, which comes after all that wait.
    """
    assert record.share is not None
    place = None if seen else Parked.of(record)
    seen = seen or look(store, record.share)
    if (number := seen.free(record, place)) is None:
        return None
    taken = replace(record, share=record.share._replace(permit=number, ticket=""))
    return taken, SetData(store.layout.permits(seen.key), b"", seen.version)


def park(store: ZooKeeperStore, record: Record, passing_s: float) -> Record:
    """*record* as it is parked. Its place is chosen once: as in the tables' queues, one that it claims, or its own."""
    share = record.share
    assert share is not None
    if not share.place:
        others = [other for other in look(store, share).parked if other.key != record.key]
        claimed = None
        if queueing.may_overtake(Position.newcomer(record.priority), [other.position for other in others]):
            places = [QueuePlace(other.position, other.placed_ms) for other in others]
            claimed = _claimed(store, record.priority, places, passing_s)
        taken = claimed or Claim(record.ticket_epoch, record.asked_ms or store.time_ms())
        share = share._replace(place=taken.zxid, placed_ms=taken.since_ms)
    parked = replace(record, state=State.PARKED, written=0, placeholders=(), share=share._replace(permit=None))
    return replace(parked, share=share._replace(permit=None, ticket=Parked.of(parked).name))


def wait_for_permit(lookout: Lookout) -> Blocked | GroupLook | None:
    """A parked request's look at its group: who is in the way, or a look that shows it a free permit. None: look again."""
    store, record = lookout.store, lookout.record
    assert record.share is not None
    mine = Parked.parse(record.share.ticket)
    assert mine is not None, "it is parked"
    seen = look(store, record.share)
    if ahead := seen.ahead(mine):
        return _wait_behind(lookout, ahead)
    if seen.free(record, mine) is None:
        seen = look(store, record.share, lookout.wake)
        if seen.ahead(mine):
            return None
        if seen.free(record, mine) is None:
            lookout.check_mine(store.client.submit(Exists(store.layout.record(record.key), lookout.wake))[0])
            return _wait_for_one(store, seen)
    return seen


def _wait_for_one(store: ZooKeeperStore, seen: GroupLook) -> Blocked | None:
    """All permits are taken: by which leases. None: look again, because one belonged to no lease."""
    holding = holders(store, seen)
    if void := [number for number, holder in holding.items() if holder is None]:
        strike(store, seen, void)
        return None
    by = [blocker(holder, False) for holder in holding.values() if holder is not None]
    return Blocked(tuple(by[:MOST_SAID])) if by else None


def _wait_behind(lookout: Lookout, ahead: Sequence[Parked]) -> Blocked | None:
    """Watch the nearest place, and its owner's liveness node. A dead request keeps its place until its turn has come."""
    store, share = lookout.store, lookout.record.share
    assert share is not None
    queue = store.layout.parked(owner_key(share.group))
    nearest, first = (_Ahead(f"{queue}/{place.name}", place.key, place.has) for place in (ahead[-1], ahead[0]))
    if not (front := lookout.front(nearest, first)):
        return None
    other, leader = front
    if other.dead and leader.dead:
        seen = look(store, share, lookout.wake)
        if seen.free(leader.record, ahead[0]) is not None:
            nodes.free(store, leader.record)
            return None
        if _wait_for_one(store, seen) is None:
            return None
    by = {at.record.key: blocker(at.record, True) for at in front}
    # The first of its group in the tables' queues is granted or leaves the group's queue at once.
    return _blocked(by.values(), other, passing=other.record.queued or not other.record.wait)


def holders(store: ZooKeeperStore, seen: GroupLook, *, listing: bool = False) -> dict[int, Record | None]:
    """The records of the leases that have the permits, by their numbers; None where there is no such lease."""
    permits, numbers = store.layout.permits(seen.key), sorted(seen.numbers)
    found = store.client.submit(*(Get(f"{permits}/{number}") for number in numbers))
    texts = {number: node.data.decode("utf-8", "replace") for number, node in zip(numbers, found, strict=True) if node}
    named = {number: text for number, text in texts.items() if _LEASE_ID.fullmatch(text)}
    keys = [text.partition("-")[0] for text in named.values()]
    records = dict(zip(named, store.read_all(keys, listing=listing), strict=True))
    return {number: _having(records.get(number), number, text) for number, text in texts.items()}


def _having(record: Record | None, number: int, lease_id: str) -> Record | None:
    """*record*, if it is of the lease *lease_id*, which has that permit."""
    has = record is not None and record.lease_id == lease_id and (PERMIT, number) in record.belongings
    return record if has else None


def strike(store: ZooKeeperStore, seen: GroupLook, void: Iterable[int]) -> int:
    """Delete permits that belong to no lease, unless any has been taken since *seen*; how many there were."""
    permits = store.layout.permits(seen.key)
    unchanged = Check(permits, seen.version)
    gone = store.client.submit(*(Commit((unchanged, Delete(f"{permits}/{number}"))) for number in void))
    return sum(not isinstance(outcome, Refused) for outcome in gone)


def blocker(record: Record, waiting: bool) -> Blocker:
    """A request in the way of others of its group, by the strongest of its locks."""
    assert record.share is not None
    lock = max(record.locks, key=lambda lock: (lock.mode is LockMode.EXCLUSIVE, len(lock.object.path)))
    return Blocker(record.owner, lock.object, lock.mode, waiting, record.share.group)
