"""Bugs that the simulation found, each as a script of its own and named for its symptom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.backend import Blocked
from tests.simulation.stage import play

if TYPE_CHECKING:
    from tests.simulation.stage import Stage


def test_a_table_waits_for_a_partition_that_hive_holds_when_patience_is_spent() -> None:
    def script(stage: Stage) -> None:
        ours = stage.process("ours", patience_s=0.0)
        stage.hive().lock_table("w/a/p=1", "SHARED")
        asked = ours.asks("o", [], ["w.a"])
        assert [type(asked.poll()) for _ in range(2)] == [Blocked, Blocked]

    play(script)
