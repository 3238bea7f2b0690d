"""Rules of the protocol, taken away one at a time: what each is for, and that the simulation would see it missing.

Each docstring says what goes wrong without the rule. Some rules are not here, for nothing goes wrong that could be
checked, or not in this form of the protocol:

* the barrier's node is never swapped for another: a new node would be verified anew, so only the place would be lost;
* a barrier's node that Hive unlocked is struck from the record: a refused try drops the whole barrier, which heals it;
* ``alive`` is replaced by whoever takes over: else its request is broken when its predecessor's session ends, and queues
  again; a loss of place, not of safety;
* EXCLUSIVE nodes raise no guard: would they, releases would only be put off by more of other people's acquisitions.

Those entered without a seed have not been noticed by any run yet, and are not tested: ``removal_without_guards``,
``guard_not_raised`` and ``age_of_the_object_ignored`` need UNLOCK TABLE, the clean-up of an emptied partition and a second
reader of it within one hold; ``barrier_kept_behind`` needs two queries of Hive's around two objects of ours;
``transaction_sent_again`` seems harmless, for every transaction compares the record, so the second copy is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import acquisition, backend, record, removal
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.backend import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.client import Check, Exists, Get, Listing, SetData
from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace
from airflow_hivelock.locks.backends.zookeeper.queue import Queues, unit
from airflow_hivelock.locks.backends.zookeeper.record import Record, State
from airflow_hivelock.locks.model import LockMode
from tests.simulation import model
from tests.simulation.mutation import mutation
from tests.simulation.session import SimulatedSession

if TYPE_CHECKING:
    from collections.abc import Collection

    import pytest

    Patch = pytest.MonkeyPatch

# The queue


@mutation(seed=18)
def ticket_known_by_its_owner(patch: Patch) -> None:
    """The one ahead finishes and queues again behind me: each waits for the other."""
    original = ZooKeeperAcquisition._wait_for

    def wait_for(self: ZooKeeperAcquisition, nearest: Any, first: Any) -> Any:
        standing = self._store._read(nearest.key)
        epoch = standing.ticket_epoch if standing else 0
        return original(self, replace(nearest, path=self._store.layout.record(nearest.key), epoch=epoch), first)

    patch.setattr(ZooKeeperAcquisition, "_wait_for", wait_for)


@mutation(seed=0)
def dead_waiter_skipped(patch: Patch) -> None:
    """Whoever takes up the dead waiter's place has the earlier ticket, and both are let in."""
    original = Queues.earlier

    def earlier(self: Queues, *args: Any) -> Any:
        found = original(self, *args)
        return [t for t in found if self._client.submit(Exists(self._layout.alive(t.key)))[0]]

    patch.setattr(Queues, "earlier", earlier)


@mutation(seed=60)
def alive_read_before_the_record(patch: Patch) -> None:
    """The sign of life of an earlier request is missed, the record of a later one is read, and a living waiter broken."""
    submit = SimulatedSession.submit
    early: dict[tuple[SimulatedSession, str], Any] = {}

    def submit_early(self: SimulatedSession, *requests: Any) -> list[Any]:
        match requests:
            case [Exists(), Exists(), Get(path), Get()]:
                alive = path.replace("/requests/", "/alive/")
                early[self, alive] = submit(self, Exists(alive))[0]
            case [Exists(path, wake)] if wake and (self, path) in early:
                submit(self, *requests)
                return [early.pop((self, path))]
        return submit(self, *requests)

    patch.setattr(SimulatedSession, "submit", submit_early)


@mutation(seed=2)
def break_without_a_version(patch: Patch) -> None:
    """What has come back to life meanwhile is broken all the same."""
    original = ZooKeeperBackend.break_dead

    def break_dead(self: ZooKeeperBackend, key: str, found: Record) -> Any:
        assert found.stat is not None
        return original(self, key, replace(found, stat=replace(found.stat, version=-1)))

    patch.setattr(ZooKeeperBackend, "break_dead", break_dead)


