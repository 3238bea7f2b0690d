"""The state after a step: the promises of ``spec/Locks.tla`` that can be read from the store, with the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.system.histories.trace.state import AWAY, FREE, GRANTED, INVITED, LOST, PARKED, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.histories.trace.state import Owner, State, Step


def after(step: Step, *, hive: bool) -> Iterator[str]:
    """The promises that the owner's new state breaks.

    :param hive: UNLOCK TABLE can delete lock nodes.
    """
    owner, record = step.after, step.new
    wanted, found = record.nodes_made, {node.on: node for node in owner.nodes}
    if len(found) < len(owner.nodes):
        yield "LeaseHasItsNodes: two lock nodes on one object"
    for on in sorted(found.keys() - wanted.keys()):
        yield f"{_empty(record.state)}: a lock node on {on}, which its record does not name"
    for on, made in wanted.items():
        node = found.get(on)
        if node is None or node.made != made:
            if not hive:
                yield f"LeaseHasItsNodes: no lock node on {on}, made {made:#x}"
        elif node.mode != record.locks[on]:
            yield f"LeaseHasItsNodes: {node.mode} on {on}, it asked for {record.locks[on]}"
    yield from _tickets(owner)
    has = record.group and record.state in (GRANTED, LOST, INVITED)
    permits = {(record.group, number) for number in record.permits} if has else set()
    if owner.permits != permits or (has and not permits):
        yield f"PermitsMatchRecords: it has permits {_numbers(owner.permits)}, its record tells {_numbers(permits)}"
    if owner.parked != ({record.parked} if record.parked and record.state in (WAITING, PARKED) else set()):
        yield f"PermitsMatchRecords: it has places {sorted(owner.parked)}, its record tells {record.parked!r}"
    if owner.away != (record.state == AWAY):
        yield f"InvitedHoldsNothing: it is {record.state.upper()}, and its mark of AWAY {'exists' if owner.away else 'is missing'}"
    if owner.alive and record.state not in (WAITING, PARKED):
        yield f"{_empty(record.state)}: a liveness node"


def _tickets(owner: Owner) -> Iterator[str]:
    record = owner.record
    wanted = record.queues
    if wanted != owner.tickets.keys():
        promise = "LeaseHasItsNodes" if record.holds else _empty(record.state)
        yield f"{promise}: tickets in {sorted(owner.tickets)}, its record needs them in {sorted(wanted)}"
    for unit, ticket in owner.tickets.items():
        missing = {
            on
            for on, mode in record.locks.items()
            if (on, mode) not in ticket.locks and ".".join(on.split("/")[:2]) == unit
        }
        if missing:
            yield f"LeaseHasItsNodes: its ticket in {unit} lacks {sorted(missing)}"


def _empty(state: str) -> str:
    return "InvitedHoldsNothing" if state in (INVITED, AWAY) else "NothingLeft"


def _numbers(permits: object) -> object:
    return sorted(number for _, number in permits) if isinstance(permits, (set, frozenset)) else permits


def return_lease(state: State, key: str, ticket_epoch: int) -> Iterator[str]:
    """Why the lease must not be returned to its caller: the action of that name, after the reads of ``verify``.

    A ticket that is older than the lock nodes, and still exists, was there for each of these reads. In a database no read comes
    after the grant.
    """
    owner = state.of(key)
    record = owner.record
    if not state.has_lease(key, ticket_epoch):
        if record.ticket_epoch < ticket_epoch and record.state != FREE:
            yield f"there is no such lease: {owner}"
        return  # it was freed by force meanwhile: the process does not read its record again
    for other, rival in state.rivals(key):
        if not state.exact and rival.position < owner.position and rival.made < record.first:
            yield f"EarlierGoesFirst: {other} comes before it, with a ticket that is older than its lock nodes; {rival}"
        if rival.record.holds and state.returned.get(other) == rival.record.ticket_epoch:
            yield f"NoTwoConflictingLeases: a caller has the lease of {other}; {rival}"
    mine = {node.on: node for node in owner.nodes}
    for theirs in state.hives:
        if theirs.on in record.locks:
            number = mine[theirs.on].number if theirs.on in mine else 0
            clash = "X" in (theirs.mode, record.locks[theirs.on]) and theirs.number < number
        else:
            above = [on for on, mode in record.locks.items() if mode == "X" and theirs.on.startswith(f"{on}/")]
            clash = bool(above) and theirs.made < record.first
        if clash:
            yield f"OursAndHiveNeverBothHold: Hive has {theirs.mode} on {theirs.on}, number {theirs.number}"
