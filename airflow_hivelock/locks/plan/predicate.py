"""Translates sqlglot's expressions into conditions on the columns of one source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from airflow_hivelock.locks.plan.condition import (
    ALWAYS,
    UNKNOWN,
    And,
    Compare,
    Condition,
    Not,
    Prefix,
    all_of,
    any_of,
)
from airflow_hivelock.locks.plan.constants import constant
from airflow_hivelock.locks.plan.functions import deterministic
from airflow_hivelock.locks.plan.scope import belongs, lateral_columns, mark, marks, narrowed_by_on
from airflow_hivelock.locks.plan.tuples import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from airflow_hivelock.locks.plan.scope import Source
    from airflow_hivelock.locks.plan.sql import Statement

_SIGNS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

MOST_UNQUALIFIED = 100
"""The largest number of sources for which an ON with an unqualified column is used."""


class Predicates:
    """The conditions of one statement's queries."""

    def __init__(self, statement: Statement) -> None:
        self._text = statement.text
        self._uncertain = statement.uncertain  # a condition with such a text is unknown

    def of_sources(self, select: exp.Select, sources: Sequence[Source]) -> list[Condition]:
        """For each source, the condition of WHERE and ON on its columns.

        A query can have hundreds of sources and conditions. So each condition is tried only for the sources that it
        names, and its translation is shared between sources that it does not distinguish.
        """
        where = select.args.get("where")
        demands = [_Demand(where.this)] if where else []
        demands += [_Demand(on, by) for by in sources if by.join is not None and (on := by.join.args.get("on"))]
        by_mark: dict[str, list[_Demand]] = {}
        for demand in demands:
            for each in demand.parts:
                # With many sources, skip an unqualified ON, because it could be about each. That only narrows less.
                if demand.by is None or each[:1] != "." or len(sources) <= MOST_UNQUALIFIED:
                    by_mark.setdefault(each, []).append(demand)
        known: dict[Hashable, Condition] = {}
        lateral = lateral_columns(select)

        def of(source: Source) -> Condition:
            owns, alias, mine = _owner(lateral, source, sources), source.alias, marks(source, sources, by_mark)
            found = []
            for demand in dict.fromkeys(demand for each in mine for demand in by_mark.get(each, ())):
                if not demand.narrows(source):
                    continue
                key = (demand, alias if alias in demand.parts else "", source.columns, source.database)
                if key not in known:
                    parts = [self._demanded(part, owns) for part in demand.of(mine)]
                    known[key] = all_of(part for part in parts if part is not UNKNOWN)
                found.append(known[key])
            return all_of(dict.fromkeys(each for each in found if each != ALWAYS))

        conditions = [of(source) for source in sources]
        for one, column, other, same in _equalities(demands, sources):
            if column in conditions[one].columns():
                renamed = conditions[one].renamed({column: same}.get)
                conditions[other] = all_of((conditions[other], renamed))
        return conditions

    def _demanded(self, node: exp.Expr, owns: Callable[[exp.Expr], str | None]) -> Condition:
        """The condition that *node*, a part of WHERE or ON, demands. Engines do not hand down nondeterministic parts."""
        compound = isinstance(node.unnest(), exp.Or | exp.Not)
        return self._condition(node, owns) if not compound or deterministic([node], self._text) else UNKNOWN

    def _condition(self, node: exp.Expr, owns: Callable[[exp.Expr], str | None]) -> Condition:
        node = node.unnest()
        if isinstance(node, exp.And | exp.Or):
            # Hive 2.1 does not hand down an OR with columns of other sources.
            if isinstance(node, exp.Or) and any(owns(column) is None for column in node.find_all(exp.Column)):
                return UNKNOWN
            parts = tuple(self._condition(part, owns) for part in _operands(node))
            return And(parts) if isinstance(node, exp.And) else any_of(parts)
        if isinstance(node, exp.Not):
            return Not(self._condition(node.this, owns))
        if (sign := _SIGNS.get(type(node))) is not None:
            return self._compare(node.this, sign, node.expression, owns)
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            low = self._compare(node.this, ">=", node.args["low"], owns)
            return And((low, self._compare(node.this, "<=", node.args["high"], owns)))
        if isinstance(node, exp.Like):
            return self._like(node, owns)
        if isinstance(node, exp.In) and node.args.keys() <= {"this", "expressions"}:
            if isinstance(node.this, exp.Tuple):
                return self._together(node, owns)
            return any_of(self._compare(node.this, "=", value, owns, widened=True) for value in node.expressions)
        return UNKNOWN

    def _compare(
        self,
        left: exp.Expr,
        sign: str,
        right: exp.Expr,
        owns: Callable[[exp.Expr], str | None],
        widened: bool = False,
    ) -> Condition:
        """:param widened: Spark compares as strings if one side is a string: IN, if ``spark.sql.ansi.enabled`` is false."""
        left, right = left.unnest(), right.unnest()
        if (column := owns(left)) is not None and (literal := constant(right, self._uncertain)) is not None:
            return Compare(column, sign, literal, widened=widened)
        if (column := owns(right)) is not None and (literal := constant(left, self._uncertain)) is not None:
            return Compare(column, _FLIPPED[sign], literal, widened=widened)
        return UNKNOWN

    def _like(self, node: exp.Like, owns: Callable[[exp.Expr], str | None]) -> Condition:
        """The condition of ``LIKE 'x%'``. Other patterns are unknown."""
        column, found = owns(node.this.unnest()), constant(node.expression, self._uncertain)
        if column is None or found is None or found.kind != "string" or "_" in found.text:
            return UNKNOWN
        start, wildcard, rest = found.text.partition("%")
        if rest.strip("%"):
            return UNKNOWN
        like = Prefix(column, start) if wildcard else Compare(column, "=", found, widened=True)
        return Not(like) if node.args.get("negate") else like

    def _together(self, node: exp.In, owns: Callable[[exp.Expr], str | None]) -> Condition:
        """The condition of ``(dt, hr) IN (('2024-01-01', 4), …)``."""
        wanted = len(node.this.expressions)
        if not all(isinstance(each, exp.Tuple) and len(each.expressions) == wanted for each in node.expressions):
            return UNKNOWN
        return one_of(
            tuple(
                self._compare(column, "=", value, owns, widened=True)
                for column, value in zip(node.this.expressions, each.expressions, strict=True)
            )
            for each in node.expressions
        )


