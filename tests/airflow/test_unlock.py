"""Unlock tasks: they free what is done with, and nothing that is still needed."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import task

from airflow_hivelock import HiveLockHook, HiveLockOperator, HiveUnlockOperator
from airflow_hivelock.locks import StoreUnavailable, pending
from airflow_hivelock.operators import lock as lock_operator
from tests.airflow.tasks import DAY, NAMES
from tests.airflow.tasks import dag as dag_named

if TYPE_CHECKING:
    from airflow_hivelock.locks import Lease, LockManager
    from tests.airflow.conftest import Lines, Run

dag = partial(dag_named, "releases")


def _held(manager: LockManager) -> list[str]:
    return sorted({str(holder.object) for holder in manager.show() if holder.object.partition})


class TestUnlock:
    def test_it_frees_its_setups_when_the_work_failed(self, manager: LockManager, run: Run) -> None:
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)

            @task
            def job() -> None:
                raise RuntimeError("no such table")

            lock >> job() >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
        ran = run(releases, logical_date=DAY)
        assert ran.tasks == {"lock": "success", "job": "failed", "unlock": "success"}
        assert ran.state == "failed"
        assert not manager.show()

    def test_it_frees_every_map_index(self, manager: LockManager, run: Run) -> None:
        with dag() as releases:
            lock = HiveLockOperator.partial(task_id="lock").expand(writes=[["dw.a"], ["dw.b"]])
            unlock = HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)  # type: ignore[arg-type]
            lock >> EmptyOperator(task_id="job") >> unlock
        assert run(releases, logical_date=DAY).state == "success"
        assert not manager.show()

    def test_it_frees_every_map_index_in_the_lock_store_of_default_args(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The unlock task looked in the lock store of hivelock_default, succeeded, and freed nothing."""
        extra = {"backend": "memory", "installation": "here"}
        monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps({"conn_type": "hivelock", "host": "other", "extra": extra}))
        held: list[str] = []
        with dag(default_args={"hivelock_conn_id": "other"}) as releases:
            lock = HiveLockOperator.partial(task_id="lock").expand(writes=[["dw.a"], ["dw.b"]])

            @task
            def job() -> None:
                held.extend(str(holder.object) for holder in HiveLockHook("other").manager().show())

            lock >> job() >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)  # type: ignore[arg-type]
        assert run(releases, logical_date=DAY).state == "success"
        assert {"dw.a", "dw.b"} <= set(held)
        assert not HiveLockHook("other").manager().show()

    def test_it_frees_the_lease_that_it_is_given(self, manager: LockManager, run: Run) -> None:
        with dag() as releases:
            one = HiveLockOperator(task_id="one", writes=["dw.a"])
            two = HiveLockOperator(task_id="two", writes=["dw.b"])
            [one, two] >> HiveUnlockOperator(task_id="unlock", lease=two.output)
        assert run(releases, logical_date=DAY).state == "success"
        assert [str(holder.object) for holder in manager.show()] == ["dw", "dw.a"]

    @pytest.mark.parametrize("objects", [None, ["dw.a"]])
    def test_it_frees_nothing_if_the_passed_lease_turns_out_as_none(
        self, objects: Any, manager: LockManager, run: Run, lines: Lines
    ) -> None:
        """It freed the leases of all lock tasks upstream."""
        with dag() as releases:
            lock = HiveLockOperator(task_id="one", writes=["dw.a"])

            @task
            def marked() -> None:
                """Leave no XCom, as a lock task that a user has marked as success."""

            lock >> HiveUnlockOperator(task_id="unlock", lease=marked(), objects=objects)
        assert run(releases, logical_date=DAY).state == "success"
        assert [str(holder.object) for holder in manager.show()] == ["dw", "dw.a"]
        assert "Nothing to release: the lock task has passed no lease" in lines()
        assert "Released nothing" not in lines(), "one line is enough"

    def test_a_mapped_lease_of_none_does_not_free_the_lock_upstream(self, manager: LockManager, run: Run) -> None:
        with dag() as releases:
            lock = HiveLockOperator(task_id="one", writes=["dw.a"])

            @task
            def leases() -> list[Any]:
                return [None]

            lock >> HiveUnlockOperator.partial(task_id="unlock").expand(lease=leases())
        assert run(releases, logical_date=DAY).tasks["unlock[0]"] == "failed"
        assert [str(holder.object) for holder in manager.show()] == ["dw", "dw.a"]

    def test_it_frees_leases_that_another_dag_acquired(self, manager: LockManager, run: Run) -> None:
        given = [manager.acquire(owner=f"here/other/run/{n}/-1", writes=[f"dw.{n}"]).to_json() for n in ("a", "b")]
        with dag() as releases:
            HiveUnlockOperator(task_id="unlock", lease=given, lease_dag_id="other")
        assert run(releases, logical_date=DAY).state == "success"
        assert not manager.show()

    def test_it_leaves_an_outer_lock_alone(self, manager: LockManager, run: Run) -> None:
        with dag() as releases:
            outer = HiveLockOperator(task_id="outer", writes=["dw.a"])
            inner = HiveLockOperator(task_id="inner", writes=["dw.b"])
            outer >> inner >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=inner)
        assert run(releases, logical_date=DAY).state == "success"
        assert [str(holder.object) for holder in manager.show()] == ["dw", "dw.a"]

    def test_it_frees_the_days_that_are_done_and_leaves_the_others(self, manager: LockManager, run: Run) -> None:
        seen: list[list[str]] = []
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", writes=["dw.delays/dt=2013-01-{{ ds[8:] }}..2013-01-17"])

            @task
            def day(number: int) -> None:
                seen.append(_held(manager))

            first, last = day(1), day(2)
            done = HiveUnlockOperator(task_id="done", objects=["dw.delays/dt={{ ds }}..2013-01-16"])
            again = HiveUnlockOperator(task_id="again", lease=lock.output, objects=["dw.delays/dt={{ ds }}"])
            unlock = HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
            lock >> first >> done >> again >> last >> unlock
        ran = run(releases, logical_date=DAY)
        assert ran.state == "success"
        assert seen == [
            ["dw.delays/dt=2013-01-15", "dw.delays/dt=2013-01-16", "dw.delays/dt=2013-01-17"],
            ["dw.delays/dt=2013-01-17"],
        ]
        assert not manager.show()

    def test_work_on_other_days_does_not_keep_it_waiting(self, manager: LockManager, run: Run) -> None:
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", writes=["dw.delays/dt=2013-01-15..2013-01-16"])
            done = HiveUnlockOperator(
                task_id="done", objects=["dw.delays/dt=2013-01-15"], work_timeout=timedelta(seconds=2)
            )

            @task
            def late() -> None:
                assert _held(manager) == ["dw.delays/dt=2013-01-16"]

            lock >> EmptyOperator(task_id="early") >> done
            lock >> late() << done
        assert run(releases, logical_date=DAY).state == "success"
        assert _held(manager) == ["dw.delays/dt=2013-01-16"], "a part is not the whole"

    def test_what_the_lease_never_held_fails_and_frees_nothing(self, manager: LockManager, run: Run) -> None:
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            lock >> HiveUnlockOperator(task_id="unlock", objects=["dw.delays/dt=2013-02-01"])
        assert run(releases, logical_date=DAY).tasks["unlock"] == "failed"
        assert _held(manager) == ["dw.delays/dt=2013-01-15"]

    @pytest.mark.parametrize(("returned", "state"), [([], "success"), (None, "failed")])
    def test_a_part_that_another_task_leaves_empty_is_not_the_whole(
        self, returned: Any, state: str, manager: LockManager, run: Run, lines: Lines
    ) -> None:
        """If that task returned None, the whole lease was released, although later tasks still worked under it."""
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)

            @task
            def done() -> Any:
                return returned

            lock >> HiveUnlockOperator(task_id="unlock", objects=done())
        assert run(releases, logical_date=DAY).tasks["unlock"] == state
        assert ("Nothing to release: objects is empty in this run" in lines()) is (returned == [])
        assert _held(manager) == ["dw.delays/dt=2013-01-15"]

    def test_what_is_free_already_is_success_and_the_log_has_that(
        self, manager: LockManager, run: Run, lines: Lines
    ) -> None:
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            lock >> HiveUnlockOperator(task_id="unlock") >> HiveUnlockOperator(task_id="again", lease=lock.output)
        assert run(releases, logical_date=DAY).state == "success"
        assert lines().count("Released nothing: connection 'hivelock_default' has none of the leases any more") == 1

    def test_as_a_plain_task_it_frees_the_locks_upstream(self, manager: LockManager, run: Run) -> None:
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            lock >> EmptyOperator(task_id="job") >> HiveUnlockOperator(task_id="unlock")
        assert run(releases, logical_date=DAY).state == "success"
        assert not manager.show()

    def test_it_waits_for_work_and_then_says_for_which(
        self, manager: LockManager, run: Run, lines: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said: list[str] = []
        monkeypatch.setattr(lock_operator, "WORK_POLL_S", 0.1)
        states = {("job", -1): "running"}
        monkeypatch.setattr("airflow_hivelock.comms.task_states", lambda *_: states)
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            unlock = HiveUnlockOperator(
                task_id="unlock",
                work_timeout=timedelta(milliseconds=300),
                on_failure_callback=lambda context: said.append(str(context["exception"])),
            )
            lock >> EmptyOperator(task_id="job") >> unlock.as_teardown(setups=lock)
        assert run(releases, logical_date=DAY).tasks["unlock"] == "failed"
        assert "Waiting for job" in lines()
        assert re.search("because work still runs under the locks after .*: job.", said[0])
        assert manager.show()

    def test_a_store_that_does_not_answer_fails_it(
        self, manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pending, "FIRST_PAUSE_S", 0.05)
        monkeypatch.setattr(manager, "release", Mock(side_effect=StoreUnavailable("zk1 is down")))
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            lock >> HiveUnlockOperator(task_id="unlock", work_timeout=timedelta(milliseconds=200))
        assert run(releases, logical_date=DAY).tasks["unlock"] == "failed"

    def test_it_bears_an_outage_of_the_lock_store(
        self, manager: LockManager, run: Run, lines: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        release, outages = manager.release, [StoreUnavailable("zk1 is down")] * 3

        def flaky(lease: Lease) -> bool:
            if outages:
                raise outages.pop()
            return release(lease)

        failures: list[None] = []
        monkeypatch.setattr("airflow_hivelock.metrics.store_failed", lambda: failures.append(None))
        monkeypatch.setattr(pending, "FIRST_PAUSE_S", 0.05)
        monkeypatch.setattr(manager, "release", flaky)
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            lock >> HiveUnlockOperator(task_id="unlock")
        assert run(releases, logical_date=DAY).state == "success"
        assert not manager.show()
        assert lines().count("Not released yet. The lock store does not answer; asking again") == 1
        assert len(failures) == 3, "the metric counts each"