@mutation(seed=26)
def refused_for_one_that_does_not_wait(patch: Patch) -> None:
    """Two requests that do not wait refuse each other, and both go for nothing."""
    patch.setattr(acquisition, "Blocked", lambda *args, **given: Blocked(*args, **given | {"passing": False}))


# The owner's record


@mutation(seed=0)
def no_compare_and_set(patch: Patch) -> None:
    """A slow process writes over what another of its owner has written meanwhile."""
    for module in (acquisition, backend, removal):
        patch.setattr(module, "SetData", lambda path, data, version: SetData(path, data, -1))


@mutation(seed=10)
def renewal_without_a_version(patch: Patch) -> None:
    """A late renewal brings back a lease that was released."""
    original = ZooKeeperBackend._rewrite

    def rewrite(self: ZooKeeperBackend, found: Record, changed: Record, *checks: Check) -> Record | None:
        assert found.stat is not None
        return original(self, replace(found, stat=replace(found.stat, version=-1)), changed, *checks)

    patch.setattr(ZooKeeperBackend, "_rewrite", rewrite)


@mutation(seed=13)
def no_tombstone(patch: Patch) -> None:
    """A slow first process of the owner acquires again after the release: a lease that nobody knows of."""

    def bury(self: ZooKeeperBackend, key: str, found: Record, *also: Any) -> Record | None:
        return self.removal.commit(key, found, found.freed(), (*self.queues.deletes(found, key), *also))

    patch.setattr(ZooKeeperBackend, "bury", bury)


@mutation(seed=0)
def freed_forgets_the_order(patch: Patch) -> None:
    """A slow earlier process goes on where a later one has withdrawn."""
    original = Record.freed
    patch.setattr(Record, "freed", lambda self: replace(original(self), attempt=0, begin=0))


@mutation(seed=0)
def earlier_attempts_take_over(patch: Patch) -> None:
    """Try 2 is at it; slow try 1 reads that and takes it over."""
    original = record.start

    def start(existing: Record | None, request: Any, process: str, begin: int) -> Record:
        if existing and existing.state is not State.TOMBSTONE:
            existing = replace(existing, attempt=0, begin=0, process="")
        return original(existing, request, process, begin)

    patch.setattr(record, "start", start)


@mutation(seed=13)
def tie_not_broken(patch: Patch) -> None:
    """Two calls of one owner that began at the same zxid take over from each other for ever."""
    patch.setattr(Record, "order", property(lambda self: (self.attempt, self.begin, "")))


@mutation(seed=0)
def take_over_keeps_the_epoch(patch: Patch) -> None:
    """The release of the process that was taken over frees the lease of the one that took over."""
    original = record.start

    def start(existing: Record | None, request: Any, process: str, begin: int) -> Record:
        mine = original(existing, request, process, begin)
        same = existing is not None and existing.ticket_epoch == mine.ticket_epoch
        return replace(mine, epoch=existing.epoch) if existing is not None and same else mine

    patch.setattr(record, "start", start)


@mutation(seed=60)
def withdrawn_without_the_lost_grant(patch: Patch) -> None:
    """The reply to the grant is lost, the request is withdrawn, and its lease stands for ever."""
    patch.setattr(ZooKeeperAcquisition, "_granting", property(lambda self: -1, lambda self, epoch: None), raising=False)


@mutation(seed=37)
def forgetful_session(patch: Patch) -> None:
    """The next session is with a server that lags: a ticket that stands is not seen, and two hold."""
    patch.setattr(
        SimulatedSession, "_synced", property(lambda self: self._session, lambda self, session: None), raising=False
    )


# The lock nodes


@mutation(seed=None)
def removal_without_guards(patch: Patch) -> None:
    """UNLOCK TABLE takes my node, another's has the same path, and my release deletes that."""
    doomed = removal._Doomed
    patch.setattr(removal, "_Doomed", lambda guards, nodes, emptied: doomed((), nodes, emptied))


