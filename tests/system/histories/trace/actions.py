"""The updates of the specification: one function for each action in ``spec/``, with its name.

Each one yields the reasons why a step is *not* this action. :mod:`.promises` has what every step must leave behind. The log has no reads. So an action also yields what the reads before it must have seen, if that is certain: a
ticket that was there before the request's own, and still is, was there at each look in between. In a database the decision and the
write are one transaction, so all of it is certain (:mod:`.conditions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.system.histories.trace.conditions import (
    continues,
    creates_nodes,
    deletes_nodes,
    first_look,
    later_call,
    lives,
    lives_if_it_lived,
    look_at_turn,
    new_tickets,
    only,
    same,
    same_tickets,
    starts,
    states,
    takes_permit,
    unless,
)
from tests.system.histories.trace.state import (
    ABSENT,
    AWAY,
    FREE,
    GRANTED,
    INVITED,
    LOST,
    PARKED,
    TOMBSTONE,
    WAITING,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.system.histories.trace.state import Step

    Reasons = Iterator[str]
    Action = Callable[[Step], Reasons]

NO_REQUEST = (ABSENT, FREE, TOMBSTONE)
SLACK_MS = 50
"""Clients know the store's time to some milliseconds."""

# Of spec/Writes.tla.


def enter(step: Step) -> Reasons:
    yield from states(step, (*NO_REQUEST, AWAY, PARKED), GRANTED)
    yield from starts(step)
    yield from new_tickets(step, claims=False)
    yield from first_look(step)
    yield from creates_nodes(step)
    yield from takes_permit(step)


def grant(step: Step) -> Reasons:
    yield from states(step, (WAITING, INVITED), GRANTED)
    yield from continues(step)
    yield from same_tickets(step)
    yield from look_at_turn(step)
    yield from creates_nodes(step)
    yield from takes_permit(step)


def queue(step: Step) -> Reasons:
    yield from states(step, (*NO_REQUEST, AWAY, PARKED), WAITING)
    yield from starts(step)
    yield from new_tickets(step, claims=True)
    yield from lives_if_it_lived(step, PARKED)
    yield from unless(step.made or step.gone, "it changes objects")


def give_back(step: Step) -> Reasons:
    if step.old.state == WAITING:
        yield from unless(not step.old.places, "it has no lock node to give back")
    yield from states(step, (GRANTED, LOST, WAITING), WAITING, INVITED)
    yield from unless(step.returned, "a caller has the lease")
    yield from unless(step.old.epoch != step.new.epoch, "another process writes")
    yield from same_tickets(step)
    yield from deletes_nodes(step)
    if step.new.state == WAITING:
        yield from lives(step)


def release(step: Step) -> Reasons:
    """Also a withdrawal: of a grant that no caller got, or of a request that waits, by the process that waits."""
    yield from unless(step.audited, "it is by force")
    if step.old.holds:
        yield from states(step, (GRANTED, LOST), TOMBSTONE)
    else:
        yield from states(step, (WAITING, PARKED, INVITED, AWAY), FREE)
        if step.old.state in (WAITING, PARKED):
            yield from unless(step.before.alive is None, "no process waits")
            yield from unless(step.another_lives, "another process waits, and lives")
    yield from deletes_nodes(step)


def mark(step: Step) -> Reasons:
    yield from states(step, (GRANTED, LOST, WAITING), LOST, WAITING)
    there = {node.on for node in step.before.nodes}
    missing = step.old.nodes_made.keys() - there
    yield from unless(not missing, "none of its lock nodes is missing")
    yield from unless(not step.new.lost <= missing | step.old.lost, "an object is marked whose lock node exists")
    dropped = step.old.places.keys() - step.new.places.keys()
    yield from unless(not dropped <= missing, "a placeholder is struck that exists")
    fields = {"state": step.new.state, "lost": step.new.lost, "places": step.new.places}
    yield from unless(not step.keeps(**fields), "it changes more of the record")
    yield from unless(step.before.nodes != step.after.nodes, "it changes lock nodes")


def place(step: Step) -> Reasons:
    yield from states(step, (WAITING,), WAITING)
    added = step.new.places.keys() - step.old.places.keys()
    new = step.after.nodes - step.before.nodes
    yield from unless(len(added) != 1 or {node.on for node in new} != added, "it adds no placeholder")
    yield from unless(any(on > min(added, default="") for on in step.new.places), "it keeps a later placeholder")
    yield from unless(not step.keeps(places=step.new.places), "it changes more of the record")
    yield from same_tickets(step)
    yield from unless(step.before.alive != step.after.alive, "it changes the liveness node")


