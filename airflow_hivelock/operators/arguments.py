"""What can be said of an operator's arguments when the DAG is parsed: all but what is rendered, or a metastore decides."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow.sdk.definitions.mappedoperator import OperatorPartial

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import MAX_LEASE_S
from airflow_hivelock.spec import FIELDS, RENDERED, TERMS, LeaseTerms, LockSpec
from airflow_hivelock.templates import is_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow.sdk.definitions.mappedoperator import MappedOperator

Waiting = Literal["trigger", "defer", "reschedule", "poke"]

_JINJA = ("{{", "{%", "{#")
_DELIMITERS = ("variable_start_string", "block_start_string", "comment_start_string", "line_statement_prefix")


def is_reference(value: Any) -> bool:
    """Whether *value* is an XComArg, or an argument of a mapped task group."""
    return hasattr(value, "iter_references")


def is_rendered(value: Any, dag: Any = None) -> bool:
    """Whether *value* becomes another when the task runs: a template, by the DAG's own marks if it has any, or a reference."""
    if not isinstance(value, str):
        return is_reference(value)
    marks = getattr(dag, "jinja_environment_kwargs", None) or {}
    return not marks.keys().isdisjoint(_DELIMITERS) or any(mark in value for mark in _JINJA)


def as_written(names: Any, dag: Any = None) -> Any:
    """Of *names* those that are not rendered; what cannot be a list of names as it is."""
    if is_rendered(names, dag):
        return ()
    if isinstance(names, str | Mapping) or not isinstance(names, Collection):
        return names
    return tuple(name for name in names if not is_rendered(name, dag))


def check_names(given: Mapping[str, Any]) -> None:
    """Refuse what an operator that names locks is *given*, if no rendering mends it.

    :raises InvalidRequest: naming the task and the argument.
    """
    dag = given.get("dag")
    spec = {name: given[name] for name in FIELDS if name in given}
    spec |= {name: as_written(spec.get(name, ()), dag) for name in RENDERED}
    sql, database = spec["lock_sql"], spec.get("lock_database") or LockSpec.lock_database
    if is_rendered(database, dag):
        sql, database = "", LockSpec.lock_database
    if sql is True or is_file(sql):
        sql = ""
    try:
        LockSpec(**{**spec, "lock_sql": sql or "", "lock_database": database}).check()
    except InvalidRequest as error:
        raise InvalidRequest(f"{given.get('task_id')}: {error}") from error


def check_waiting(given: Mapping[str, Any]) -> None:
    """The same for how an operator waits, and for how long its lease lasts."""
    task_id, waiting = given.get("task_id"), given.get("waiting", "trigger")
    if waiting not in get_args(Waiting):
        raise InvalidRequest(f"{task_id}: waiting={waiting!r}; use one of {', '.join(get_args(Waiting))}")
    lease_s = check_span(given, "lease_duration", least=timedelta(seconds=1))
    check_span(given, "timeout")
    if lease_s is not None and lease_s > MAX_LEASE_S:
        raise InvalidRequest(f"{task_id}: lease_duration={given['lease_duration']}; a lease lasts a year at most")


def check_terms(given: Mapping[str, Any]) -> None:
    """The same for the terms on which its lease is granted."""
    try:
        LeaseTerms(**{name: given[name] for name in TERMS if given.get(name) is not None})
    except InvalidRequest as error:
        raise InvalidRequest(f"{given.get('task_id')}: {error}") from error


def check_span(given: Mapping[str, Any], name: str, least: timedelta = timedelta()) -> float | None:
    """A time span that is *given*, in seconds; None where there is none.

    :raises InvalidRequest: it is no timedelta, or shorter than *least*.
    """
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, timedelta) or value < least:
        raise InvalidRequest(f"{given.get('task_id')}: {name}={value!r}; give a timedelta of {least} or more")
    return value.total_seconds()


class CheckedPartial(OperatorPartial):
    """A mapped operator in the making, whose arguments are checked one by one as far as they are known."""

    __slots__ = ()

    def expand(self, **mapped: Any) -> MappedOperator:
        made = super().expand(**mapped)
        for name, values in mapped.items():
            if isinstance(values, Sequence) and not isinstance(values, str):
                self._check({name: value} for value in values)
        return made

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> MappedOperator:
        made = super().expand_kwargs(kwargs, strict=strict)
        if isinstance(kwargs, Sequence):
            self._check(each for each in kwargs if isinstance(each, Mapping))
        return made

    def _check(self, mapped: Iterable[Mapping[str, Any]]) -> None:
        check: Any = self.operator_class
        for each in mapped:
            check.check_arguments({**self.kwargs, **each})
