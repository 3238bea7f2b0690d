"""What must hold after every write, told from the raw nodes at the leader, where there is one truth."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tests.conformance.priority import BEHIND, unclaimed
from tests.simulation.claims import Claims, Violation
from tests.simulation.format_checks import FormatChecks
from tests.simulation.group_checks import GroupChecks
from tests.simulation.order_checks import OrderChecks
from tests.simulation.state import NAMESPACE, ROOT, State, modes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.hive import HiveLock
    from tests.simulation.model import Change, Write, Znode
    from tests.simulation.session import SimulatedSession

_RECORDS, _ALIVE, _ASIDE, _QUEUE = (f"{ROOT}/{name}/" for name in ("requests", "alive", "away", "queue"))
_LOCK = re.compile(rf"{NAMESPACE}/(.*)/LOCK-(SHARED|EXCLUSIVE)-([0-9]+)")


class Place(NamedTuple):
    """The contents of a ticket. Waiters get their turns in the order of these.

    :param at: the zxid of its position.
    :param before: its priority, with the sign changed.
    :param since_ms: when a request first took that position.
    """

    at: int
    before: int
    czxid: int
    since_ms: int

    @classmethod
    def of(cls, node: Znode) -> Place:
        data = json.loads(node.data)
        stat, priority = node.stat, data.get("priority", 1)
        own = unclaimed(stat.czxid, priority)
        return cls(data.get("place", own), -priority, stat.czxid, data.get("since_ms", stat.ctime_ms))


NOWHERE = Place(0, 0, 0, 0)


class Placed(NamedTuple):
    """A lock node. *mode* is ``"S"`` or ``"X"``, *target* the object's path below the namespace."""

    target: str
    mode: str
    czxid: int
    by: SimulatedSession


