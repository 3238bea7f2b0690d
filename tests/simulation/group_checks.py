"""The rules of groups of leases, checked after every write: the number of leases, their owners, and their order."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks.model import LeaseLimit, owner_key
from tests.conformance.priority import BEHIND, unclaimed
from tests.simulation.claims import Violation
from tests.simulation.state import HOLDING, ROOT

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from tests.simulation.checks import Checks
    from tests.simulation.model import Change
    from tests.simulation.state import State

_NODE = re.compile(rf"{ROOT}/groups/([0-9a-f]+)/(permits|queue)/(.*)")
_LIMIT = re.compile(rf"{ROOT}/groups/([0-9a-f]+)/limit")
_PLACE = re.compile(r"([0-9a-f]{16})-([0-9]+)-[0-9]+-([0-9]+)-(-?[0-9]+)-([0-9]+)")
TAKEN = (*HOLDING, "invited")


class Place(NamedTuple):
    """A place in a group's queue, as its node's name says it; they go in this order."""

    place: int
    rank: int
    epoch: int
    key: str
    czxid: int
    placed_ms: int


class Settings(NamedTuple):
    """A group's settings in the store. 0: it has no limit there.

    :param zxid: when they were written.
    """

    zxid: int = 0
    leases: int = 0
    weight: int = 1


class GroupChecks:
    """Follows the groups."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self.permits: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self.queues: defaultdict[str, dict[str, Place]] = defaultdict(dict)
        self._places: dict[tuple[str, int], int] = {}
        self._taken: list[tuple[str, str]] = []
        self._arrived: list[tuple[str, Place]] = []
        self._before: dict[str, dict[str, Place]] = {}
        self._touched = False
        self._settings: defaultdict[str, list[Settings]] = defaultdict(lambda: [Settings()])
        self._recorded: defaultdict[str, set[LeaseLimit]] = defaultdict(set)
        self._set: set[str] = set()
        self._given: set[str] = set()

    def changed(self, change: Change) -> bool:
        """Follow a change; False if it is none of a group's."""
        if found := _LIMIT.fullmatch(change.path):
            data = json.loads(change.after.data) if change.after else {"leases": 0, "weight": 1}
            zxid = change.after.stat.mzxid if change.after else self._checks.zxid
            self._settings[found[1]].append(Settings(zxid, data["leases"], data["weight"]))
            self._set.add(found[1])
            return True
        if not (found := _NODE.fullmatch(change.path)):
            return change.path.startswith(f"{ROOT}/groups")
        group, kind, name = found.groups()
        self._touched = True
        if kind == "permits":
            if change.before is not None:
                del self.permits[group][name]
                self._given.add(group)
            if change.after is not None:
                self.permits[group][name] = change.after.data.decode()
                self._taken.append((group, name))
            return True
        self._before.setdefault(group, dict(self.queues[group]))
        if change.before is not None:
            del self.queues[group][name]
        if change.after is not None:
            said = _PLACE.fullmatch(name)
            assert said is not None
            stat, placed_ms = change.after.stat, int(said[5])
            place = Place(int(said[3]), -int(said[4]), int(said[2]), said[1], stat.czxid, placed_ms or stat.ctime_ms)
            self.queues[group][name] = place
            if (place.key, place.epoch) not in self._places:  # or it comes back to its own
                self._arrived.append((group, place))
            # A changed priority can take it into the background, or out of it.
            if (self._places.setdefault((place.key, place.epoch), place.place) - place.place) % BEHIND:
                raise Violation(f"{self._owner(place.key)} parks at {place.place}, and had another place before")
        return True

    def check(self, before: Mapping[str, State | None]) -> None:
        """A write is complete."""
        for key, earlier in before.items():
            self._check_record(key)
            self._check_place(key, earlier)
            if (state := self._checks.states.get(key)) and state.share:
                self._recorded[key].add(LeaseLimit(state.share.group, state.share.most, state.weight))
        if self._touched or any(state and state.share for state in before.values()):
            self._check_nodes()
        for group, name in self._taken:
            self._check_taken(group, name, before)
        for group, place in self._arrived:
            self._check_arrival(group, place, before.get(place.key))
        if robbed := self._set & self._given:
            raise Violation(f"another limit of {robbed} takes a permit from a holder")
        self._set.clear()
        self._given.clear()
        self._arrived.clear()
        self._taken.clear()
        self._before.clear()
        self._touched = False

    def is_behind(self, key: str, state: State, blocked: Container[str]) -> bool:
        """Whether its group blocks it: no permit is free, or an earlier request may still take one."""
        if state.share is None:
            return False
        group = owner_key(state.share.group)
        if self._full(state):
            return True
        mine = self._place(key, state)
        return any(self._goes_first(place, blocked) for place in self.queues[group].values() if place[:4] < mine)

    def _goes_first(self, place: Place, blocked: Container[str]) -> bool:
        state = self._checks.states[place.key]
        weight, most = self._terms(state)
        if weight > most:  # it is refused, and leaves
            return False
        return self._full(state) or (place.key in self._checks.alive and place.key not in blocked)

    def _terms(self, state: State) -> tuple[int, int]:
        """How many permits it takes, and how many leases its group may hold."""
        assert state.share is not None
        settings = self._settings[owner_key(state.share.group)][-1]
        return state.weight or settings.weight, settings.leases or state.share.most

    def _full(self, state: State) -> bool:
        """Whether too few permits are free for it."""
        assert state.share is not None
        weight, most = self._terms(state)
        return len(self.permits[owner_key(state.share.group)]) + weight > most

    def was_too_heavy(self, key: str, asked: LeaseLimit | None, since: int) -> bool:
        """Whether an owner's request weighed more than its group might hold, at some moment since then.

        A process that takes a request over leaves its group and its weight as they are.
        """
        return any(self._too_heavy(limit, since) for limit in (asked, *self._recorded[key]) if limit)

    def _too_heavy(self, limit: LeaseLimit, since: int) -> bool:
        settings = self._settings[owner_key(limit.group)]
        ends = [*(each.zxid for each in settings[1:]), self._checks.zxid + 1]
        return any(
            (limit.weight or each.weight) > (each.leases or limit.most)
            for each, end in zip(settings, ends, strict=True)
            if end > since
        )

    def _place(self, key: str, state: State) -> tuple[int, int, int, str]:
        assert state.share is not None
        standing = self.queues[owner_key(state.share.group)].get(state.share.ticket)
        return (
            standing[:4]
            if standing
            else (
                state.share.place or unclaimed(state.ticket_epoch, state.priority),
                -state.priority,
                state.ticket_epoch,
                key,
            )
        )

    def _owner(self, key: str) -> str:
        state = self._checks.states.get(key)
        return state.owner if state else key

    def _check_record(self, key: str) -> None:
        """Its permit and its place are where its record says."""
        state = self._checks.states.get(key)
        share = state and state.share
        if state is None or share is None:
            if state and state.parked:
                raise Violation(f"{state.owner} is parked, and in no group")
            return
        group = owner_key(share.group)
        taken = {self.permits[group].get(str(number)) for number in state.permits}
        if state.state in TAKEN and taken != {f"{key}-{state.ticket_epoch}"}:
            raise Violation(f"{state.owner} is {state.state}, and has no permit of {share.group}: {share}")
        if (state.parked or (share.ticket and state.state == "waiting")) and share.ticket not in self.queues[group]:
            raise Violation(f"{state.owner} is {state.state}, and has no place in the queue of {share.group}: {share}")

    def _check_place(self, key: str, before: State | None) -> None:
        """A request chooses its place when it parks. Until then it has none, or the one from before."""
        state = self._checks.states.get(key)
        if state is None or state.share is None or not state.share.place or state.parked:
            return
        place = before.share.place if before and before.share else 0
        if before and place and (before.priority > 0) != (state.priority > 0):
            place = unclaimed(place % BEHIND, state.priority)
        if not before or not before.share or (before.share.group, place) != (state.share.group, state.share.place):
            raise Violation(f"{state.owner} is {state.state}, and has a place at which it never parked: {state.share}")

    def _check_nodes(self) -> None:
        states = self._checks.states
        for group, permits in self.permits.items():
            for number, lease_id in permits.items():
                key, _, epoch = lease_id.partition("-")
                state = states.get(key)
                share = state and state.share
                if (
                    state is None
                    or share is None
                    or state.state not in TAKEN
                    or int(number) not in state.permits
                    or (owner_key(share.group), str(state.ticket_epoch)) != (group, epoch)
                ):
                    raise Violation(f"permit {number} is {lease_id}'s, and {self._owner(key)} says {state}")
        for group, queue in self.queues.items():
            for name, place in queue.items():
                state = states.get(place.key)
                share = state and state.share
                if state is None or share is None or not state.waits or share.ticket != name:
                    raise Violation(f"{self._owner(place.key)} stands at {name}, and says {state}")
                if owner_key(share.group) != group:
                    raise Violation(f"{state.owner} stands in the queue of another group")

    def _check_arrival(self, group: str, mine: Place, before: State | None) -> None:
        """A claimed position belongs to a less urgent request that was not passed for too long; among equals, the first
        one claims it. After the end of its invitation, a request returns to its old position. It may first wait for locks.
        """
        back = before is not None and before.share is not None and before.share.place == mine.place
        if back:
            return
        own = unclaimed(mine.epoch, -mine.rank)
        process = self._checks.states[mine.key].process
        seen, seen_ms = self._checks.claims.began(process)
        for other in self.queues[group].values():
            if other.key == mine.key or not mine[:4] < other[:4] or other.czxid >= seen:
                continue
            if other.place >= own and not (own < BEHIND <= other.place < BEHIND + own):
                continue  # it is behind without being passed
            if (other.rank, other.epoch) < (mine.rank, mine.epoch):
                raise Violation(
                    f"{self._owner(mine.key)} ({mine}) passes {self._owner(other.key)} ({other}), as urgent"
                )
            if self._checks.order.is_over(other.rank, other.placed_ms, seen_ms):
                raise Violation(
                    f"{self._owner(mine.key)} ({mine}) passes {self._owner(other.key)} ({other}) for too long"
                )

    def _check_taken(self, group: str, number: str, before: Mapping[str, State | None]) -> None:
        """The group holds no more permits than allowed, and no earlier request, which it must have seen, is left."""
        key = self.permits[group][number].partition("-")[0]
        mine = self._checks.states[key]
        assert mine.share is not None
        weight, most = self._terms(mine)
        if len(mine.permits) != weight:
            raise Violation(f"{mine.owner} weighs {weight} and has permits {mine.permits}")
        if len(self.permits[group]) > most:
            raise Violation(
                f"{mine.owner} is one of {len(self.permits[group])} of {mine.share.group}, which may have {most}: {mine.share}"
            )
        earlier = before.get(key)
        queue = self._before.get(group, self.queues[group])
        if earlier is None or not earlier.waits:
            seen, place = mine.order[1], None
        else:
            seen = earlier.zxid
            standing = queue.get(earlier.share.ticket) if earlier.share else None
            place = standing[:4] if standing else self._place(key, earlier)
        for other in queue.values():
            if other.key != key and other.czxid < seen and (place is None or other[:4] < place):
                raise Violation(
                    f"{mine.owner} ({place}) is counted before {self._owner(other.key)}, which waits at {other}"
                )
