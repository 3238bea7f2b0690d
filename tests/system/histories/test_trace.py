"""The trace validator: it has the specification's actions, and notices faults that are put into the code by hand."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import LockManager
from airflow_hivelock.locks import permits as rules
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend, permits, waiting
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.backends.zookeeper.queue import Queues
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
from tests.support.servers import ZooKeeperServer
from tests.system.histories.story import TAKEN, Story
from tests.system.histories.trace.actions import READS, SPECIFIED
from tests.system.histories.trace.simulated import trace
from tests.system.histories.trace.summary import PROPERTY, Figures, summary
from tests.system.histories.trace.validate import Trace, validate
from tests.system.histories.transactions import transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SPEC = Path(__file__).parents[3] / "spec"
OTHERS = {"AllDone", "return_lease"}


def test_the_validator_has_each_action_of_the_specification_by_its_name() -> None:
    named: set[str] = set()
    for module, operators in {
        "Writes": ("Step",),
        "Invitations": ("InvitationStep",),
        "Hive": ("HiveStep",),
        "Locks": ("Next",),
    }.items():
        text = (SPEC / f"{module}.tla").read_text()
        for operator in operators:
            definition = re.search(rf"^{operator}(?:\(\w\))? ==(.*?)(?=^\S)", text + "\n=", re.MULTILINE | re.DOTALL)
            assert definition, operator
            named |= set(re.findall(r"\b([a-z][a-z]+(?:_[a-z]+)*)\b(?=\(\w\)| *$)", definition[1], re.MULTILINE))
    named -= {"vars", "hives"}
    assert named - OTHERS == set(SPECIFIED) | READS
    assert not set(SPECIFIED) & READS


SESSION_ENDS_IN_A_STEP = 152
"""In this run, the session of a parked request ends just before its request queues."""


@pytest.mark.parametrize("seed", [*range(8), SESSION_ENDS_IN_A_STEP])
def test_a_simulated_run_follows_the_specification(seed: int) -> None:
    found = trace(seed)
    assert found.wrong == []
    assert found.transactions > 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("trace")) as running:
        yield running


NUMBERS = count()


def trace_of_a_story(server: ZooKeeperServer) -> Trace:
    number = next(NUMBERS)
    layout = Layout(f"/hive-{number}", f"/hivelock-{number}")
    with LockManager(ZooKeeperBackend(KazooSession(server.hosts), layout)) as manager:
        story = Story(manager)
        story.play()
    found = validate(transactions([server]), layout, story.returned)
    print(found, *found.wrong, sep="\n")
    return found


# Three faults, each in more than one way.


def enters_beside_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look sees no ticket, and the verification sees none."""
    monkeypatch.setattr(Queues, "conflicting", lambda *_: [])


def grants_before_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that waits does not look at the tickets before its own."""
    monkeypatch.setattr(waiting, "in_the_way", lambda *_: [])


def release_leaves_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ZooKeeperStore.known_nodes

    def known_nodes(self: ZooKeeperStore, record: Any) -> Any:
        known = original(self, record)
        return known and known._replace(paths=dict(list(known.paths.items())[1:]))

    monkeypatch.setattr(ZooKeeperStore, "known_nodes", known_nodes)


def permits_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "free", lambda *_: True)


def stored_limit_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "limit", lambda own, stored: own)


def heavy_one_takes_one_permit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "weight", lambda own, stored: 1)


def grant_takes_no_permit(monkeypatch: pytest.MonkeyPatch) -> None:
    original = permits.permitted

    def permitted(store: Any, record: Any, seen: Any = None) -> Any:
        found = original(store, record, seen)
        return found and (record.outside(), found[1])

    monkeypatch.setattr(permits, "permitted", permitted)


def _take_over(monkeypatch: pytest.MonkeyPatch, *fields: str) -> None:
    """The write of a process that takes a lease over keeps these fields."""
    original = ZooKeeperStore.transact

    def transact(self: ZooKeeperStore, old: Any, new: Any, *args: Any, **more: Any) -> Any:
        if old and old.holds and new.process != old.process:
            new = replace(new, **{name: getattr(old, name) for name in fields})
        return original(self, old, new, *args, **more)

    monkeypatch.setattr(ZooKeeperStore, "transact", transact)


def take_over_keeps_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    _take_over(monkeypatch, "epoch")


def take_over_keeps_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    _take_over(monkeypatch, "token")


FAULTS = {
    enters_beside_tickets: "EarlierGoesFirst",
    grants_before_its_turn: "comes before it, and has its ticket",
    release_leaves_a_node: "NothingLeft: a lock node on dw",
    permits_are_not_counted: "it takes permit 2 of 1",
    stored_limit_is_ignored: "it takes permit 3 of 2",
    heavy_one_takes_one_permit: "it weighs 2 and takes 1 permits",
    grant_takes_no_permit: "PermitsMatchRecords",
    take_over_keeps_the_epoch: "the epoch does not grow",
    take_over_keeps_the_token: "the token does not grow",
}


@pytest.mark.integration
def test_a_story_of_the_code_as_it_is_follows_the_specification(server: ZooKeeperServer) -> None:
    told = trace_of_a_story(server)
    assert told.wrong == []
    assert told.actions.keys() >= TAKEN


@pytest.mark.integration
@pytest.mark.parametrize(("fault", "told"), FAULTS.items(), ids=lambda value: getattr(value, "__name__", None))
def test_the_trace_alone_shows_a_fault(
    fault: Callable[[pytest.MonkeyPatch], None], told: str, server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    found = trace_of_a_story(server)
    assert any(told in wrong for wrong in found.wrong), found.wrong


def test_the_session_ends_with_the_seconds_of_the_validation_and_their_share() -> None:
    def report(file: str, when: Any, *found: Figures) -> pytest.TestReport:
        figures = [(PROPERTY, asdict(one)) for one in found]
        return pytest.TestReport(file, (file, 1, ""), {}, "passed", None, when, duration=10.0, user_properties=figures)

    found = Figures(1, 4, 2_000, 300, 1.5)
    one, total = summary(
        [
            report("test_one.py", "setup"),
            report("test_one.py", "call", found),
            report("test_one.py", "teardown", found),  # the later report of a test repeats the property
            report("test_other.py", "call"),
        ]
    )
    assert one.split() == [
        "1",
        "traces",
        "4",
        "processes",
        "2,000",
        "transactions",
        "300",
        "leases",
        "1.50",
        "s",
        "of",
        "30",
        "s",
        "test_one.py",
    ]
    assert total.endswith("1.50 s of     40 s  all tests: 3.75%")
    assert list(summary([report("test_other.py", "call")])) == []
