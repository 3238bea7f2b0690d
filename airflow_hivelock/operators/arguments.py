"""Checks an operator's arguments when the DAG is parsed. It skips templates, and checks that need a metastore."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow.sdk.bases.operator import get_merged_defaults
from airflow.sdk.definitions.mappedoperator import OperatorPartial

from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import MAX_LEASE_S
from airflow_hivelock.spec import FIELDS, RENDERED, TERMS, LeaseTerms, LockSpec
from airflow_hivelock.templates import is_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow.sdk.definitions.mappedoperator import MappedOperator

Waiting = Literal["trigger", "defer", "reschedule", "poke"]

_WHAT = ("reads", "writes", "lock_sql", "sql", "locks", "lease")
"""The arguments that can name locks, or the lease that has them."""

CALLBACKS = ("on_success_callback", "on_failure_callback", "on_retry_callback", "on_skipped_callback")

_JINJA = ("{{", "{%", "{#")
_DELIMITERS = ("variable_start_string", "block_start_string", "comment_start_string", "line_statement_prefix")


def is_reference(value: Any) -> bool:
    """Whether *value* is an XComArg, or an argument of a mapped task group."""
    return hasattr(value, "iter_references")


def is_rendered(value: Any, dag: Any = None) -> bool:
    """Whether *value* changes when the task runs: it is a reference, or a template with Jinja's or the DAG's
    delimiters."""
    if not isinstance(value, str):
        return is_reference(value)
    marks = getattr(dag, "jinja_environment_kwargs", None) or {}
    return not marks.keys().isdisjoint(_DELIMITERS) or any(mark in value for mark in _JINJA)


def as_written(names: Any, dag: Any = None) -> Any:
    """The *names* that are not templates. *names* itself if it cannot be a list of names."""
    if is_rendered(names, dag):
        return ()
    if isinstance(names, str | Mapping) or not isinstance(names, Collection):
        return names
    return tuple(name for name in names if not is_rendered(name, dag))


def check_names(arguments: Mapping[str, Any]) -> None:
    """Refuse invalid arguments of :class:`.NamesLocks` that are not templates.

    :raises InvalidRequest: with the task and the argument.
    """
    check_connection(arguments)
    check_callbacks(arguments)
    dag = arguments.get("dag")
    spec = {name: arguments[name] for name in FIELDS if name in arguments}
    spec |= {name: as_written(spec.get(name, ()), dag) for name in RENDERED}
    sql, database = spec["lock_sql"], spec["lock_database"] or LockSpec.lock_database
    if sql is True or is_file(sql):
        sql = ""
    try:
        LockSpec(**{**spec, "lock_sql": sql or "", "lock_database": database}).check()
    except InvalidRequest as error:
        raise InvalidRequest(f"{arguments.get('task_id')}: {error}") from error


def check_not_nothing(arguments: Mapping[str, Any]) -> None:
    """Refuse the whole *arguments* of a task if they name no lock. It raises as :func:`check_names` does."""
    if not any(arguments.get(name) for name in ("reads", "writes", "lock_sql", "sql")):
        raise InvalidRequest(
            f"{arguments.get('task_id')} asks for no locks. Name at least one object in reads or writes"
        )


def check_callbacks(arguments: Mapping[str, Any]) -> None:
    """Check an operator's callbacks. It raises as :func:`check_names` does."""
    for name in CALLBACKS:
        given = arguments.get(name) or ()
        each = given if isinstance(given, Collection) else (given,)
        if not all(map(callable, each)):  # Airflow would call each letter of a text, and only log the errors
            raise InvalidRequest(
                f"{arguments.get('task_id')}: {name} is not a function. Remove the quotes, as in {name}=release_locks"
            )


def check_switch(arguments: Mapping[str, Any], name: str) -> None:
    """Check that argument *name* is True or False, if it is set. It raises as :func:`check_names` does."""
    if not isinstance(value := arguments.get(name, True), bool):
        raise InvalidRequest(f"{arguments.get('task_id')}: {name}={value!r} is invalid. Use True or False")


def check_connection(arguments: Mapping[str, Any]) -> None:
    """Check an operator's connection. It raises as :func:`check_names` does."""
    conn_id = arguments.get("hivelock_conn_id", HiveLockHook.default_conn_name)
    if not isinstance(conn_id, str) or not conn_id.strip() or is_rendered(conn_id):
        raise InvalidRequest(
            f"{arguments.get('task_id')}: hivelock_conn_id={conn_id!r} is invalid. Write the id of one connection. It cannot be "
            "a template"
        )


def check_waiting(arguments: Mapping[str, Any]) -> None:
    """Check an operator's way to wait, and the duration of its lease. It raises as :func:`check_names` does."""
    task_id, waiting = arguments.get("task_id"), arguments.get("waiting", "trigger")
    if waiting not in get_args(Waiting):
        raise InvalidRequest(f"{task_id}: waiting={waiting!r} is unknown. Use one of {', '.join(get_args(Waiting))}")
    lease_s = check_span(arguments, "lease_duration", least=timedelta(seconds=1))
    check_span(arguments, "timeout", or_none=True)
    if lease_s is not None and lease_s > MAX_LEASE_S:
        raise InvalidRequest(
            f"{task_id}: lease_duration={arguments['lease_duration']} is too long. The longest lease is a year"
        )


