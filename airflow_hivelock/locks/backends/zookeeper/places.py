"""Places: whom a request of higher priority passes, and who is in the way of one that has passed others.

A place is by default the zxid of the request's tickets. A request of higher priority claims the place of the earliest one
that it may pass, once, before its tickets are made, and they say so ever after; at one place the higher priority is first.
Times choose whom it may pass, and never order: two clocks would see two orders.

Mutual exclusion rests on it that only the first in line tries. Who is passed may have looked before, and be about to
try. So tickets that claim a place raise ``urgent`` of all the request's units, and a try fails where that has been raised
since the look before it. In turn a request waits for all that hold, or try, also behind its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Delete, Exists, Get
from airflow_hivelock.locks.backends.zookeeper.queue import Claim
from airflow_hivelock.locks.backends.zookeeper.record import Record, State
from airflow_hivelock.locks.model import Blocker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Listing, Node, Stat
    from airflow_hivelock.locks.backends.zookeeper.queue import Place, Ticket
    from airflow_hivelock.locks.backends.zookeeper.store import Snapshot, ZooKeeperStore
    from airflow_hivelock.locks.model import Lock

DEAD_RECHECK_S = 5.0
"""How often a request behind a dead waiter looks whether nobody else is in the way any more."""

DRAIN_S = 30.0
"""How long a drain stands at most, longer than any removal takes that goes on."""


def claim(
    store: ZooKeeperStore, mine: Record, listings: Sequence[Listing | None] | None, passing_s: float
) -> Claim | None:
    """The place before others that a request takes which is about to queue; None: behind all of them.

    Reads records only where there is a conflicting request of lower priority.

    :param listings: the replies to :meth:`.Queues.reads`, if they are at hand.
    """
    tickets = [ticket for ticket in store.queues.conflicting(mine.locks, listings) if ticket.drains is None]
    if all(ticket.priority >= mine.priority for ticket in tickets):
        return None
    records = store.read_all([ticket.key for ticket in tickets])
    waiting = [
        ticket
        for ticket, record in zip(tickets, records, strict=True)
        if record is not None and record.queued and record.ticket_epoch == ticket.epoch
    ]
    oldest_ms = store.time_ms() - passing_s * 1000
    passed = rules.passed(waiting[::-1], mine.priority, lambda ticket: ticket.placed_ms >= oldest_ms)
    return Claim(passed.place[0], passed.placed_ms) if passed else None


def in_the_way(store: ZooKeeperStore, locks: tuple[Lock, ...], place: Place, snapshot: Snapshot) -> list[Ticket]:
    """The tickets that keep a request at *place* from its turn: those before it, the nearest first; then those that it has
    passed, and that hold all the same. Who comes behind it after it has seen it, and does not try."""
    tickets = store.queues.conflicting(locks, snapshot.queues)
    before = [ticket for ticket in tickets if ticket.place < place]
    passed = [ticket for ticket in tickets if ticket.place > place and ticket.zxid < place[-1]]
    nodes = store.client.submit(*(Get(store.layout.record(ticket.key)) for ticket in passed))
    owners = (owner_of(store, ticket, node) for ticket, node in zip(passed, nodes, strict=True))
    return before + [ticket for ticket, owner in zip(passed, owners, strict=True) if owner and holds(ticket, owner)]


def wait(
    store: ZooKeeperStore,
    record: Record,
    place: Place,
    nearest: Ticket,
    first: Ticket,
    wake: Callable[[], None],
    check_mine: Callable[[Stat | None], None],
) -> Blocked | None:
    """Watch the nearest ticket in the way, and the life of its owner while that waits. None: look again.

    A dead waiter is broken where it leads the line; behind others it keeps its place, and is looked at again.

    :param check_mine: raises if the record, which has been looked at first, is no longer *record*.
    """
    drain = nearest.drains is not None  # may be left behind: only the record tells when it is void
    passed = not nearest.place < place  # and only the record tells when it has given up its try
    mine, stat, node, leading, head = store.client.submit(
        Exists(store.layout.record(record.key), wake),
        Exists(nearest.path, wake),
        Get(store.layout.record(nearest.key), wake if drain or passed else None),
        Exists(first.path),
        Get(store.layout.record(first.key)),
    )
    check_mine(mine)
    if stat is None:
        return None
    # A ticket of which a part was given back may be in nobody's way any more, and only its version tells.
    if less := [ticket for ticket, at in ((nearest, stat), (first, leading)) if at and at.version != ticket.version]:
        for ticket in less:
            store.queues.forget(ticket)
        return None
    other, leader = owner_of(store, nearest, node), owner_of(store, first, head)
    if other is None or leader is None:
        void = {ticket.path for ticket, owner in ((nearest, other), (first, leader)) if owner is None}
        store.client.submit(*(Commit((Delete(path),)) for path in sorted(void)))
        return None
    if any(not (ticket.place < place or holds(ticket, owner)) for ticket, owner in ((nearest, other), (first, leader))):
        return None
    by = [_blocker(record, nearest, other)]
    if first.path != nearest.path:
        by.append(_blocker(record, first, leader))
    recheck_s = drain_left_s(store, nearest) if drain else None
    if other.queued:
        # Signs of life are read after the records: gone while it still waits means dead.
        life, leaders_life = store.client.submit(
            Exists(store.layout.alive(nearest.key), wake), Exists(store.layout.alive(first.key))
        )
        if life is None:
            # It may be about to come back, as all waiters of a triggerer are when that starts anew: its place is its
            # own for as long as somebody else is in the way all the same. Lock nodes block Hive, and do not stay.
            if leader.queued and leaders_life is None:
                store.break_dead(leader)
                return None
            if other.node_zxids or other.state is State.TRYING:
                store.break_dead(other)
                return None
            recheck_s = DEAD_RECHECK_S
    return Blocked(tuple(by), passing=drain or (other.queued and not other.wait), recheck_s=recheck_s)


def _blocker(mine: Record, ticket: Ticket, owner: Record) -> Blocker:
    lock = rules.conflicts(mine.locks, ticket.locks)[0]
    return Blocker(ticket.owner, lock.object, lock.mode, owner.queued)


def holds(ticket: Ticket, owner: Record) -> bool:
    """Whether *ticket*, of *owner*, is in the way of all, whatever its place."""
    return ticket.drains is not None or owner.has_nodes


def owner_of(store: ZooKeeperStore, ticket: Ticket, node: Node | None) -> Record | None:
    """The record in *node*, read after *ticket*, of which it is; None: the ticket is void, be it gone or left behind.

    A ticket and its record are written together, and no session reads backwards: one without a record has lost it.
    """
    record = Record.decode(node, store.layout.record(ticket.key)) if node else None
    if record is None or record.idle or record.ticket_epoch != ticket.epoch:
        return None
    if ticket.drains is None:
        return record
    return record if ticket.drains == record.version and drain_left_s(store, ticket) > 0 else None


def drain_left_s(store: ZooKeeperStore, drain: Ticket) -> float:
    """For how long *drain* stands yet, by the store's clock: a removal that failed in between leaves it behind."""
    return DRAIN_S - (store.time_ms() - drain.since_ms) / 1000
