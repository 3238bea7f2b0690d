"""How a request waits for the tickets before its own: which requests it overtakes, and which nodes it watches.

An overtaken request may have looked before the claim, and be about to try. If the claim is older than its lock nodes,
its verification sees the claim, and it gives its grant back. If not, the request that claimed sees those nodes at its
turn: it reads the records of all requests that it has overtaken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import invitations, queueing, rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import nodes
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Delete, Exists, Get, Sync
from airflow_hivelock.locks.backends.zookeeper.queue import Claim, Ticket
from airflow_hivelock.locks.backends.zookeeper.record import Record, State
from airflow_hivelock.locks.model import Blocker, LockRequest
from airflow_hivelock.locks.queueing import OvertakingLimit, Position, TimedPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Node, Stat
    from airflow_hivelock.locks.backends.zookeeper.queue import Listings
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
    from airflow_hivelock.locks.model import LockObject

DEAD_RECHECK_S = 5.0
"""How often a request that waits for a dead waiter checks for other blockers, in seconds."""

SOON_S = 0.01
"""The shortest pause before a request looks again for the end of an invitation, in seconds."""

MOST_ENDED = 32
"""In a longer queue, only the nearest and the first request are checked for an ended invitation."""


class Ahead(NamedTuple):
    """A node in a queue ahead, and a function that checks whether a record belongs to the same request."""

    path: str
    key: str
    of: Callable[[Record], bool]


class Front(NamedTuple):
    """A request ahead: its record, the stat of its node in the queue, and whether it is a dead waiter."""

    record: Record
    stat: Stat
    dead: bool


class Lookout(NamedTuple):
    """A waiter and its watches. *check_mine* raises if its record is no longer *record*."""

    store: ZooKeeperStore
    record: Record
    wake: Callable[[], None]
    check_mine: Callable[[Stat | None], None]

    def front(self, nearest: Ahead, first: Ahead, *, passed: bool = False) -> list[Front]:
        """Read, and watch, the nearest request ahead, and read the first in line. Empty: look again.

        If the nearest request is dead, watch also the first one.
        """
        layout, wake, submit = self.store.layout, self.wake, self.store.client.submit
        # A liveness node is read after the record: if it is missing while that waits, the waiter is dead. It is watched
        # even while the owner holds: a grant that its verification refuses goes back to waiting, and creates the node.
        # If the nearest one was overtaken, only its record shows when it has given its lock nodes back.
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
            found.append(Front(record, at, record.waits and alive is None))
        # A dead request removes no node. The next change that concerns this one is at the first in line.
        if found[0].dead and nearest.path != first.path and submit(Exists(first.path, wake))[0] is None:
            return []
        return found


def _owner(store: ZooKeeperStore, ahead: Ahead, node: Node | None) -> Record | None:
    """The record in *node*, read after the node *ahead*; None: that node belongs to no request.

    One transaction writes both, and no session reads backwards.
    """
    record = Record.decode(node, store.layout.record(ahead.key)) if node else None
    return record if record is not None and ahead.of(record) else None


def claim(store: ZooKeeperStore, mine: Record, tickets: Sequence[Ticket], passing_s: float) -> Claim | None:
    """The position that *mine* claims before it queues; None: it goes after all *tickets* that conflict.

    A request with an ended invitation claims its old position, if it may.
    """
    newcomer = Position.newcomer(mine.priority)
    if not mine.old and not queueing.may_claim(newcomer, [ticket.position for ticket in tickets]):
        return None
    waiting, limit = _waiting(store, mine), overtaking_limit(store, passing_s)
    own = TimedPosition(newcomer, limit.now)
    if mine.old:
        passed = [invitations.passed(timed, _named(one), mine.locks, one.locks) for timed, one in waiting]
        if back := invitations.come_back(own, mine.old, _named(mine), passed, limit):
            return claimed(own, back)
    return claimed(own, queueing.join(own, [timed for timed, _ in waiting], limit))


def overtaking_limit(store: ZooKeeperStore, passing_s: float) -> OvertakingLimit:
    return OvertakingLimit(store.time_ms(), int(passing_s * 1000))


def _waiting(store: ZooKeeperStore, mine: Record) -> list[tuple[TimedPosition, Record]]:
    """The other requests that wait for or are invited to what conflicts with *mine*, each with its position."""
    # The caller's look may be old, and so lack a request that it may not overtake.
    _, *listings = store.client.submit(Sync(), *store.queues.reads(mine.locks))
    tickets = store.queues.conflicting(mine, store.queues.named(mine.locks, listings))
    records = store.read_all([ticket.key for ticket in tickets])
    return [
        (ticket.timed, record)
        for ticket, record in zip(tickets, records, strict=True)
        if record is not None and (record.queued or record.invited) and record.ticket_epoch == ticket.epoch
    ]


def claimed(own: TimedPosition, joins: TimedPosition) -> Claim | None:
    """The claim of a request that *joins* a queue there; None: it keeps its *own* position."""
    if joins == own:
        return None
    number = joins.position.number
    return Claim(None if number == own.position.number else number, joins.since)


def reprioritized(
    store: ZooKeeperStore, record: Record, priority: int, passing_s: float
) -> tuple[Record, Claim | None] | None:
    """*record* with another priority, and the claim of its new tickets; None: it has changed.

    It gets new tickets, like a new arrival. So a grant that was verified before is among those that it has overtaken, and
    its request sees that. It gives up its placeholders, and its entry in the group's queue.

    :raises InvalidRequest: it can overtake no other request.
    """
    if not (tickets := store.queues.of(record)):
        return None
    # With new tickets only the record contains when the owner first asked.
    first_ms = record.first_ms or tickets[0].since_ms
    moved = record.outside().but(priority=priority, entry=record.entry + 1, placeholders=(), lost=(), first_ms=first_ms)
    if (share := moved.share) and share.place:
        kept = Position(share.place, -record.priority, record.entry).reranked(priority)
        moved = moved.but(share=share._replace(place=kept.number))
    limit = overtaking_limit(store, passing_s)
    own = TimedPosition(Position.newcomer(priority), limit.now)
    waiting = [timed for timed, _ in _waiting(store, record)]
    return moved, claimed(own, rules.reprioritized(record.owner, tickets[0].timed, own, waiting, limit))


def _named(record: Record) -> list[LockObject]:
    """The objects that its request names itself."""
    return [lock.object for lock in rules.leaves(LockRequest(record.owner, record.locks, whole=record.whole))]


def in_the_way(store: ZooKeeperStore, record: Record, position: Position, queues: Listings) -> list[Ticket]:
    """The tickets that block a request at *position*, the nearest first.

    These are the tickets before it, and those that it has overtaken and that have lock nodes. A request that arrives
    behind it later sees its ticket.
    """
    tickets = store.queues.conflicting(record, queues)
    passed = [ticket for ticket in tickets if position.passed(ticket.position)]
    found = store.client.submit(*(Get(store.layout.record(ticket.key)) for ticket in passed))
    owners = {ticket.path: _owner(store, _of_ticket(ticket), node) for ticket, node in zip(passed, found, strict=True)}
    holding = {path for path, owner in owners.items() if owner is not None and owner.has_nodes}
    return queueing.in_the_way(position, [replace(one, holds=True) if one.path in holding else one for one in tickets])


def _of_ticket(ticket: Ticket) -> Ahead:
    return Ahead(ticket.path, ticket.key, lambda record: record.has_tickets and record.ticket_epoch == ticket.epoch)


def wait(lookout: Lookout, position: Position, ahead: Sequence[Ticket]) -> Blocked | None:
    """Watch the nearest ticket ahead. None: look again.

    It ends invitations that are over. It removes a dead waiter that is *first* in the queue. A dead waiter with another
    request ahead keeps its position, and is checked again.
    """
    store, record = lookout.store, lookout.record
    nearest, first = queueing.watched(ahead)
    front = lookout.front(_of_ticket(nearest), _of_ticket(first), passed=position.passed(nearest.position))
    both = list(zip((nearest, first), front, strict=False))
    if not both or store.queues.forget_changed((ticket, at.stat) for ticket, at in both):
        return None
    if any(position.passed(ticket.position) and not at.record.has_nodes for ticket, at in both):
        return None
    other, leader = front
    if other.dead and (leader.dead or other.record.node_zxids):
        # A dead waiter may be about to come back, like all waiters of a triggerer that restarts. So it keeps its
        # position while another request is ahead. Its lock nodes would block Hive, and are removed.
        nodes.free(store, leader.record if leader.dead else other.record)
        return None
    invited = [at.record for at in front if at.record.invited]
    if invited and len(ahead) <= MOST_ENDED:
        records = zip(ahead, store.read_all([ticket.key for ticket in ahead], listing=False), strict=True)
        invited = [each for ticket, each in records if each and each.invited and _of_ticket(ticket).of(each)]
    if end_invitations(store, invited):
        return None
    by = {}
    for ticket, at in both:
        lock = queueing.conflicts(record.locks, ticket.locks)[0]
        by[ticket.path] = Blocker(ticket.owner, lock.object, lock.mode, not at.record.holds, until=at.record.until)
    blocked = blocked_by(by.values(), other, passing=other.record.queued and not other.record.wait)
    return replace(blocked, recheck_s=recheck_s(store, invited) or blocked.recheck_s)


def blocked_by(by: Iterable[Blocker], nearest: Front, *, passing: bool) -> Blocked:
    return Blocked(tuple(by), passing=passing, recheck_s=DEAD_RECHECK_S if nearest.dead else None)


def end_invitations(store: ZooKeeperStore, records: Iterable[Record]) -> bool:
    """End the invitations that are over; return whether there were any. Tickets and permit go, the record keeps the
    position."""
    ends = [(one.until_ms, one) for one in records if one.until_ms is not None]
    now_ms = store.time_ms() if ends else 0  # this may need a write
    over = [one for end_ms, one in ends if invitations.is_over(end_ms, now_ms)]
    for one in over:
        for ticket in store.queues.of(one)[:1]:
            old = one.outside().but(old_turn=ticket.position.number, old_since_ms=ticket.timed.since)
            # Refused if its worker, or another waiter, was quicker.
            store.transact(one, old.but(state=State.AWAY, invitation_s=0.0))
    return bool(over)


def recheck_s(store: ZooKeeperStore, records: Iterable[Record]) -> float | None:
    """In how many seconds the first of the invitations among *records* ends; None: none of them is invited."""
    end_ms = invitations.next_end(record.until_ms for record in records)
    return None if end_ms is None else max(SOON_S, (end_ms - store.time_ms()) / 1000)