def take_over(step: Step) -> Reasons:
    yield from states(step, (WAITING, PARKED, GRANTED, LOST), step.old.state)
    yield from later_call(step)
    if step.old.state == LOST:
        yield from unless(step.old.process != step.new.process, "another process takes LOST over")
    if step.old.state == GRANTED and not step.world.exact:
        yield from unless(step.new.token != step.zxid, "the token does not grow")
    if step.old.state in (WAITING, PARKED):
        yield from lives(step)
    kept = ("ticket_epoch", "entry", "locks", "since", "places", "lost", "permits", "parked")
    yield from same(step, kept)
    yield from same_tickets(step)
    yield from unless(step.before.nodes != step.after.nodes, "it changes lock nodes")


def free(step: Step) -> Reasons:
    """A request that waits is in the way, and its process is dead."""
    yield from states(step, (WAITING, PARKED), FREE)
    yield from unless(step.before.alive is not None, "its process lives")
    yield from deletes_nodes(step)


def session_ends(step: Step) -> Reasons:
    """Also a process that hands its request over: it deletes its liveness node itself."""
    yield from unless(step.before.alive is None or step.after.alive is not None, "no liveness node goes")
    yield from unless(step.wrote, "it writes a record")
    yield from only(step, "alive")


def keeper_frees(step: Step) -> Reasons:
    """Also a sweep, and a person who frees a lease or a place, or withdraws a request that waits."""
    if step.old.holds or step.new.state == TOMBSTONE:
        yield from states(step, (GRANTED, LOST, WAITING, PARKED), TOMBSTONE)
        yield from unless(not step.audited, "no audit entry names it")
    else:
        yield from states(step, (WAITING, PARKED, INVITED, AWAY), FREE)
        yield from unless(step.before.alive is not None, "its process lives")
    yield from deletes_nodes(step)


def change_priority(step: Step) -> Reasons:
    """A person changes the priority of a request that waits for its locks: it joins the queue again, in one transaction."""
    old, new, exact = step.old, step.new, step.world.exact
    yield from states(step, (WAITING,), WAITING)
    yield from unless(not step.audited, "no audit entry names it")
    yield from unless(old.priority == new.priority, "its priority stays")
    names = ("priority", "epoch", "ticket_epoch", "turn_ms", "parked") if exact else ("priority", "entry")
    moved = {name: getattr(new, name) for name in names} | {"places": {}}
    yield from unless(not step.keeps(**({"parked": ""} | moved)), "it changes more of the record")
    yield from new_tickets(step, claims=True, moves=True)
    yield from deletes_nodes(step)
    yield from unless(not exact and step.before.alive != step.after.alive, "it changes the liveness node")


# Of spec/Invitations.tla.


def invite(step: Step) -> Reasons:
    yield from states(step, (*NO_REQUEST, AWAY, PARKED, WAITING), INVITED)
    if step.old.state == WAITING:
        yield from continues(step)
        yield from same_tickets(step)
        yield from look_at_turn(step)
        yield from unless(step.old.places, "it has a placeholder")
    else:
        yield from unless(not step.world.exact, "it was not in the queue")
        yield from starts(step)
        yield from new_tickets(step, claims=False)
        yield from first_look(step)
    yield from takes_permit(step)


def take_up(step: Step) -> Reasons:
    yield from states(step, (INVITED,), WAITING)
    yield from later_call(step)
    yield from same_tickets(step)
    yield from lives(step)
    yield from same(step, ("ticket_epoch", "entry", "locks"))


def end_invitation(step: Step) -> Reasons:
    yield from states(step, (INVITED,), AWAY)
    early_ms = step.old.until_ms - step.time_ms
    yield from unless(early_ms > SLACK_MS, f"the invitation ends in {early_ms} ms only")
    yield from unless(step.new.kept != step.before.place, "the record does not keep the position")
    yield from same(step, ("process", "epoch", "ticket_epoch", "locks", "priority"))


def park(step: Step) -> Reasons:
    yield from states(step, (*NO_REQUEST, AWAY, WAITING), PARKED)
    if step.old.state == WAITING:
        yield from continues(step)
        yield from deletes_nodes(step)
    else:
        yield from starts(step)
    yield from lives_if_it_lived(step, WAITING)
    yield from unless(not step.new.group, "its request has no limit")


# Of spec/Hive.tla. None of them writes a record.


def hive_creates(step: Step) -> Reasons:
    yield from unless(not (step.made or step.hives_made), "no object or lock node of Hive's is created")
    yield from unless(step.key or step.gone or step.hives_gone, "it changes more than that")


def hive_unlocks(step: Step) -> Reasons:
    yield from unless(not step.hives_gone, "no lock node of Hive's is deleted")
    yield from unless(step.key or step.made or step.gone or step.hives_made, "it changes more than that")


def hive_deletes_parent(step: Step) -> Reasons:
    yield from unless(not step.gone, "no object is deleted")
    yield from unless(step.key or step.made or step.hives_made or step.hives_gone, "it changes more than that")


