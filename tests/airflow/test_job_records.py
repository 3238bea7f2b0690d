"""When a lease records a job, and how long the lease is held then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pytest
from airflow.sdk import BaseOperator

from airflow_hivelock import HiveLockMixin
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.work import applications
from airflow_hivelock.work.jobs import table
from airflow_hivelock.work.jobs.job import Job
from tests.airflow.tasks import DAY, NAMES, Defers, dag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run

RUNS: set[str] = set()
"""What the cluster runs."""


class Submits(BaseOperator):
    """Submits what the test says; the cluster tells ``told`` of it."""

    told: Callable[[Job], None]
    tried: str | None = None

    def __init__(self, *, act: Callable[[Submits], Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.act = act

    def execute(self, context: Any, event: Any = None) -> Any:
        return self.act(self)


class Locked(HiveLockMixin, Submits):  # type: ignore[misc]
    pass


@dataclass(frozen=True)
class Submitted(Job):
    kind: ClassVar = "submitted"
    operators: ClassVar[Mapping[str, str]] = {f"{__name__}.Submits": "job_id"}

    name: str

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        name = getattr(operator, "job_id", None) or operator.tried
        return cls(name) if name else None

    @classmethod
    def watch(cls, operator: Any, record: Callable[[Job], None]) -> None:
        operator.told = record

    def running(self) -> bool:
        return self.name in RUNS

    def cancel(self) -> None:
        RUNS.discard(self.name)


@pytest.fixture(autouse=True)
def kind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(table.KINDS, "submitted", f"{__name__}:Submitted")
    table.kind_of.cache_clear()
    yield
    table.kind_of.cache_clear()
    RUNS.clear()


def recorded(manager: LockManager) -> Any:
    (lease,) = manager.leases()
    return applications.of(lease.works[0])


@pytest.fixture
def runs(manager: LockManager, run: Run) -> Callable[..., tuple[str | None, list[Any]]]:
    """``runs(act)``: how a task with that work ends, and what its lease, if it is held, records then."""

    def make(act: Callable[[Submits], Any]) -> tuple[str | None, list[Any]]:
        with dag() as works:
            Locked(task_id="job", act=act, **NAMES)
        state = run(works, logical_date=DAY).tasks["job"]
        return state, [recorded(manager)] if manager.leases() else []

    return make


@pytest.mark.parametrize("way", ["job_id", "told"])
def test_it_is_recorded_while_the_operator_waits_for_it(manager: LockManager, runs: Any, way: str) -> None:
    seen: list[Any] = []

    def act(operator: Any) -> None:
        if way == "told":
            operator.told(Submitted("j-1"))
        else:
            operator.job_id = "j-1"
        seen.append(recorded(manager))

    assert runs(act) == ("success", [])
    assert seen == [Submitted("j-1")]


def test_an_operator_that_does_not_wait_leaves_its_lease_behind(runs: Any) -> None:
    def act(operator: Any) -> None:
        RUNS.add("j-1")
        operator.tried = "j-1"  # an existing one: the operator never reports its id

    assert runs(act) == ("success", [Submitted("j-1")])


def test_a_request_that_timed_out_may_have_been_served(runs: Any) -> None:
    def act(operator: Any) -> None:
        operator.tried = "j-1"
        RUNS.add("j-1")
        raise TimeoutError("no answer")

    assert runs(act) == ("failed", [Submitted("j-1")])


def test_a_request_that_was_refused_leaves_nothing_behind(runs: Any) -> None:
    def act(operator: Any) -> None:
        operator.tried = "j-1"
        raise PermissionError("403")

    assert runs(act) == ("failed", [])


def test_what_was_tried_is_recorded_before_its_task_is_deferred(manager: LockManager, runs: Any) -> None:
    seen: list[Any] = []

    def act(operator: Any) -> None:
        if RUNS:
            seen.append(recorded(manager))
            RUNS.clear()
            return
        RUNS.add("j-1")
        operator.tried = "j-1"
        operator.defer(trigger=Defers(), method_name="execute")  # type: ignore[no-untyped-call]

    assert runs(act) == ("success", [])
    assert seen == [Submitted("j-1")]


def test_an_operator_that_goes_on_with_execute_keeps_its_lease(manager: LockManager, runs: Any) -> None:
    """As EmrServerlessStartJobOperator, once its application has started."""
    seen: list[int] = []

    def act(operator: Any) -> None:
        seen.append(len(manager.leases()))
        if len(seen) == 1:
            operator.defer(trigger=Defers(), method_name="execute")  # type: ignore[no-untyped-call]

    assert runs(act) == ("success", [])
    assert seen == [1, 1]


def test_an_operator_that_begins_in_the_triggerer_is_refused() -> None:
    class Begins(BaseOperator):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.start_from_trigger = True

    class LockedBegins(HiveLockMixin, Begins):
        pass

    with pytest.raises(InvalidRequest, match="before it has its locks"):
        LockedBegins(task_id="job", **NAMES)