@mutation(seed=None)
def guard_not_raised(patch: Patch) -> None:
    """The same: who makes a SHARED node must tell those who are about to delete one."""
    patch.setattr(acquisition, "shared_units", lambda locks: ())


@mutation(seed=0)
def nodes_known_by_name(patch: Patch) -> None:
    """Whoever's node it is on my object, in my mode, I delete it."""
    original = Namespace.own_nodes

    class Every(frozenset[int]):
        def __contains__(self, zxid: object) -> bool:
            return True

    def own_nodes(self: Namespace, locks: Any, zxids: Collection[int]) -> Any:
        return original(self, locks, Every())

    patch.setattr(Namespace, "own_nodes", own_nodes)


@mutation(seed=None)
def age_of_the_object_ignored(patch: Patch) -> None:
    """UNLOCK TABLE and clean-up, a successor makes a node of my node's name, and I believe that it is mine."""
    patch.setattr(model, "Listing", lambda names, czxid: Listing(names, 0))


# The try and the grant


@mutation(seed=17)
def verify_skipped(patch: Patch) -> None:
    """Hive locked between the look and the try."""
    patch.setattr(ZooKeeperAcquisition, "_verify", lambda self, trying, own, children=None: self._grant(trying))


@mutation(seed=2)
def try_against_hive(patch: Patch) -> None:
    """Tries that must fail make Hive's own retries fail."""
    original = Namespace.foreign_conflicts
    patch.setattr(
        Namespace,
        "foreign_conflicts",
        lambda self, locks, children, own: original(self, locks, children, own) if own else [],
    )


@mutation(seed=60)
def locks_below_ignored(patch: Patch) -> None:
    """Hive's LOCK TABLE … PARTITION does not lock the table, and the table is granted EXCLUSIVE beside it."""
    patch.setattr(Namespace, "foreign_below", lambda self, locks, children, before_zxid: [])


@mutation(seed=None)
def barrier_kept_behind(patch: Patch) -> None:
    """I wait at one object with a node on a later one; Hive holds the first and waits for the second."""

    def hold_place(self: ZooKeeperAcquisition, target: Any) -> None:
        assert self._record is not None
        lock = next(lock for lock in self._record.locks if lock.object == target)
        bump = [SetData(self._store.layout.queue(unit(lock)), b"", -1)] if lock.mode is LockMode.SHARED else []
        created = self._lock_nodes([lock], {target: Listing((), 0)}, self._asked_ms)
        self._rewrite(replace(self._record, barrier=(*self._record.barrier, (str(target), 0))), [*bump, *created])

    patch.setattr(ZooKeeperAcquisition, "_hold_place", hold_place)


# The lease


@mutation(seed=2)
def released_by_lease_id_alone(patch: Patch) -> None:
    """The late release of try 1 frees what try 2 has adopted."""

    def standing(self: ZooKeeperBackend, lease: Any) -> Record | None:
        found = self._record_of(lease.id)
        return replace(found, epoch=lease.epoch) if found else None

    patch.setattr(ZooKeeperBackend, "_standing", standing)


@mutation(seed=26)
def release_stops_at_another_version(patch: Patch) -> None:
    """A renewal in between, and the lease is never released."""
    original = ZooKeeperBackend.bury
    patch.setattr(ZooKeeperBackend, "bury", lambda self, key, found, *also: original(self, key, found, *also) or found)


@mutation(seed=10)
def gone_by_a_stale_read(patch: Patch) -> None:
    """The server lags behind the grant, so the release finds nothing to release."""
    original = ZooKeeperBackend._read
    patch.setattr(ZooKeeperBackend, "_read", lambda self, key, fresh=False: original(self, key))


@mutation(seed=0)
def loss_not_watched(patch: Patch) -> None:
    """UNLOCK TABLE takes a lock, and its holder sleeps on."""
    original = Namespace.missing
    patch.setattr(Namespace, "missing", lambda self, locks, zxids, wake: original(self, locks, zxids, None))
