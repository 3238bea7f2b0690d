"""Groups of leases: a request takes its permits of its group, or waits for them in the group's queue.

The transaction that creates permits also compares and raises the version of the node above the permits. So if two
requests have seen the same permits, one of them is refused. A change of the group's limit raises that version, too.
Exclusion does not depend on a group's queue. So a claim there that comes too late can only change the order.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import formats, queueing, validate
from airflow_hivelock.locks import permits as rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import nodes, waiting
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
from airflow_hivelock.locks.backends.zookeeper.record import PERMIT, Record, Share, State
from airflow_hivelock.locks.errors import InvalidRequest, StoreCorrupted, StoreUnavailable
from airflow_hivelock.locks.model import Blocker, Group, LockMode, owner_key
from airflow_hivelock.locks.queueing import AFTER_ALL, Position, TimedPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Node, Request
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
    from airflow_hivelock.locks.backends.zookeeper.waiting import Lookout

log = logging.getLogger(__name__)

MOST_LISTED = 3
"""How many holders of permits a waiter lists."""

_NAME = re.compile(r"([0-9a-f]{16})-([0-9]{1,19})-[0-9]{1,10}-([0-9]{1,19})-(-?[0-9]{1,10})-([0-9]{1,15})")
"""The name of an entry: the owner's key, the epoch, a version of the record, then the number of the position, the
priority, and when that number was first taken."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_LEASE_ID = re.compile(r"[0-9a-f]{16}-[0-9]{1,19}")


class Parked(NamedTuple):
    """An entry in a group's queue. The name of its node contains all of this. Entries sort in the order of the queue.

    :param number: of its position, first taken at *since_ms*.
    """

    number: int
    rank: int
    epoch: int
    key: str
    name: str
    since_ms: int = 0

    @property
    def position(self) -> Position:
        # Two requests that began at once have the same epoch, and no other number of their own: their keys order them.
        return Position(self.number, self.rank, self.epoch << 64 | int(self.key, 16))

    @property
    def timed(self) -> TimedPosition:
        return TimedPosition(self.position, self.since_ms)

    @classmethod
    def parse(cls, name: str) -> Parked | None:
        """Parse a node's name; None: it is no entry."""
        if not (found := _NAME.fullmatch(name)):
            return None
        return cls(int(found[3]), -int(found[4]), int(found[2]), found[1], name, int(found[5]))

    @classmethod
    def of(cls, record: Record) -> Parked:
        """The entry that *record*'s request gets by its next write. A name is used only once."""
        assert record.share is not None
        share, epoch = record.share, record.ticket_epoch
        number = share.place or Position.unclaimed(epoch, record.priority, epoch).number
        since_ms = share.placed_ms
        name = f"{record.lease_id}-{record.version + 1}-{number}-{record.priority}-{since_ms}"
        return cls(number, -record.priority, record.ticket_epoch, record.key, name, since_ms)

    def has(self, record: Record) -> bool:
        """Whether it is *record*'s entry."""
        return record.share is not None and record.waits and record.share.ticket == self.name


class GroupLook(NamedTuple):
    """A snapshot of a group: its permits (*numbers*), and the entries of its queue, in order.

    :param version: of the node above the permits, read before they were.
    :param stored: the settings of the group.
    """

    key: str
    version: int
    numbers: frozenset[int]
    parked: tuple[Parked, ...]
    stored: Group | None = None

    def ahead(self, mine: Parked) -> list[Parked]:
        """The entries before *mine*, in order."""
        waiting = {other: other.position for other in self.parked if other.key != mine.key}
        return queueing.earlier(mine.position, waiting)

    def terms(self, record: Record) -> tuple[int, int]:
        """How many permits *record*'s request takes, and how many leases its group may hold."""
        assert record.share is not None
        return rules.weight(record.weight, self.stored), rules.limit(record.share.most, self.stored)

    def check(self, mine: Record) -> None:
        """Refuse a request that can never have its permits.

        :raises InvalidRequest: it weighs more than its group may hold.
        """
        assert mine.share is not None
        rules.check(mine.owner, mine.share.group, *self.terms(mine))

    def free(self, mine: Record, entry: Parked | None) -> tuple[int, ...] | None:
        """The numbers of the permits that *mine* may take; None: too few are free, or a request waits before *entry*.

        A newcomer has no entry, and comes after all waiters.
        """
        weight, most = self.terms(mine)
        position = entry.position if entry else AFTER_ALL
        waiting = [other.position for other in self.parked if other.key != mine.key]
        may = rules.free(position, weight, most, len(self.numbers), waiting)
        return rules.numbers(self.numbers, weight) if may else None


_SETTINGS = ("name", "leases", "weight", "comment")


