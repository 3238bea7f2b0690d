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

from airflow_hivelock.locks.backends.zookeeper.client import Get
from airflow_hivelock.locks.backends.zookeeper.queue import Claim
from airflow_hivelock.locks.backends.zookeeper.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Listing, Node
    from airflow_hivelock.locks.backends.zookeeper.queue import Place, Ticket
    from airflow_hivelock.locks.backends.zookeeper.store import Snapshot, ZooKeeperStore
    from airflow_hivelock.locks.model import Lock

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
    now_ms = store.now_ms()
    if now_ms is None:  # nothing has been written yet
        now_ms = int(store.now().timestamp() * 1000)
    return earliest(waiting, mine.priority, now_ms - passing_s * 1000)


def earliest(waiting: Iterable[Ticket], priority: int, since_ms: float) -> Claim | None:
    """The place of the earliest of *waiting*, last first, that one of *priority* may pass: all behind it have lower ones,
    and have had their places since *since_ms* or later."""
    claimed = None
    for ticket in waiting:
        if ticket.priority >= priority or ticket.placed_ms < since_ms:
            break
        claimed = Claim(ticket.place[0], ticket.placed_ms)
    return claimed


def in_the_way(store: ZooKeeperStore, locks: tuple[Lock, ...], place: Place, snapshot: Snapshot) -> list[Ticket]:
    """The tickets that keep a request at *place* from its turn: those before it, the nearest first; then those that it has
    passed, and that hold all the same. Who comes behind it after it has seen it, and does not try."""
    tickets = store.queues.conflicting(locks, snapshot.queues)
    before = [ticket for ticket in tickets if ticket.place < place]
    passed = [ticket for ticket in tickets if ticket.place > place and ticket.zxid < place[-1]]
    nodes = store.client.submit(*(Get(store.layout.record(ticket.key)) for ticket in passed))
    owners = (owner_of(store, ticket, node) for ticket, node in zip(passed, nodes, strict=True))
    return before + [ticket for ticket, owner in zip(passed, owners, strict=True) if owner and holds(ticket, owner)]


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
    now_ms = store.now_ms()
    assert now_ms is not None, "the record has been written"
    return DRAIN_S - (now_ms - drain.since_ms) / 1000
