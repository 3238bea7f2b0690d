"""Work that a cluster does: its lock outlives its task, whatever becomes of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import BaseOperator

from airflow_hivelock import HiveLockMixin
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work import applications
from tests.airflow.test_mixin import DAY, NAMES, dag

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Ran


class Submits(BaseOperator):
    """Hands work on to a cluster, and waits for it."""

    def __init__(self, *, act: Callable[[], Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.act = act

    def execute(self, context: Any) -> Any:
        self.act()


class LockedSubmits(HiveLockMixin, Submits):
    pass


def test_the_work_of_an_operator_that_nobody_knows_is_not_over_with_its_process(
    manager: LockManager, run: Callable[..., Ran]
) -> None:
    """As when the worker is killed: whoever asks then never counts the task's own process, as here."""
    said: list[str] = []

    def killed() -> None:
        with pytest.raises(CannotTell) as caught:
            applications.running(manager.leases()[0].works)
        said.append(str(caught.value))

    with dag() as works:
        LockedSubmits(task_id="job", act=killed, **NAMES)
    assert run(works, logical_date=DAY).tasks == {"job": "success"}
    assert "work_ends_with_process" in said[0]
    assert not manager.show(), "it says itself that it is over"
