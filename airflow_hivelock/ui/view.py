"""The page's data about a lock store as plain values, which are read once for all users."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_hivelock.locks.model import WaitsFor
from airflow_hivelock.spec import Owner
from airflow_hivelock.ui import hiding
from airflow_hivelock.ui.hiding import View
from airflow_hivelock.ui.lock_rows import LockRows, mode_letter, rows_of
from airflow_hivelock.ui.works import what

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.model import Blocker, ForcedRelease, Holder, Lease, Tenure, Waiter

    Arrow = tuple[str, dict[str, Any]]
    Request = TypeVar("Request", Lease, Waiter, Tenure, ForcedRelease)
    from airflow_hivelock.ui.access import Sensor

MOST_BLOCKERS = 50
"""The largest number of a waiter's blockers that are considered for its arrows, nearest first."""

MOST_ARROWS = 12
MOST_WAITERS = 5_000
MOST_LOCKS = 20_000
"""The largest number of locks in each list: of holders, of waiters, of Hive, and of a history."""

MOST_TENURES, MOST_AUDITED = 3_000, 1_000
MOST_QUERY = 500
"""The largest number of characters of a query that are shown. Hive 3 keeps a million in each of a query's locks."""


class Owners:
    """The owners in an answer, each once."""

    def __init__(self, installation: str) -> None:
        self.installation = installation
        self.rows: list[dict[str, Any]] = []
        self._places: dict[str, int] = {}

    def index(self, text: str) -> int:
        """The index of the owner *text*."""
        if text not in self._places:
            self._places[text] = len(self.rows)
            self.rows.append(hiding.owner_row(text, self.installation))
        return self._places[text]


@dataclass(frozen=True)
class ShownLocks:
    """The result of ``show()``, and its time by the store's clock."""

    at_ms: int
    holders: Sequence[Holder]


def current(
    leases: Sequence[Lease],
    waiters: Sequence[Waiter],
    shown_locks: ShownLocks | None,
    installation: str,
    *,
    expires: bool = False,
    sensors: Sequence[Sensor] = (),
    expected: Mapping[str, Sequence[int]] | None = None,
    rows: LockRows | None = None,
) -> View:
    """The holders and the waiters.

    :param shown_locks: Hive's own locks and locks lost to Hive, which leases do not contain; None: unknown so far.
    :param expires: whether time frees a lease in this store.
    :param sensors: the sensors that wait for free data, and take no lock.
    :param expected: of waiters by owner: from when to when its wait will probably end, as times of the store.
    :param rows: the rows of the last view of this store; None: there is none.
    """
    owners, rows = Owners(installation), rows or LockRows()
    queue = list(_queued(_fitting(waiters[:MOST_WAITERS]), expected or {}))
    blocking = {owner for queued in queue for owner, _ in queued.arrows}
    kept = _fitting(sorted(leases, key=lambda lease: (lease.owner not in blocking, lease.expires or lease.since)))
    by_lease: defaultdict[str | None, list[Holder]] = defaultdict(list)
    for holder in shown_locks.holders if shown_locks else ():
        by_lease[holder.lease_id].append(holder)
    hives = by_lease.pop(None, [])
    data = {
        "leases": [_lease(owners, rows, lease, by_lease.get(lease.id, ()), shown_locks) for lease in kept],
        "hive": [_hive(holder) for holder in hives[:MOST_LOCKS]] if shown_locks else None,
        "waiters": [_waiter(owners, rows, queued) for queued in queue]
        + [_sensor(owners, sensor) for sensor in sensors],
        "expires": expires,
        "left_out": len(leases) - len(kept) + len(waiters) - len(queue) + len(hives[MOST_LOCKS:]),
    }
    rows.end_view()
    dags = {dag for lease in kept for dag in hiding.dags_of(lease, installation)}
    # A listing of HiveServer2, or a lock node without a record, shows a lock of a task as if it was Hive's own.
    dags |= {hiding.dag_of_owner(holder.owner, installation) for holder in hives[:MOST_LOCKS]}
    return named(owners, data, dags - {""})


