"""The lease of an operator at work: lost, taken over by the next try, or left to a late trigger."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import BaseOperator

from airflow_hivelock import HiveLockMixin, HiveLockOperator
from airflow_hivelock.compat import TaskDeferralError
from airflow_hivelock.locks import LockLost, invitations
from airflow_hivelock.waiting import Wait
from airflow_hivelock.work import lease_holder
from tests.airflow.tasks import DAY, NAMES, OBJECT, OWNER, Defers, LockedWork, Work, context, dag

if TYPE_CHECKING:
    from airflow_hivelock.locks import Lease, LockManager
    from airflow_hivelock.locks.backend import NeedsSlot
    from tests.airflow.conftest import Lines, Run


def test_a_lease_lost_while_it_was_deferred_fails_the_task(manager: LockManager, run: Run) -> None:
    went_on: list[str] = []

    class Deferring(BaseOperator):
        def execute(self, context: Any) -> None:
            (holder,) = manager.show(OBJECT)
            manager.force_release(str(holder.lease_id), reason="test", user="test")
            self.defer(trigger=Defers(), method_name="finish")  # type: ignore[no-untyped-call]

        def finish(self, context: Any, event: str) -> None:
            went_on.append(event)

    class Locked(HiveLockMixin, Deferring):
        pass

    with dag() as works:
        Locked(task_id="work", **NAMES)
    assert run(works, logical_date=DAY).tasks == {"work": "failed"}
    assert not went_on


@pytest.mark.parametrize("breaks", [True, False], ids=["work breaks", "work returns"])
@pytest.mark.parametrize("told", [True, False], ids=["told of it", "looking itself"])
def test_a_lost_lease_stops_the_work_and_fails_the_task(
    told: bool, breaks: bool, manager: LockManager, run: Run, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not told:
        verify = manager.verify
        monkeypatch.setattr(manager, "verify", lambda lease, _: verify(lease))
        monkeypatch.setattr(lease_holder, "CHECK_S", 0.1)
    works_seen: list[Work] = []
    said: list[Any] = []

    def act(work: Work) -> None:
        works_seen.append(work)
        (holder,) = manager.show(OBJECT)
        manager.force_release(str(holder.lease_id), reason="test", user="test")
        assert work.stopped.wait(10), "nobody stopped the work"
        if breaks:
            raise RuntimeError("spark-submit ended with 137")

    with dag() as works:
        LockedWork(task_id="work", act=act, on_failure_callback=lambda it: said.append(it["exception"]), **NAMES)
    assert run(works, logical_date=DAY).tasks == {"work": "failed"}
    assert isinstance(said[0], LockLost)
    assert str(said[0]).endswith("(test: test)")
    assert works_seen[0].kills == ["hivelock-renewal"]
    assert "Stopping the work" in lines()


@pytest.mark.parametrize("rounds", [0, 3], ids=["keeps the locks", "steps aside"])
def test_what_a_trigger_does_late_does_not_touch_a_task_that_has_gone_on(
    rounds: int, manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears of the end of its wait only after the task may have failed, and then gives up what it acquired."""
    waits: list[Wait] = []
    polled: set[str] = set()
    begin, poll = Wait.__init__, Wait.poll

    def noted(self: Wait, *given: Any) -> None:
        begin(self, *given)
        waits.append(self)

    def taken_at_first(self: Wait) -> Lease | NeedsSlot | None:
        """So that the worker defers."""
        owner = self._ask()[1].owner
        if owner not in polled:
            polled.add(owner)
            return None
        return poll(self)

    held: list[list[str]] = []

    def act(_: Work) -> None:
        for wait in waits[:4]:
            wait.give_up()
        held.append(sorted({holder.owner.split("/")[3] for holder in manager.show()}))

    monkeypatch.setattr(invitations, "ROUNDS", rounds)
    monkeypatch.setattr(Wait, "__init__", noted)
    monkeypatch.setattr(Wait, "poll", taken_at_first)
    with dag() as works:
        lock = HiveLockOperator(task_id="lock", waiting="defer", writes=["dw.other"])
        lock >> LockedWork(task_id="work", act=act, **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    assert len(waits) == (5 if rounds else 4), "for each task one on a worker, and one in the triggerer"
    assert held == [["lock", "work"]]


def test_a_task_whose_resume_method_is_gone_keeps_its_locks(manager: LockManager, lines: Lines) -> None:
    """An update of the provider or of the DAG has renamed the method, so nothing has checked the work."""
    lease = manager.acquire(owner=OWNER, writes=[OBJECT], attempt=1)
    manager.record_work(manager.start_work(lease, "lock", "what deferred"), "lock", "")
    job = LockedWork(task_id="lock", writes=[OBJECT])
    with pytest.raises(TaskDeferralError, match=r"lock: LockedWork has no method 'execute_complete'.*Check its work"):
        job.resume_execution("execute_complete", {"event": "done"}, context())
    left = manager.find(lease.id)
    assert left, "what it has started in a cluster may write on"
    assert [work.application for work in left.works] == [""]
    assert "so its lease is kept" in lines()


def test_a_retry_takes_over_the_lease_of_the_try_before(manager: LockManager, run: Run) -> None:
    """As when the worker died: its lease is held, and the job may still run."""
    attempts: list[tuple[str, int]] = []

    def act(work: Work) -> None:
        (holder,) = manager.show(OBJECT)
        lease = manager.find(str(holder.lease_id))
        assert lease is not None
        attempts.append((lease.id, lease.attempt))
        if len(attempts) == 1:
            raise RuntimeError("lost contact")

    class Lasting(LockedWork):
        def work_is_over(self, context: Any) -> bool:
            return False

        def reconnects(self, context: Any, earlier: Any) -> Any:
            return earlier

    with dag() as works:
        Lasting(task_id="work", act=act, retries=1, retry_delay=timedelta(0), **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    (first, one), (second, two) = attempts
    assert first == second
    assert (one, two) == (1, 2)
    assert not manager.show()
