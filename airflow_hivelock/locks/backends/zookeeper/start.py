"""How an owner's call starts: with a new request, or with the one that the owner has.

A sweep deletes a record that ended long ago. One that is created later for the same owner has the same versions again,
and may be a grant. So each deletion also raises the version of the node above the records, and a call that writes over an
ended record checks that version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks import calls, invitations, rules
from airflow_hivelock.locks.backends.zookeeper.client import Check, Commit, Delete, Get, SetData
from airflow_hivelock.locks.backends.zookeeper.record import Record, Share, State
from airflow_hivelock.locks.calls import Call, Start

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.client import Client
    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from airflow_hivelock.locks.model import LockRequest

HISTORY_S = 7 * 86_400.0
"""How long ended records stay, in seconds: as history, and longer than any old process of an owner can live."""


class Again(Exception):
    """The data that was read is out of date; start again from the record."""


def start(existing: Record | None, request: LockRequest, process: str, begin: int) -> Record:
    """The record of the owner's request after *process* has started it or taken it over. A new one is WAITING.

    A process without a worker slot continues an invited request, which then waits at its position. A request for other
    locks gives the invitation up.

    :raises Superseded: a later call acts for the owner, or has released since this one began.
    :raises LeaseMismatch: the owner waits for or holds other locks.
    """
    # A swept record leaves no epoch behind, but the zxid in *begin* is larger than every epoch before.
    epoch = begin if existing is None else max(existing.epoch + 1, begin)
    held, given = (existing.holds, existing.given) if existing else (False, ())
    call = Call(request.attempt, begin, process)
    earlier = existing.earlier if existing else None
    if existing and earlier and existing.invited:
        mismatch = calls.take_over(call, request.locks, request.named, earlier) is Start.MISMATCH
        earlier = earlier._replace(active=not mismatch)
    if rules.takes_over(call, request, earlier, held=held, released=given):
        assert existing is not None
        # The grant may not be verified yet. A lease that was returned since it may have a larger token than the grant.
        share, limit = existing.share, request.limit
        if share and limit and limit.group == share.group:
            share = share._replace(most=limit.most)
        unverified = existing.state is State.GRANTED
        taken = existing.but(
            process=process,
            epoch=epoch,
            attempt=request.attempt,
            begin=begin,
            wait=request.wait,
            lease_s=request.lease_s,
            share=share,
            whole=existing.whole | request.whole,  # the work of an earlier attempt may still run
            token=0 if unverified else existing.token,
        )
        if existing.invited and not request.has_slot:
            return taken.outside().but(state=State.WAITING, invitation_s=0.0)
        return taken
    share = Share(request.limit.group, request.limit.most) if request.limit else None
    fresh = Record(
        request.owner,
        State.WAITING,
        process,
        epoch,
        request.attempt,
        begin,
        ticket_epoch=epoch,
        wait=request.wait,
        locks=request.locks,
        lease_s=request.lease_s,
        query=request.query,
        named=request.named,
        priority=request.priority,
        share=share,
        weight=request.limit.weight if request.limit else 0,
        whole=request.whole,
        first_ms=round(request.asked.timestamp() * 1000) if request.asked else 0,
    )
    if (
        existing
        and existing.away  # a withdrawn request has ended: its owner is a new arrival
        and existing.old
        and invitations.keeps_position(call, existing.earlier.call, request.locks, existing.locks)
    ):
        if share and existing.share and share.group == existing.share.group:
            share = share._replace(place=existing.share.place, placed_ms=existing.share.placed_ms)
        # A person may have changed the priority.
        return fresh.but(
            priority=existing.priority,
            old_turn=existing.old_turn,
            old_since_ms=existing.old_since_ms,
            share=share,
        )
    return fresh


def lost(record: Record) -> str:
    """The message about a lease that has lost a lock."""
    return (
        f"{record.owner}: one of the locks of its lease {record.lease_id} was removed by another client, most likely by "
        "UNLOCK TABLE in Hive. Stop the work under it and release it. Then acquire again"
    )


def sweeping(layout: Layout, key: str, version: int) -> Commit:
    """The transaction that deletes an ended record."""
    path = layout.record(key)
    return Commit((Check(path, version), Delete(path), SetData(layout.records, b"", -1)))


def unswept(client: Client, layout: Layout, ended: Record) -> Check | None:
    """The operation that fails if a sweep has deleted the record *ended*; None: it has gone already."""
    # In this order: a sweep after the first read is noticed, also by a server that lags behind.
    above, node = client.submit(Get(layout.records), Get(layout.record(ended.key)))
    if above is None or node is None or ended.stat is None or node.stat.czxid != ended.stat.czxid:
        return None
    return Check(layout.records, above.stat.version)
