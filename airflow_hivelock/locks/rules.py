"""The hierarchy of lock objects, and the messages about requests. What conflicts and who goes first: :mod:`.queueing`.

Hive's ZooKeeper locks conflict on one object only. So a request also takes SHARED on every parent of its objects.
Hive's metastore has a hierarchy of its own. There only the named objects are locked (:func:`leaves`), and a lock on an
object also conflicts with locks above and below it (:class:`Footprint`).
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from airflow_hivelock.locks import queueing, spelling
from airflow_hivelock.locks.errors import InvalidRequest, LeaseMismatch, LockLost, Superseded
from airflow_hivelock.locks.model import Holder, Lock, LockMode, LockObject, LockRequest, LockType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.model import Lease, LeaseLimit


MOST_SHOWN = 6
"""How many locks of a kind an error names."""

order = attrgetter("database", "table", "partition")
"""The order of lock objects, to sort by: as their own, and quicker."""


def with_parents(reads: Iterable[LockObject], writes: Iterable[LockObject]) -> tuple[Lock, ...]:
    """SHARED on *reads*, EXCLUSIVE on *writes*, SHARED on all that lies above; sorted, one lock an object.

    The order is Hive's: lexicographic by object, parents first. Where an object is read and written,
    or is the parent of one and written itself, it is locked EXCLUSIVE.
    """
    modes = dict.fromkeys(reads, LockMode.SHARED) | dict.fromkeys(writes, LockMode.EXCLUSIVE)
    for target in list(modes):
        parent = target.parent
        while parent is not None and parent not in modes:
            modes[parent] = LockMode.SHARED
            parent = parent.parent
    return tuple([Lock(target, modes[target]) for target in sorted(modes, key=order)])


def leaves(request: LockRequest) -> tuple[Lock, ...]:
    """The locks of *request* where the server has a hierarchy of its own: no parents, and nothing that a lock above
    it covers already."""
    modes = {lock.object: lock.mode for lock in request.locks}
    return tuple(Lock(target, modes[target]) for target in components(request))


def components(request: LockRequest, reads: LockType = LockType.SHARED_READ) -> dict[LockObject, LockType]:
    """The types that *request* takes of Hive's transactional manager, on :func:`leaves`.

    SHARED_READ on a database goes with EXCLUSIVE on its tables, and so covers nothing.

    :param reads: what to take for SHARED.
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
    """*types* without what is covered by one above it."""
    return {
        target: kind
        for target, kind in types.items()
        if not any(_covers(types.get(parent), parent, kind) for parent in target.parents)
    }


def _covers(above: LockType | None, parent: LockObject, kind: LockType) -> bool:
    return above is not None and above >= kind and (bool(parent.table) or above is LockType.EXCLUSIVE)


def left(standing: Lease, objects: frozenset[LockObject], known: Iterable[Lock] = ()) -> tuple[Lock, ...]:
    """What is left of *standing* once *objects*, and all that it holds in them, have been given back.

    SHARED on a parent stays while something that is left lies in it, and where it was asked for by itself.

    :param known: what its holder knows to have had besides: giving back once more what it gave back is no error.
    :raises InvalidRequest: one of *objects* was never in it.
    """
    had = {lock.object for locks in (standing.locks, standing.given, known) for lock in locks}
    had |= {parent for target in had for parent in target.parents}
    if never := sorted((target for target in objects if target not in had), key=order):
        raise InvalidRequest(_not_in(standing, never))
    asked = named(standing.locks, standing.whole)
    wanted = {lock.object for lock in asked if not objects & {lock.object, *lock.object.parents}}
    wanted |= {parent for target in wanted for parent in target.parents}
    kept = [lock for lock in standing.locks if not objects & {lock.object, *lock.object.parents}]
    return tuple(lock for lock in kept if lock.object in wanted)


def named(locks: Iterable[Lock], whole: Collection[LockObject] = ()) -> list[Lock]:
    """Those of *locks* that were asked for, as far as can be told: not what is only SHARED since others lie in it.

    :param whole: what is SHARED for its own sake all the same.
    """
    held = list(locks)
    above = {parent for lock in held for parent in lock.object.parents}
    return [
        lock for lock in held if lock.mode is LockMode.EXCLUSIVE or lock.object not in above or lock.object in whole
    ]


def check_all(lease: Lease, standing: Iterable[Lock]) -> None:
    """:raises LockLost: some of what *lease* says that it holds has been given back: what is *standing* is less."""
    holds = set(standing)
    if gone := [lock for lock in lease.locks if lock not in holds]:
        raise LockLost(
            f"{lease.owner}: lease {lease.id} has given back {_strongest(gone)}; stop the work on that, and go on with the "
            "lease that the release returned"
        )


def _not_in(standing: Lease, never: Sequence[LockObject]) -> str:
    holds = _strongest(list(standing.locks))
    modes = {lock.object: lock.mode for lock in standing.locks}
    table = next((above for above in never[0].parents if modes.get(above) is LockMode.EXCLUSIVE), None)
    if table:
        return (
            f"{never[0]} cannot be given back from lease {standing.id} of {standing.owner}: it holds {table} EXCLUSIVE, one "
            f"lock that has no parts; give {table} back, or lock its partitions the next time"
        )
    return (
        f"{', '.join(map(str, never[:MOST_SHOWN]))} cannot be given back: lease {standing.id} of {standing.owner} never held "
        f"that, it holds {holds}"
    )


