"""How an owner's call starts: with a new record, or with the one that its owner has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks import formats, invitations
from airflow_hivelock.locks.backends.database.record import Record, State
from airflow_hivelock.locks.backends.database.values import later, microseconds
from airflow_hivelock.locks.model import owner_key
from airflow_hivelock.locks.queueing import Call

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.model import LockObject, LockRequest


def start(
    existing: Record | None,
    request: LockRequest,
    wanted: str,
    process: str,
    number: int,
    began: int,
    now_us: int,
    frees: bool,
    group_key: int | None,
) -> Record:
    """Return the record after *process* has started or taken over the owner's request.

    :param wanted: the request's locks, as :func:`encode` writes them.
    :param frees: an expired lease may be replaced by a request for other locks.
    :param group_key: of the request's limit.
    :return: for a new request, WAITING, with a number of its own but in no queue; else the existing record, taken over.
        That keeps its priority and its group. Taken over without a worker slot, an invited request waits.
    :raises Superseded: a later call acts for the owner.
    :raises LeaseMismatch: the owner waits for or holds other locks.
    """
    call = Call(request.attempt, began, process)
    if existing is not None and existing.takes_over(request, call, now_us if frees else 0):
        taken = existing._replace(process=process, epoch=number, attempt=request.attempt, began=began)
        end_us = later(now_us, request.lease_s) if existing.state is State.GRANTED else None
        whole = _lines(existing.by_themselves | request.whole)  # the work of an earlier attempt may still run
        state = State.WAITING if existing.invited and not request.has_slot else existing.state
        return taken._replace(state=state, lease_s=request.lease_s, seen_us=now_us, end_us=end_us, whole=whole)
    fresh = Record(
        owner_key=owner_key(request.owner),
        owner=request.owner,
        state=State.WAITING,
        process=process,
        epoch=number,
        attempt=request.attempt,
        began=began,
        place=number,
        token=0,
        lease_s=request.lease_s,
        locks=wanted,
        works="[]",
        query=request.query,
        named=request.named,
        priority=request.priority,
        lease_group=request.limit.group if request.limit else "",
        most_leases=request.limit.most if request.limit else 0,
        weight=request.limit.weight if request.limit else 0,
        group_key=group_key,
        asked_us=min(now_us, microseconds(request.asked)) if request.asked else now_us,
        seen_us=now_us,
        whole=_lines(request.whole),
        more=formats.WRITES.text(),
    )
    if existing is None or existing.state is not State.AWAY or request.has_slot:
        return fresh
    if not invitations.keeps_position(call, Call(existing.attempt, existing.began), request.locks, existing.locked):
        return fresh
    return fresh._replace(
        priority=existing.priority,  # a person may have changed it
        old_turn=existing.turn,
        old_turn_us=existing.turn_us,
        group_turn=existing.group_turn,
        group_turn_us=existing.group_turn_us,
    )


def _lines(objects: Iterable[LockObject]) -> str:
    return "\n".join(sorted(map(str, objects)))
