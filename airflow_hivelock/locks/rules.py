"""The hierarchy of lock objects, and the messages about requests. Conflicts and order are in :mod:`.queueing`.

Hive's ZooKeeper locks conflict on one object only. So a request also takes SHARED on every parent of its objects.
Hive's metastore has a hierarchy of its own. There only the named objects are locked (:func:`leaves`). A lock also
conflicts with locks above and below its object (:class:`Footprint`).
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from airflow_hivelock.locks import queueing, spelling
from airflow_hivelock.locks.errors import InvalidRequest, LeaseMismatch, LockLost, Superseded, Withdrawn
from airflow_hivelock.locks.model import DeferredGrant, Holder, Lock, LockMode, LockObject, LockRequest, LockType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.model import Lease, LeaseLimit


MOST_SHOWN = 6
"""How many locks of a kind an error names."""

order = attrgetter("database", "table", "partition")
"""Sort key with the same order as the lock objects themselves, but faster."""


def with_parents(reads: Iterable[LockObject], writes: Iterable[LockObject]) -> tuple[Lock, ...]:
    """SHARED on *reads*, EXCLUSIVE on *writes*, SHARED on all their parents; sorted, one lock per object.

    The order is Hive's: lexicographic by object, parents first. An object that is written is locked EXCLUSIVE, even if
    it is also read or is a parent of another.
    """
    modes = dict.fromkeys(reads, LockMode.SHARED) | dict.fromkeys(writes, LockMode.EXCLUSIVE)
    for target in list(modes):
        parent = target.parent
        while parent is not None and parent not in modes:
            modes[parent] = LockMode.SHARED
            parent = parent.parent
    return tuple([Lock(target, modes[target]) for target in sorted(modes, key=order)])


def leaves(request: LockRequest) -> tuple[Lock, ...]:
    """The locks of *request* where the server has a hierarchy of its own.

    They have no parents, and no object that a lock above it already covers.
    """
    modes = {lock.object: lock.mode for lock in request.locks}
    return tuple(Lock(target, modes[target]) for target in components(request))


def components(request: LockRequest, reads: LockType = LockType.SHARED_READ) -> dict[LockObject, LockType]:
    """The lock types that *request* takes in Hive's transactional manager, for each object of :func:`leaves`.

    SHARED_READ on a database is compatible with EXCLUSIVE on its tables, and so covers none of them.

    :param reads: the type to take for SHARED.
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
    """Those of the *wanted* locks that the *held* ones do not contain: EXCLUSIVE contains all below it."""
    modes = {lock.object: lock.mode for lock in held}
    return [
        lock
        for lock in wanted
        if modes.get(lock.object) not in (lock.mode, LockMode.EXCLUSIVE)
        and not any(modes.get(parent) is LockMode.EXCLUSIVE for parent in lock.object.parents)
    ]


def left(standing: Lease, objects: frozenset[LockObject], known: Iterable[Lock] = ()) -> tuple[Lock, ...]:
    """The locks of *standing* that remain after a partial release of *objects* and everything that it holds in them.

    SHARED on a parent remains while a remaining lock is below it, or if it was asked for by itself.

    :param known: the locks that the holder believes to have. Releasing the same part twice is no error.
    :raises InvalidRequest: one of *objects* was never in it.
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
    """The locks that were asked for, if that is known: without those that are SHARED only as parents of others.

    :param whole: objects that are SHARED for their own sake.
    """
    held = list(locks)
    above = {parent for lock in held for parent in lock.object.parents}
    return [
        lock for lock in held if lock.mode is LockMode.EXCLUSIVE or lock.object not in above or lock.object in whole
    ]


def check_all(lease: Lease, standing: Iterable[Lock]) -> None:
    """Check that a partial release has released none of the locks in *lease*.

    :param standing: the locks that are held now.
    :raises LockLost: some locks of *lease* are not among them.
    """
    holds = set(standing)
    if gone := [lock for lock in lease.locks if lock not in holds]:
        raise LockLost(
            f"{lease.owner}: lease {lease.id} has released {_strongest(gone)}. Stop the work on that, and continue with the "
            "lease that the release returned"
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
    """Whether two types of Hive's transactional manager exclude each other, on one object or on it and its parent.

    TxnHandler.checkLock, Hive 2.3 to 4.2; measured on 2.3.10, 3.1.3, 4.0.1, 4.1.0 and 4.2.1.

    :param excl_write: the server has EXCL_WRITE. It excludes SHARED_WRITE, and two SHARED_WRITE do not conflict.
    """
    pair = (one, other)
    if LockType.EXCLUSIVE in pair:
        return True
    return LockType.SHARED_READ not in pair and (not excl_write or LockType.EXCL_WRITE in pair)


class Footprint:
    """Locks in a hierarchy: what they exclude on the same objects, above and below them.

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
    """Return a test whether a lock conflicts with one of *locks*, for a server with a hierarchy of its own."""
    footprint = Footprint(((lock.object, _TYPES[lock.mode]) for lock in locks), excl_write=True)
    return lambda lock: footprint.excludes(lock.object, _TYPES[lock.mode])