class Checks:
    """Checks every state of the store.

    :param session_of: the client of a session's id.
    :param passing_s: the age from which a position is not overtaken.
    :param progress: called when a request gets something.
    """

    def __init__(
        self, session_of: Callable[[int], SimulatedSession], progress: Callable[[], None], passing_s: float = 3600.0
    ) -> None:
        self.states: dict[str, State] = {}
        self.claims = Claims(self)
        self.groups = GroupChecks(self)
        self.formats = FormatChecks(self)
        self.order = OrderChecks(self, passing_s)
        self.grants = 0
        self.granted_to: dict[str, str] = {}
        self.tickets: defaultdict[str, dict[str, Place]] = defaultdict(dict)
        self.asked: dict[str, dict[str, str]] = {}
        self._given_up: dict[str, Place] = {}
        self.nodes: defaultdict[str, dict[str, Placed]] = defaultdict(dict)
        self.alive: set[str] = set()
        self._away: set[str] = set()
        self.foreign: dict[str, Placed] = {}
        self.robbed: dict[tuple[int, str], int] = {}
        self.robbers: set[SimulatedSession] = set()
        self._hive: dict[str, HiveLock] = {}
        self._ended: dict[str, tuple[int, int]] = {}
        self._replaced: set[str] = set()
        self.zxid = 0
        self._tokens: defaultdict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
        self._session_of = session_of
        self._progress = progress

    def observe(self, write: Write) -> None:
        """A write has been made."""
        self.zxid = write.zxid
        before: dict[str, State | None] = {}
        touched: dict[str, None] = {}
        removed: list[tuple[str, str, Placed]] = []
        self._given_up = {}
        for change in write.changes:
            path = change.path
            if path.startswith(_RECORDS):
                key = path[len(_RECORDS) :]
                before[key] = self.states.pop(key, None)
                touched[key] = None
                if change.after is not None:
                    self.states[key] = State.of(change.after)
            elif path.startswith(_ALIVE):
                (self.alive.discard if change.after is None else self.alive.add)(path[len(_ALIVE) :])
            elif path.startswith(_ASIDE):
                key = path[len(_ASIDE) :]
                touched[key] = None
                (self._away.discard if change.after is None else self._away.add)(key)
            elif path.startswith(_QUEUE) and path.count("/") == 4:
                key = path.rpartition("/")[2].partition("-")[0]
                touched[key] = None
                if change.after is not None and change.before is not None:
                    self._check_rewritten(path, change.before, change.after)
                if change.after is None:
                    self._given_up[path] = self.tickets[key].pop(path)
                    del self.asked[path]
                else:
                    self.tickets[key][path] = Place.of(change.after)
                    self.asked[path] = modes_of(json.loads(change.after.data)["locks"])
            elif self.groups.changed(change) or self.formats.changed(change):
                continue
            elif match := _LOCK.fullmatch(path):
                if len(match[3]) == 10:
                    self._foreign_changed(write, change, match)
                    continue
                key = (change.after or change.before).data.decode().split(":")[5]  # type: ignore[union-attr]
                touched[key] = None
                if change.before is not None:
                    removed.append((path, key, self.nodes[key].pop(path)))
                if change.after is not None:
                    self.nodes[key][path] = self._placed(write, change, match)
        for path, key, placed in removed:
            self._check_removal(write, path, key, placed)
        for key in touched:
            self._check_key(key)
        for key, earlier in before.items():
            self._check_step(key, earlier, self.states.get(key))
        self.groups.check(before)
        self.formats.check(self._session_of(write.session), before)

    def all_nodes(self) -> list[Placed]:
        """Every lock node, ours and Hive's."""
        return [placed for nodes in (*self.nodes.values(), self.foreign) for placed in nodes.values()]

    def free(self) -> dict[tuple[str, int], str]:
        """Living waiters without a living blocker, by owner's key and ticket's epoch. A dead request blocks while it is
        blocked itself.
        """
        foreign = [(placed.target, placed.mode) for placed in self.foreign.values()]
        waiting: list[tuple[State, bool]] = []
        now_ms = max((state.written_ms for state in self.states.values()), default=0)
        stand = [(key, state) for key, state in self.states.items() if state.holds or (state.queued and state.places)]
        blocked_keys: set[str] = set()
        last = Place(2 * BEHIND, 0, 0, 0)
        waits = [(key, state) for key, state in self.states.items() if state.waits or state.invited]
        places = [(min(self.tickets[key].values()) if state.in_line else last, key, state) for key, state in waits]
        for _, key, state in sorted(places):
            blocked = (
                any(state.conflict(other) for other_key, other in stand if other_key != key)
                or any(blocks and state.conflict(other) for other, blocks in waiting)
                or any("X" in (mode, state.modes.get(target, "")) and target in state.modes for target, mode in foreign)
                or any(self._exclusive_above(target, state) for target, _ in foreign)
            )
            if state.in_line:
                waiting.append((state, blocked or key in self.alive or state.until_ms > now_ms))
            if blocked:
                blocked_keys.add(key)
        free = [(key, state) for key, state in self.states.items() if state.waits and key not in blocked_keys]
        return {
            (key, state.ticket_epoch): state.owner
            for key, state in free
            if key in self.alive and not self.groups.is_behind(key, state, blocked_keys)
        }

    def _placed(self, write: Write, change: Change, match: re.Match[str]) -> Placed:
        assert change.after is not None
        mode = "S" if match[2] == "SHARED" else "X"
        return Placed(match[1], mode, change.after.stat.czxid, self._session_of(write.session))

    def _foreign_changed(self, write: Write, change: Change, match: re.Match[str]) -> None:
        if change.before is not None:
            del self.foreign[change.path]
            self._hive.pop(change.path, None)
            by = self._session_of(write.session).name
            if not by.startswith("hive"):
                raise Violation(f"{by} deleted Hive's {change.path}")
        if change.after is not None:
            self.foreign[change.path] = self._placed(write, change, match)

    def _check_removal(self, write: Write, path: str, key: str, placed: Placed) -> None:
        """A lock node of ours is gone."""
        client = self._session_of(write.session)
        if client in self.robbers:
            self.robbed[placed.czxid, placed.target] = write.zxid
        elif client.name.startswith("hive"):
            raise Violation(f"{client.name} deleted {path}, which is not its own")
        else:
            state = self.states.get(key)
            if state and state.places.get(placed.target) == placed.czxid:
                if self.claims.was_returned(f"{key}-{state.ticket_epoch}"):
                    raise Violation(f"{client.name} deleted {path} of {state.owner}, which is {state.state}")
                self.robbed[placed.czxid, placed.target] = write.zxid  # its verification misses it

    # One owner at one time

    def _check_key(self, key: str) -> None:
        state, nodes, tickets = self.states.get(key), self.nodes[key], self.tickets[key]
        if (key in self._away) != (state is not None and state.away):
            raise Violation(f"{key} is {'' if key in self._away else 'not '}listed as away, and says {state}")
        if state is None:
            if nodes or tickets:
                raise Violation(f"{key} has no record, and {[*nodes, *tickets]}")
            return
        for path, placed in nodes.items():
            if state.places.get(placed.target) != placed.czxid:
                raise Violation(f"{state.owner} is {state.state}, and {path} of {placed.czxid} is not in its record")
        if len(nodes) != len(state.places) - sum(not self._has(state, target) for target in state.places):
            raise Violation(f"{state.owner} is {state.state} with {len(nodes)} of its {len(state.places)} nodes")
        if state.in_line or state.holds:
            if not tickets:
                raise Violation(f"{state.owner} is {state.state} without a ticket")
            if strange := [path for path in tickets if f"/{key}-{state.ticket_epoch}-" not in path]:
                raise Violation(f"{state.owner} has tickets of another epoch: {strange}")
            if len(set(tickets.values())) > 1:
                raise Violation(f"{state.owner} has tickets of several transactions")
            asked = {target: mode for path in tickets for target, mode in self.asked[path].items()}
            if asked != state.modes:
                raise Violation(f"{state.owner} has {state.modes} by its record, and {asked} by its tickets")
        elif tickets:
            raise Violation(f"{state.owner} is {state.state} and has tickets: {list(tickets)}")

    def _check_rewritten(self, path: str, before: Znode, after: Znode) -> None:
        """A ticket is written again: only ever with fewer locks."""
        was, now = modes_of(json.loads(before.data)["locks"]), modes_of(json.loads(after.data)["locks"])
        if before.session or Place.of(before) != Place.of(after) or not now.items() < was.items():
            raise Violation(f"{path} is written again, {before} as {after}: a place is constant")

    def _has(self, state: State, target: str) -> bool:
        """Whether no other client has removed its lock there."""
        return (state.places.get(target), target) not in self.robbed

    def is_robbed(self, state: State) -> bool:
        """Whether it has lost one of its locks to UNLOCK TABLE."""
        return not all(self._has(state, target) for target in state.places)

    # One owner's step

    def _check_step(self, key: str, before: State | None, after: State | None) -> None:
        if after is None:
            if before and (before.waits or before.holds or before.away or before.invited):
                raise Violation(f"{before.owner}'s record was deleted while it was {before.state}")
            return
        if before is not None:
            if after.epoch < before.epoch or (after.order < before.order and before.state != "tombstone"):
                raise Violation(f"{after.owner} goes back from {before} to {after}")
            if before.state == "granted" and after.in_line and before.ticket_epoch == after.ticket_epoch:
                if self.claims.was_returned(f"{key}-{before.ticket_epoch}"):
                    raise Violation(f"{before.owner} had got its lease, and it is taken back")
            elif before.state == "lost" and after.in_line:
                pass  # it was never returned: what is robbed of it is given back as a whole
            elif before.holds and not after.holds:
                self.claims.check_end(key, before)
                self._ended[key] = before.order[0], after.zxid
            elif before.waits and after.state == "tombstone":
                self.claims.check_withdrawn(after.owner)
                self._ended[key] = before.order[0], after.zxid
            if before.holds and after.holds and before.ticket_epoch == after.ticket_epoch:
                self.claims.check_part(key, before, after)
            if before.state == after.state == "lost" and after.process != before.process:
                raise Violation(f"{after.process} takes over what {after.owner} has lost")
            if after.process != before.process:
                self._replaced.add(before.process)
        if after.process in self._replaced:
            raise Violation(f"{after.process} acts for {after.owner} again, after it has been replaced")
        if self._acts(after) and not (before and self._acts(before)):
            attempt, zxid = self._ended.get(key, (-1, 0))
            # Its own number of the begin may come from a server that lags, and the tombstone may be swept by now. So the
            # time of the call counts, too.
            began = max(after.order[1], self.claims.began(after.process)[0])
            if after.order[0] == attempt and began < zxid:
                raise Violation(
                    f"{after.owner} asks, though its lease was released, or its request withdrawn, after this call began: {after}"
                )
        self.claims.follow(key, before, after)
        self.claims.check_late(before, after)
        was = before.state if before else "free"
        if after.state == "free" and key in self.alive:
            raise Violation(f"{after.owner} was {was} and is broken, and its process lives")
        if after.invited and key in self.alive:
            raise Violation(f"{after.owner} is invited, and has a liveness node")
        if after.away and before is not None and before.invited:
            if after.written_ms < before.until_ms or not after.old_turn:
                raise Violation(f"{after.owner}'s invitation is ended at {after.written_ms}: {before}")
        elif before is not None and before.queued and (after.away or after.invited):
            self._check_deferred(after, key, before.zxid, self.tickets[key] or self._given_up)
        elif ((after.away or after.invited) and was in ("free", "parked")) or (after.invited and was == "away"):
            raise Violation(f"{after.owner} is {after.state} and was {was}: it saw no other that arrived with it")
        if after.in_line and not (before and (before.in_line or before.holds)):
            self.order.arrives(key, after, before)
        elif after.in_line and before and before.in_line and self._given_up:
            self.order.changed(key, before, after, min(self._given_up.values()), min(self.tickets[key].values()))
        if after.state == "granted" and was != "granted":
            self.grants += 1
            self.granted_to[key] = after.process
        if after.state == "lost" and not self.is_robbed(after):
            raise Violation(f"{after.owner} is written LOST, and nobody robbed it")

    def _acts(self, state: State) -> bool:
        return state.waits or state.holds or state.invited

    def _check_deferred(self, mine: State, key: str, since: int, tickets: Mapping[str, Place]) -> None:
        """A deferred request could have had its locks: no ticket of ours, and no lock of Hive's that it must have seen.

        :param since: it has looked after that.
        :param tickets: its own; they are gone if it is away.
        """
        mine_at = min(tickets.values())
        for other_key, other in self.states.items():
            if other_key != key and (other.in_line or other.holds) and (target := mine.conflict(other)):
                theirs = min(self.tickets[other_key].values(), default=NOWHERE)
                holds_since = min(other.places.values(), default=since)
                if theirs.czxid < mine_at.czxid and (theirs < mine_at or holds_since < since):
                    raise Violation(
                        f"{mine.owner} ({mine_at}) goes away, and {other.owner} ({theirs}) is {other.state} on {target}"
                    )
        for path, placed in self.foreign.items():
            above = self._exclusive_above(placed.target, mine)
            if placed.czxid < since and (self._excludes(placed, mine) or above):
                raise Violation(f"{mine.owner} goes away, and has seen that Hive has {path}")

    def check_returned(self, key: str, mine: State) -> None:
        """A lease has been returned to its caller: no other that conflicts has been, and none is passed."""
        self._progress()
        mine_at = min(self.tickets[key].values(), default=NOWHERE)
        since = min(mine.places.values())
        for other_key, other in self.states.items():
            if other_key == key or not (other.in_line or other.holds) or not (target := mine.conflict(other)):
                continue
            if self.claims.is_held(other_key):
                raise Violation(f"{mine.owner} and {other.owner} both hold {target}")
            theirs = min(self.tickets[other_key].values(), default=NOWHERE)
            if theirs < mine_at and theirs.czxid < since:
                raise Violation(f"{mine.owner} ({mine_at}) passes {other.owner} ({theirs}), {other.state} on {target}")
        for target, mode in mine.modes.items():
            against = [(target, "X")] if mode == "S" else [(target, "S"), (target, "X")]
            # A lease may have come and gone while the reads behind the grant were under way. Work gets its token later.
            returned = [one for other in against for one in self._tokens[other] if one[0] < mine.zxid]
            if any(token >= mine.token and other != key for _, token, other in returned):
                raise Violation(f"{mine.owner} has token {mine.token} on {target}, no larger than one before it")
            self._tokens[target, mode].append((self.zxid, mine.token, key))
        for path, placed in self.foreign.items():
            if self._excludes(placed, mine) and (path in self._hive or placed.czxid < mine.places[placed.target]):
                raise Violation(f"{mine.owner} is granted {placed.target}, and Hive holds {path}")
            above = self._exclusive_above(placed.target, mine)
            if above and placed.czxid < since and self._has(mine, above):
                raise Violation(f"{mine.owner} is granted {above} X, and Hive had {path} before")

    def _excludes(self, placed: Placed, mine: State) -> bool:
        """Whether a lock of Hive conflicts with one of *mine* that no client has removed."""
        mode = mine.modes.get(placed.target)
        return mode is not None and "X" in (mode, placed.mode) and self._has(mine, placed.target)

    def _exclusive_above(self, target: str, mine: State) -> str | None:
        return next((name for name, mode in mine.modes.items() if mode == "X" and target.startswith(f"{name}/")), None)

    # Called by Hive's clients

    def hive_locked(self, lock: HiveLock) -> None:
        """A client of Hive's believes to hold *lock*."""
        self._progress()
        placed = self.foreign.get(lock.path)
        if placed is None:
            return  # unlocked behind its back; it does not look
        self._hive[lock.path] = lock
        for key, state in self.states.items():
            if self.claims.is_held(key) and state.state == "granted" and self._excludes(placed, state):
                raise Violation(f"Hive holds {lock.path} beside {state.owner}")

    def hive_unlocks(self, path: str) -> None:
        """It starts to give it back."""
        self._hive.pop(path, None)

    # At the end

    def at_rest(self, tree: dict[str, Znode]) -> None:
        """All is over, and all has been swept."""
        ours = re.compile(rf"{ROOT}/(alive/.*|away/.*|requests/.*|queue/.*/.*|groups/.*/.*/.*)")
        left = [path for path in tree if _LOCK.fullmatch(path) or ours.fullmatch(path)]
        if left:
            raise Violation(f"left at the end: {left}")
