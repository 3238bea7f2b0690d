"""Lists of tuples: the value of the condition is that of comparing each tuple to the partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import example, given
from hypothesis import strategies as st

from airflow_hivelock.locks.model.object import DEFAULT_PARTITION
from airflow_hivelock.locks.plan.condition import UNKNOWN, And, Compare, Condition, Literal, Or, Partition
from airflow_hivelock.locks.plan.tuples import one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXTS = ["7", "07", "007", "-7", "8", "2024-01-01", "2024-01-02", "a", "A", "b", "", DEFAULT_PARTITION, "1" * 19]
KINDS = ["string", "number", "date", "boolean", "timestamp", "midnight", "computed"]
TYPES = ["", "string", "int", "bigint", "date", "varchar(9)", "char(3)", "boolean", "timestamp", "decimal(9,2)"]

literals = st.builds(Literal, st.sampled_from(TEXTS), st.sampled_from(KINDS[:2]) | st.sampled_from(KINDS))
parts = st.builds(lambda literal: Compare("dt", "=", literal, widened=True), literals)
others = st.builds(lambda literal: Compare("hr", "=", literal, widened=True), literals)
tuples = st.lists(st.tuples(parts | others | st.just(UNKNOWN), others, parts) | st.tuples(parts, others), max_size=30)
values = st.sampled_from(TEXTS)
types = st.sampled_from(TYPES)


def compared(each: Sequence[Condition], partition: Partition) -> bool | None:
    """Whether all parts of the tuple *each* hold. None if a column is not a partition column."""
    known = And(tuple(each))
    return known.holds(partition) if known.columns() <= partition.values.keys() else None


def by_pairs(listed: Sequence[Sequence[Condition]], partition: Partition) -> bool | None:
    found = [compared(each, partition) for each in listed]
    return True if True in found else None if None in found else False


SEVENS = [
    (Compare("dt", "=", Literal(text), widened=True), Compare("hr", "=", Literal("a"), widened=True))
    for text in ("7", "07", "007")
]


@example(SEVENS, {"dt": "7", "hr": "a"}, {"dt": "int", "hr": "string"})
@example(SEVENS[1:], {"dt": "7", "hr": "a"}, {"dt": "int", "hr": "string"})
@example(SEVENS[1:], {"dt": "7", "hr": "a"}, {"dt": "string", "hr": "string"})
@example(SEVENS, {"dt": DEFAULT_PARTITION, "hr": "a"}, {"dt": "int", "hr": "string"})
@example(SEVENS, {"dt": DEFAULT_PARTITION, "hr": "b"}, {"dt": "int", "hr": "string"})
@example(SEVENS, {"dt": "7"}, {"dt": "int"})
@given(
    tuples,
    st.fixed_dictionaries({"dt": values}, optional={"hr": values}),
    st.fixed_dictionaries({"dt": types}, optional={"hr": types}),
)
def test_a_list_of_tuples_is_like_the_comparison_of_each(
    listed: list[tuple[Condition, ...]], stored: dict[str, str], kinds: dict[str, str]
) -> None:
    partition = Partition(stored, kinds)
    condition = one_of(listed)
    assert condition.holds(partition) is by_pairs(listed, partition)
    assert condition.columns() == Or(tuple(And(each) for each in listed)).columns()

    def source(column: str) -> str | None:
        return {"dt": "hr"}.get(column)

    renamed = [tuple(part.renamed(source) for part in each) for each in listed]
    assert condition.renamed(source).holds(partition) is by_pairs(renamed, partition)