_TYPES = {LockMode.SHARED: LockType.SHARED_READ, LockMode.EXCLUSIVE: LockType.EXCLUSIVE}


def takes_over(
    call: queueing.Call,
    request: LockRequest,
    earlier: queueing.Earlier | None,
    *,
    held: bool,
    released: Iterable[Lock] = (),
) -> bool:
    """Whether a *call* for *request* takes over from its owner's *earlier* call; False: it starts a new request.

    :param held: the earlier call's request holds; otherwise it waits.
    :param released: the locks that the owner's partial releases have given back.
    :raises Superseded: a later call acts for the owner, or has released.
    :raises Withdrawn: a person has withdrawn the request since this call began.
    :raises LeaseMismatch: the owner waits for or holds other locks.
    """
    start = queueing.take_over(call, request.locks, request.named, earlier)
    if earlier is not None and start is queueing.Start.STALE and earlier.withdrawn:
        raise Withdrawn(
            f"{request.owner}: its request was withdrawn while it waited. Ask again if the work is still to be done"
        )
    if earlier is not None and start is queueing.Start.STALE:
        raise Superseded(
            f"{request.owner}: attempt {earlier.call.attempt} has taken over, so this call (attempt {request.attempt}) must stop"
        )
    if earlier is not None and start is queueing.Start.MISMATCH:
        raise mismatch(request.owner, earlier.locks, request.locks, held=held, released=released)
    return start is queueing.Start.TAKE_OVER


def mismatch(
    owner: str, standing: Iterable[Lock], asked: Iterable[Lock], *, held: bool, released: Iterable[Lock] = ()
) -> LeaseMismatch:
    """The error that lists how the *standing* locks of *owner*, *held* or waited for, differ from the *asked* ones.

    :param released: the locks that the owner's partial releases have given back.
    """
    if gone := list(released):
        return LeaseMismatch(
            f"{owner} holds the rest of a lease that has released {_strongest(gone)}. When its work has ended, release the rest. "
            "Then ask again for all of it"
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
    first = sorted(locks, key=lambda lock: lock.mode is not LockMode.EXCLUSIVE)[:MOST_SHOWN]
    more = f" and {len(locks) - MOST_SHOWN} more" if len(locks) > MOST_SHOWN else ""
    return ", ".join(map(str, first)) + more


def reprioritized(
    owner: str,
    place: queueing.QueuePlace,
    own: queueing.QueuePlace,
    waiting: Iterable[queueing.QueuePlace],
    oldest: int,
) -> queueing.QueuePlace:
    """The new place of the owner's request; see :func:`.queueing.reprioritized`.

    :raises InvalidRequest: it has that priority already, or can overtake no other request.
    """
    if own.position.rank == place.position.rank:
        raise InvalidRequest(f"{owner} has priority {-own.position.rank} already")
    moved = queueing.reprioritized(place, own, waiting, oldest)
    if moved is None:
        raise InvalidRequest(
            f"{owner} has waited for the bound on overtaking (passing_s), and so have all requests before it. They are not "
            "overtaken any more. Lower their priority, or withdraw them"
        )
    return moved


def escalate(locks: Iterable[Lock], table: LockObject) -> tuple[Lock, ...]:
    """*locks* with EXCLUSIVE on *table* in place of all locks below it.

    EXCLUSIVE for reads too: SHARED on a table keeps no writer out of its partitions.
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
    """Check and build the request for *reads* and *writes*: names (ranges included) or objects.

    Objects are used unchanged. A name is refused if one of its values looks like another spelling of what Hive and
    Spark store.

    :raises InvalidRequest: naming the input that is wrong.
    """
    shared, exclusive = objects("reads", reads, spelled=True), objects("writes", writes, spelled=True)
    locks = with_parents(shared, exclusive)
    above = {lock.object.parent for lock in locks} if shared else ()
    whole = frozenset(target for target in shared if target in above)
    return LockRequest(
        owner, locks, lease_s, attempt, wait, query, named, whole, priority, limit, deferred, types or {}, asked
    )


def objects(what: str, given: Iterable[str | LockObject], *, spelled: bool = False) -> list[LockObject]:
    """The objects with the names *given*, ranges expanded.

    :param what: the argument's name, for the error.
    :param spelled: refuse names with a value that looks like another spelling.
    :raises InvalidRequest: a name is malformed, or *given* is one name and not a list.
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
    """Whether one of *locks* is on *target* or below it; None means every object."""
    return target is None or any(lock.object == target or lock.object.is_below(target) for lock in locks)


def holders(held: Iterable[tuple[Lease, str]], target: LockObject | None) -> list[Holder]:
    """The holders of the locks on *target* and below it, for a listing.

    :param held: pairs of a lease and the query that it is for.
    """
    return as_shown(
        Holder(lock.object, lock.mode, lease.owner, lease.since, lease.id, lease.token, lease.expires, True, query)
        for lease, query in held
        for lock in lease.locks
        if concern([lock], target)
    )


def as_shown(found: Iterable[Holder]) -> list[Holder]:
    """Sort for a listing: by object, and the earliest first."""
    return sorted(found, key=lambda holder: (*order(holder.object), holder.since, holder.owner))
