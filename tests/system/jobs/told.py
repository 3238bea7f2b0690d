"""What an operator has told its lease of its job, and the context of its task."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

if TYPE_CHECKING:
    from airflow_hivelock.work.jobs.job import Job


class Over(Exception):
    """Ends an operator's wait."""


def path_of(kind: type[Job]) -> str:
    (path,) = kind.operators
    return path


def operator_of(kind: type[Job]) -> Any:
    module, _, name = path_of(kind).rpartition(".")
    pytest.importorskip(module)
    return getattr(import_module(module), name)


def told_by(kind: type[Job], **arguments: Any) -> tuple[Any, list[Job]]:
    """An operator of *kind*, and what is recorded of it: while it runs, and in that order."""
    recorded: list[Job] = []

    class Told(operator_of(kind)):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if (
                name == kind.operators[path_of(kind)]
                and getattr(self, "begun", False)
                and (job := kind.of(self)) is not None
            ):
                recorded.append(job)

    operator = Told(task_id="work", **arguments)
    operator.begun = True
    return operator, recorded


def context() -> dict[str, Any]:
    instance = MagicMock(dag_id="dag", task_id="work", run_id="run", map_index=-1, try_number=1)
    dag = SimpleNamespace(parent_dag=None)
    return {"ti": instance, "task_instance": instance, "run_id": "run", "dag": dag, "task_state_store": None}
