"""``with hold(…)`` inside a Python task."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import DAG, task

from airflow_hivelock import hive_lock, hold
from airflow_hivelock.locks import InvalidRequest, LockLost, LockManager, LockTimeout, StoreUnavailable, rules
from airflow_hivelock.spec import Owner
from airflow_hivelock.waiting import Wait
from airflow_hivelock.work import applications
from airflow_hivelock.work.lease_holder import LeaseHolder
from airflow_hivelock.work.processes import MARK
from airflow_hivelock.work.stale import is_for_its_task
from tests.airflow.tasks import DAY

if TYPE_CHECKING:
    from tests.airflow.conftest import Run
    from tests.airflow.conftest import Run as Python


def owners(manager: LockManager) -> list[str]:
    return sorted({holder.owner for holder in manager.show()})


def test_days_that_are_done_are_given_back_and_the_body_goes_on(
    manager: LockManager, python: Python, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_hivelock.work.lease_holder.CHECK_S", 0.05)
    days = [f"dw.a/dt=2013-01-0{number}" for number in (1, 2, 3)]
    seen: list[list[str]] = []

    def work() -> None:
        with hold(writes=["dw.a/dt=2013-01-01..2013-01-03"]) as held:
            for day in days:
                seen.append([str(holder.object) for holder in manager.show() if holder.object.partition])
                held.release([day])
                with pytest.raises(InvalidRequest, match="never held"):
                    held.release(["dw.b"])
                Event().wait(0.2)  # the lease is checked in that time
                held.check()

    assert python(work).state == "success"
    assert seen == [days, days[1:], days[2:]]
    assert not manager.show()


def test_a_retry_gets_the_days_again_that_a_try_which_died_had_given_back(manager: LockManager, python: Python) -> None:
    seen: list[Any] = []

    def work() -> None:
        days = "dw.a/dt=2013-01-01..2013-01-02"
        with hold(writes=[days]) as held:
            assert held.lease is not None
            owner = held.lease.owner
        died = manager.acquire(owner=owner, writes=[days], attempt=1)
        manager.release(died, objects=["dw.a/dt=2013-01-01"])
        with hold(writes=[days]) as held:
            assert held.lease is not None
            seen.extend([died.id, held.lease.id, [str(lock.object) for lock in held.lease.locks[2:]]])

    assert python(work).state == "success"
    died, again, days = seen
    assert (died != again, days) == (True, ["dw.a/dt=2013-01-01", "dw.a/dt=2013-01-02"])
    assert not manager.show()


def test_the_body_runs_under_the_locks(manager: LockManager, python: Python) -> None:
    """Each under an owner of its own, which is the same task to all who judge it."""
    seen: list[Any] = []

    def work() -> None:
        with hold(writes=["dw.a/dt=1"]) as one, hold(reads=["dw.b/dt=1"]) as two:
            for held in (one, two):
                held.check()
                assert held.lease is not None
                lease = manager.find(held.lease.id)
                assert lease is not None
                seen.append((Owner.parse(lease.owner), lease))
            seen.append(owners(manager))
        seen.append(owners(manager))

    ran = python(work, decorator=task.hivelock, writes=["dw.own"])
    assert ran.state == "success"
    (one, lease), (two, _), during, after = seen
    own = str(Owner("here", "holds", ran.run_id, "work", -1))
    assert during == sorted([own, str(one), str(two)])
    assert after == [own]
    assert (one.dag_id, one.task_id, one.work) == ("holds", "work", "work")
    assert is_for_its_task(one, lease), "the keeper would wait for the end of the run"
    assert [str(lock.object) for lock in lease.locks] == ["dw", "dw.a", "dw.a/dt=1"]
    assert not manager.show()


def test_it_is_freed_after_an_error(manager: LockManager, python: Python) -> None:
    def work() -> None:
        with hold(writes=["dw.a"]):
            raise RuntimeError("no such table")

    assert python(work).tasks == {"work": "failed"}
    assert not manager.show()


@pytest.mark.parametrize("asks", [True, False])
def test_a_lease_that_was_lost_publishes_nothing(asks: bool, manager: LockManager, python: Python) -> None:
    published: list[str] = []
    raised: list[Any] = []

    def work() -> None:
        with hold(writes=["dw.a"]) as held:
            assert held.lease is not None
            manager.force_release(held.lease.id, reason="test", user="test")
            if asks:
                held.check()
            published.append("it")

    def note(context: Any) -> None:
        raised.append(context["exception"])

    assert python(work, on_failure_callback=note).tasks == {"work": "failed"}
    assert isinstance(raised[0], LockLost)
    assert str(raised[0]).endswith("(test: test)")
    assert published == ([] if asks else ["it"])


def test_what_runs_is_recorded_and_started_under_its_mark(manager: LockManager, python: Python) -> None:
    seen: list[Any] = []

    def work() -> None:
        with hold(writes=["dw.a"]) as held:
            assert held.lease is not None
            (recorded,) = held.lease.works
            said = subprocess.run(
                [sys.executable, "-c", f"import os; print(os.environ[{MARK!r}])"],
                capture_output=True,
                text=True,
                check=True,
            )
            seen.append((applications.of(recorded), said.stdout.strip()))
        seen.append(os.environ.get(MARK))

    assert python(work).state == "success"
    (processes, mark), after = seen
    assert (processes.pid, processes.mark) == (os.getpid(), mark)
    assert after is None


def test_the_next_try_takes_up_what_a_killed_one_has_left(
    manager: LockManager, python: Python, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    release = LeaseHolder.release
    monkeypatch.setattr(LeaseHolder, "release", lambda self: release(self) if len(seen) > 1 else None)

    def work() -> None:
        with hold(writes=sorted(["dw.a", "dw.b"], reverse=not seen)) as held:  # the order of a set changes
            assert held.lease is not None
            seen.append((held.lease.id, held.lease.attempt))
            if len(seen) == 1:
                raise RuntimeError("killed")

    assert python(work, retries=1, retry_delay=timedelta(0)).state == "success"
    (first, one), (second, two) = seen
    assert first == second
    assert (one, two) == (1, 2)
    assert not manager.show()


def test_an_error_while_the_work_is_ended_keeps_the_lease(
    manager: LockManager, python: Python, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_work(*_: Any, **__: Any) -> bool:
        raise PermissionError("a process of another user")

    def work() -> None:
        with hold(writes=["dw.a"]):
            raise RuntimeError

    monkeypatch.setattr(LeaseHolder, "end_work", end_work)
    assert python(work).state == "failed"
    assert manager.leases()


def test_it_waits_no_longer_than_it_may(manager: LockManager, python: Python) -> None:
    raised: list[Any] = []

    def work() -> None:
        with pytest.raises(LockTimeout) as timeout, hold(writes=["dw.a"], timeout=timedelta(0)):
            raise AssertionError("not locked")
        raised.append(str(timeout.value))

    other = manager.acquire(owner="other", writes=["dw.a"])
    assert python(work).state == "success"
    assert "other" in raised[0]
    manager.release(other)


def test_a_task_does_not_wait_for_itself(manager: LockManager, python: Python) -> None:
    raised: list[str] = []

    def work() -> None:
        for again in ({"writes": ["dw.a"]}, {"reads": ["dw.a/dt=1"]}, {"writes": ["dw.own/dt=1"]}):
            with pytest.raises(InvalidRequest) as error, hold(writes=["dw.a"]), hold(**again):  # type: ignore[arg-type]
                raise AssertionError("not locked")
            raised.append(str(error.value))

    assert python(work, decorator=task.hivelock, writes=["dw.own"]).state == "success"
    assert [error.split(": ")[0] for error in raised] == [
        "work",
        "work would wait for itself",
        "work would wait for itself",
    ]
    assert not manager.show()


def test_a_task_does_not_wait_behind_a_request_that_waits_for_it(manager: LockManager, python: Python) -> None:
    """The writer waits for the task's own read, and later readers wait behind the writer."""
    raised: list[str] = []
    later = {name: rules.request(name, writes=[f"dw.{name}/dt=1", "dw.both/dt=1"]) for name in ("a", "b")}

    def work() -> None:
        waiting = [manager.begin(request, Event().set) for request in later.values()]
        for each in waiting:
            each.poll()
        for names in (["dw.a/dt=1"], ["dw.b/dt=1"]):
            with pytest.raises(InvalidRequest) as error, hold(reads=names, timeout=timedelta(seconds=10)):
                raise AssertionError("not locked")
            raised.append(str(error.value))
        with hold(reads=["dw.other/dt=1"]):
            pass
        for each in waiting:
            each.withdraw()

    assert python(work, decorator=task.hivelock, reads=["dw.a/dt=1"]).state == "success"
    assert len(raised) == 2
    assert all("work would wait for itself: here/holds/" in error and "dw.a/dt=1 SHARED" in error for error in raised)
    assert not manager.show()


