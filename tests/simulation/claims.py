"""The answers that our processes got, compared with the store."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from airflow_hivelock.locks.model import LockMode, locks_to_json, owner_key
from tests.simulation.state import NAMESPACE, ROOT, State, modes_of, path_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.model import DeferredGrant, Lease, LockObject
    from tests.simulation.checks import Checks
    from tests.simulation.model import Znode

ALWAYS = 1 << 62


class Violation(AssertionError):
    """The protocol broke a promise."""


class Claims:
    """Who thinks that he holds, releases, gives up; who asked for what."""

    def __init__(self, checks: Checks) -> None:
        self.held: dict[tuple[str, int], Lease] = {}
        self.leases = 0
        self._checks = checks
        self._returned: set[str] = set()
        self._releasing: set[tuple[str, int]] = set()
        self._forced: set[str] = set()
        self._withdrawing: set[str] = set()
        self._withdrawn_by_force: set[str] = set()
        self._deferred: set[str] = set()
        self._with_slot: set[str] = set()
        self._began: dict[str, tuple[int, int]] = {}
        self._serious: dict[str, int] = {}
        self._robbed_before: set[str] = set()
        self._given: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        self._whole: dict[tuple[str, int], frozenset[str]] = {}

    # Called by the checks

    def follow(self, key: str, before: State | None, after: State) -> None:
        """Remember up to when an owner was one that a request which does not wait may be refused for."""
        if after.holds or after.invited or (after.waits and after.wait):
            self._serious[key] = ALWAYS
        elif self._serious.get(key) == ALWAYS:
            self._serious[key] = after.zxid

    def check_late(self, before: State | None, after: State) -> None:
        """A deferred request creates no lock nodes, unless an earlier process left some. Only it is invited, or goes away.
        Its worker leaves nothing behind that waits."""
        was = before.state if before else "free"
        is_deferred = after.process in self._deferred
        had = bool(before and before.places)
        if is_deferred and after.state != was and after.state == "granted" and not had:
            raise Violation(f"{after.owner} was {was} and is {after.state}, and its grant is deferred")
        if is_deferred and after.places and not had:
            raise Violation(f"{after.owner} is {after.state} on {list(after.places)}, and its grant is deferred")
        if (after.away or after.invited) and not is_deferred and after.process not in self._with_slot:
            raise Violation(f"{after.owner} is {after.state}, and its grant is not deferred")
        if after.waits and after.process in self._with_slot:
            raise Violation(f"{after.owner} is {after.state}, and its process is a worker with a slot")

    def check_end(self, key: str, before: State) -> None:
        """A lease has ended: a process has asked for that."""
        lease_id = f"{key}-{before.ticket_epoch}"
        wanted = lease_id in self._forced or (lease_id, before.epoch) in self._releasing
        wanted = wanted or not self._unasked(key, before, {})
        if not wanted and self._checks.granted_to[key] not in self._withdrawing:
            raise Violation(f"{before.owner}: {lease_id} is freed, and nobody asked for it")
        self.held.pop((lease_id, before.epoch), None)

    def check_part(self, key: str, before: State, after: State) -> None:
        """A lease continues: it holds its locks except the named ones and SHARED on parents that no remaining lock
        needs.
        """
        if before.modes == after.modes:
            return
        if not after.modes.items() < before.modes.items():
            raise Violation(f"{after.owner} holds {after.modes} by now, and had {before.modes}")
        if (before.token, before.epoch, before.process) != (after.token, after.epoch, after.process):
            raise Violation(f"{after.owner} gives back a part, and its lease is another: {before} {after}")
        if unasked := self._unasked(key, before, after.modes):
            raise Violation(f"{after.owner} has given back {unasked}, and nobody named it")

    def _unasked(self, key: str, before: State, after: dict[str, str]) -> list[str]:
        """The locks that a lease has lost without a request: not named, and not a parent that no remaining lock needs."""
        lease = f"{key}-{before.ticket_epoch}", before.epoch
        named, whole = self._given[lease], self._whole.get(lease, frozenset())

        def asked(target: str) -> bool:
            if any(f"{target}/".startswith(f"{name}/") for name in named):
                return True
            had_below = any(other.startswith(f"{target}/") for other in before.modes)
            has_below = any(other.startswith(f"{target}/") for other in after)
            return before.modes[target] == "S" and had_below and not has_below and target not in whole

        return sorted(target for target in before.modes.keys() - after.keys() if not asked(target))

    # Called by our processes

    def gives(self, lease: Lease, objects: Iterable[LockObject], whole: Iterable[LockObject]) -> None:
        """A process begins to release *objects* and everything below them; it no longer expects to hold those."""
        held = lease.id, lease.epoch
        self._given[held] |= {path_of(str(target)) for target in objects}
        self._whole[held] = frozenset(path_of(str(target)) for target in whole)

    def gave(self, lease: Lease, left: Lease | None, objects: Iterable[LockObject], key: str) -> None:
        """That has returned."""
        state, named = self._checks.states.get(key), {path_of(str(target)) for target in objects}
        if self._stands(lease, key) and state is not None:
            kept = [target for target in state.modes if any(f"{target}/".startswith(f"{name}/") for name in named)]
            if kept or left is None:
                raise Violation(f"{lease.owner} has given back {sorted(named)}, and has {state.modes}")
            if modes_of(locks_to_json(left.locks)) != state.modes:
                raise Violation(f"{lease.owner} is told that it has {left.locks}, and has {state.modes}")
            self.held[lease.id, lease.epoch] = left
        elif left is None:
            self.releases(lease)

    def granted(self, lease: Lease, key: str) -> None:
        """A process has got *lease*."""
        self.leases += 1
        state = self._checks.states[key]
        self._returned.add(lease.id)
        if self._stands(lease, key):
            self._checks.check_returned(key, state)
            modes = {path_of(str(lock.object)): "X" if lock.mode is LockMode.EXCLUSIVE else "S" for lock in lease.locks}
            if modes != state.modes:
                raise Violation(f"{lease.owner} got other locks than the record has")
            self.held[lease.id, lease.epoch] = lease
        elif state.epoch <= lease.epoch and lease.id not in self._forced and not self._ended_by_another(lease):
            raise Violation(f"{lease.owner} got {lease.id}, which does not stand: {state}")

    def begins(self, process: str, seen: int, now_ms: int, *, deferred: DeferredGrant | None) -> None:
        """A process begins a request, and will read everything that was written up to *seen*."""
        self._began[process] = seen, now_ms
        if deferred:
            (self._with_slot if deferred.has_slot else self._deferred).add(process)

    def began(self, process: str) -> tuple[int, int]:
        """The zxid up to which it has read everything, and when that was."""
        return self._began[process]

    def free(self, owner: str, key: str, process: str) -> None:
        """A deferred process got the answer that it could have its locks."""
        state = self._checks.states.get(key)
        if state and state.process == process and state.state not in ("away", "free", "invited"):
            raise Violation(f"{owner} is told that its locks are free, and is {state.state}")

    def _ended_by_another(self, lease: Lease) -> bool:
        """Whether a process of the same owner, told that the lease was lost, has released it before this one knew of it."""
        return (lease.id, lease.epoch) in self._releasing

    def releases(self, lease: Lease) -> None:
        """A process begins to release; it no longer thinks that it holds."""
        self.held.pop((lease.id, lease.epoch), None)
        self._releasing.add((lease.id, lease.epoch))

    def released(self, lease: Lease, key: str) -> None:
        """A release has returned."""
        if self._stands(lease, key):
            raise Violation(f"{lease.owner}: {lease.id} was released, and stands")

    def forces(self, lease_id: str) -> None:
        """Somebody begins to free a lease by force; its holder's work has been stopped."""
        self._forced.add(lease_id)
        self.held = {held: lease for held, lease in self.held.items() if lease.id != lease_id}

    def withdraws_by_force(self, owner: str) -> None:
        """A person begins to withdraw the owner's request."""
        self._withdrawn_by_force.add(owner)

    def check_withdrawn(self, owner: str) -> None:
        """Check that a person asked for the withdrawal of the owner's request."""
        if owner not in self._withdrawn_by_force:
            raise Violation(f"{owner}: its request is withdrawn, and nobody asked for it")

    def renewing(self, lease: Lease, key: str, seen: int) -> None:
        """A process begins to renew. Its session has *seen* the writes so far, so it must notice locks that they
        removed.
        """
        if self._stands(lease, key):
            places = self._checks.states[key].places
            robbed = (self._checks.robbed.get((made, target)) for target, made in places.items())
            if any(zxid is not None and zxid <= seen for zxid in robbed):
                self._robbed_before.add(lease.id)

    def renewed(self, lease: Lease) -> None:
        """A renewal has returned without a word."""
        if lease.id in self._robbed_before:
            raise Violation(f"{lease.owner} has renewed {lease.id}, of which a lock had been robbed")

    def lost(self, lease: Lease, key: str) -> None:
        """A process has been told that its lease is lost."""
        state = self._checks.states[key]
        if self._stands(lease, key) and state.state != "lost" and not self._checks.is_robbed(state):
            raise Violation(f"{lease.owner} is told that {lease.id} is lost, and it stands")

    def undisturbed(self, lease: Lease, key: str, tree: dict[str, Znode]) -> None:
        """A process that watches its lease has not been woken; *tree* is what its server has."""
        path = f"{ROOT}/requests/{key}"
        state = State.of(tree[path]) if path in tree else None
        if state is None or (f"{key}-{state.ticket_epoch}", state.epoch) != (lease.id, lease.epoch):
            raise Violation(f"{lease.owner} sleeps on, and {lease.id} is gone: {state}")
        for target, zxid in state.places.items():
            parent = f"{NAMESPACE}/{target}"
            names = tree[parent].children if parent in tree else ()
            if not any(tree[f"{parent}/{name}"].stat.czxid == zxid for name in names):
                raise Violation(f"{lease.owner} sleeps on, and {lease.id} has lost {target}")

    def was_returned(self, lease_id: str) -> bool:
        """Whether any process has got that lease."""
        return lease_id in self._returned

    def is_held(self, key: str) -> bool:
        """Whether a process thinks that the owner with that key holds, and it does."""
        return any(self._stands(lease, key) for lease in self.held.values() if owner_key(lease.owner) == key)

    def withdraws(self, process: str) -> None:
        """A process begins to give up a request that it has no lease from yet."""
        self._withdrawing.add(process)

    def withdrawn(self, key: str, process: str) -> None:
        """A process has given up its request. A lease that it only took over may be held: its work may continue."""
        state = self._checks.states.get(key)
        mine = self._checks.granted_to.get(key) == process
        if (
            state
            and state.process == process
            and (state.waits or state.away or state.invited or (state.holds and mine))
        ):
            raise Violation(f"{state.owner} has withdrawn, and is {state.state}")

    def refused(self, owner: str, by: str, since: int) -> None:
        """A request that does not wait, begun at the zxid *since*, is refused because of the owner with the key *by*."""
        if self._serious.get(by, 0) < since:
            raise Violation(f"{owner} is refused because of {by}, which neither held nor waited since then")

    def _stands(self, lease: Lease, key: str) -> bool:
        """Whether the store still has this grant, for this process."""
        state = self._checks.states.get(key)
        return bool(state and state.holds and (f"{key}-{state.ticket_epoch}", state.epoch) == (lease.id, lease.epoch))