def hive_dies(step: Step) -> Reasons:
    yield from hive_unlocks(step)


def unlock_table(step: Step) -> Reasons:
    yield from unless(not step.before.nodes - step.after.nodes, "no lock node of ours is deleted")
    yield from unless(step.wrote, "it writes a record")
    yield from only(step, "nodes")


# Of spec/Locks.tla.


def set_limit(step: Step) -> Reasons:
    yield from unless(not step.limited, "no limit of a group is stored or deleted")
    yield from unless(step.key or step.made or step.gone, "it changes more than that")
    yield from unless(not step.audited, "no audit entry names it")


# Not in spec/: what the README lists as left out.


def step_aside(step: Step) -> Reasons:
    """A deferred request without an invitation leaves its position."""
    yield from states(step, (*NO_REQUEST, AWAY, PARKED, WAITING), AWAY)
    if step.old.state == WAITING:
        yield from continues(step)
        yield from look_at_turn(step)
    else:
        yield from unless(not step.world.exact, "it was not in the queue")
        yield from starts(step)
        yield from first_look(step)
    yield from unless(step.new.kept, "it keeps a position")


def leave_group(step: Step) -> Reasons:
    """The first of its group waits for locks: the next one need not wait for it."""
    yield from states(step, (WAITING,), WAITING)
    yield from unless(not step.old.parked or step.new.parked, "it does not leave the group's queue")
    yield from unless(not step.keeps(parked=""), "it changes more of the record")
    yield from only(step, "record", "parked")


def work(step: Step) -> Reasons:
    """Renew the lease, start or record work under it."""
    yield from states(step, (GRANTED,), GRANTED)
    yield from unless(not step.keeps(token=step.new.token), "it changes more of the record")
    yield from unless(step.new.token not in (step.old.token, step.zxid), "the token is not of this write")
    yield from only(step, "record")


def release_part(step: Step) -> Reasons:
    yield from states(step, (GRANTED,), GRANTED)
    yield from unless(not step.new.locks.items() < step.old.locks.items(), "it gives no lock back")
    changed = {"locks": step.new.locks, "given": step.new.given, "places": step.new.places}
    yield from unless(not step.keeps(**changed), "it changes more of the record")
    where = (step.before.made, step.before.place)
    yield from unless((step.after.made, step.after.place) != where, "its tickets change their position")
    yield from unless(not step.after.nodes <= step.before.nodes, "it creates a lock node")


def forget(step: Step) -> Reasons:
    """A sweep deletes the record of a request that ended long ago."""
    yield from states(step, NO_REQUEST, ABSENT)


def make_partitions(step: Step) -> Reasons:
    """After a refused grant, a request creates its objects in transactions of their own."""
    yield from unless(not step.made, "no object is created")
    yield from unless(step.key or step.gone or step.hives_made or step.hives_gone, "it changes more than that")


def refuse(step: Step) -> Reasons:
    """A database remembers the call of a request that does not wait, although another one was in its way."""
    yield from states(step, (*NO_REQUEST, AWAY), FREE)
    yield from starts(step)


def sign(step: Step) -> Reasons:
    """In a database, the process of a request that waits gives a sign of life."""
    yield from unless(step.after.alive is None, "it has no sign of life")
    yield from unless(step.wrote, "it writes a record")
    yield from only(step, "alive")


def _actions(*actions: Action) -> dict[str, Action]:
    return {action.__name__: action for action in actions}


SPECIFIED = _actions(
    *(enter, grant, queue, give_back, release, mark, place, take_over, free, session_ends, keeper_frees),
    change_priority,
    *(invite, take_up, end_invitation, park),
    *(set_limit, hive_creates, hive_unlocks, hive_deletes_parent, hive_dies, unlock_table),
)
"""The actions of the specification that change what ZooKeeper stores."""

LEFT_OUT = _actions(step_aside, leave_group, work, release_part, forget, make_partitions, refuse, sign)
"""Updates that the specification does not have."""

OF_HIVE = frozenset({"hive_creates", "hive_unlocks", "hive_deletes_parent", "hive_dies", "unlock_table"})
OF_NODES = OF_HIVE | {"give_back", "mark", "place", "leave_group", "make_partitions"}
"""What only ZooKeeper has. A database neither verifies a grant nor gives it back."""

OF_ROWS = frozenset({"refuse", "sign"})
"""What only a database has."""

READS = frozenset(
    {
        *("look", "look_again", "find_nodes", "verify", "keeper_finds", "withdraw_by_force"),
        *("execute_locked", "wait_for_permit"),
        *("connection_lost", "crash", "hive_checks", "hive_ends"),
    }
)
"""Actions of the specification that change only what a process knows. ``return_lease`` is in :mod:`.validate`."""
