"""Common conditions of several actions of a trace.

Some conditions are stricter in a database. There the decision and the write are one transaction, so the state before a
step (``step.world``, which is then ``exact``) is what the decision has read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.priority import BACKGROUND, BEHIND, unclaimed
from tests.system.histories.trace.state import INVITED, PARKED, WAITING, conflict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.histories.trace.state import Owner, Step

    Reasons = Iterator[str]

STALE_MS = 4000
"""In a database: how long a decision can take to be committed. A process can be stopped in between."""


def unless(broken: object, reason: str) -> Reasons:
    if broken:
        yield reason


def states(step: Step, before: tuple[str, ...], *after: str) -> Reasons:
    yield from unless(step.old.state not in before, f"it is {step.old.state.upper()}")
    yield from unless(step.new.state not in after, f"it becomes {step.new.state.upper()}")
    yield from unless(not step.wrote, "it writes no record")


def same(step: Step, fields: tuple[str, ...]) -> Reasons:
    for name in fields:
        yield from unless(getattr(step.old, name) != getattr(step.new, name), f"{name} changes")


def only(step: Step, *what: str) -> Reasons:
    for name in ("record", "tickets", "alive", "nodes", "permits", "parked", "away"):
        if name not in what:
            yield from unless(getattr(step.before, name) != getattr(step.after, name), f"it changes its {name}")


def starts(step: Step) -> Reasons:
    """A request of its owner begins, or goes on after it was parked."""
    old, new = step.old, step.new
    if old.state == PARKED:
        yield from continues(step)
        return
    yield from unless(new.epoch <= old.epoch, f"the epoch does not grow: {old.epoch} to {new.epoch}")
    yield from unless(new.ticket_epoch != new.epoch, "it begins with another request's epoch")
    yield from unless((new.attempt, new.begin) < (old.attempt, old.begin), "a later call of its owner has begun")


def continues(step: Step) -> Reasons:
    old, new = step.old, step.new
    yield from same(step, ("ticket_epoch", "locks", "priority"))
    if new.process != old.process:
        yield from later_call(step)
    else:
        yield from unless(new.epoch < old.epoch, "the epoch becomes smaller")


def later_call(step: Step) -> Reasons:
    old, new = step.old, step.new
    yield from unless(new.epoch <= old.epoch, f"the epoch does not grow: {old.epoch} to {new.epoch}")
    yield from unless((new.attempt, new.begin) < (old.attempt, old.begin), "an earlier call takes over")


def new_tickets(step: Step, *, claims: bool, moves: bool = False) -> Reasons:
    """:param moves: it leaves another position, which it may keep if its priority grows."""
    exact, kept = step.world.exact, step.old.kept
    if moves:
        kept = step.before.place if is_raised(step) else 0
    yield from unless(step.before.tickets and not moves, "it had tickets")
    if not exact:
        made = {ticket.made for ticket in step.after.tickets.values()}
        yield from unless(made != {step.zxid}, "its tickets are not created by this transaction")
        again = step.old.state in (PARKED, WAITING) and step.old.entry == step.new.entry
        yield from unless(again, "it uses old tickets' names")
    turns = {ticket.place for ticket in step.after.tickets.values()}
    own = unclaimed(step.zxid, step.new.priority)
    yield from unless(len(turns) != 1, "its tickets have different positions")
    yield from unless(not claims and not exact and turns != {own}, "it claims a position")
    # Behind background work that can no longer be overtaken, a request claims the number after it.
    if not turns <= {own, kept} and not max(turns) >= BEHIND > own:
        known_since = step.time_ms - STALE_MS if exact else step.new.begin
        taken = [entry for turn in turns for entry in step.world.turns.get(turn, ())]
        fair = any(
            one.priority < step.new.priority
            and conflict(one.locks, step.new.locks)
            and (not gone or gone > known_since)
            for _, one, gone in taken
        )
        yield from unless(not fair, "it claims the position of no request that it may overtake")
    if exact:
        yield from passes_fairly(step, moves=moves)


def is_raised(step: Step) -> bool:
    return step.new.priority > step.old.priority


def passes_fairly(step: Step, *, moves: bool) -> Reasons:
    """In a database: with a turn that is not its own, it passes only requests of a lower priority, or of the same if the turn is the
    one that it kept. None of them has waited for too long."""
    for key, other in step.world.rivals(step.key, step.new.locks):
        if other.record.holds or has_no_claim(step, other) or other.position < step.after.position:
            continue
        if moves and is_raised(step) and step.before.position < other.position:
            continue  # it was before it already
        passing_ms = step.world.passing_ms * (BACKGROUND if other.record.priority <= 0 else 1)
        late_ms = step.time_ms - other.record.turn_ms - passing_ms
        same = not moves and step.after.place == step.old.kept
        yield from unless(other.record.priority >= step.new.priority + same, f"it passes {key}; {other}")
        yield from unless(late_ms > STALE_MS, f"it passes {key} {late_ms} ms later than it may; {other}")


def has_no_claim(step: Step, other: Owner) -> bool:
    """In a database: whether the process of another request is dead, or its invitation is over."""
    if other.record.state == INVITED:
        return other.record.until_ms <= step.time_ms
    return other.alive is None or other.alive.until_ms <= step.time_ms


def first_look(step: Step) -> Reasons:
    """The look of a new arrival. In ZooKeeper it is only advice."""
    if step.world.exact:
        yield from in_the_way(step)


def in_the_way(step: Step) -> Reasons:
    """In a database: the conflicting requests that hold or come before it, also those without a claim."""
    mine = step.after if step.after.tickets else step.before
    kept = (step.old.kept, -step.new.priority, step.zxid)
    for key, other in step.world.rivals(step.key, step.new.locks):
        if mine.tickets:
            before = other.position < mine.position
        else:  # it goes at once: its position was not written
            before = other.record.priority >= step.new.priority + (kept[0] > 0 and kept < other.position)
        if other.record.holds:
            yield f"NoTwoConflictingLeases: {key} holds; {other}"
        elif before:
            yield f"EarlierGoesFirst: {key} comes before it; {other}"


def same_tickets(step: Step) -> Reasons:
    yield from unless(step.before.tickets != step.after.tickets, "its tickets change")


def look_at_turn(step: Step) -> Reasons:
    """What ``LookAtTurn`` has certainly seen: the tickets that are older than the request's own."""
    if step.world.exact:
        yield from in_the_way(step)
        return
    if step.before.nodes:
        return  # with a placeholder it no longer looks at tickets
    mine = step.before
    for key, other in step.world.rivals(step.key):
        if other.made >= mine.made:
            continue
        if other.position < mine.position:
            yield f"{key} comes before it, and has its ticket (made {other.made:#x})"
        elif 0 < other.record.first < mine.made:
            yield f"{key} was overtaken, and has lock nodes (made {other.record.first:#x})"


