"""The sources of a SELECT: which of its conditions can narrow each, and how outer conditions reach them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from airflow_hivelock.locks.plan.condition import ALWAYS, Condition
from airflow_hivelock.locks.plan.functions import deterministic

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence


@dataclass(frozen=True)
class Source:
    """A table, subquery or function in FROM or JOIN of a SELECT.

    :param place: 0 for the source in FROM, 1 for the first join, …
    :param join: the join that adds the source. None for the source in FROM.
    :param where: whether WHERE narrows the source. It does not narrow the NULL-filled side of an outer join, because
        engines read that side before they join. It does not narrow the hidden side of a semi join.
    :param filled: whether an outer join can fill the source with NULL.
    :param narrows: whether any condition can narrow the source. False for samples, pivots and renamed columns.
    :param columns: the partition columns of a table. None if they are not known.
    :param database: the database of that table.
    :param kinds: by column, the types that are known.
    """

    node: exp.Expr
    place: int
    join: exp.Join | None
    where: bool
    filled: bool
    narrows: bool
    columns: frozenset[str] | None = None
    database: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)

    @property
    def alias(self) -> str:
        """The name that qualifies the source's columns, in lower case."""
        return str(self.node.alias_or_name).lower()

    def qualified_by(self, column: exp.Column) -> bool:
        """Whether the qualifier of *column* names this source."""
        if not column.table or column.table.lower() != self.alias:
            return False
        return not column.db or column.db.lower() == self.database


def sources(select: exp.Select) -> list[Source]:
    """The sources of *select*, in the order of the text."""
    from_ = select.args.get("from_")
    if from_ is None:
        return []
    joins = select.args.get("joins") or []
    nodes: list[tuple[exp.Expr, exp.Join | None]] = [(from_.this, None), *((join.this, join) for join in joins)]
    filling = [place for place, join in enumerate(joins) if join.side in ("RIGHT", "FULL")]
    last = filling[-1] if filling else -1
    return [
        Source(
            node,
            place,
            join,
            where=not filled and (join is None or join.kind not in ("SEMI", "ANTI")),
            filled=filled,
            narrows=not any(node.args.get(part) for part in ("sample", "pivots", "match_recognize", "changes"))
            and not renamed(node),
        )
        for place, (node, join) in enumerate(nodes)
        for filled in [place <= last or _filled(join)]
    ]


def renamed(source: exp.Expr) -> bool:
    """Whether the alias of *source* gives its columns other names."""
    alias = source.args.get("alias")
    return isinstance(alias, exp.TableAlias) and bool(alias.columns)


def read_twice(select: exp.Select) -> bool:
    """Whether an engine can read the sources of *select* a second time, without its conditions.

    Spark does so for LATERAL and for a scalar subquery that refers to outer rows, because it joins with those rows.
    """
    from_ = select.args.get("from_")
    beside = [*(join.this for join in select.args.get("joins") or ()), *(select.args.get("laterals") or ())]
    if any(isinstance(each, exp.Lateral) and each.find(exp.Query) for each in beside):
        return True
    aliases = {str(each.alias_or_name).lower() for each in (*([from_.this] if from_ else ()), *beside)}
    return any(_refers(query, aliases) for query in _scalar_queries(select))


def _scalar_queries(select: exp.Select) -> Iterator[exp.Query]:
    """The subqueries in expressions of *select*, except those of IN and EXISTS, which become joins."""
    for part in _expressions(select):
        for query in part.find_all(exp.Query):
            parent = query.parent
            if isinstance(query, exp.Subquery):
                inner = isinstance(parent, exp.From | exp.Join | exp.Lateral | exp.In | exp.Exists)
                inner = inner or query.find_ancestor(exp.In, exp.Select) is parent
            else:
                inner = isinstance(parent, exp.Subquery | exp.In | exp.Exists | exp.CTE | exp.SetOperation)
            if not inner:
                yield query


