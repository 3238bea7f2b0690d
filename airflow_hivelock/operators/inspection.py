"""Inspects users' classes and functions without running them."""

from __future__ import annotations

import ast
import inspect
from functools import partial
from itertools import chain, takewhile
from types import CodeType
from typing import TYPE_CHECKING, Any

from airflow_hivelock.compat import TaskDeferralError
from airflow_hivelock.locks.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

GUARDED = ("execute", "resume_execution", "on_kill", "render_template", "resolve_template_files")
"""Methods whose calls must reach the mixin before the operator that does the work."""

TRIGGER_FAILED = "__fail__"
"""The name that Airflow uses instead of a method's if the trigger has failed."""


def check_order(cls: type, mixin: type) -> None:
    """Check that *mixin* comes before the operator in the bases of *cls*.

    :raises InvalidRequest: a method of GUARDED in *cls* would not call *mixin*.
    """
    for base in takewhile(lambda base: base is not mixin, cls.__mro__):
        for method in vars(base).keys() & set(GUARDED):
            if not issubclass(base, mixin):
                bases = sorted(cls.__bases__, key=lambda base: not issubclass(base, mixin))
                raise InvalidRequest(
                    f"{cls.__name__}: {base.__name__}.{method} comes before that of {mixin.__name__}, so its work would "
                    f"run without locks. Write class {cls.__name__}({', '.join(base.__name__ for base in bases)})"
                )
            if not _calls_on(cls, vars(base)[method], method):
                raise InvalidRequest(
                    f"{base.__name__}.{method} never calls super().{method}(), so its work would have no locks. Call it, or "
                    f"put the work into an operator of its own, as in class Work(BaseOperator), and write "
                    f"class {base.__name__}({mixin.__name__}, Work)"
                )


def check_resumes(task: Any, next_method: str) -> None:
    """Check that a deferred *task* can resume with *next_method*.

    :raises TaskDeferralError: it has no such method. So it cannot check its deferred work.
    """
    if next_method != TRIGGER_FAILED and not hasattr(task, next_method):
        raise TaskDeferralError(
            f"{task.task_id}: {type(task).__name__} has no method {next_method!r} to resume with, perhaps since an update of "
            "its provider or DAG. Check its work, because this task has not seen the end of it"
        )


def nearest(cls: type, name: str) -> Any:
    """The attribute *name* of the nearest class that does not set it to None. None if there is no such class."""
    return next((vars(base)[name] for base in cls.__mro__ if vars(base).get(name) is not None), None)


def mentions(function: Any, name: str) -> bool:
    """Whether *function*, or the function that it wraps, has the name *name*, or uses that name in its code."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", "") == name or name in (_names_in(function) or ())


def undecorated(source: str, name: str) -> str:
    """The *source* of a function without its decorators called *name*."""
    lines, tree = source.splitlines(keepends=True), ast.parse(source)
    decorators = [
        each
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for each in node.decorator_list
    ]
    for each in decorators:
        if ast.unparse(each.func if isinstance(each, ast.Call) else each) == name:
            assert each.end_lineno is not None
            lines[each.lineno - 1 : each.end_lineno] = [""] * (each.end_lineno - each.lineno + 1)
    return "".join(lines)


def _calls_on(cls: type, function: Any, method: str) -> bool:
    """Whether the code of *function* uses *method*, and super or a base of *cls*. True if it is no plain function."""
    names = _names_in(function)
    return names is None or (
        method in names and not names.isdisjoint(("super", *(base.__name__ for base in cls.__mro__)))
    )


def _names_in(function: Any) -> set[str] | None:
    """The names in the code of *function*; None if it is no plain function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return None if code is None else set(_names(code))


def _names(code: CodeType) -> Iterator[str]:
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return chain(code.co_names, code.co_freevars, *map(_names, inner))
