"""Each rule of the queue has one home: no module of the lock manager decides by itself what ``locks/queueing.py`` decides."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCKS = Path(__file__).parents[2] / "airflow_hivelock" / "locks"
HOME = "queueing.py"
ELSEWHERE = {"permits": "permits.py", "take-over": "calls.py"}

SKIPPED = ("plan/", "statements/")
"""Rooms that grant nothing: SQL and Hive's statements; they have priorities and positions of other kinds."""

ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

RULES = {
    "conflict": "two modes are compared",
    "order": "positions are compared",
    "overtaking": "priorities are compared, or a time with the bound",
    "permits": "a number of leases is compared with a limit",
    "deferred grant": "it depends on whether the grant is deferred",
    "take-over": "attempts, or beginnings of calls, are compared",
}

COMPARED = {
    "order": ("position", "turn", "rank", "arrival", "group_turn"),
    "overtaking": ("priority", "rank", "passing", "passing_s", "passing_us"),
    "permits": ("limit.most", "most_leases"),
    "take-over": ("attempt", "began", "call"),
}
"""Names whose order decides, by rule."""

SQL_ORDER = re.compile(r"SELECT.*\b(lease_type|turn|priority)\b *(=|<|>|IN\b)", re.DOTALL)
"""A rule in the text of SQL."""

MODES = ("mode", "lease_type", "kind")


def name(node: ast.expr) -> str:
    """The last name of an expression; "" for a constant, and for a bound in capitals, which only validates."""
    while isinstance(node, ast.Subscript | ast.UnaryOp):
        node = node.value if isinstance(node, ast.Subscript) else node.operand
    found = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    if found == "most":  # a word for many bounds
        return ast.unparse(node) if isinstance(node, ast.Attribute) else ""
    return "" if found.isupper() else found


def compared(node: ast.Compare) -> Iterator[str]:
    """The rules that a comparison decides."""
    sides = [node.left, *node.comparators]
    names = [name(side) for side in sides]
    constant = any(
        isinstance(side, ast.Constant) or (not found and _in_capitals(side))
        for side, found in zip(sides, names, strict=True)
    )
    if any(isinstance(op, ORDER) for op in node.ops) and not constant:
        yield from (rule for rule, those in COMPARED.items() if set(those) & set(names))
    together = [name(each) for side in sides if isinstance(side, ast.Tuple) for each in side.elts]
    if (
        "lease_type" in names
        or sum(each in MODES for each in names) > 1
        or (len(together) > 1 and _modes(together, node))
    ):
        yield "conflict"


def _in_capitals(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute | ast.Name)
        and (node.attr if isinstance(node, ast.Attribute) else node.id).isupper()
    )


def _modes(together: list[str], node: ast.Compare) -> bool:
    """Whether a mode is looked for among two, as in ``EXCLUSIVE in (one, other)``."""
    return (
        isinstance(node.left, ast.Attribute)
        and ast.unparse(node.left) in ("LockMode.EXCLUSIVE", "LockMode.SHARED")
        and bool(together)
    )


def decided(source: str) -> Iterator[str]:
    """The rules that a module's code decides."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            yield from compared(node)
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            asked = [each for each in ast.walk(node.test) if isinstance(each, ast.Call) and _asks_home(each)]
            given = [argument for call in asked for argument in call.args]
            if any(
                name(each) == "deferred" and each not in given
                for each in ast.walk(node.test)
                if isinstance(each, ast.expr)
            ):
                yield "deferred grant"
        elif isinstance(node, ast.Constant) and SQL_ORDER.search(str(node.value)):
            yield "order"


def _asks_home(call: ast.Call) -> bool:
    """Whether it is a call of a function of the home: that decides, and not its caller."""
    return ast.unparse(call.func).startswith(f"{Path(HOME).stem}.")


def homes(rule: str) -> set[str]:
    modules = {str(path.relative_to(LOCKS)): path for path in LOCKS.rglob("*.py")}
    return {
        module
        for module, path in modules.items()
        if not module.startswith(SKIPPED) and rule in set(decided(path.read_text()))
    }


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_has_one_home(rule: str) -> None:
    assert homes(rule) == {ELSEWHERE.get(rule, HOME)}, RULES[rule]


@pytest.mark.parametrize(
    ("rule", "copy"),
    [
        ("conflict", "LockMode.EXCLUSIVE in (mine.mode, theirs.mode)"),
        ("conflict", "mine.mode is theirs.mode"),
        ("conflict", 'lock.c.lease_type == "x"'),
        ("order", "other.position < mine.position"),
        ("order", "(their.turn <= turn)"),
        ("order", "'SELECT 1 FROM request AS other WHERE other.turn < :turn'"),
        ("overtaking", "other.priority >= mine.priority"),
        ("overtaking", "now_us - one.turn_us >= limit.passing"),
        ("permits", "len(holding) >= limit.most"),
        ("permits", "full = len(living) >= found.most_leases"),
        ("deferred grant", "if request.deferred: defer_grant()"),
        ("deferred grant", "record = found.away() if attempt.deferred else found.granted()"),
        ("take-over", "first.metadata.attempt > request.attempt"),
        ("take-over", "if began <= existing.began: stop()"),
    ],
)
def test_a_copy_of_a_rule_is_noticed(rule: str, copy: str) -> None:
    assert rule in set(decided(copy))


@pytest.mark.parametrize(
    "harmless", ["not 1 <= self.most <= MAX_LEASES", "attempt < 0", "lock.mode is LockMode.EXCLUSIVE"]
)
def test_what_only_validates_or_shows_is_no_home(harmless: str) -> None:
    assert list(decided(harmless)) == []