def encode(group: Group) -> bytes:
    """The content of the node with the settings of a group."""
    data = {name: getattr(group, name) for name in _SETTINGS} | formats.WRITES.fields()
    return formats.dump(data).encode()


def settings(node: Node | None, path: str) -> Group | None:
    """The settings in a node; None if there is none.

    :raises StoreCorrupted: another program wrote it.
    :raises UpgradeNeeded: it is for readers of a later format.
    """
    if node is None:
        return None
    try:
        data = validate.load(node.data)
        formats.take(data, _SETTINGS, path)
        return Group(**data)
    except (TypeError, ValueError) as error:
        raise StoreCorrupted(
            f"{path} is not a group of airflow-hivelock: {node.data[:80]!r} ({error}). Another program wrote it"
        ) from error


def look(store: ZooKeeperStore, share: Share, wake: Callable[[], None] | None = None) -> GroupLook:
    """Look at the group. Its nodes are created on demand.

    :param wake: called once when a permit is taken or given back, or the limit changes.
    """
    key, layout = owner_key(share.group), store.layout
    for _ in range(2):
        if found := look_at(store, key, wake):
            return found
        creates = [Create(layout.groups), Create(f"{layout.groups}/{key}", share.group.encode())]
        creates += [Create(layout.permits(key)), Create(layout.parked(key))]
        store.client.submit(*(Commit((create,)) for create in creates))  # refused if another client was quicker
    raise StoreUnavailable(f"{layout.groups} is missing in ZooKeeper. Connect again")


def look_at(
    store: ZooKeeperStore, key: str, wake: Callable[[], None] | None = None, *, listing: bool = False
) -> GroupLook | None:
    """Look at a group by its key; None: it does not exist.

    :param listing: unreadable settings are logged, and hide nothing else.
    :raises StoreCorrupted: the settings cannot be read, and this is no *listing*.
    """
    permits, limit = store.layout.permits(key), store.layout.limit(key)
    watched = [Exists(limit, wake)] if wake else []  # it may be created
    # The version comes first: a permit that is taken, or a limit that changes, after that refuses this request's
    # transaction.
    reads: list[Request] = [Get(permits, lenient=listing), *watched, Get(limit, lenient=listing)]
    reads += [Names(permits, wake, listing), Names(store.layout.parked(key), lenient=listing)]
    root, *_, stored, taken, parked = store.client.submit(*reads)
    if root is None or taken is None or parked is None:
        return None
    numbers = frozenset(int(name) for name in taken.names if _NUMBER.fullmatch(name))
    queue = sorted(entry for name in parked.names if (entry := Parked.parse(name)))
    if listing and stored:
        group = validate.readable(log, stored.stat.mzxid, settings, stored, limit)
    else:
        group = settings(stored, limit)
    return GroupLook(key, root.stat.version, numbers, tuple(queue), group)


def fitting(store: ZooKeeperStore, record: Record, seen: GroupLook) -> GroupLook:
    """A look in which the group's limit has room for *record*: the one that was *seen*, or a newer one.

    :raises InvalidRequest: it weighs more than its group may hold.
    """
    try:
        seen.check(record)
    except InvalidRequest:
        # The limit may come from a server that lags behind: only a read after a sync decides.
        assert record.share is not None
        store.client.submit(Sync())
        seen = look(store, record.share)
        seen.check(record)
    return seen


def permitted(store: ZooKeeperStore, record: Record, seen: GroupLook | None = None) -> tuple[Record, SetData] | None:
    """*record* with free permits, and an operation that fails if another request has taken one since, or the limit has
    changed. None: it must wait.

    :param seen: the look of a newcomer, which comes after all waiters.
    """
    assert record.share is not None
    entry = None if seen else Parked.of(record)
    seen = seen or look(store, record.share)
    if (numbers := seen.free(record, entry)) is None:
        return None
    taken = replace(record, share=record.share._replace(permit=numbers[0], ticket=""), permits=numbers[1:])
    return taken, SetData(store.layout.permits(seen.key), b"", seen.version)


def park(store: ZooKeeperStore, record: Record, passing_s: float) -> Record:
    """*record* as it is parked. Its position is chosen once: its own, or one that it claims as in the tables' queues."""
    share = record.share
    assert share is not None
    if not share.place:
        others = [other for other in look(store, share).parked if other.key != record.key]
        own = TimedPosition(Parked.of(record).position, record.asked_ms or store.time_ms())
        if queueing.may_claim(own.position, [other.position for other in others]):
            limit = waiting.overtaking_limit(store, passing_s)
            own = queueing.join(own, [other.timed for other in others], limit)
        share = share._replace(place=own.position.number, placed_ms=own.since)
    share = share._replace(permit=None)
    parked = record.but(state=State.PARKED, written=0, placeholders=(), share=share, permits=())
    return parked.but(share=share._replace(ticket=Parked.of(parked).name))


