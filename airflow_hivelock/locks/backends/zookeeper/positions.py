"""Queue positions: which requests one of higher priority overtakes, and which are in the way of a request.

A position is by default the zxid of the request's tickets. A request of higher priority claims the position of the earliest
request that it may overtake, once, before its tickets are created, and they keep it. At one position the higher priority is
first. Times choose whom it may overtake, and never order requests: two clocks would see two orders.

A request that was overtaken may have looked before, and be about to try. If the claim is older than its lock nodes, its
verification sees the claim, and it gives back. If not, the request that claimed sees those nodes at its turn: it reads the
records of all that it has overtaken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Delete, Exists, Get
from airflow_hivelock.locks.backends.zookeeper.queue import Claim
from airflow_hivelock.locks.backends.zookeeper.record import Record
from airflow_hivelock.locks.model import Blocker
from airflow_hivelock.locks.queueing import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Listing, Node, Stat
    from airflow_hivelock.locks.backends.zookeeper.queue import Ticket
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
    from airflow_hivelock.locks.model import Lock

DEAD_RECHECK_S = 5.0
"""How often a request that waits for a dead waiter looks whether any other request is still in the way."""


class _Candidate(NamedTuple):
    """A ticket that conflicts, and whether its request has lock nodes."""

    ticket: Ticket
    holds: bool

    @property
    def position(self) -> Position:
        return self.ticket.position


def claim(store: ZooKeeperStore, mine: Record, tickets: Sequence[Ticket], passing_s: float) -> Claim | None:
    """The turn before others that a request claims which is about to queue; None: it goes after all of them.

    :param tickets: those that conflict.
    """
    records = store.read_all([ticket.key for ticket in tickets])
    waiting = [
        ticket.place
        for ticket, record in zip(tickets, records, strict=True)
        if record is not None and record.queued and record.ticket_epoch == ticket.epoch
    ]
    oldest_ms = store.time_ms() - int(passing_s * 1000)
    found = queueing.claim(Position.newcomer(mine.priority), waiting, oldest_ms)
    return Claim(found.position.turn, found.since) if found else None


def in_the_way(
    store: ZooKeeperStore, locks: tuple[Lock, ...], position: Position, queues: Sequence[Listing | None]
) -> list[Ticket]:
    """The tickets that keep a request at *position* from its turn, the nearest first: those before it, and those that it has
    overtaken and that have lock nodes all the same. A request that comes behind it later sees its ticket."""
    tickets = store.queues.conflicting(locks, queues)
    passed = [ticket for ticket in tickets if position.passed(ticket.position)]
    nodes = store.client.submit(*(Get(store.layout.record(ticket.key)) for ticket in passed))
    owners = {ticket.path: owner_of(store, ticket, node) for ticket, node in zip(passed, nodes, strict=True)}
    candidates = [_Candidate(one, (owner := owners.get(one.path)) is not None and owner.has_nodes) for one in tickets]
    return [candidate.ticket for candidate in queueing.in_the_way(position, candidates)]


def wait(
    store: ZooKeeperStore,
    record: Record,
    position: Position,
    nearest: Ticket,
    first: Ticket,
    wake: Callable[[], None],
    check_mine: Callable[[Stat | None], None],
) -> Blocked | None:
    """Watch the nearest ticket in the way, and its owner's liveness node. None: look again.

    A dead waiter is broken where it leads the queue. Behind others it keeps its position, and is looked at again.

    :param check_mine: raises if the record, which has been looked at first, is no longer *record*.
    """
    passed = position.passed(nearest.position)  # only its record tells when it has given its nodes back
    # A liveness node is read after the record: missing while that waits means dead. It is watched while the owner holds,
    # too: a grant that its verification refuses goes back to waiting, and creates it.
    mine, stat, node, life, leading, head, leaders_life = store.client.submit(
        Exists(store.layout.record(record.key), wake),
        Exists(nearest.path, wake),
        Get(store.layout.record(nearest.key), wake if passed else None),
        Exists(store.layout.alive(nearest.key), wake),
        Exists(first.path),
        Get(store.layout.record(first.key)),
        Exists(store.layout.alive(first.key)),
    )
    check_mine(mine)
    if stat is None or leading is None:
        return None
    # After a partial release a ticket may conflict no longer, and only its version tells.
    if fewer := [ticket for ticket, at in ((nearest, stat), (first, leading)) if at.version != ticket.version]:
        for ticket in fewer:
            store.queues.forget(ticket)
        return None
    other, leader = owner_of(store, nearest, node), owner_of(store, first, head)
    if other is None or leader is None:
        void = {ticket.path for ticket, owner in ((nearest, other), (first, leader)) if owner is None}
        store.client.submit(*(Commit((Delete(path),)) for path in sorted(void)))
        return None
    if any(
        position.passed(ticket.position) and not owner.has_nodes
        for ticket, owner in ((nearest, other), (first, leader))
    ):
        return None
    by = [_blocker(record, nearest, other)]
    if first.path != nearest.path:
        by.append(_blocker(record, first, leader))
    recheck_s = None
    if other.queued and life is None:
        # It may be about to come back, as all waiters of a triggerer are when that restarts: it keeps its position while
        # another request is in the way anyhow. Lock nodes block Hive, and do not stay.
        if leader.queued and leaders_life is None:
            store.break_dead(leader)
            return None
        if other.node_zxids:
            store.break_dead(other)
            return None
        recheck_s = DEAD_RECHECK_S
    return Blocked(tuple(by), passing=other.queued and not other.wait, recheck_s=recheck_s)


def _blocker(mine: Record, ticket: Ticket, owner: Record) -> Blocker:
    lock = queueing.conflicts(mine.locks, ticket.locks)[0]
    return Blocker(ticket.owner, lock.object, lock.mode, owner.queued)


def owner_of(store: ZooKeeperStore, ticket: Ticket, node: Node | None) -> Record | None:
    """The record in *node*, read after *ticket*, which belongs to it; None: the ticket is void, be it deleted or left behind.

    A ticket and its record are written together, and no session reads backwards: one without a record has lost it.
    """
    record = Record.decode(node, store.layout.record(ticket.key)) if node else None
    return None if record is None or record.idle or record.ticket_epoch != ticket.epoch else record