def _fitting(requests: Sequence[Request]) -> Sequence[Request]:
    """The first *requests*, with at most :data:`MOST_LOCKS` locks."""
    left = MOST_LOCKS
    for index, request in enumerate(requests):
        left -= len(request.locks)
        if left < 0 and index > 0:
            return requests[:index]
    return requests


def history(tenures: Sequence[Tenure], installation: str) -> View:
    """The view of the leases *tenures*, in the same order."""
    owners = Owners(installation)
    shown = _fitting(tenures[:MOST_TENURES])
    return named(
        owners, {"tenures": [_tenure(owners, tenure) for tenure in shown], "left_out": len(tenures) - len(shown)}
    )


def audit(entries: Sequence[ForcedRelease], installation: str) -> View:
    """The view of the force releases *entries*, in the same order."""
    owners = Owners(installation)
    shown = [_entry(owners, entry) for entry in _fitting(entries[:MOST_AUDITED])]
    dags = {hiding.dag_of_user(row["user"], installation) for row in shown}
    dags |= {hiding.dag_of_reason(row["reason"]) for row in shown}
    return named(owners, {"entries": shown, "left_out": len(entries) - len(shown)}, dags - {""})


def named(owners: Owners, data: dict[str, Any], dag_ids: Iterable[str] = ()) -> View:
    """An answer with *owners*.

    :param dag_ids: the DAGs that *data* names apart from the owners.
    """
    of_owners = (row["dag"] for row in owners.rows if "dag" in row and "installation" not in row)
    return View({"installation": owners.installation, "owners": owners.rows, **data}, frozenset((*of_owners, *dag_ids)))


def _lease(
    owners: Owners, rows: LockRows, lease: Lease, holders: Sequence[Holder], shown_locks: ShownLocks | None
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": lease.id,
        "o": owners.index(lease.owner),
        "token": lease.token,
        "attempt": lease.attempt,
        "since": _ms(lease.since),
        "lease_s": lease.lease_s,
        "jobs": [[work.name, what(work.application)] for work in lease.works],
        "locks": rows.of(lease.locks),
    }
    if lease.expires is not None:
        row["expires"] = _ms(lease.expires)
    if holders and holders[0].query:
        row["query"] = holders[0].query[:MOST_QUERY]
    # A lease that was granted after that read has lost no lock. A lease without any lock has just been released.
    if (
        holders
        and shown_locks
        and _ms(lease.since) < shown_locks.at_ms
        and (lost := {lock.object for lock in lease.locks} - {holder.object for holder in holders})
    ):
        row["lost"] = sorted(map(str, lost))
    return row


def _hive(holder: Holder) -> dict[str, Any]:
    row: dict[str, Any] = {
        "object": str(holder.object),
        "mode": mode_letter(holder.mode),
        "owner": holder.owner,
        "since": _ms(holder.since),
        "explicit": holder.explicit,
        "query": holder.query[:MOST_QUERY],
    }
    if holder.hive_id:
        row["id"] = holder.hive_id
    if holder.heartbeat is not None:
        row["heartbeat"] = _ms(holder.heartbeat)
    return row


def _waiter(owners: Owners, rows: LockRows, queued: Queued) -> dict[str, Any]:
    waiter = queued.waiter
    row: dict[str, Any] = {
        "o": owners.index(waiter.owner),
        "position": waiter.position,
        "priority": waiter.priority,
        "for": waiter.waits_for.value,
        "since": _ms(waiter.since),
        **({"until": _ms(waiter.until)} if waiter.until else {}),
        **({"expected": list(queued.expected)} if queued.expected else {}),
        "locks": rows.of(waiter.locks),
        "blockers": [{**arrow, "o": owners.index(owner)} for owner, arrow in queued.arrows],
        "direct": queued.direct,
        "ahead": len({blocker.owner for blocker in waiter.blocked_by if blocker.waiting}),
        "holders": [{**_arrow(blocker), "o": owners.index(blocker.owner)} for blocker in queued.holding],
    }
    if waiter.waits_for is WaitsFor.LEASE:
        row["group"] = next((blocker.group for blocker in waiter.blocked_by if blocker.group), "")
        row["out"] = len({blocker.owner for blocker in waiter.blocked_by if blocker.group and not blocker.waiting})
    return row


