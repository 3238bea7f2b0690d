"""The differences between the text planner and Spark's analysed plan over Spark's suite, each with its reason.

The plan never locks less than Spark touches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Judged:
    """A kind of difference, with an example on the tables of ``tests/backends/test_hive_locks_in_spark.py``.

    :param differs: in which direction the two differ.
    :param statements: what such statements look like.
    :param text: what the text planner locks in the example; ``!`` for EXCLUSIVE; ``refused``.
    :param plan: what Spark's plan locks.
    """

    differs: str
    statements: re.Pattern[str]
    example: str
    text: str
    plan: str
    why: str


TEXT_READS, PLAN_READS = "only the text reads more", "only the plan reads more"
BOTH_READ = f"{TEXT_READS} and {PLAN_READS}"
PLAN_WRITES, REFUSED = "only the plan writes more", "the text planner refuses"


def _of(differs: str, pattern: str, example: str, text: str, plan: str, why: str) -> Judged:
    return Judged(differs, re.compile(pattern, re.IGNORECASE | re.DOTALL), example, text, plan, why)


JUDGED = (
    _of(
        TEXT_READS,
        r"explain\b",
        "explain select * from dw.t",
        "dw.t",
        "",
        "The text locks what is explained SHARED, as Hive 2 does. Spark's EXPLAIN touches no data",
    ),
    _of(
        TEXT_READS,
        r"create\b.*\btemp(orary)?\s+view\b",
        "create or replace temporary view tv as select * from dw.t",
        "dw.t",
        "",
        "The text keeps the tables from being dropped while the view is created. Spark reads them only when the view is read",
    ),
    _of(
        TEXT_READS,
        r"create\s+(or\s+replace\s+)?(temp(orary)?\s+)?function\b",
        "create function dw.most() returns int return (select max(k) from dw.t)",
        "dw.t",
        "",
        "The text keeps the tables from being dropped while the function is created. Spark stores the body as text, and reads "
        "its tables when a statement calls the function",
    ),
    _of(
        TEXT_READS,
        r"(desc|describe|show|refresh|drop)\b",
        "show table extended like 't*'",
        "default",
        "",
        "Spark's command names no database or only a temporary view. The text locks the name that it would have in the "
        "current database",
    ),
    _of(
        PLAN_WRITES,
        r"alter\s+table\b.*\bset\s+serde",
        "alter table dw.t set serdeproperties ('a' = 'b')",
        "dw.t",
        "dw.t!",
        "The documented lock of the text is SHARED. Spark changes the table's description, so the plan locks EXCLUSIVE",
    ),
    _of(
        BOTH_READ,
        r".*\bcurrent_(date|timestamp)\b|.*\bnow\(",
        "select * from dw.src where dt = concat('x', year(current_date()) * 0)",
        "dw.src/dt=2024-01-01 dw.src/dt=2024-01-02",
        "dw.src/dt=x0",
        "Spark has evaluated the date when it plans. The text does not know it",
    ),
    _of(
        PLAN_READS,
        r"(select|with|from)\b.*\b(where|on)\b",
        "select * from dw.src where dt like '2024-01-01%'",
        "dw.src/dt=2024-01-01",
        "dw.src/dt=2024-01-01 dw.src/dt=2024-01-02",
        "The text evaluates this condition on the partitions. Spark's plan has it in a form that is not evaluated here, so "
        "all partitions are locked",
    ),
    _of(
        TEXT_READS,
        r"(select|with|from)\b",
        "select * from dw.src as s(a, b) where b = '2024-01-01'",
        "dw.src/dt=2024-01-01 dw.src/dt=2024-01-02",
        "dw.src/dt=2024-01-01",
        "Spark knows which column a name means, or what an expression gives. The text does not know it and reads all "
        "partitions",
    ),
    _of(
        REFUSED,
        "",
        "/*/**/*/ select k from dw.t",
        "refused",
        "dw.t",
        "The text planner refuses what it cannot read. Spark's own parser can",
    ),
)


def judgement(statement: str, differs: str) -> str:
    """Why the two planners differ on *statement* in that direction; empty: that is not judged."""
    plain = re.sub(r"--[^\n]*", "", statement).strip()
    return next((each.why for each in JUDGED if differs.startswith(each.differs) and each.statements.match(plain)), "")
