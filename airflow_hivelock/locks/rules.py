"""The hierarchy of lock objects, and the messages about requests. Conflicts and order are in :mod:`.queueing`.

In ZooKeeper, Hive's locks conflict only on the same object, so a request also takes SHARED on every parent of its
objects. Hive's metastore itself knows the hierarchy: a lock there also conflicts with locks above and below its object
(:class:`Footprint`). So a request locks only the named objects (:func:`leaves`).
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from airflow_hivelock.locks import calls, queueing, spelling
from airflow_hivelock.locks.errors import InvalidRequest, LeaseMismatch, LockLost, Superseded, Withdrawn
from airflow_hivelock.locks.model import DeferredGrant, Holder, Lock, LockMode, LockObject, LockRequest, LockType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.model import Lease, LeaseLimit


MOST_SHOWN = 6
"""The most locks of a kind that an error names."""

order = attrgetter("database", "table", "partition")
"""A sort key. It gives the order of the lock objects themselves, but faster."""


def with_parents(reads: Iterable[LockObject], writes: Iterable[LockObject]) -> tuple[Lock, ...]:
    """The locks for *reads* (SHARED) and *writes* (EXCLUSIVE), with SHARED on all their parents: one for each object.

    They are in Hive's order: lexicographic by object, parents first. An object in *writes* is EXCLUSIVE even if it is
    also in *reads*, or is a parent of another object.
    """
    modes = dict.fromkeys(reads, LockMode.SHARED) | dict.fromkeys(writes, LockMode.EXCLUSIVE)
    for target in list(modes):
        parent = target.parent
        while parent is not None and parent not in modes:
            modes[parent] = LockMode.SHARED
            parent = parent.parent
    return tuple([Lock(target, modes[target]) for target in sorted(modes, key=order)])


def leaves(request: LockRequest) -> tuple[Lock, ...]:
    """The locks of *request* on a server that knows the hierarchy itself.

    These are its locks without the parents, and without each object that another lock covers from above.
    """
    modes = {lock.object: lock.mode for lock in request.locks}
    return tuple(Lock(target, modes[target]) for target in components(request))


def components(request: LockRequest, reads: LockType = LockType.SHARED_READ) -> dict[LockObject, LockType]:
    """The type of each lock in :func:`leaves` in Hive's transactional manager.

    SHARED_READ on a database does not conflict with EXCLUSIVE on its tables, so it covers none of them.

    :param reads: the type for SHARED.
    """
    parents = {lock.object.parent for lock in request.locks}
    types = _TYPES | {LockMode.SHARED: reads}
    named = request.whole | request.types.keys()
    return uncovered(
        {
            lock.object: request.types.get(lock.object, types[lock.mode])
            for lock in request.locks
            if lock.mode is LockMode.EXCLUSIVE or lock.object in named or lock.object not in parents
        }
    )


def uncovered(types: Mapping[LockObject, LockType]) -> dict[LockObject, LockType]:
    """*types* without the objects that a lock above them covers."""
    return {
        target: kind
        for target, kind in types.items()
        if not any(_covers(types.get(parent), parent, kind) for parent in target.parents)
    }


def _covers(above: LockType | None, parent: LockObject, kind: LockType) -> bool:
    return above is not None and above >= kind and (bool(parent.table) or above is LockType.EXCLUSIVE)


def beyond(held: Iterable[Lock], wanted: Iterable[Lock]) -> list[Lock]:
    """The *wanted* locks that the *held* locks do not cover. EXCLUSIVE covers all objects below it."""
    modes = {lock.object: lock.mode for lock in held}
    return [
        lock
        for lock in wanted
        if modes.get(lock.object) not in (lock.mode, LockMode.EXCLUSIVE)
        and not any(modes.get(parent) is LockMode.EXCLUSIVE for parent in lock.object.parents)
    ]


def left(standing: Lease, objects: frozenset[LockObject], known: Iterable[Lock] = ()) -> tuple[Lock, ...]:
    """The locks of the lease *standing* that remain after a partial release of *objects* and of all objects below them.

    SHARED on a parent remains if a remaining lock is below it, or if the request named the parent itself.

    :param known: the locks of the lease as its holder knows it. So it is no error to release the same part twice.
    :raises InvalidRequest: the lease never held one of *objects*.
    """
    had = {lock.object for locks in (standing.locks, standing.released, known) for lock in locks}
    had |= {parent for target in had for parent in target.parents}
    if never := sorted((target for target in objects if target not in had), key=order):
        raise InvalidRequest(_not_in(standing, never))
    asked = named(standing.locks, standing.whole)
    wanted = {lock.object for lock in asked if not objects & {lock.object, *lock.object.parents}}
    wanted |= {parent for target in wanted for parent in target.parents}
    kept = [lock for lock in standing.locks if not objects & {lock.object, *lock.object.parents}]
    return tuple(lock for lock in kept if lock.object in wanted)


def named(locks: Iterable[Lock], whole: Collection[LockObject] = ()) -> list[Lock]:
    """The locks that a request named: *locks* without the parents that are SHARED only for the locks below them.

    :param whole: parents that the request named, too, if that is known.
    """
    held = list(locks)
    above = {parent for lock in held for parent in lock.object.parents}
    return [
        lock for lock in held if lock.mode is LockMode.EXCLUSIVE or lock.object not in above or lock.object in whole
    ]


def check_all(lease: Lease, standing: Iterable[Lock]) -> None:
    """Check that all locks of *lease* are still held. A partial release may have released some.

    :param standing: the locks that are held now.
    :raises LockLost: a lock of *lease* is no longer held.
    """
    holds = set(standing)
    if gone := [lock for lock in lease.locks if lock not in holds]:
        raise LockLost(
            f"{lease.owner}: lease {lease.id} has released {_strongest(gone)}. Stop the work on these objects, and continue with "
            "the lease that the release returned"
        )


def _not_in(standing: Lease, never: Sequence[LockObject]) -> str:
    holds = _strongest(list(standing.locks))
    modes = {lock.object: lock.mode for lock in standing.locks}
    table = next((above for above in never[0].parents if modes.get(above) is LockMode.EXCLUSIVE), None)
    if table:
        return (
            f"{never[0]} cannot be released from lease {standing.id} of {standing.owner}, which holds {table} EXCLUSIVE as one "
            f"lock. Release {table}, or lock its partitions the next time"
        )
    return (
        f"{', '.join(map(str, never[:MOST_SHOWN]))} cannot be released, because lease {standing.id} of {standing.owner} never "
        f"held it. The lease holds {holds}"
    )


def types_conflict(one: LockType, other: LockType, *, excl_write: bool) -> bool:
    """Whether two lock types of Hive's transactional manager conflict, on one object, or on an object and its parent.

    This follows TxnHandler.checkLock of Hive 2.3 to 4.2, and was measured on 2.3.10, 3.1.3, 4.0.1, 4.1.0 and 4.2.1.

    :param excl_write: the server has EXCL_WRITE, which conflicts with SHARED_WRITE. There, two SHARED_WRITE do not
        conflict.
    """
    pair = (one, other)
    if LockType.EXCLUSIVE in pair:
        return True
    return LockType.SHARED_READ not in pair and (not excl_write or LockType.EXCL_WRITE in pair)


class Footprint:
    """Locks on a server that knows the hierarchy, with the locks that they exclude at, above and below their objects.

    :param excl_write: as in :func:`types_conflict`.
    """

    def __init__(self, types: Iterable[tuple[LockObject, LockType]], *, excl_write: bool) -> None:
        self._excl_write = excl_write
        self._at: dict[LockObject, LockType] = {}
        self._below: dict[LockObject, LockType] = {}
        for target, kind in types:
            self._at[target] = max(kind, self._at.get(target, kind))
            for parent in target.parents:
                self._below[parent] = max(kind, self._below.get(parent, kind))

    def excludes(self, target: LockObject, kind: LockType) -> bool:
        """Whether a lock of type *kind* on *target* conflicts with one of these locks."""
        met = [self._at.get(parent) for parent in target.parents]
        if met and met[0] is LockType.SHARED_READ:
            met[0] = None  # SHARED_READ on a database conflicts with no lock on its tables
        met.append(self._at.get(target))
        if target.table or kind is not LockType.SHARED_READ:
            met.append(self._below.get(target))
        return any(one is not None and types_conflict(one, kind, excl_write=self._excl_write) for one in met)


def excluder(locks: Iterable[Lock]) -> Callable[[Lock], bool]:
    """Return a function that checks whether a lock conflicts with *locks*, for a server that knows the hierarchy."""
    footprint = Footprint(((folded(lock.object), _TYPES[lock.mode]) for lock in locks), excl_write=True)
    return lambda lock: footprint.excludes(folded(lock.object), _TYPES[lock.mode])


def folded(target: LockObject) -> LockObject:
    """*target* for comparison in a metastore: Hive 3.1 keeps the values of partitions in lower case."""
    if all(value == value.lower() for _, value in target.partition):
        return target
    levels = tuple((column, value.lower()) for column, value in target.partition)
    return LockObject(target.database, target.table, levels)


_TYPES = {LockMode.SHARED: LockType.SHARED_READ, LockMode.EXCLUSIVE: LockType.EXCLUSIVE}


def takes_over(
    call: calls.Call,
    request: LockRequest,
    earlier: calls.Earlier | None,
    *,
    held: bool,
    released: Iterable[Lock] = (),
) -> bool:
    """Whether a *call* for *request* takes over its owner's *earlier* request. False: it starts a new request.

    :param held: the earlier request holds its locks. Otherwise it waits.
    :param released: the locks that the owner's partial releases have given back.
    :raises Superseded: a later call acts for the owner, or has released the lease.
    :raises Withdrawn: a person has withdrawn the request since this call began.
    :raises LeaseMismatch: the owner waits for or holds other locks.
    """
    start = calls.take_over(call, request.locks, request.named, earlier)
    if earlier is not None and start is calls.Start.STALE and earlier.withdrawn:
        raise Withdrawn(
            f"{request.owner}: its request was withdrawn while it waited. Ask again if the work is still needed"
        )
    if earlier is not None and start is calls.Start.STALE:
        raise Superseded(
            f"{request.owner}: attempt {earlier.call.attempt} has taken over, so this call (attempt {request.attempt}) must stop",
            attempt=earlier.call.attempt,
        )
    if earlier is not None and start is calls.Start.MISMATCH:
        raise mismatch(request.owner, earlier.locks, request.locks, held=held, released=released)
    return start is calls.Start.TAKE_OVER


def mismatch(
    owner: str, standing: Iterable[Lock], asked: Iterable[Lock], *, held: bool, released: Iterable[Lock] = ()
) -> LeaseMismatch:
    """The error that lists the differences between the locks that *owner* has or waits for, and the *asked* locks.

    :param standing: the locks of the owner's present request.
    :param held: the owner holds these locks. Otherwise it waits for them.
    :param released: the locks that the owner's partial releases have given back.
    """
    if gone := list(released):
        return LeaseMismatch(
            f"{owner} holds the rest of a lease that has released {_strongest(gone)}. When its work has ended, release the rest. "
            "Then ask again for all objects"
        )
    verb, has = ("holds", "held") if held else ("already waits for", "waited for")
    had = {lock.object: lock.mode for lock in standing}
    wanted = {lock.object: lock.mode for lock in asked}
    differences = {
        f"only {has}": [Lock(target, mode) for target, mode in had.items() if target not in wanted],
        "only asked for": [Lock(target, mode) for target, mode in wanted.items() if target not in had],
        f"{has} in another mode than asked for": [
            Lock(target, mode) for target, mode in had.items() if wanted.get(target, mode) is not mode
        ],
    }
    shown = [f"{what}: {_strongest(locks)}" for what, locks in differences.items() if locks]
    return LeaseMismatch(
        f"{owner} {verb} other locks than it now asks for "
        f"({'; '.join(shown) or 'the same objects, from other reads, writes or statements'}). Release them first"
    )


def _strongest(locks: list[Lock]) -> str:
    """The names of the first few locks, EXCLUSIVE ones first."""
    first = sorted(locks, key=lambda lock: lock.mode is not LockMode.EXCLUSIVE)
    return few(first, MOST_SHOWN)


def few(items: Sequence[object], most: int) -> str:
    """The first *most* items as text, and the number of the others: ``a, b and 3 more``."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(map(str, items[:most])) + more