@dataclass(frozen=True)
class Queued:
    """A waiter, and what the page shows about its wait.

    :param arrows: its direct blockers. The blockers of a direct blocker are omitted.
    :param direct: the number of its direct blockers, also of those without an arrow.
    :param holding: the holders that it waits for.
    :param expected: from when to when its wait will probably end. None: unknown.
    """

    waiter: Waiter
    arrows: list[Arrow]
    direct: int
    holding: Sequence[Blocker]
    expected: Sequence[int] | None


def _queued(waiters: Sequence[Waiter], expected: Mapping[str, Sequence[int]]) -> Iterator[Queued]:
    holding = _holding(waiters)
    nearest = {waiter.owner: waiter.blocked_by[:MOST_BLOCKERS] for waiter in waiters}
    names = defaultdict(set, {owner: {blocker.owner for blocker in near} for owner, near in nearest.items()})
    for waiter in waiters:
        blockers: list[Arrow] = []
        passed: set[str] = set()
        for blocker in sorted(
            nearest[waiter.owner], key=lambda blocker: -len(names[blocker.owner]) if blocker.group else 0
        ):
            if blocker.owner not in passed:
                blockers.append((blocker.owner, _arrow(blocker)))
                passed |= {blocker.owner} | names[blocker.owner]
        yield Queued(waiter, blockers[:MOST_ARROWS], len(blockers), holding[waiter.owner], expected.get(waiter.owner))


def _holding(waiters: Sequence[Waiter]) -> dict[str, Sequence[Blocker]]:
    """By waiter's owner, the holders that it waits for. If it waits only for other waiters, their holders."""
    found: dict[str, Sequence[Blocker]] = {}
    for waiter in waiters:
        held: dict[str, Blocker] = {}
        for blocker in reversed(waiter.blocked_by):  # the holders are at the end
            if len(held) >= MOST_ARROWS:
                break
            if not blocker.waiting:
                held.setdefault(blocker.owner, blocker)
        found[waiter.owner] = list(held.values())
    blockers = {waiter.owner: waiter.blocked_by for waiter in waiters}
    for waiter in waiters:
        owner, passed = waiter.owner, {waiter.owner}
        while not found.get(owner) and (ahead := blockers.get(owner)) and ahead[0].owner not in passed:
            owner = ahead[0].owner
            passed.add(owner)
        found[waiter.owner] = found.get(owner, ())
    return found


def _sensor(owners: Owners, sensor: Sensor) -> dict[str, Any]:
    who = Owner(owners.installation, sensor.dag_id, sensor.run_id, sensor.task_id, sensor.map_index)
    return {
        "o": owners.index(str(who)),
        "position": 0,
        "priority": 1,
        "for": "free",
        "since": _ms(sensor.since),
        "locks": [[name, "S"] for name in sensor.reads] + [[name, "X"] for name in sensor.writes],
        "blockers": [],
        "direct": 0,
        "ahead": 0,
        "holders": [],
    }


def _arrow(blocker: Blocker) -> dict[str, Any]:
    """The lock or the group's permit that causes a block."""
    arrow = {"object": str(blocker.object), "mode": mode_letter(blocker.mode), "waiting": blocker.waiting}
    return {**arrow, "counted": True} if blocker.group else arrow


def _tenure(owners: Owners, tenure: Tenure) -> dict[str, Any]:
    return {
        "id": tenure.lease_id,
        "o": owners.index(tenure.owner),
        "locks": [lock for lock in rows_of(tenure.locks) if len(lock) == 2],
        "asked": _ms(tenure.asked),
        "granted": _ms(tenure.granted),
        "ended": _ms(tenure.ended) if tenure.ended else None,
    }


def _entry(owners: Owners, entry: ForcedRelease) -> dict[str, Any]:
    return {
        "at": _ms(entry.at),
        "id": entry.lease_id,
        "o": owners.index(entry.owner),
        "user": entry.user,
        "reason": entry.reason,
        "locks": [lock for lock in rows_of(entry.locks) if len(lock) == 2],
    }


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