def creates_nodes(step: Step) -> Reasons:
    new = step.new
    yield from unless(new.since != step.zxid, "the record does not date its lock nodes by this write")
    yield from unless(new.token != step.zxid, "the token does not grow")
    for on, mode in new.locks.items() if step.world.exact else ():
        earlier = max(step.world.tokens.get((on, other), 0) for other in ("X", "S" if mode == "X" else "X"))
        yield from unless(new.token <= earlier, f"TokenOnlyGrows: a lease of {on} had token {earlier}")
    yield from unless(not step.before.nodes <= step.after.nodes, "it deletes a lock node")
    yield from unless(new.places != (step.old.places if step.old.state == WAITING else {}), "its placeholders change")
    yield from unless(not step.made <= new.locks.keys(), "it creates an object that it does not lock")
    yield from unless(step.gone, "it deletes an object")


def deletes_nodes(step: Step) -> Reasons:
    yield from unless(step.made, "it creates an object")
    yield from unless(step.gone - step.old.locks.keys(), "it deletes an object that it did not lock")
    yield from unless(any(on.count("/") < 2 for on in step.gone), "it deletes a database or a table")


def lives(step: Step) -> Reasons:
    alive = step.after.alive
    yield from unless(alive is None or alive.process != step.new.process, "it has no liveness node of its process")


def lives_if_it_lived(step: Step, waits: str) -> Reasons:
    """A request that waits in one queue keeps its liveness node in the other. If its session has just ended, its process notices
    that at its next step."""
    ended = step.old.state == waits and step.old.process == step.new.process and step.before.alive is None
    if not ended:
        yield from lives(step)


def takes_permit(step: Step) -> Reasons:
    """``PermitsAreCounted``: no other request has taken one since the look, and the limit has not changed, so the number is exact.

    In a database, no request of the group that waits for a permit may be before it.
    """
    new = step.after.permits - step.before.permits
    if new:
        most, weight = step.world.limits.get(step.new.group, (step.new.most, 1))
        others = (owner.permits for key, owner in step.world.owners.items() if key != step.key)
        taken = len(step.after.permits) + sum(group == step.new.group for permits in others for group, _ in permits)
        yield from unless(taken > most, f"it takes permit {taken} of {most} of its group")
        asked = step.old.weight if step.world.exact else step.new.weight
        known = not step.world.exact or (
            step.old.ticket_epoch == step.new.ticket_epoch and step.old.state in (WAITING, PARKED)
        )
        yield from unless(
            known and len(new) != (asked or weight), f"it weighs {asked or weight} and takes {len(new)} permits"
        )
    for key, other in step.world.owners.items() if new and step.world.exact else ():
        if key == step.key or other.record.state != PARKED or other.record.group != step.new.group:
            continue
        before = other.position_in_group < step.after.position_in_group
        before &= (
            bool(step.new.parked) or other.record.priority >= step.new.priority
        )  # a new arrival passes those below it
        yield from unless(before, f"PermitFree: {key} waits for a permit of the group before it; {other}")
