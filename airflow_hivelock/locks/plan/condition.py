"""A WHERE on partition columns, in three values: True, False, and None for unknown.

A read leaves a partition out only if the condition is False for it. A condition that the planner does not understand
leaves none out. :func:`narrow` finds the partitions with rows that can make a condition true.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
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

_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True)
class Literal:
    """A constant.

    :param kind: ``string``, ``number``, ``date``, ``boolean``, ``timestamp``, ``midnight`` (a date, or to some engines its
        first moment) or ``computed`` (not known).
    """

    text: str
    kind: str = "string"

    def value(self, kind: str) -> str | None:
        """The text that a partition column of type *kind* keeps for it; None if other texts may equal it.

        :param kind: Hive's type in lower case; empty where it is not known.
        """
        if self.text == DEFAULT_PARTITION:
            return self.text
        if self.kind in ("midnight", "computed"):
            return self.text if kind == "date" and self.kind == "midnight" else None
        if kind in INTEGERS or (not kind and self.kind == "number"):
            return str(int(self.text)) if _INTEGER.fullmatch(self.text) else None
        if kind == "date" or (not kind and self.kind == "date"):
            return self.text if is_date(self.text) else None
        if (not kind or STRING.fullmatch(kind)) and self.kind == "string":
            return (self.text or None) if kind else self._canonical("")
        return None

    def kept(self, kind: str) -> str | None:
        """What a partition column of type *kind* is given by ``PARTITION (column = literal)``; None where not certain."""
        if self.kind in ("midnight", "computed"):
            return None
        if not self.text:
            return DEFAULT_PARTITION
        if self.kind in ("boolean", "timestamp"):
            return self._canonical(kind) if kind == self.kind else None
        text = not kind or STRING.fullmatch(kind)
        if self.kind == "number" and (text or kind.startswith("char")):
            return (
                str(int(self.text)) if text and _INTEGER.fullmatch(self.text) else None
            )  # a string column has 7 for 07
        if (self.kind == "date" and not text and kind != "date") or kind == "boolean":
            return None  # Hive takes 'false' in quotes for true, and Spark does not
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
        """Whether it is true for rows of *partition*."""
        return None

    def values(self, column: str, kind: str, ranges: bool = False) -> frozenset[str] | None:
        """All that *column* can be where it is true, as partitions are named; None: anything.

        :param kind: the column's type.
        :param ranges: whether to name all values between two dates or whole numbers.
        """
        return None

    def columns(self) -> frozenset[str]:
        """The columns that it speaks of."""
        return frozenset()

    def renamed(self, source: Callable[[str], str | None], widened: bool = False) -> Condition:
        """The same about other columns; *source* gives None for what has no counterpart.

        :param widened: whether those columns may have been made texts before they are compared, as a union does.
        """
        return self


UNKNOWN = Condition()


@dataclass(frozen=True)
class Compare(Condition):
    """``column sign literal``."""

    column: str
    sign: str
    literal: Literal
    widened: bool = False

    def holds(self, partition: Partition) -> bool | None:
        value, kind = partition.values.get(self.column), partition.types.get(self.column, "")
        if self.widened and kind in INTEGERS and self.literal.kind == "string":
            return None  # as a text 9 is more than '10'
        order = None if not value else _order(value, kind, self.literal)
        if order is None:
            return None
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

    def columns(self) -> frozenset[str]:
        return frozenset({self.column})

    def renamed(self, source: Callable[[str], str | None], widened: bool = False) -> Condition:
        column = source(self.column)
        if column is None:
            return UNKNOWN
        return Compare(column, self.sign, self.literal, self.widened or widened)


@dataclass(frozen=True)
class OneOf(Condition):
    """``column IN (literal, …)``."""

    column: str
    literals: tuple[Literal, ...]
    widened: bool = False

    def holds(self, partition: Partition) -> bool | None:
        value, kind = partition.values.get(self.column), partition.types.get(self.column, "")
        if not value or (self.widened and kind in INTEGERS and any(each.kind == "string" for each in self.literals)):
            return None
        exact, others = self._split(kind)
        if (str(int(value)) if kind in INTEGERS and _INTEGER.fullmatch(value) else value) in exact:
            return True
        return _any(Compare(self.column, "=", literal).holds(partition) for literal in others)

    def values(self, column: str, kind: str, ranges: bool = False) -> frozenset[str] | None:
        if column != self.column:
            return None
        exact, others = self._split(kind)
        return None if others else exact

    def columns(self) -> frozenset[str]:
        return frozenset({self.column})

    def renamed(self, source: Callable[[str], str | None], widened: bool = False) -> Condition:
        column = source(self.column)
        return UNKNOWN if column is None else OneOf(column, self.literals, self.widened or widened)

    def _split(self, kind: str) -> tuple[frozenset[str], tuple[Literal, ...]]:
        """Its values, and the literals that may equal more than one value. They are computed once, because IN can be long."""
        if kind not in self._known:
            values = {literal: literal.value(kind) for literal in self.literals}
            exact = frozenset(value for value in values.values() if value is not None)
            self._known[kind] = exact, tuple(literal for literal, value in values.items() if value is None)
        return self._known[kind]

    @cached_property
    def _known(self) -> dict[str, tuple[frozenset[str], tuple[Literal, ...]]]:
        return {}


@dataclass(frozen=True)
class Prefix(Condition):
    """``column LIKE 'start%'``."""

    column: str
    start: str

    def holds(self, partition: Partition) -> bool | None:
        value = partition.values.get(self.column)
        known = value and value != DEFAULT_PARTITION and STRING.fullmatch(partition.types.get(self.column, ""))
        return str(value).startswith(self.start) if known else None

    def columns(self) -> frozenset[str]:
        return frozenset({self.column})

    def renamed(self, source: Callable[[str], str | None], widened: bool = False) -> Condition:
        column = source(self.column)
        return UNKNOWN if column is None else Prefix(column, self.start)


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
        """Once: what a long WHERE says is shared by all of its sources."""
        return hash((type(self), self.parts))

    def columns(self) -> frozenset[str]:
        return frozenset().union(*(part.columns() for part in self.parts))

    def renamed(self, source: Callable[[str], str | None], widened: bool = False) -> Condition:
        return type(self)(tuple(part.renamed(source, widened) for part in self.parts))


class And(_Several):
    """Nothing of AND is true."""

    def holds(self, partition: Partition) -> bool | None:
        some_false = _any(None if (held := part.holds(partition)) is None else not held for part in self.parts)
        return None if some_false is None else not some_false

    def values(self, column: str, kind: str, ranges: bool = False) -> frozenset[str] | None:
        found = [values for part in self.parts if (values := part.values(column, kind, ranges)) is not None]
        if found:
            return frozenset.intersection(*found)
        return self._range(column, kind) if ranges else None

    def _range(self, column: str, kind: str) -> frozenset[str] | None:
        """The values between the ends of a BETWEEN, for tables whose partitions cannot be listed."""
        ends = {part.sign: part.literal for part in self.parts if isinstance(part, Compare) and part.column == column}
        if not {">=", "<="} <= ends.keys() or not all(
            is_date(end.text) or end.kind == "number" for end in (ends[">="], ends["<="])
        ):
            return None
        first, last = ends[">="].value(kind), ends["<="].value(kind)
        if first is None or last is None:
            return None
        try:
            found = LockObject.parse_all(f"d.t/c={first}..{last}")
        except InvalidRequest:
            return None
        return frozenset(target.partition[0][1] for target in found)


class Together(And):
    """An AND that engines evaluate whole, or not at all: columns in a tuple."""

    def holds(self, partition: Partition) -> bool | None:
        return super().holds(partition) if self.columns() <= partition.values.keys() else None

    def values(self, column: str, kind: str, ranges: bool = False) -> frozenset[str] | None:
        return None


class Or(_Several):
    """Nothing of OR is false."""

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
    """OR of them; what says the same column's values is put together."""
    others: list[Condition] = []
    literals: dict[str, list[Literal]] = {}
    for each in conditions:
        if isinstance(each, Compare) and each.sign == "=":
            literals.setdefault(each.column, []).append(each.literal)
        else:
            others.append(each)
    return Or((*(OneOf(column, tuple(found)) for column, found in literals.items()), *others))


