"""Compare the trace validator with the specification: ``python -m tests.spec.behaviours [SCENARIO ...]``.

TLC writes random behaviours of the specification. The trace validator must allow each of their steps. So it is not stricter than
the specification. Exit code 1: a step was not allowed. ``SCENARIO/RULE`` leaves a rule out: then the steps that are not allowed
show that the validator notices it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conformance.priority import unclaimed
from tests.spec.__main__ import SPEC, jar
from tests.system.histories.trace import promises
from tests.system.histories.trace.actions import SPECIFIED
from tests.system.histories.trace.state import TOMBSTONE, Life, Node, Owner, Record, State, Step, Ticket, units

if TYPE_CHECKING:
    from collections.abc import Iterator

SCENARIOS = (
    *(
        "NothingExists",
        "ClaimsOnTable",
        "HiveBeside",
        "Patience",
        "Unlock",
        "UnlockHolder",
        "NextProcess",
        "LostReplies",
    ),
    *(
        "DeadWaiter",
        "ChangedPriority",
        "SessionEnds",
        "InvitedTwoDie",
        "InvitedRounds",
        "InvitedUrgentBoth",
        "GroupInvitedDies",
        "GroupOfTwoLimits",
        "GroupLimitsInvited",
        "GroupTooHeavy",
    ),
)
RUNS, DEPTH = 60, 120
PATHS = {"db": "db", "t": "db/t", "p": "db/t/p", "u": "db/u"}
LATER = 1_000_000
"""Larger than all numbers that the specification uses as zxids."""

SHOWN = """
---- MODULE Shown ----
EXTENDS Locks
ShownSpec == Init /\\ PrintT(<<"shown", Scenario>>) /\\ [][Next]_vars
====
"""

_TOKEN = re.compile(r'\|->|<<|>>|:>|@@|[\[\]{}(),]|"[^"]*"|-?\d+|\w+')


def value(text: str) -> Any:
    """A value of TLA+, as TLC prints it: records and functions are dicts, sets and sequences are lists."""
    tokens = _TOKEN.findall(text)[::-1]

    def items(end: str) -> Iterator[Any]:
        while tokens[-1] != end:
            yield one()
            if tokens[-1] == ",":
                tokens.pop()
        tokens.pop()

    def one() -> Any:
        token = tokens.pop()
        match token:
            case "<<":
                return list(items(">>"))
            case "{":
                return list(items("}"))
            case "[" | "(":
                found, end, arrow = {}, "]" if token == "[" else ")", "|->" if token == "[" else ":>"
                while tokens[-1] != end:
                    key = one()
                    assert tokens.pop() == arrow
                    found[key] = one()
                    if tokens[-1] in (",", "@@"):
                        tokens.pop()
                tokens.pop()
                return found
            case "TRUE" | "FALSE":
                return token == "TRUE"
        return token.strip('"') if not token.lstrip("-").isdigit() else int(token)

    return one()


class Behaviour:
    """The states of one behaviour as the validator sees them."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        self.scenario = scenario
        self.state = State()
        self.hives: set[Node] = set()
        self.returned: dict[str, bool] = {}

    def steps(self, text: dict[str, Any]) -> Iterator[Step | str]:
        """The steps to the next state; a text is the owner that gets its lease back."""
        objects = {PATHS[name]: each["born"] for name, each in text["objects"].items() if each["born"]}
        locks = {by: frozenset(_node(each) for each in text["locks"] if each["by"] == by) for by in self._locking(text)}
        hives = {node for by, nodes in locks.items() if by not in text["records"] for node in nodes}
        numbers = [*objects.values(), *(node.made for nodes in locks.values() for node in nodes)]
        numbers += [each["made"] for each in text["tickets"].values()] + [
            each["since"] for each in text["records"].values()
        ]
        new = max(numbers, default=0)
        zxid = new if new > self._most() else LATER + self._most()
        owners = {name: self._owner(name, text, locks.get(name, frozenset()), zxid) for name in text["records"]}
        made, gone = (
            frozenset(objects.keys() - self.state.objects.keys()),
            frozenset(self.state.objects.keys() - objects.keys()),
        )
        flags = (bool(hives - self.hives), bool(self.hives - hives))
        changed = [name for name, owner in owners.items() if owner != self.state.of(name)]
        limits = self._limits(text)
        limited = limits != self.state.limits
        for name in changed or ([""] if made or gone or any(flags) or limited else []):
            before, after = self.state.of(name), owners.get(name, Owner())
            wrote = before.record != after.record
            yield Step(name, zxid, 0, 0, self.state, before, after, made, gone, *flags, limited, wrote, limited)
        self.state.limits = limits
        for name in changed:
            self.state.remember_turns(name, self.state.of(name), owners[name], zxid)
        self.state.owners, self.state.objects, self.state.hives, self.hives = owners, objects, frozenset(hives), hives
        for name, has in text["history"]["returned"].items():
            if has and not self.returned.get(name):
                yield name
                self.state.returned[name] = owners[name].record.ticket_epoch
            elif not has:
                self.state.returned.pop(name, None)
        self.returned = dict(text["history"]["returned"])

    def _locking(self, text: dict[str, Any]) -> set[str]:
        return {each["by"] for each in text["locks"]}

    def _limits(self, text: dict[str, Any]) -> dict[str, tuple[int, int]]:
        stored = self.scenario["limits"][: len(self.scenario["limits"]) - text["left"]["limits"]]
        return {"g": (stored[-1], 1)} if stored and stored[-1] else {}

    def _most(self) -> int:
        numbers = [*self.state.objects.values(), *(node.made for node in self.hives)]
        for owner in self.state.owners.values():
            numbers += [owner.made, owner.record.since, *(node.made for node in owner.nodes)]
        return max(numbers, default=0)

    def _owner(self, name: str, text: dict[str, Any], nodes: frozenset[Node], zxid: int) -> Owner:
        record, ticket, old = text["records"][name], text["tickets"][name], self.state.of(name)
        requests = self.scenario["requests"][name]
        wanted = requests[min(record["round"], len(requests) - 1)]
        locks = {PATHS[on]: mode for on, mode in wanted.items()}
        has = units(locks) if ticket["made"] else set()
        priority = self.scenario["change" if record["changed"] else "priority"][name]
        place = unclaimed(ticket["place"], priority)
        tickets = {unit: Ticket(ticket["made"], place, tuple(sorted(locks.items()))) for unit in has}
        state = record["state"].lower()
        most = self.scenario["most"][name]
        alive = text["alive"][name]
        new = Record(
            state=TOMBSTONE if state == "free" and (old.record.holds or old.record.state == TOMBSTONE) else state,
            process=str(record["process"]),
            attempt=record["process"],
            locks=locks,
            priority=priority,
            since=record["since"],
            places={PATHS[each["on"]]: each["made"] for each in record["places"]},
            lost=frozenset(PATHS[on] for on in record["lost"]),
            group="g" if most else "",
            most=most,
            weight=self.scenario["weight"][name],
            permits=tuple(sorted(record["permit"])),
            parked=f"place {record['parked']}" if state == "parked" else "",
            kept=unclaimed(record["kept"], priority) if state == "away" else 0,
        )
        permits = frozenset(("g", each["number"]) for each in text["permits"] if each["by"] == name)
        life = Life(str(alive), alive) if alive else None
        owner = Owner(new, tickets, life, nodes, permits, frozenset({new.parked} - {""}), state == "away")
        return replace(owner, record=self._numbered(old, owner, zxid))

    def _numbered(self, old: Owner, owner: Owner, zxid: int) -> Record:
        """The record with what the specification does not have: epochs, entries and tokens."""
        before, new = old.record, owner.record
        idle = ("absent", "free", "tombstone", "away")
        numbers = {name: getattr(before, name) for name in ("epoch", "ticket_epoch", "entry", "token")}
        if new.state in ("free", "tombstone") and before.state in idle:
            return replace(new, attempt=before.attempt, process=before.process, **numbers)
        again = new.process != before.process or (
            owner.alive and owner.alive != old.alive and new.state == before.state
        )
        again = again or (before.state, new.state) == (
            "invited",
            "waiting",
        )  # one process of the specification plays both parts
        if before.state in idle and new.state not in idle:
            numbers |= {"epoch": before.epoch + 1, "ticket_epoch": before.epoch + 1, "entry": 0}
        elif again and new.state not in ("free", "tombstone"):
            numbers |= {"epoch": before.epoch + 1, "token": zxid if new.holds else 0}
        if owner.made != old.made and owner.made:
            numbers["entry"] += 1
        if new.holds and not before.holds:
            numbers["token"] = new.since
        if new.state in ("free", "tombstone"):
            new = replace(new, attempt=before.attempt, process=before.process)
        return replace(new, **numbers)