def check_terms(arguments: Mapping[str, Any]) -> None:
    """Check the terms of an operator's lease. It raises as :func:`check_names` does."""
    if is_rendered(group := arguments.get("lease_group")):  # it would count as one group with that name
        raise InvalidRequest(
            f"{arguments.get('task_id')}: lease_group={group!r} is not rendered. Write the group's name"
        )
    try:
        LeaseTerms(**{name: arguments[name] for name in TERMS if arguments.get(name) is not None})
    except InvalidRequest as error:
        raise InvalidRequest(f"{arguments.get('task_id')}: {error}") from error


def check_span(
    arguments: Mapping[str, Any], name: str, least: timedelta = timedelta(), *, or_none: bool = False
) -> float | None:
    """The time span in argument *name*, in seconds. None if it is not set.

    :param or_none: the argument can be None.
    :raises InvalidRequest: it is no timedelta, or shorter than *least*.
    """
    value = arguments.get(name)
    if value is None and (or_none or name not in arguments):
        return None
    if not isinstance(value, timedelta) or value < least:
        raise InvalidRequest(
            f"{arguments.get('task_id')}: {name}={value!r} is invalid. Use a timedelta of {least} or more"
        )
    return value.total_seconds()


def check_objects(task: Any, objects: Any) -> None:
    """Check the names of the *objects* that *task* releases. It raises as :func:`check_names` does."""
    try:
        rules.objects("objects", as_written(objects, task.get_dag()))
    except InvalidRequest as error:
        raise InvalidRequest(f"{task.task_id}: {error}") from error


def check_lists(task: Any, *names: str) -> None:
    """Check what *task* may release, when the DAG is parsed. Only then: in a run, a list can be empty.

    :raises InvalidRequest: one of its lists *names* is empty.
    """
    for name in names:
        if getattr(task, name) in ([], ()):
            raise InvalidRequest(
                f"{task.task_id}: {name}=[] is empty, so the task would release nothing. Fill it, or remove the task"
            )


def names_nothing(task: Any, names: Iterable[str]) -> bool:
    """Whether one of the lists *names* of *task* is empty in this run. The task then releases nothing, and the log has that.

    :raises InvalidRequest: one of them is None in this run. None would mean all, and the DAG asked for less.
    """
    for name in names:
        value = getattr(task, name)
        if value is None:
            raise InvalidRequest(
                f"{task.task_id}: {name} is None in this run, so nothing is released. If another task should return it, that task "
                "has returned nothing. Let it return a list, [] for nothing"
            )
        if not isinstance(value, str) and not value:
            task.log.info("Nothing to release: %s is empty in this run", name)
            return True
    return False


class CheckedPartial(OperatorPartial):
    """A partial of a mapped operator. It checks each argument that is known when the DAG is parsed."""

    __slots__ = ()

    def expand(self, **mapped: Any) -> MappedOperator:
        made = super().expand(**mapped)
        self._refuse_connections(mapped)
        for name, values in mapped.items():
            if isinstance(values, Sequence) and not isinstance(values, str):
                self._check({name: value} for value in values)
        # Airflow combines each value with each other. If one combination names nothing, it is that of the empty values.
        least = {
            name: not isinstance(mapped[name], Sequence) or all(mapped[name]) or None
            for name in _WHAT
            if name in mapped
        }
        self._check_whole(made, [least])
        return made

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> MappedOperator:
        made = super().expand_kwargs(kwargs, strict=strict)
        if isinstance(kwargs, Sequence):
            known = [each for each in kwargs if isinstance(each, Mapping)]
            self._refuse_connections(*known)
            self._check(known)
            self._check_whole(made, known)
        return made

    def _refuse_connections(self, *mapped: Mapping[str, Any]) -> None:
        operator: Any = self.operator_class
        if operator.one_connection and any("hivelock_conn_id" in each for each in mapped):
            raise InvalidRequest(
                f"{self.kwargs.get('task_id')}: hivelock_conn_id cannot be mapped. Write a task for each connection"
            )

    def _check_whole(self, made: MappedOperator, mapped: Iterable[Mapping[str, Any]]) -> None:
        """Check that each of *mapped* names something. A user's own class can add names, so it is checked in a run."""
        operator: Any = self.operator_class
        if operator.__init__.__module__.startswith("airflow_hivelock."):
            defaults, _ = get_merged_defaults(made.dag, made.task_group, None, None)
            for each in mapped:
                operator.check_whole({**defaults, **self.kwargs, **each})

    def _check(self, mapped: Iterable[Mapping[str, Any]]) -> None:
        check: Any = self.operator_class
        for each in mapped:
            check.check_arguments({**self.kwargs, **each})
