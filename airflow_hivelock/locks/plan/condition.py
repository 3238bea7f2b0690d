"""Conditions on partition columns, with three values: True, False, and None for unknown.

A read skips a partition only if its condition is False there. A condition that the planner does not understand is
unknown, so it skips nothing. :func:`narrow` finds the partitions that a read with a condition must lock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.model.object import DEFAULT_PARTITION
from airflow_hivelock.locks.spelling import INTEGERS, STRING, canonical, is_date

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_hivelock.locks.hive.catalog import Table
    from airflow_hivelock.locks.plan.tables import KnownTables

INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
"""The spelling of a whole number that is compared as a number."""


@dataclass(frozen=True)
class Literal:
    """A constant.

    :param kind: ``string``, ``number``, ``date``, ``boolean``, ``timestamp``, ``midnight`` (a date for some engines, a
        timestamp for others) or ``computed`` (an expression of unknown value).
    """

    text: str
    kind: str = "string"

    def value(self, kind: str) -> str | None:
        """The one stored text that equals the literal in a column of type *kind*. None if several can equal it.

        :param kind: Hive's type in lower case; empty if not known.
        """
        if self.text == DEFAULT_PARTITION:
            return self.text
        if self.kind in ("midnight", "computed"):
            return self.text if kind == "date" and self.kind == "midnight" else None
        if kind in INTEGERS or (not kind and self.kind == "number"):
            return str(int(self.text)) if INTEGER.fullmatch(self.text) else None
        if kind == "date" or (not kind and self.kind == "date"):
            return self.text if is_date(self.text) else None
        if (not kind or STRING.fullmatch(kind)) and self.kind == "string":
            return (self.text or None) if kind else self._canonical("")
        return None

    def kept(self, kind: str) -> str | None:
        """The text that ``PARTITION (column = literal)`` stores in a column of type *kind*. None if not certain."""
        if self.kind in ("midnight", "computed"):
            return None
        if not self.text:
            return DEFAULT_PARTITION
        if self.kind in ("boolean", "timestamp"):
            return self._canonical(kind) if kind == self.kind else None
        text = not kind or STRING.fullmatch(kind)
        if self.kind == "number" and (text or kind.startswith("char")):
            # A string column stores 7 for 07.
            return str(int(self.text)) if text and INTEGER.fullmatch(self.text) else None
        if (self.kind == "date" and not text and kind != "date") or kind == "boolean":
            return None  # Hive reads 'false' in quotes as true, and Spark as false
        return self._canonical(kind)

    def _canonical(self, kind: str) -> str | None:
        try:
            return canonical(self.text, kind)
        except InvalidRequest:
            return None


@dataclass(frozen=True)
class Partition:
    """Values of some of a table's partition columns, and those columns' types."""

    values: Mapping[str, str]
    types: Mapping[str, str] = field(default_factory=dict)


class Condition:
    """A boolean expression. Its value is unknown in this base class."""

    def holds(self, partition: Partition) -> bool | None:
        """Whether the condition is true for the rows of *partition*. None means unknown."""
        return None

    def values(self, column: str, kind: str, ranges: bool = False) -> frozenset[str] | None:
        """The values of *column* for which the condition can be true, as stored texts. None means any value.

        :param kind: the column's type.
        :param ranges: whether to list all values between two dates or whole numbers.
        """
        return None

    def columns(self) -> frozenset[str]:
        """The columns in the condition."""
        return frozenset()

    def renamed(self, source: Callable[[str], str | None], widened: bool = False) -> Condition:
        """The condition with its columns renamed by *source*. Parts become unknown if *source* returns None.

        :param widened: whether the engine can convert the columns to strings before it compares, as for a union.
        """
        return self


UNKNOWN = Condition()


@dataclass(frozen=True)
class _OfColumn(Condition):
    """A condition on one *column*.

    :param widened: an engine can compare as strings, and another one as numbers. So both must agree.
    """

    column: str
    widened: bool = field(default=False, kw_only=True)

    def columns(self) -> frozenset[str]:
        return frozenset({self.column})

    def renamed(self, source: Callable[[str], str | None], widened: bool = False) -> Condition:
        column = source(self.column)
        return UNKNOWN if column is None else replace(self, column=column, widened=self.widened or widened)


@dataclass(frozen=True)
class Compare(_OfColumn):
    """``column sign literal``."""

    sign: str
    literal: Literal

    def holds(self, partition: Partition) -> bool | None:
        value, kind = partition.values.get(self.column), partition.types.get(self.column, "")
        order = None if not value else _order(value, kind, self.literal)
        if order is None or value is None:
            return None
        held, numbers = self._holds(order), kind in INTEGERS and self.literal.kind == "number"
        if self.widened and not numbers and held is not self._holds(_in_text(value, self.literal.text)):
            return None  # as strings, '9' > '10', and '07' is not 7
        return held

    def _holds(self, order: int) -> bool:
        below, above = order < 0, order > 0
        return {
            "=": not below and not above,
            "!=": below or above,
            "<": below,
            "<=": not above,
            ">": above,
            ">=": not below,
        }[self.sign]

    def values(self, column: str, kind: str, ranges: bool = False) -> frozenset[str] | None:
        if self.sign != "=" or column != self.column or (value := self.literal.value(kind)) is None:
            return None
        return frozenset({value})


@dataclass(frozen=True)
class OneOf(_OfColumn):
    """``column IN (literal, …)``."""

    literals: tuple[Literal, ...]

    def holds(self, partition: Partition) -> bool | None:
        value, kind = partition.values.get(self.column), partition.types.get(self.column, "")
        if not value:
            return None
        exact, others = self._split(kind)
        if (str(int(value)) if kind in INTEGERS and INTEGER.fullmatch(value) else value) in exact:
            return True if not self.widened or value in self._texts else None
        return _any(Compare(self.column, "=", each, widened=self.widened).holds(partition) for each in others)

    def values(self, column: str, kind: str, ranges: bool = False) -> frozenset[str] | None:
        if column != self.column:
            return None
        exact, others = self._split(kind)
        return None if others else exact

    def _split(self, kind: str) -> tuple[frozenset[str], tuple[Literal, ...]]:
        """The stored values, and the literals that can equal several values. Computed once, because IN can be long."""
        if kind not in self._known:
            values = {literal: literal.value(kind) for literal in self.literals}
            exact = frozenset(value for value in values.values() if value is not None)
            self._known[kind] = exact, tuple(literal for literal, value in values.items() if value is None)
        return self._known[kind]

    @cached_property
    def _known(self) -> dict[str, tuple[frozenset[str], tuple[Literal, ...]]]:
        return {}

    @cached_property
    def _texts(self) -> frozenset[str]:
        return frozenset(literal.text for literal in self.literals)


@dataclass(frozen=True)
class Prefix(_OfColumn):
    """``column LIKE 'start%'``."""

    start: str

    def holds(self, partition: Partition) -> bool | None:
        value = partition.values.get(self.column)
        known = value and value != DEFAULT_PARTITION and STRING.fullmatch(partition.types.get(self.column, ""))
        return str(value).startswith(self.start) if known else None


@dataclass(frozen=True)
class Not(Condition):
    inner: Condition

    def holds(self, partition: Partition) -> bool | None:
        inner = self.inner.holds(partition)
        return None if inner is None else not inner

    def columns(self) -> frozenset[str]:
        return self.inner.columns()

    def renamed(self, source: Callable[[str], str | None], widened: bool = False) -> Condition:
        return Not(self.inner.renamed(source, widened))


@dataclass(frozen=True)
class _Several(Condition):
    parts: tuple[Condition, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """The hash, computed once, because all sources of a query share one long WHERE."""
        return hash((type(self), self.parts))

    def columns(self) -> frozenset[str]:
        return frozenset().union(*(part.columns() for part in self.parts))

    def renamed(self, source: Callable[[str], str | None], widened: bool = False) -> Condition:
        return type(self)(tuple(part.renamed(source, widened) for part in self.parts))


class And(_Several):
    """Three-valued AND. It is true if it has no parts."""

    def holds(self, partition: Partition) -> bool | None:
        some_false = _any(None if (held := part.holds(partition)) is None else not held for part in self.parts)
        return None if some_false is None else not some_false

    def values(self, column: str, kind: str, ranges: bool = False) -> frozenset[str] | None:
        found = [values for part in self.parts if (values := part.values(column, kind, ranges)) is not None]
        if found:
            return frozenset.intersection(*found)
        return self._range(column, kind) if ranges else None

    def _range(self, column: str, kind: str) -> frozenset[str] | None:
        """The values of a range, if the partitions of the table cannot be listed. None: it has no range with both ends."""
        signs = ">= <= > <" if kind in ("date", *INTEGERS) else ">= <="  # a text can be longer: the hours of a day
        found = [each for each in self.parts if isinstance(each, Compare) and each.column == column]
        ends = {each.sign[0]: each.literal for each in found if each.sign in signs.split()}
        if len(ends) < 2 or not all(is_date(end.text) or end.kind == "number" for end in ends.values()):
            return None
        first, last = ends[">"].value(kind), ends["<"].value(kind)
        if first is None or last is None:
            return None
        try:
            listed = LockObject.parse_all(f"d.t/c={first}..{last}")
        except InvalidRequest:
            return None
        return frozenset(target.partition[0][1] for target in listed)


class Or(_Several):
    """Three-valued OR. It is false if it has no parts."""

    def holds(self, partition: Partition) -> bool | None:
        return _any(part.holds(partition) for part in self.parts)

    def values(self, column: str, kind: str, ranges: bool = False) -> frozenset[str] | None:
        union: frozenset[str] = frozenset()
        for part in self.parts:
            if (values := part.values(column, kind, ranges)) is None:
                return None
            union |= values
        return union


ALWAYS = And(())


def any_of(conditions: Iterable[Condition]) -> Condition:
    """The OR of *conditions*. Equalities on one column become one IN."""
    others: list[Condition] = []
    literals: dict[tuple[str, bool], list[Literal]] = {}
    for each in conditions:
        if isinstance(each, Compare) and each.sign == "=":
            literals.setdefault((each.column, each.widened), []).append(each.literal)
        else:
            others.append(each)
    return Or((*(OneOf(column, tuple(found), widened=both) for (column, both), found in literals.items()), *others))


def all_of(conditions: Iterable[Condition]) -> Condition:
    return And(tuple(conditions))


def _any(found: Iterable[bool | None]) -> bool | None:
    """Whether one is True. None if none is True and one is unknown."""
    known: bool | None = False
    for each in found:
        if each:
            return True
        if each is None:
            known = None
    return known


def _order(value: str, kind: str, literal: Literal) -> int | None:
    """A number below, at or above zero: *value* of a column of type *kind* compared to *literal*. None if not known."""
    one, other = value, literal.text
    if literal.kind in ("boolean", "timestamp", "computed") or (literal.kind == "midnight" and one == other):
        return None
    if kind in INTEGERS or literal.kind == "number":
        if not (INTEGER.fullmatch(one) and INTEGER.fullmatch(other)):
            return None
        return int(one) - int(other)
    if kind == "date" or literal.kind in ("date", "midnight"):
        if not (is_date(one) and is_date(other)):
            return None
    elif kind and not STRING.fullmatch(kind):
        return None
    return _in_text(one, other)


def _in_text(one: str, other: str) -> int:
    """A number below, at or above zero: the first text compared to the second."""
    return (one > other) - (one < other)


def narrow(
    target: LockObject, condition: Condition, tables: KnownTables, limit: int, *, listed: bool = True
) -> list[LockObject]:
    """The partitions or prefixes of the table *target* with all rows that can make *condition* true.

    If the condition allows a column only some values, the result has these, even if they do not exist. For other
    conditions the catalog lists the partitions if *listed*, although another job can create more. The result is the
    table if it is not known, or above *limit* objects.
    """
    table = tables.table(target)
    if table is None or not condition.columns() & set(table.partition_columns):
        return [target]
    types = dict(zip(table.partition_columns, table.partition_types, strict=False))

    def may_hold(partition: LockObject) -> bool:
        return condition.holds(Partition(dict(partition.partition), types)) is not False

    named = _named(target, condition, table, limit, ranges=listed and tables.catalog is None)
    named = [partition for partition in named if may_hold(partition)]
    depth = len(named[0].partition) if named else len(table.partition_columns)
    found = named  # a prefix means all partitions below it
    if listed and condition.columns() & set(table.partition_columns[depth:]) and tables.catalog is not None:
        existing = (partition for prefix in named for partition in tables.listed(prefix) or ())
        found = [partition for partition in existing if may_hold(partition)]
    respelt = [each for each, kept in tables.respelt(target).items() if may_hold(kept)]
    found = list(dict.fromkeys([*found, *respelt]))
    return found if len(found) <= limit else [target]


def _named(target: LockObject, condition: Condition, table: Table, limit: int, *, ranges: bool) -> list[LockObject]:
    """The table, prefixes or partitions with the values that the condition allows. Empty if it allows none."""
    levels: list[list[tuple[str, str]]] = []
    count = 1
    types = table.partition_types or ("",) * len(table.partition_columns)
    for column, kind in zip(table.partition_columns, types, strict=True):
        values = condition.values(column, kind, ranges)
        if values is None or (count := count * len(values)) > limit:
            break
        levels.append([(column, value) for value in sorted(values)])
    return [LockObject(target.database, target.table, levels) for levels in product(*levels)]