def _node(lock: dict[str, Any]) -> Node:
    return Node(PATHS[lock["on"]], lock["mode"], lock["seq"], lock["made"])


def check(scenario: str) -> tuple[Counter[str], list[str]]:
    """The steps of random behaviours of *scenario* by action, and those that the validator does not allow."""
    scenario, _, rule = scenario.partition("/")
    left_out = f'{{"{rule}"}}' if rule else "{}"
    with tempfile.TemporaryDirectory(prefix="hivelock-spec-") as folder:
        for module in SPEC.glob("*.tla"):
            (Path(folder) / module.name).symlink_to(module)
        (Path(folder) / "Shown.tla").write_text(SHOWN)
        (Path(folder) / "Shown.cfg").write_text(
            f"SPECIFICATION ShownSpec\nCONSTANT Scenario <- {scenario}\nCONSTANT LeftOut = {left_out}\n"
        )
        command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseParallelGC", "-cp", str(jar()), "tlc2.TLC"]
        command += [
            "-simulate",
            f"file={folder}/run,num={RUNS}",
            "-depth",
            str(DEPTH),
            "-workers",
            "1",
            "-metadir",
            folder,
        ]
        ended = subprocess.run(
            [*command, "-deadlock", "Shown.tla"], cwd=folder, capture_output=True, text=True, timeout=600, check=False
        )
        shown = re.search(r'<<\s*"shown",(.*?)>>\s*\n(?=\S)', ended.stdout, re.DOTALL)
        assert shown, ended.stdout
        case, actions, wrong = value(shown[1]), Counter[str](), list[str]()
        for run in sorted(Path(folder).glob("run_*")):
            behaviour = Behaviour(case)
            for number, text in enumerate(re.split(r"STATE_\d+ ==", run.read_text())[1:]):
                variables = re.split(r"^/\\ (\w+) = ", text.partition("\n\n\n")[0], flags=re.MULTILINE)
                found = {name: value(of) for name, of in zip(variables[1::2], variables[2::2], strict=True)}
                for step in behaviour.steps(found):
                    if number:  # the first state is no step
                        _judge(step, behaviour.state, actions, wrong)
        return actions, wrong