def reprioritized(
    owner: str,
    before: queueing.TimedPosition,
    own: queueing.TimedPosition,
    waiting: Iterable[queueing.TimedPosition],
    limit: queueing.OvertakingLimit,
) -> queueing.TimedPosition:
    """The new position of the owner's request; see :func:`.queueing.reprioritized`.

    :raises InvalidRequest: the request already has this priority, or it can overtake no other request.
    """
    if own.position.rank == before.position.rank:
        raise InvalidRequest(f"{owner} has priority {-own.position.rank} already. Give another number")
    moved = queueing.reprioritized(before, own, waiting, limit)
    if moved is None:
        raise InvalidRequest(
            f"{owner} can overtake no request. It is the first in its queue, or each request before it is as urgent or has "
            "waited for the limit on overtaking (passing_s). If there are such requests, lower their priority, or withdraw them"
        )
    return moved


def escalate(locks: Iterable[Lock], table: LockObject) -> tuple[Lock, ...]:
    """*locks* with EXCLUSIVE on *table* instead of all locks below it.

    Reads need EXCLUSIVE, too: SHARED on a table does not keep writers out of its partitions.
    """
    kept = (lock for lock in locks if not lock.object.is_below(table))
    return tuple(Lock(table, LockMode.EXCLUSIVE) if lock.object == table else lock for lock in kept)


