"""From sqlglot's expressions to conditions on the columns of one source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from airflow_hivelock.locks.plan.condition import (
    UNKNOWN,
    And,
    Compare,
    Condition,
    Literal,
    Not,
    all_of,
    any_of,
    is_date,
)
from airflow_hivelock.locks.plan.scope import belongs, narrowed_by_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_hivelock.locks.plan.scope import Source
    from airflow_hivelock.locks.plan.script import Statement

_SIGNS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Predicates:
    """The conditions of one statement's queries."""

    def __init__(self, statement: Statement) -> None:
        # Their meaning depends on the engine: a condition with one of them is taken for unknown.
        self._escaped = frozenset(
            token.text
            for token in statement.tokens
            if token.token_type is TokenType.STRING and "\\" in statement.text[token.start : token.end + 1]
        )

    def of_sources(self, select: exp.Select, sources: Sequence[Source]) -> list[Condition]:
        """For each source, what WHERE and ON say of its columns."""
        where = select.args.get("where")
        ons = [
            (source.place, source.join, on, {column.table.lower() for column in on.find_all(exp.Column)})
            for source in sources
            if source.join is not None and (on := source.join.args.get("on")) is not None
        ]

        def of(source: Source) -> Condition:
            owns = _owner(select, source, sources)
            found = [self._condition(where.this, owns)] if where and source.where else []
            found += [
                self._condition(on, owns)
                for place, join, on, named in ons
                if (source.alias in named or "" in named) and narrowed_by_on(source, join, place)
            ]
            return all_of(found)

        return [of(source) for source in sources]

    def _condition(self, node: exp.Expr, owns: Callable[[exp.Expr], str | None]) -> Condition:
        node = node.unnest()
        if isinstance(node, exp.And | exp.Or):
            parts = tuple(self._condition(part, owns) for part in _operands(node))
            return And(parts) if isinstance(node, exp.And) else any_of(parts)
        if isinstance(node, exp.Not):
            return Not(self._condition(node.this, owns))
        if (sign := _SIGNS.get(type(node))) is not None:
            return self._compare(node.this, sign, node.expression, owns)
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            low = self._compare(node.this, ">=", node.args["low"], owns)
            return And((low, self._compare(node.this, "<=", node.args["high"], owns)))
        if isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
            return any_of(self._compare(node.this, "=", value, owns) for value in node.expressions)
        return UNKNOWN

    def _compare(self, left: exp.Expr, sign: str, right: exp.Expr, owns: Callable[[exp.Expr], str | None]) -> Condition:
        left, right = left.unnest(), right.unnest()
        if (column := owns(left)) is not None and (literal := self._literal(right)) is not None:
            return Compare(column, sign, literal)
        if (column := owns(right)) is not None and (literal := self._literal(left)) is not None:
            return Compare(column, _FLIPPED[sign], literal)
        return UNKNOWN

    def _literal(self, node: exp.Expr) -> Literal | None:
        if isinstance(node, exp.Cast) and node.to.this is exp.DataType.Type.DATE:
            text = node.this
            known = isinstance(text, exp.Literal) and text.is_string and is_date(text.name)
            return Literal(text.name, "date") if known else None
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
            return Literal(f"-{node.this.name}", "number")
        if isinstance(node, exp.Literal) and not (node.is_string and node.name in self._escaped):
            return Literal(node.name, "string" if node.is_string else "number")
        return None


def _operands(node: exp.Expr) -> Iterator[exp.Expr]:
    """What AND or OR connects: sqlglot nests a chain of them to the left, as deep as it is long."""
    kind, found, left = type(node), [], node
    while isinstance(left, kind):
        found.append(left.expression)
        left = left.this
    yield left
    yield from reversed(found)


def _owner(select: exp.Select, source: Source, known: Sequence[Source]) -> Callable[[exp.Expr], str | None]:
    """Gives the name of an expression that is a column of *source*, None for any other."""
    aliases = [lateral.args.get("alias") for lateral in select.args.get("laterals") or ()]
    lateral = {column.name.lower() for alias in aliases if alias for column in alias.columns}

    def column_of(node: exp.Expr) -> str | None:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        name = str(node.name.lower())
        if not node.table and name in lateral:
            return None
        return name if belongs(node, source, known) else None

    return column_of