def all_of(conditions: Iterable[Condition]) -> Condition:
    """AND of them."""
    return And(tuple(conditions))


def _any(found: Iterable[bool | None]) -> bool | None:
    """Whether one is True; None where one may be."""
    known: bool | None = False
    for each in found:
        if each:
            return True
        if each is None:
            known = None
    return known


def _order(value: str, kind: str, literal: Literal) -> int | None:
    """Below, at or above zero as *value*, of a column of type *kind*, compares to *literal*; None: not known."""
    one, other = value, literal.text
    if literal.kind in ("boolean", "timestamp", "computed") or (literal.kind == "midnight" and one == other):
        return None
    if kind in INTEGERS or literal.kind == "number":
        if not (_INTEGER.fullmatch(one) and _INTEGER.fullmatch(other)):
            return None
        return int(one) - int(other)
    if kind == "date" or literal.kind in ("date", "midnight"):
        if not (is_date(one) and is_date(other)):
            return None
    elif kind and not STRING.fullmatch(kind):
        return None
    return (one > other) - (one < other)


def narrow(target: LockObject, condition: Condition, tables: KnownTables, limit: int) -> list[LockObject]:
    """The partitions, or prefixes of them, of the table *target* that hold all rows for which *condition* can be true.

    Where it leaves one value or some to a column they are named, whether they exist or not; of other conditions,
    what exists is asked. The table itself where nothing is known of it, or it would be more than *limit* objects.
    """
    table = tables.table(target)
    if table is None or not condition.columns() & set(table.partition_columns):
        return [target]
    named = _named(target, condition, table, tables, limit)
    depth = len(named[0].partition) if named else len(table.partition_columns)
    found = named  # a prefix: all partitions in it
    if condition.columns() & set(table.partition_columns[depth:]) and tables.catalog is not None:
        listed = [partition for prefix in named for partition in tables.listed(prefix) or ()]
        found = [partition for partition in listed if _may_hold(condition, partition, table)]
    respelt = [each for each, kept in tables.respelt(target).items() if _may_hold(condition, kept, table)]
    found = list(dict.fromkeys([*found, *respelt]))
    return found if len(found) <= limit else [target]


def _named(target: LockObject, condition: Condition, table: Table, tables: KnownTables, limit: int) -> list[LockObject]:
    """What can be named from the condition alone: the table, prefixes or partitions; nothing for a contradiction."""
    levels: list[list[tuple[str, str]]] = []
    count = 1
    types = table.partition_types or ("",) * len(table.partition_columns)
    for column, kind in zip(table.partition_columns, types, strict=True):
        values = condition.values(column, kind, ranges=tables.catalog is None)
        if values is None or (count := count * len(values)) > limit:
            break
        levels.append([(column, value) for value in sorted(values)])
    named = [LockObject(target.database, target.table, levels) for levels in product(*levels)]
    return [partition for partition in named if _may_hold(condition, partition, table)]


def _may_hold(condition: Condition, partition: LockObject, table: Table) -> bool:
    types = dict(zip(table.partition_columns, table.partition_types, strict=False))
    return condition.holds(Partition(dict(partition.partition), types)) is not False