def wait_for_permit(lookout: Lookout) -> Blocked | GroupLook | None:
    """Look at the group of a parked request: its blockers, or the look that finds free permits. None: look again.

    :raises InvalidRequest: it is the first, and its group has got a limit below its weight.
    """
    store, record = lookout.store, lookout.record
    assert record.share is not None
    mine = Parked.parse(record.share.ticket)
    assert mine is not None, "it is parked"
    seen = look(store, record.share)
    if ahead := seen.ahead(mine):
        return _wait_behind(lookout, ahead)
    seen = fitting(store, record, seen)
    if seen.free(record, mine) is None:
        # Look again with a watch: the first look had none, and the group may have changed since.
        seen = look(store, record.share, lookout.wake)
        if seen.ahead(mine):
            return None
        if seen.free(record, mine) is None:
            lookout.check_mine(store.client.submit(Exists(store.layout.record(record.key), lookout.wake))[0])
            return wait_for_holders(store, seen)
    return seen


def wait_for_holders(store: ZooKeeperStore, seen: GroupLook) -> Blocked | None:
    """The blockers if too few permits are free. None: look again, because one belonged to no request or its invitation
    has ended."""
    holding = holders(store, seen)
    if void := [number for number, holder in holding.items() if holder is None]:
        delete_void(store, seen, void)
        return None
    held = list({holder.key: holder for holder in holding.values() if holder is not None}.values())
    if waiting.end_invitations(store, [holder for holder in held if holder.invited]):
        return None
    by = [blocker(holder, False) for holder in held]
    return Blocked(tuple(by[:MOST_LISTED]), recheck_s=waiting.recheck_s(store, held)) if by else None


def _wait_behind(lookout: Lookout, ahead: Sequence[Parked]) -> Blocked | None:
    """Watch the nearest entry, and its owner's liveness node. A dead request keeps its entry until its turn."""
    store, share = lookout.store, lookout.record.share
    assert share is not None
    queue = store.layout.parked(owner_key(share.group))
    nearest, first = (waiting.Ahead(f"{queue}/{one.name}", one.key, one.has) for one in (ahead[-1], ahead[0]))
    if not (front := lookout.front(nearest, first)):
        return None
    other, leader = front
    if other.dead and leader.dead:
        seen = look(store, share, lookout.wake)
        weight, most = seen.terms(leader.record)
        if seen.free(leader.record, ahead[0]) is not None or not rules.possible(weight, most):
            nodes.free(store, leader.record)
            return None
        if wait_for_holders(store, seen) is None:
            return None
    by = {at.record.key: blocker(at.record, True) for at in front}
    # The first of its group in the tables' queues is granted, or leaves the group's queue at once.
    return waiting.blocked_by(by.values(), other, passing=other.record.queued or not other.record.wait)


def holders(store: ZooKeeperStore, seen: GroupLook, *, listing: bool = False) -> dict[int, Record | None]:
    """The records of the leases that have the permits, by their numbers; None: no such lease exists."""
    permits, numbers = store.layout.permits(seen.key), sorted(seen.numbers)
    found = store.client.submit(*(Get(f"{permits}/{number}", lenient=listing) for number in numbers))
    texts = {number: node.data.decode("utf-8", "replace") for number, node in zip(numbers, found, strict=True) if node}
    named = {number: text for number, text in texts.items() if _LEASE_ID.fullmatch(text)}
    keys = [text.partition("-")[0] for text in named.values()]
    records = dict(zip(named, store.read_all(keys, listing=listing), strict=True))
    return {number: _having(records.get(number), number, text) for number, text in texts.items()}


def _having(record: Record | None, number: int, lease_id: str) -> Record | None:
    """*record*, if it is of the lease *lease_id*, which has that permit."""
    has = record is not None and record.lease_id == lease_id and (PERMIT, number) in record.belongings
    return record if has else None


def delete_void(store: ZooKeeperStore, seen: GroupLook, void: Iterable[int]) -> int:
    """Delete permits that belong to no lease, unless any has been taken since *seen*; return how many there were."""
    permits = store.layout.permits(seen.key)
    unchanged = Check(permits, seen.version)
    gone = store.client.submit(*(Commit((unchanged, Delete(f"{permits}/{number}"))) for number in void))
    return sum(not isinstance(outcome, Refused) for outcome in gone)


def blocker(record: Record, waiting: bool) -> Blocker:
    """A request that blocks others of its group, with the strongest of its locks."""
    assert record.share is not None
    lock = max(record.locks, key=lambda lock: (lock.mode is LockMode.EXCLUSIVE, len(lock.object.path)))
    return Blocker(record.owner, lock.object, lock.mode, waiting, record.share.group, record.until)
