"""Granted at once: what may come between the look and the one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import acquisition, retry
from airflow_hivelock.locks.backends.zookeeper.client import Check, Get
from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace, Survey
from airflow_hivelock.locks.backends.zookeeper.queue import Queues
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.mutations.wire import in_place_of_commits
from tests.simulation.stage import writes
from tests.simulation.state import NAMESPACE, ROOT
from tests.simulation.themes import CLEAN_UP, IMPATIENT_HIVE

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from airflow_hivelock.locks.backends.zookeeper.client import Op, Refused
    from tests.simulation.mutations.wire import Send
    from tests.simulation.stage import Process, Stage

    Patch = pytest.MonkeyPatch


def _prepared(stage: Stage) -> Process:
    """A process that knows the store's time, with the queues made."""
    ours = stage.process("ours")
    ours.releases(ours.gets("a", [], ["w.a/p=1"]))
    return ours


def another_queues_before_the_grant(stage: Stage) -> None:
    ours, other, hive = _prepared(stage), stage.process("other"), stage.hive()
    hive.query({"w/a/p=1": "SHARED"})
    ours.session.before(writes("a", "granted"), other.asks("b", [], ["w.a/p=1"]).poll)
    assert isinstance(ours.asks("a", ["w.a/p=1"]).poll(), Blocked)


@mutation(another_queues_before_the_grant)
def tickets_not_expected(patch: Patch) -> None:
    """A writer that waits for Hive's readers has queued since, and a reader of ours goes by."""

    def send(once: Send, ops: tuple[Op, ...]) -> tuple[Any, ...] | Refused:
        return once(tuple(op._replace(path=f"{ROOT}/queue") if _is_of_a_ticket(op) else op for op in ops))

    in_place_of_commits(patch, send)


def _is_of_a_ticket(op: Op) -> bool:
    return isinstance(op, Check) and op.path.startswith(f"{ROOT}/queue/") and op.path.count("/") == 4


def the_whole_database_is_wanted(stage: Stage) -> None:
    ours, other, hive = _prepared(stage), stage.process("other"), stage.hive()
    hive.query({"w": "SHARED"})
    ours.session.before(writes("a", "granted"), other.asks("b", [], ["w"]).poll)
    assert isinstance(ours.asks("a", ["w.a/p=1"]).poll(), Blocked)


@mutation(the_whole_database_is_wanted)
def database_queue_not_announced(patch: Patch) -> None:
    """Who wants all of a database queues where others only look, and is not seen."""
    patch.setattr(Queues, "announces", lambda self, names: [])


def hive_locks_before_the_grant(stage: Stage) -> None:
    ours, hive = _prepared(stage), stage.hive()
    ours.session.before(writes("a", "granted"), lambda: hive.lock_table("w/a", "SHARED"))
    assert isinstance(ours.asks("a", [], ["w.a"]).poll(), Blocked)


@mutation(hive_locks_before_the_grant)
def objects_not_expected(patch: Patch) -> None:
    """Hive locked between the look and the grant."""
    original = Namespace.unchanged
    patch.setattr(Namespace, "unchanged", lambda self, survey, name: original(self, survey._replace(children={}), name))


def _hive_reads(stage: Stage) -> tuple[Process, Callable[[], None]]:
    """One of ours, about to read what Hive reads; and how Hive goes on to write it."""
    ours, hive = stage.process("ours"), stage.hive()
    ours.releases(ours.gets("a", ["w.a"]))
    hive.unlock(hive.query({"w": "SHARED", "w/a": "SHARED"})[::-1])
    read = hive.query({"w": "SHARED", "w/a": "SHARED"})

    def writes() -> None:
        hive.unlock(read[::-1])  # the table's node goes, and the database's
        hive.query({"w": "SHARED", "w/a": "EXCLUSIVE"})

    return ours, writes


def hive_makes_the_database_anew_before_the_grant(stage: Stage) -> None:
    ours, hive_writes = _hive_reads(stage)
    ours.session.before(writes("a", "granted"), hive_writes)
    assert isinstance(ours.asks("a", ["w.a"]).poll(), Blocked)


