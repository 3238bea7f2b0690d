"""Scans of one table by the filters that an engine has pushed down to it. The filters are texts of SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.plan.condition import ALWAYS, Condition, all_of
from airflow_hivelock.locks.plan.predicate import Predicates
from airflow_hivelock.locks.plan.query import Scan, parse
from airflow_hivelock.locks.plan.scope import sources
from airflow_hivelock.locks.plan.sql import Sql

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.model import LockObject

_QUALIFIERS = ("table", "db", "catalog")


def filtered(table: LockObject, filters: Iterable[str]) -> Scan:
    """The scan of the rows of *table* that pass all *filters*.

    :param filters: conditions on the table's partition columns. Qualifiers of columns are ignored. A filter that is
        not understood narrows nothing.
    """
    return Scan(table, all_of(found for found in map(_condition, filters) if found != ALWAYS))


def _condition(text: str) -> Condition:
    try:
        (statement,) = Sql(f"SELECT 1 FROM t WHERE {text}").statements
        tree = parse(statement, statement.tokens).copy()
    except (InvalidRequest, RecursionError, ValueError):
        return ALWAYS
    if not isinstance(tree, exp.Select):
        return ALWAYS
    for column in tree.find_all(exp.Column):
        for part in _QUALIFIERS:
            column.set(part, None)
    (condition,) = Predicates(statement).of_sources(tree, sources(tree))
    return condition
