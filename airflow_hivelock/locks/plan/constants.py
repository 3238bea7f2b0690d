"""Evaluates constant expressions of dates, numbers and strings, if Hive and Spark agree on the value."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from airflow_hivelock.locks.plan.condition import Literal
from airflow_hivelock.locks.spelling import is_date

if TYPE_CHECKING:
    from collections.abc import Callable, Container

_BITS = {
    exp.DataType.Type.TINYINT: 7,
    exp.DataType.Type.SMALLINT: 15,
    exp.DataType.Type.INT: 31,
    exp.DataType.Type.BIGINT: 63,
}
"""By integer type, the bits of its largest value. Hive and Spark treat a larger number differently."""

_UNITS = {"DAY": 1, "DAYS": 1, "WEEK": 7, "WEEKS": 7}
_MONTHS = {"MONTH": 1, "MONTHS": 1, "YEAR": 12, "YEARS": 12}
_SAME_IN_EACH_MONTH = 27
"""The last day to add months to. Hive 2.3 and Spark add months differently to a month's last day: 28 February."""


def constant(node: exp.Expr | None, uncertain: Container[str]) -> Literal | None:
    """The value of *node*. None if it is no constant, or if Hive and Spark can disagree on it.

    :param node: None for a missing argument of a function, which sqlglot does not refuse.
    :param uncertain: the strings that Hive and Spark can read differently.
    """
    if node is None:
        return None
    node = node.unnest()
    if isinstance(node, exp.Literal):
        if node.is_string:
            return None if node.name in uncertain else Literal(node.name)
        return Literal(node.name, "number")
    work_out = _RULES.get(type(node))
    return work_out(node, uncertain) if work_out else None


def _cast(node: exp.Expr, uncertain: Container[str]) -> Literal | None:
    inner, kind = constant(node.this, uncertain), node.args["to"].this
    if inner is None or node.args.get("format"):
        return None
    if kind is exp.DataType.Type.DATE:
        return _as_date(inner)
    if kind is exp.DataType.Type.TEXT and not node.args["to"].expressions:
        return _as_text(inner)
    if kind in _BITS and (number := _integer(inner)) is not None and abs(number) < 2 ** _BITS[kind]:
        return Literal(str(number), "number")
    return None


def _to_date(node: exp.Expr, uncertain: Container[str]) -> Literal | None:
    inner = constant(node.this, uncertain)
    return None if inner is None or node.args.get("format") else _as_date(inner)


def _add_days(node: exp.Expr, uncertain: Container[str]) -> Literal | None:
    inner, days = constant(node.this, uncertain), constant(node.expression, uncertain)
    unit = node.args.get("unit")
    if inner is None or days is None or days.kind != "number" or (unit is not None and unit.name.upper() != "DAY"):
        return None
    return _shifted(_as_date(inner), days=_integer(days))


def _add_months(node: exp.Expr, uncertain: Container[str]) -> Literal | None:
    inner, months = constant(node.this, uncertain), constant(node.expression, uncertain)
    if inner is None or months is None or months.kind != "number":
        return None
    return _shifted(_as_date(inner), months=_integer(months))


def _plus_interval(node: exp.Expr, uncertain: Container[str]) -> Literal | None:
    """A date plus or minus an interval. Hive makes a timestamp of it, which as a string differs from the date."""
    start, interval = constant(node.this, uncertain), node.expression
    if start is None or start.kind != "date" or not isinstance(interval, exp.Interval):
        return None
    amount, unit = interval.this and constant(interval.this, uncertain), interval.args.get("unit")
    number = _integer(amount) if amount else None
    if number is None or not isinstance(unit, exp.Var):
        return None
    number, name = -number if isinstance(node, exp.Sub) else number, unit.name.upper()
    if name in _UNITS:
        found = _shifted(start, days=number * _UNITS[name])
    else:
        found = _shifted(start, months=number * _MONTHS[name]) if name in _MONTHS else None
    return Literal(found.text, "midnight") if found else None


def _connected(node: exp.Expr, uncertain: Container[str]) -> Literal | None:
    parts = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
    texts = [found and _as_text(found) for found in (constant(part, uncertain) for part in parts)]
    known = [text.text for text in texts if text]
    return Literal("".join(known)) if len(known) == len(texts) else None


def _negative(node: exp.Expr, uncertain: Container[str]) -> Literal | None:
    inner = constant(node.this, uncertain)
    return Literal(f"-{inner.text}", "number") if inner and inner.kind == "number" and inner.text[0] != "-" else None


def _product(node: exp.Expr, uncertain: Container[str]) -> Literal | None:
    """A product with -1, because sqlglot writes the days of date_sub as ``3 * -1``."""
    one, other = (_integer(found) for found in (constant(node.this, uncertain), constant(node.expression, uncertain)))
    return None if one is None or other != -1 else Literal(str(-one), "number")


_RULES: dict[type[exp.Expr], Callable[[exp.Expr, Container[str]], Literal | None]] = {
    exp.Add: _plus_interval,
    exp.AddMonths: _add_months,
    exp.Cast: _cast,
    exp.Concat: _connected,
    exp.DPipe: _connected,
    exp.Mul: _product,
    exp.Neg: _negative,
    exp.Sub: _plus_interval,
    exp.TryCast: _cast,
    exp.TsOrDsAdd: _add_days,
    exp.TsOrDsToDate: _to_date,
}


def _as_date(inner: Literal) -> Literal | None:
    return Literal(inner.text, "date") if inner.kind in ("string", "date") and is_date(inner.text) else None


def _as_text(inner: Literal) -> Literal | None:
    if inner.kind in ("string", "date"):
        return Literal(inner.text)
    number = _integer(inner)
    return None if number is None else Literal(str(number))


def _integer(inner: Literal | None) -> int | None:
    digits = inner.text.removeprefix("-") if inner and inner.kind in ("number", "string") else ""
    return int(inner.text) if inner and digits.isascii() and digits.isdigit() and len(digits) <= 18 else None


def _shifted(start: Literal | None, days: int | None = 0, months: int | None = 0) -> Literal | None:
    if start is None or days is None or months is None:
        return None
    found = date.fromisoformat(start.text)
    try:
        if months:
            if found.day > _SAME_IN_EACH_MONTH:
                return None
            year, month = divmod(found.year * 12 + found.month - 1 + months, 12)
            found = found.replace(year=year, month=month + 1)
        return Literal((found + timedelta(days)).isoformat(), "date")
    except (OverflowError, ValueError):
        return None