@mutation(hive_makes_the_database_anew_before_the_grant)
def databases_not_expected(patch: Patch) -> None:
    """Hive's clean-up takes database and table away, which are made anew and count as far as they did."""
    original = Namespace.unchanged
    patch.setattr(Namespace, "unchanged", lambda self, survey, name: _without(NAMESPACE, original(self, survey, name)))


def _without(path: str, probes: list[Op]) -> list[Op]:
    return [probe for probe in probes if probe.path.rpartition("/")[0] != path]


def hive_makes_the_database_anew_between_two_looks(stage: Stage) -> None:
    ours, hive_writes = _hive_reads(stage)
    ours.session.before(lambda request: request == Get(NAMESPACE), hive_writes)
    assert isinstance(ours.asks("a", ["w.a"]).poll(), Blocked)


@mutation(hive_makes_the_database_anew_between_two_looks)
def databases_looked_at_last(patch: Patch) -> None:
    """The same, and the look at the databases already counts the new one."""
    reads, survey = Namespace.reads, Namespace.survey

    def last(self: Namespace, locks: Any) -> Any:
        above, first, *others = reads(self, locks)
        return [above, *others, first]

    def looked(self: Namespace, locks: Any, upper: Any = None) -> Survey:
        above, *others, first = self._client.submit(*last(self, locks)) if upper is None else upper
        return survey(self, locks, [above, first, *others])

    patch.setattr(Namespace, "reads", last)
    patch.setattr(Namespace, "survey", looked)


def hive_has_locked_a_partition_before(stage: Stage) -> None:
    ours, hive = _prepared(stage), stage.hive()
    hive.lock_table("w/a/p=1", "SHARED")
    assert isinstance(ours.asks("a", [], ["w.a"]).poll(), Blocked)


@mutation(hive_has_locked_a_partition_before)
def locks_below_not_looked_for(patch: Patch) -> None:
    """LOCK TABLE … PARTITION does not lock the table, and the look does not go below it."""
    patch.setattr(Namespace, "tells_all", lambda self, locks, survey: True)


@mutation(seed=180, theme=IMPATIENT_HIVE)
def partitions_not_expected(patch: Patch) -> None:
    """Hive locks a partition, of which an empty node was left, between the look and the grant."""
    edit(
        patch,
        Namespace,
        "unchanged",
        "for target, listing in survey.children.items()",
        "for target, listing in survey.children.items() if not target.partition",
    )


def hive_makes_the_namespace_anew_before_the_grant(stage: Stage) -> None:
    ours, hive = _prepared(stage), stage.hive()
    hive.clean_up()
    hive.begin()
    read = hive.query({"w": "SHARED", "w/a": "SHARED"})

    def hive_writes() -> None:
        hive.unlock(read[::-1])
        hive.clean_up()
        hive.begin()
        hive.query({"w": "SHARED", "w/a": "EXCLUSIVE"})

    ours.session.before(writes("a", "granted"), hive_writes)
    assert isinstance(ours.asks("a", ["w.a"]).poll(), Blocked)


@mutation(hive_makes_the_namespace_anew_before_the_grant, theme=CLEAN_UP)
def namespace_not_expected(patch: Patch) -> None:
    """Hive's clean-up takes the namespace away as well, and all of it is made anew and counts as far as it did."""
    edit(patch, Namespace, "unchanged", "created = {self._layout.above: survey.above}", "created = {}")


@mutation()
def namespace_waited_for(patch: Patch) -> None:
    """Hive's clean-up has taken the namespace away, and everybody waits until Hive makes it again."""
    patch.setattr(Namespace, "absent", lambda self, survey: [])


@mutation()
def round_and_round(patch: Patch) -> None:
    """The same without a pause, and without a look at the deadline."""
    patch.setattr(Namespace, "absent", lambda self, survey: [])
    patch.setattr(retry, "pause_s", lambda taken: 0.0)
    patch.setattr(acquisition, "STEP_S", 86_400.0)