class Footprint:
    """Locks in a hierarchy: what they exclude on the same objects, above and below them.

    :param excl_write: as :func:`.queueing.types_conflict` takes it.
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
        """Whether one of the locks and one of type *kind* on *target* exclude each other."""
        met = [self._at.get(parent) for parent in target.parents]
        if met and met[0] is LockType.SHARED_READ:
            met[0] = None  # it keeps nobody from the tables of its database
        met.append(self._at.get(target))
        if target.table or kind is not LockType.SHARED_READ:
            met.append(self._below.get(target))
        return any(one is not None and queueing.types_conflict(one, kind, excl_write=self._excl_write) for one in met)


def excluder(locks: Iterable[Lock]) -> Callable[[Lock], bool]:
    """Whether a lock and one of *locks* exclude each other, where the server has a hierarchy of its own."""
    footprint = Footprint(((lock.object, _TYPES[lock.mode]) for lock in locks), excl_write=True)
    return lambda lock: footprint.excludes(lock.object, _TYPES[lock.mode])


_TYPES = {LockMode.SHARED: LockType.SHARED_READ, LockMode.EXCLUSIVE: LockType.EXCLUSIVE}


def takes_over(
    call: queueing.Call,
    request: LockRequest,
    earlier: queueing.Earlier | None,
    *,
    held: bool,
    given: Iterable[Lock] = (),
) -> bool:
    """Whether a *call* for *request* takes over what its owner's *earlier* call has; False: it starts afresh.

    :param held: the earlier call's request holds; otherwise it waits.
    :param given: what the owner has given back of its lease.
    :raises Superseded: a later call acts for the owner, or has released.
    :raises LeaseMismatch: the owner waits for or holds other locks.
    """
    start = queueing.take_over(call, request.locks, request.named, earlier)
    if earlier is not None and start is queueing.Start.STALE:
        raise Superseded(
            f"{request.owner}: attempt {earlier.call.attempt} came later than this call (attempt {request.attempt}); "
            "this one must stop"
        )
    if earlier is not None and start is queueing.Start.MISMATCH:
        raise mismatch(request.owner, earlier.locks, request.locks, held=held, given=given)
    return start is queueing.Start.TAKE_OVER


def mismatch(
    owner: str, standing: Iterable[Lock], asked: Iterable[Lock], *, held: bool, given: Iterable[Lock] = ()
) -> LeaseMismatch:
    """The error that shows in what the *standing* locks of *owner*, *held* or waited for, differ from the *asked* ones.

    :param given: what the owner has given back of its lease.
    """
    if gone := list(given):
        return LeaseMismatch(
            f"{owner} holds what is left of a lease of which it has given back {_strongest(gone)}; once its work is known to "
            "be over, release the rest, then ask again for all of it"
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
        f"({'; '.join(shown) or 'the same objects, from other reads, writes or statements'}); release them first"
    )


def _strongest(locks: list[Lock]) -> str:
    """The first few, those that are EXCLUSIVE before others."""
    first = sorted(locks, key=lambda lock: lock.mode is not LockMode.EXCLUSIVE)[:MOST_SHOWN]
    more = f" and {len(locks) - MOST_SHOWN} more" if len(locks) > MOST_SHOWN else ""
    return ", ".join(map(str, first)) + more


def escalate(locks: Iterable[Lock], table: LockObject) -> tuple[Lock, ...]:
    """*locks* with EXCLUSIVE on *table* in place of all that they take below it.

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
    late: bool = False,
    types: Mapping[LockObject, LockType] | None = None,
    asked: datetime | None = None,
) -> LockRequest:
    """Check and build the request for *reads* and *writes*, given by name (ranges too) or as objects.

    Objects are taken as they are. In a name, a value that looks like another spelling of what Hive and Spark keep is refused.

    :raises InvalidRequest: naming the input that is wrong.
    """
    shared, exclusive = objects("reads", reads, spelled=True), objects("writes", writes, spelled=True)
    locks = with_parents(shared, exclusive)
    above = {lock.object.parent for lock in locks} if shared else ()
    whole = frozenset(target for target in shared if target in above)
    return LockRequest(
        owner, locks, lease_s, attempt, wait, query, named, whole, priority, limit, late, types or {}, asked
    )


def objects(what: str, given: Iterable[str | LockObject], *, spelled: bool = False) -> list[LockObject]:
    """The objects with the names *given*, ranges expanded; *what* they are is for the error.

    :param spelled: refuse names with a value that looks like another spelling.
    :raises InvalidRequest: for a malformed name, and for one name in place of a list.
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
    """Whether one of *locks* is on *target* or below it; None stands for everything."""
    return target is None or any(lock.object == target or lock.object.is_below(target) for lock in locks)


def holders(held: Iterable[tuple[Lease, str]], target: LockObject | None) -> list[Holder]:
    """The locks of leases on *target* and below it, as they are shown; each lease with what its locks are for."""
    return as_shown(
        Holder(lock.object, lock.mode, lease.owner, lease.since, lease.id, lease.token, lease.expires, True, query)
        for lease, query in held
        for lock in lease.locks
        if concern([lock], target)
    )


def as_shown(found: Iterable[Holder]) -> list[Holder]:
    """As they are shown: by object, and the earliest first."""
    return sorted(found, key=lambda holder: (*order(holder.object), holder.since, holder.owner))