class _Demand:
    """The demands of WHERE, or of the ON of the source *by*.

    :ivar parts: by the :func:`mark` of each column, the expressions that must be true.
    """

    def __init__(self, tree: exp.Expr, by: Source | None = None) -> None:
        self.by = by
        self.parts: dict[str, list[exp.Expr]] = {}
        tree = tree.unnest()
        for part in _operands(tree) if isinstance(tree, exp.And) else (tree,):
            for each in set(map(mark, part.find_all(exp.Column))):
                self.parts.setdefault(each, []).append(part)

    def narrows(self, source: Source) -> bool:
        if self.by is None or self.by.join is None:
            return source.where
        return narrowed_by_on(source, self.by.join, self.by.place)

    def of(self, marks: Iterable[str]) -> Iterable[exp.Expr]:
        """The parts with a column that has one of *marks*."""
        parts = (part for each in marks for part in self.parts.get(each, ()))
        return {id(part): part for part in parts}.values()  # by id, because sqlglot compares nodes by their text


def _equalities(demands: Iterable[_Demand], known: Sequence[Source]) -> Iterator[tuple[int, str, int, str]]:
    """Pairs of partition columns that an inner join demands to be equal: source, column, other source, other column.

    Each pair comes both ways. The columns have one type, because a condition on one need not hold for another type.
    """
    tables = {source.alias: place for place, source in enumerate(known) if source.kinds and source.where}
    for demand in demands if len(tables) > 1 else ():
        if demand.by is not None and not demand.by.where:
            continue
        for part in {id(each): each for parts in demand.parts.values() for each in parts}.values():
            sides = [part.this.unnest(), part.expression.unnest()] if isinstance(part, exp.EQ) else []
            if len(sides) != 2 or not all(
                isinstance(side, exp.Column) and side.table.lower() in tables for side in sides
            ):
                continue
            (one, left), (other, right) = ((tables[side.table.lower()], side.name.lower()) for side in sides)
            kind = known[one].kinds.get(left)
            if kind and kind == known[other].kinds.get(right) and one != other:
                yield one, left, other, right
                yield other, right, one, left


def _operands(node: exp.Expr) -> Iterator[exp.Expr]:
    """The operands of a chain of ANDs or ORs, without recursion, because sqlglot nests the chain to the left."""
    kind, found, left = type(node), [], node
    while isinstance(left, kind):
        found.append(left.expression)
        left = left.this
    yield left
    yield from reversed(found)


def _owner(lateral: frozenset[str], source: Source, known: Sequence[Source]) -> Callable[[exp.Expr], str | None]:
    """A function from an expression to its name if it is a column of *source*, else to None."""

    def column_of(node: exp.Expr) -> str | None:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        name = str(node.name.lower())
        if not node.table and name in lateral:
            return None
        return name if belongs(node, source, known) else None

    return column_of