def request(
    owner: str,
    reads: Iterable[str | LockObject] = (),
    writes: Iterable[str | LockObject] = (),
    *,
    lease_s: float = 3600.0,
    attempt: int = 0,
    wait: bool = True,
    query: str = "",
    named: str = "",
    priority: int = 1,
    limit: LeaseLimit | None = None,
    deferred: DeferredGrant | None = None,
    types: Mapping[LockObject, LockType] | None = None,
    asked: datetime | None = None,
) -> LockRequest:
    """Return the request for *reads* and *writes*. Each is a name, which can be a range, or an object.

    Objects are used unchanged. A name is refused if Hive and Spark would store one of its values in another spelling.

    :raises InvalidRequest: an argument is invalid. The message names it.
    """
    shared, exclusive = objects("reads", reads, spelled=True), objects("writes", writes, spelled=True)
    locks = with_parents(shared, exclusive)
    above = {lock.object.parent for lock in locks} if shared else ()
    whole = frozenset(target for target in shared if target in above)
    return LockRequest(
        owner, locks, lease_s, attempt, wait, query, named, whole, priority, limit, deferred, types or {}, asked
    )


def objects(what: str, given: Iterable[str | LockObject], *, spelled: bool = False) -> list[LockObject]:
    """The objects with these names. A range becomes all of its objects.

    :param what: the argument's name, for the error message.
    :param given: names or objects.
    :param spelled: whether to check each name with :func:`.spelling.check_spelling`.
    :raises InvalidRequest: a name is malformed, or *given* is not a list.
    """
    if isinstance(given, str | LockObject) or not isinstance(given, Iterable):
        raise InvalidRequest(f"{what}={str(given)!r} must be a list of names, as in [{str(given)!r}]")
    found: list[LockObject] = []
    for item in given:
        if isinstance(item, LockObject):
            found.append(item)
            continue
        named = LockObject.parse_all(item)
        if spelled:
            for target in named:
                spelling.check_spelling(target)
        found += named
    return found


def concern(locks: Iterable[Lock], target: LockObject | None) -> bool:
    """Whether one of *locks* is on *target* or below it. True if *target* is None."""
    return target is None or any(lock.object == target or lock.object.is_below(target) for lock in locks)


def holders(held: Iterable[tuple[Lease, str]], target: LockObject | None) -> list[Holder]:
    """The holders on *target* and below it, for a listing.

    :param held: each lease, with the query that Hive shows for it.
    """
    return as_shown(
        Holder(lock.object, lock.mode, lease.owner, lease.since, lease.id, lease.token, lease.expires, True, query)
        for lease, query in held
        for lock in lease.locks
        if concern([lock], target)
    )


def as_shown(found: Iterable[Holder]) -> list[Holder]:
    """Sort the holders for a listing: by object, then by time."""
    return sorted(found, key=lambda holder: (*order(holder.object), holder.since, holder.owner))