def _judge(step: Step | str, state: State, actions: Counter[str], wrong: list[str]) -> None:
    if isinstance(step, str):
        why = list(promises.return_lease(state, step, state.of(step).record.ticket_epoch))
        actions["return_lease"] += 1
        wrong += [f"return_lease of {step}: {'; '.join(why)}; {state.of(step)}"] if why else []
        return
    reasons = {name: list(action(step)) for name, action in SPECIFIED.items()}
    for name in ("keeper_frees", "change_priority"):
        reasons[name] = list(SPECIFIED[name](replace(step, audited=True)))
    allowed = [name for name, why in reasons.items() if not why]
    broken = list(promises.after(step, hive=True)) if step.key else []
    actions[allowed[0] if allowed else "none"] += 1
    if not allowed or broken:
        nearest = min(reasons, key=lambda name: len(reasons[name]))
        wrong.append(
            f"{step.key}: {step.before} -> {step.after}: {allowed[:1]} {broken} {nearest} {reasons[nearest]} "
            f"objects {sorted(step.made)} {sorted(step.gone)}"
        )


def main() -> int:
    failed, began, total = 0, time.monotonic(), 0
    for scenario in sys.argv[1:] or SCENARIOS:
        actions, wrong = check(scenario)
        failed += bool(wrong)
        total += actions.total()
        print(
            f"{scenario:20} {actions.total():6,} steps, {len(wrong)} not allowed: {', '.join(sorted(actions))}",
            flush=True,
        )
        print(*wrong[:3], sep="\n", end="\n" if wrong else "")
    print(f"{total:,} steps, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
