"""UPDATE, DELETE and MERGE. They lock partitions if they certainly change no others, and the whole table otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from airflow_hivelock.locks.hive.transactional import Write
from airflow_hivelock.locks.plan.condition import narrow
from airflow_hivelock.locks.plan.constants import constant
from airflow_hivelock.locks.plan.cursor import Level, Spec

if TYPE_CHECKING:
    from airflow_hivelock.locks.hive.catalog import Table
    from airflow_hivelock.locks.model import LockObject
    from airflow_hivelock.locks.plan.planner import Planner
    from airflow_hivelock.locks.plan.query import Reader
    from airflow_hivelock.locks.plan.sql import Statement


def change(tree: exp.Merge | exp.Update | exp.Delete, statement: Statement, planner: Planner) -> None:
    """Plan *tree*, which is the whole *statement*."""
    target = tree.this
    if not isinstance(target, exp.Table) or not isinstance(target.this, exp.Identifier):
        statement.refuse(statement.tokens[0], "the target of this statement is not understood")
    reader = planner.reader(statement)
    below = planner.below(statement, tuple(part.name for part in target.parts))
    if below is None:
        table = reader.target(target)
        planner.look(table)
        below = _partitions(tree, table, statement, planner, reader)
    planner.write(*below, how=Write.CHANGE)
    reader.read_but(tree, "this")


def _partitions(
    tree: exp.Merge | exp.Update | exp.Delete, table: LockObject, statement: Statement, planner: Planner, reader: Reader
) -> list[LockObject]:
    """The partitions or prefixes of *table* that the statement can change. The table if they are not certain."""
    known = planner.session.tables.table(table)
    if known is None or known.format or not planner.session.prunes:
        return [table]  # the partitions of a format with its own commits are not Hive's
    whens = tree.args["whens"].expressions if isinstance(tree, exp.Merge) else []
    if any(when.args.get("source") for when in whens):
        return [table]  # WHEN NOT MATCHED BY SOURCE changes other rows than ON selects
    actions = [when.args["then"] for when in whens] or [tree]
    if not all(_keeps_partition(each, known) for each in actions if isinstance(each, exp.Update)):
        return [table]
    condition = reader.condition_on_target(tree)
    found = narrow(table, condition, planner.session.tables, planner.limit, listed=False)
    inserted = (_inserted(each, known, statement) for each in actions if isinstance(each, exp.Insert))
    found += [planner.place(statement, table, spec)[0] for spec in inserted]
    return found if table not in found else [table]


def _keeps_partition(update: exp.Update, known: Table) -> bool:
    """Whether SET changes no partition column. ``SET *`` can change each."""
    assigned = update.expressions
    return isinstance(assigned, list) and all(
        isinstance(each, exp.EQ)
        and isinstance(each.this, exp.Column)
        and each.this.name.lower() not in known.partition_columns
        for each in assigned
    )


def _inserted(insert: exp.Insert, known: Table, statement: Statement) -> Spec:
    """The partition of the row that WHEN NOT MATCHED inserts. A column is dynamic unless its value is constant."""
    columns, names, values = known.partition_columns, insert.this, insert.expression
    named: dict[str, exp.Expr] = {}
    if isinstance(values, exp.Tuple):
        if isinstance(names, exp.Tuple):
            pairs = zip(names.expressions, values.expressions, strict=False)
            named = {name.name.lower(): value for name, value in pairs}
        elif names is None and known.transactional:  # in Hive, the partition columns are the last ones
            named = dict(zip(reversed(columns), reversed(values.expressions), strict=False))
    certain = statement.uncertain
    levels = (Level(column, value=constant(named.get(column), certain)) for column in columns)
    return Spec(tuple(levels), statement.tokens[0])
