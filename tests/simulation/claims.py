"""What our processes were told and believe, held against what the store says."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from airflow_hivelock.locks.model import LockMode, locks_to_json, owner_key
from tests.simulation.state import NAMESPACE, ROOT, State, modes_of, path_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.model import Lease, LockObject
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
        self._late: set[str] = set()
        self._began: dict[str, tuple[int, int]] = {}
        self._serious: dict[str, int] = {}
        self._robbed_before: set[str] = set()
        self._given: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        self._whole: dict[tuple[str, int], frozenset[str]] = {}

    # Called by the checks

    def follow(self, key: str, before: State | None, after: State) -> None:
        """Remember up to when an owner was one that a request which does not wait may be refused for."""
        if after.holds or (after.waits and after.wait):
            self._serious[key] = ALWAYS
        elif self._serious.get(key) == ALWAYS:
            self._serious[key] = after.zxid

    def check_late(self, before: State | None, after: State) -> None:
        """A late request makes no lock nodes; it may find some of an earlier process's, and it alone steps aside."""
        was = before.state if before else "free"
        late = after.process in self._late
        if late and after.state != was and after.state == "granted":
            raise Violation(f"{after.owner} was {was} and is {after.state}, and its process is late")
        if late and not set(after.places) <= set(before.places if before else ()):
            raise Violation(f"{after.owner} is {after.state} on {list(after.places)}, and its process is late")
        if after.aside and not late:
            raise Violation(f"{after.owner} has stepped aside, and its process is not late")

    def check_end(self, key: str, before: State) -> None:
        """A lease is over: somebody asked for that."""
        lease_id = f"{key}-{before.ticket_epoch}"
        wanted = lease_id in self._forced or (lease_id, before.epoch) in self._releasing
        wanted = wanted or not self._unasked(key, before, {})
        if not wanted and self._checks.granted_to[key] not in self._withdrawing:
            raise Violation(f"{before.owner}: {lease_id} is freed, and nobody asked for it")
        self.held.pop((lease_id, before.epoch), None)

    def check_part(self, key: str, before: State, after: State) -> None:
        """A lease goes on: it holds what it held, but for what was named, and SHARED on parents that nothing left needs."""
        if before.modes == after.modes:
            return
        if not after.modes.items() < before.modes.items():
            raise Violation(f"{after.owner} holds {after.modes} by now, and had {before.modes}")
        if (before.token, before.epoch, before.process) != (after.token, after.epoch, after.process):
            raise Violation(f"{after.owner} gives back a part, and its lease is another: {before} {after}")
        if unasked := self._unasked(key, before, after.modes):
            raise Violation(f"{after.owner} has given back {unasked}, and nobody named it")

    def _unasked(self, key: str, before: State, after: dict[str, str]) -> list[str]:
        """What a lease holds no more, and nobody was to give back: neither named, nor a parent that nothing left needs."""
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
        """A process begins to give back *objects*, and all that lies in them; it no longer thinks that it holds those."""
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

    def begins(self, process: str, seen: int, now_ms: int, *, late: bool) -> None:
        """A process begins a request, and will look at all that has been written up to *seen*."""
        self._began[process] = seen, now_ms
        if late:
            self._late.add(process)

    def began(self, process: str) -> tuple[int, int]:
        """Up to which zxid it has seen all, and when that was."""
        return self._began[process]

    def free(self, owner: str, key: str, process: str) -> None:
        """A late process has been told that it could have had its locks."""
        state = self._checks.states.get(key)
        if state and state.process == process and state.state not in ("away", "free"):
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

    def renewing(self, lease: Lease, key: str, seen: int) -> None:
        """A process, whose session has *seen* the writes so far, begins to renew: what they robbed must be missed."""
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
        """A process has given up its request. A lease that it only took over may stand: its work may go on."""
        state = self._checks.states.get(key)
        mine = self._checks.granted_to.get(key) == process
        if state and state.process == process and (state.waits or state.aside or (state.holds and mine)):
            raise Violation(f"{state.owner} has withdrawn, and is {state.state}")

    def refused(self, owner: str, by: str, since: int) -> None:
        """A request that does not wait, begun at the zxid *since*, is refused because of the owner with the key *by*."""
        if self._serious.get(by, 0) < since:
            raise Violation(f"{owner} is refused because of {by}, which neither held nor waited since then")

    def _stands(self, lease: Lease, key: str) -> bool:
        """Whether the store still has this grant, for this process."""
        state = self._checks.states.get(key)
        return bool(state and state.holds and (f"{key}-{state.ticket_epoch}", state.epoch) == (lease.id, lease.epoch))
