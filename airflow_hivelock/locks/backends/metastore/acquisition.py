"""One request that waits in the metastore's queue."""

from __future__ import annotations

import logging
import math
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks import calls, queueing, rules
from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.backends.metastore.row import (
    Conflicts,
    Metadata,
    blockers,
    digest,
    known_as,
    lease,
    requests,
)
from airflow_hivelock.locks.calls import Call
from airflow_hivelock.locks.errors import InvalidRequest, Superseded
from airflow_hivelock.locks.model import Blocker, Lease, Lock, LockMode, LockObject
from airflow_hivelock.locks.pauses import pauses

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.metastore.row import Row
    from airflow_hivelock.locks.backends.metastore.store import LockClient, MetastoreStore
    from airflow_hivelock.locks.model import LockRequest, LockType

log = logging.getLogger(__name__)

FIRST_RECHECK_S = 0.1
GROWTH = 1.5
"""The factor from one pause to the next: the metastore decides one request at a time, and the polls of waiters slow it
down."""


class MetastoreAcquisition:
    """See :class:`~airflow_hivelock.locks.backend.Acquisition`."""

    asked = None  # the metastore keeps no time of an earlier request

    def __init__(self, store: MetastoreStore, request: LockRequest) -> None:
        self._store = store
        self._request = request
        self._leaves = lockable(rules.leaves(request))
        self._nonce = secrets.token_hex(4)
        self._number: int | None = None
        self._asked = False
        self._held = False
        """Whether the owner held the lease before this request."""
        self._pauses = pauses(FIRST_RECHECK_S, math.inf, GROWTH)

    def step(self) -> Lease | NeedsSlot | Blocked:
        with self._store.client() as client:
            outcome = self._step(client)
            if isinstance(outcome, Blocked):
                if self._request.has_slot:
                    self._give_back(client)
            elif queueing.at_turn(self._request.deferred) is not queueing.Ruling.GRANT and not self._held:
                self._give_back(client)  # a request cannot stay in the metastore's queue without its locks
                return NeedsSlot()
        return outcome

    def _step(self, client: LockClient) -> Lease | Blocked:
        granted = client.check(self._number) if self._number is not None else None
        if granted is None:  # not asked yet; or expired, because no process has polled for too long
            granted = self._enter(client)
        # The listing comes after the check: it then contains each conflicting lock that the server has granted as well.
        rows = client.rows(sorted({lock.object.database for lock in self._leaves}))
        self._store.note_time(rows, fresh=bool(self._number))
        mine = [row for row in rows if row.id == self._number]
        if not mine or self._elder(rows):
            self._give_back(client)
            return self._wait([])
        in_the_way = list(filter(Conflicts(mine, excl_write=self._store.excl_write), rows))
        if not granted:
            return self._wait(in_the_way)
        if in_the_way:
            log.info(
                "The metastore granted %s although it conflicts with %s. Asking again",
                self._request.owner,
                in_the_way[0].blocker,
            )
            self._ask_again(client)
            return self._wait(in_the_way)
        held = lease(mine, self._store.timeout_s)
        return replace(held, owner=self._request.owner, attempt=self._request.attempt)

    def withdraw(self) -> None:
        if self._held or not (self._asked or self._number):
            return
        with self._store.client() as client:
            if self._number is None:  # the answer to the request was lost
                asked = (row.id for row in client.rows() if row.metadata and row.metadata.nonce == self._nonce)
                self._number = next(asked, None)
            self._give_back(client)

    def hand_over(self) -> None:
        """Do nothing: the metastore drops a request without polls after ``hive.txn.timeout``."""

    def _enter(self, client: LockClient) -> bool:
        """Continue the owner's existing request, or make one; return whether it is granted."""
        if (existing := self._existing(client)) is not None:
            self._number = existing.id
            asked_here = existing.metadata is not None and existing.metadata.nonce == self._nonce  # the answer was lost
            self._held = not existing.waiting and not asked_here
            return bool(client.check(existing.id))
        self._number, granted = self._ask(client)
        return granted

    def _ask(self, client: LockClient) -> tuple[int, bool]:
        request, self._asked = self._request, True
        named = digest(request.named)
        metadata = Metadata(request.owner, request.attempt, request.lease_s, self._nonce, named, request.query)
        return client.lock(self._components(client), metadata)

    def _ask_again(self, client: LockClient) -> None:
        """Give back a grant that must not be kept. A writer keeps a position: its new request waits behind the one it
        gives back."""
        number, granted = None, False
        if any(lock.mode is LockMode.EXCLUSIVE for lock in self._leaves):
            number, granted = self._ask(client)
        self._give_back(client)
        self._number = number
        if granted:
            self._give_back(client)

    def _existing(self, client: LockClient) -> Row | None:
        """A row of what the owner holds or waits for already.

        :raises Superseded: a later attempt has asked for it.
        :raises LeaseMismatch: the existing request is for other locks.
        """
        owner, request = known_as(self._request.owner), self._request
        for rows in requests(client.rows()):
            first, theirs = rows[0], {row.lock for row in rows}
            if first.metadata is None or first.metadata.owner != owner:
                continue
            if calls.stale(Call(request.attempt, 0), Call(first.metadata.attempt, 0)):
                taken_over = first.metadata.attempt
                raise Superseded(
                    f"{owner}: attempt {taken_over} has taken over from {request.attempt}", attempt=taken_over
                )
            if request.named:
                same = first.metadata.named == digest(request.named)
            else:
                asked = {rules.folded(target): kind for target, kind in self._components(client).items()}
                same = {rules.folded(row.lock.object): row.kind for row in rows} == asked
                # A listed lease has only modes and no types, so a take-over by its listing compares these.
                same = same or (bool(first.metadata.named) and theirs == set(request.locks))
            if not same:
                raise rules.mismatch(request.owner, sorted(theirs, key=str), self._leaves, held=not first.waiting)
            return first
        return None

    def _components(self, client: LockClient) -> dict[LockObject, LockType]:
        """The locks to ask for, with the table for a prefix of its partitions' levels.

        The metastore compares names of partitions as text, so that ``dt=1`` would not conflict with ``dt=1/hr=2``.
        """
        types = self._store.components(self._request)
        tables = {target.parents[1] for target in types if target.partition}
        depths = {table: client.depth(table) for table in tables}
        raised: dict[LockObject, LockType] = {}
        for target, kind in types.items():
            if target.partition and len(target.partition) < (depths[target.parents[1]] or 0):
                log.warning(
                    "%s is a prefix of partitions, which the metastore cannot lock. Locking the table instead", target
                )
                target = target.parents[1]
            raised[target] = max(kind, raised.get(target, kind))
        return rules.uncovered(raised)

    def _elder(self, rows: list[Row]) -> bool:
        """Whether another process of the owner was the first to ask."""
        owner, number = known_as(self._request.owner), self._number or 0
        return any(row.id < number and row.metadata is not None and row.metadata.owner == owner for row in rows)

    def _give_back(self, client: LockClient) -> None:
        self._held = False
        if self._number is not None:
            client.unlock(self._number)
            self._number = None

    def _wait(self, rows: list[Row]) -> Blocked:
        """The request is blocked by *rows*, nearest first; without any, by a request that must just have ended."""
        first = self._leaves[0]
        by = blockers(rows) or (Blocker("a request that has just ended", first.object, first.mode, waiting=True),)
        return Blocked(by, passing=not rows, recheck_s=min(next(self._pauses), self._store.recheck_s))


def lockable(leaves: tuple[Lock, ...]) -> tuple[Lock, ...]:
    """*leaves* without SHARED on databases, which would hide older locks from metastores before Hive 4.0.

    :raises InvalidRequest: no other lock keeps such a database.
    """
    kept: list[Lock] = []
    databases: dict[LockObject, Lock] = {}
    for lock in leaves:
        if lock.object.table or lock.mode is LockMode.EXCLUSIVE:
            kept.append(lock)
        else:
            databases[lock.object] = lock
    kept_for = {lock.object.parents[0] for lock in kept if lock.object.table}
    if alone := databases.keys() - kept_for:
        raise InvalidRequest(
            f"reads={[str(database) for database in sorted(alone)]}: before Hive 4.0, SHARED on a database hides older locks "
            "from the metastore. Name the tables that you read instead. Each of them also locks its database"
        )
    return tuple(kept)
