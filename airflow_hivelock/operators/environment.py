"""The environment variables of the processes that a task starts under its lease."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_hivelock.work.processes import MARK

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def with_variables(task: Any, variables: dict[str, str]) -> Iterator[None]:
    """Give *variables* to the processes that *task* starts in the body.

    A process inherits them from this process, unless its operator replaces the environment, as BashOperator does with
    ``env``. Then this function adds them to the operator's ``env``. Without the mark, the processes would not count as
    work.
    """
    own: Any = getattr(task, "env", None)
    replaced = isinstance(own, dict) and not getattr(task, "append_env", True)
    os.environ |= variables
    try:
        if replaced:  # on a copy, because several tasks can have the same dict
            task.env = {**variables, **own, MARK: variables[MARK]}
        yield
    finally:
        for variable in variables:
            os.environ.pop(variable, None)
        if replaced:  # the same instance can run again, under another lease
            task.env = own