def _refers(query: exp.Query, aliases: set[str]) -> bool:
    """Whether *query* can refer to an outer source with one of *aliases*."""
    own = {str(each.alias_or_name).lower() for each in query.find_all(exp.Table, exp.Subquery, exp.Lateral)}
    if any(column.table and column.table.lower() in aliases - own for column in query.find_all(exp.Column)):
        return True
    # An unqualified column in a comparison of two columns can be an inner or an outer one.
    for clause in query.find_all(exp.Where, exp.Having, exp.Join):
        condition = clause.args.get("on") if isinstance(clause, exp.Join) else clause.this
        for part in condition.flatten() if isinstance(condition, exp.And) else filter(None, [condition]):
            columns = list(part.find_all(exp.Column))
            if len(columns) > 1 and not all(column.table for column in columns):
                return True
    return False


def _expressions(select: exp.Select) -> Iterator[exp.Expr]:
    """All expressions of *select* outside its sources."""
    for name, value in select.args.items():
        for each in value if isinstance(value, list) else [value]:
            if name == "joins":
                yield from filter(None, [each.args.get("on")])
            elif name not in ("with_", "from_", "laterals", "hint") and isinstance(each, exp.Expr):
                yield each


def _filled(join: exp.Join | None) -> bool:
    """Whether *join* can fill its own source with NULL. RIGHT and FULL joins also fill all earlier sources."""
    return join is not None and join.side in ("LEFT", "FULL") and join.kind not in ("SEMI", "ANTI")


def narrowed_by_on(source: Source, join: exp.Join, place: int) -> bool:
    """Whether the ON of *join*, which is at *place*, narrows *source*."""
    if join.side == "FULL" or join.method:
        return False
    if place == source.place:
        return join.side != "RIGHT"
    if place < source.place or (source.filled and join.side != "RIGHT"):
        return False
    return join.kind != "ANTI" and (join.kind == "SEMI" or join.side != "LEFT")


_PASSED = frozenset(
    (
        *("with_", "expressions", "hint", "distinct", "from_", "joins", "laterals", "where", "group", "having"),
        *("order", "sort", "distribute"),
    )
)
"""The parts of a SELECT that do not stop engines from handing conditions down, if they are deterministic."""


def _passes(select: exp.Select, text: str) -> bool:
    """Whether a condition on the output of *select* can be applied to rows of its sources. An unknown part stops it."""
    if any(value and name not in _PASSED for name, value in select.args.items()):
        return False
    if (distinct := select.args.get("distinct")) is not None and distinct.args.get("on"):
        return False
    computed = [lateral.this for lateral in select.args.get("laterals") or ()]
    return deterministic((*_expressions(select), *computed), text)


def handed_down(select: exp.Select, known: Sequence[Source], outer: Condition, text: str) -> list[Condition]:
    """For each source, the part of *outer* about its columns. *outer* is a condition on the output columns of *select*.

    :param text: the text of the statement.
    """
    by_mark: dict[str, dict[str, exp.Column]] = {}
    for name, column in _handed_columns(select, outer.columns(), text).items():
        by_mark.setdefault(mark(column), {})[name] = column
    done: dict[Hashable, Condition] = {}

    def of(source: Source) -> Condition:
        names = {
            name: column.name.lower()
            for each in marks(source, known, by_mark)
            for name, column in by_mark.get(each, {}).items()
            if belongs(column, source, known)
        }
        if not names or not source.where:
            return ALWAYS
        key = tuple(names.items())
        if key not in done:
            done[key] = outer.renamed(names.get)
        return done[key]

    return [of(source) for source in known]


def _handed_columns(select: exp.Select, names: frozenset[str], text: str) -> dict[str, exp.Column]:
    """By output name in *names*, the source column, if a condition on it keeps or drops whole rows of a source."""
    if not names or not _passes(select, text):
        return {}
    grouped = _group_keys(select)
    if grouped is None:
        return {}
    outputs, lateral = _outputs_of(select), lateral_columns(select)
    found = {name: column for name in names if (column := outputs(name)) is not None}
    found = {name: each for name, each in found.items() if each.table or each.name.lower() not in lateral}
    return {name: column for name, column in found.items() if not grouped or column.name.lower() in grouped}


def lateral_columns(select: exp.Select) -> frozenset[str]:
    """The columns that lateral views add."""
    aliases = [lateral.args.get("alias") for lateral in select.args.get("laterals") or ()]
    return frozenset(column.name.lower() for alias in aliases if alias for column in alias.columns)