def test_a_wait_survives_a_store_that_is_silent_for_a_moment(
    manager: LockManager, python: Python, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks the store for the waiters ahead. At its end it also asks the store, but its own error counts."""
    waiters, silent = manager.waiters, iter([True])

    def once_silent() -> Any:
        if next(silent, False):
            raise StoreUnavailable("no answer")
        return waiters()

    give_up = Wait.give_up

    def no_answer(wait: Wait) -> None:
        give_up(wait)
        raise StoreUnavailable("no answer")

    later = manager.begin(rules.request("later", writes=["dw.a"]), Event().set)

    def work() -> None:
        later.poll()
        monkeypatch.setattr(type(manager), "waiters", lambda _: once_silent())
        with pytest.raises(InvalidRequest, match="wait for itself"), hold(reads=["dw.a"]):
            raise AssertionError("not locked")
        monkeypatch.setattr(Wait, "give_up", no_answer)
        with pytest.raises(InvalidRequest, match="wait for itself"), hold(reads=["dw.a/dt=1"]):
            raise AssertionError("not locked")
        later.withdraw()

    assert python(work, decorator=task.hivelock, reads=["dw.a"]).state == "success"


def test_a_task_does_not_wait_for_a_lease_that_it_works_under(manager: LockManager, run: Run) -> None:
    raised: list[str] = []

    def work() -> None:
        with pytest.raises(InvalidRequest) as error, hold(writes=["dw.a"], timeout=timedelta(seconds=10)):
            raise AssertionError("not locked")
        raised.append(str(error.value))

    with DAG("holds", schedule=None, start_date=DAY) as works, hive_lock(writes=["dw.a"]) as lease:
        task.hivelock(lease=lease)(work)()
    assert run(works, logical_date=DAY).state == "success"
    assert "work would wait for itself: here/holds/" in raised[0]
    assert not manager.show()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "asks for no locks"),
        ({"writes": ["dw.a/dt={{ ds }}"]}, "the template 'dw.a/dt={{ ds }}' is not rendered inside a task"),
        ({"writes": ["dw/"]}, "dw/"),
        ({"writes": "dw.a"}, "must be a list of names"),
        ({"writes": ["dw.a"], "timeout": 5}, "Use a timedelta"),
        ({"writes": ["dw.a"], "lease_duration": timedelta(0)}, "lease_duration"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    given: dict[str, Any], message: str, manager: LockManager, python: Python
) -> None:
    raised: list[str] = []

    def work() -> None:
        with pytest.raises(InvalidRequest) as error, hold(**given):
            raise AssertionError("not locked")
        raised.append(str(error.value))

    assert python(work).state == "success"
    assert message in raised[0]


def test_outside_of_a_task_it_says_what_to_take() -> None:
    with pytest.raises(InvalidRequest, match=r"airflow_hivelock\.locks\.connect"), hold(writes=["dw.a"]):
        raise AssertionError("not locked")


def test_without_locking_the_body_runs_all_the_same(manager: LockManager, python: Python) -> None:
    seen: list[Any] = []

    def work() -> None:
        with hold(writes=["dw.a"], support_concurrency=False) as held:
            held.check()
            seen.append((held.lease, owners(manager)))

    assert python(work).state == "success"
    assert seen == [(None, [])]


def test_an_owner_is_read_as_it_is_written() -> None:
    for owner in (Owner("a/b", "dag", "run", "task", 3, "0f"), Owner("a", "dag", "run", "task", 3)):
        assert Owner.parse(str(owner)) == owner
    assert Owner.parse("a/dag/run/task/3/0f/more") is None