def mark(column: exp.Column) -> str:
    """A key of the sources that can have *column*: ``t`` for ``t.dt``, ``.dt`` for ``dt``."""
    return column.table.lower() or f".{column.name.lower()}"


def marks(source: Source, known: Sequence[Source], among: Iterable[str]) -> Iterable[str]:
    """The :func:`mark` of each column that *source* can have. If it is the only source, all of *among*."""
    return [source.alias, *(f".{name}" for name in source.columns or ())] if len(known) > 1 else among


def belongs(column: exp.Column, source: Source, known: Sequence[Source]) -> bool:
    """Whether *column* is certainly a column of *source*."""
    if column.table:
        return source.qualified_by(column)
    if len(known) == 1:
        return True
    # If another source had the column too, the engine would refuse the statement, or USING would merge the two.
    return source.columns is not None and column.name.lower() in source.columns


def to_right_branch(
    union: exp.Union, outer: Condition, partition_columns: Callable[[exp.Table], Sequence[str]]
) -> Condition:
    """*outer* with the second branch's column names instead of the first's. Columns correspond by position.

    :param partition_columns: returns the partition columns of a table, empty if not known.
    """
    if not outer.columns():
        return ALWAYS
    left, right = (_outputs(branch, partition_columns) for branch in (union.this, union.expression))
    if None not in (*left, *right) and len(left) != len(right):
        return ALWAYS
    # Compare from the end, because the partition columns are the last columns of a star.
    names: dict[str, str] = {}
    for one, other in zip(reversed(left), reversed(right), strict=False):
        if one is None or other is None:
            break
        names[one] = other
    return outer.renamed(lambda name: names.get(name) if left.count(name) == 1 else None, widened=True)


def _outputs(query: exp.Expr, partition_columns: Callable[[exp.Table], Sequence[str]]) -> list[str | None]:
    """The output column names of *query*, in lower case. None means any number of unknown columns."""
    while isinstance(query, exp.Subquery | exp.Union):
        query = query.this
    if not isinstance(query, exp.Select):
        return [None]
    found: list[str | None] = []
    from_ = query.args.get("from_")
    for each in query.expressions:
        if not each.is_star:
            found.append(str(each.alias_or_name).lower() or None)
            continue
        found.append(None)
        only = not query.args.get("joins") and not query.args.get("laterals")
        plain = isinstance(each, exp.Star) and not any(each.args.get(part) for part in ("except_", "replace", "rename"))
        if from_ is not None and only and plain and isinstance(from_.this, exp.Table) and not renamed(from_.this):
            found += partition_columns(from_.this)
    return found


def _outputs_of(select: exp.Select) -> Callable[[str], exp.Column | None]:
    """A function from an output name of *select* to its source column. None if it is no column or not certain."""
    stars = [each for each in select.expressions if each.is_star]
    by_name: dict[str, list[exp.Expr]] = {}
    for each in select.expressions:
        if not each.is_star:
            by_name.setdefault(str(each.alias_or_name).lower(), []).append(each)

    def output(name: str) -> exp.Column | None:
        named = by_name.get(name, [])
        if named:  # if a star had the name too, engines would refuse it
            column = named[0].unalias()
            return column if len(named) == 1 and isinstance(column, exp.Column) else None
        if len(stars) != 1:
            return None
        star = stars[0].this if isinstance(stars[0], exp.Column) else stars[0]
        if any(star.args.get(part) for part in ("except_", "replace", "rename")):
            return None
        return exp.column(name, table=stars[0].args.get("table") if isinstance(stars[0], exp.Column) else None)

    return output


def _group_keys(select: exp.Select) -> frozenset[str] | None:
    """The columns in GROUP BY, empty without grouping. None if rows with different values can fall into one group."""
    group = select.args.get("group")
    if group is None:
        aggregates = (each.find(exp.AggFunc) for each in select.expressions)
        return None if any(aggregates) or select.args.get("having") else frozenset()
    if any(value for part, value in group.args.items() if part != "expressions"):
        return None
    keys = frozenset(key.name.lower() for key in group.expressions if isinstance(key, exp.Column))
    return keys or None
