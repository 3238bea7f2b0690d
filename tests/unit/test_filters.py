"""Filters that an engine has pushed down: they leave out only partitions that they certainly exclude."""

from __future__ import annotations

import pytest

from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.plan.condition import Partition
from airflow_hivelock.locks.plan.filters import filtered

T = LockObject("dw", "t")
DAY = Partition({"dt": "2024-01-02", "hr": "7"}, {"dt": "string", "hr": "int"})


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("(spark_catalog.dw.t.dt = '2024-01-02')", True),
        ("(v.dt >= '2024-01-03')", False),
        ("(dt IN ('2024-01-01', '2024-01-03'))", False),
        ("((dt = '2024-01-03') OR (hr = 7))", True),
        ("(NOT (hr = 7))", False),
        ("isnotnull(dt)", None),
        ("(CAST(dt AS DATE) >= DATE '2024-01-03')", None),
        ("(lower(dt) = 'x')", None),
        ("(dt = '2024-01-03') UNION SELECT 1", None),
        ("(dt = '2024-01-03'); SELECT 1", None),
        ("this is no SQL (", None),
    ],
)
def test_a_filter_excludes_a_partition_only_for_certain(text: str, holds: bool | None) -> None:
    found = filtered(T, [text]).condition.holds(DAY)
    assert found is holds or (holds is None and found is True)


def test_all_filters_have_to_be_true() -> None:
    assert filtered(T, ["(dt = '2024-01-02')", "(hr = 8)"]).condition.holds(DAY) is False
    assert filtered(T, []).condition.holds(DAY) is True


@pytest.mark.parametrize(
    ("text", "kind", "holds"),
    [
        ("(d = 20240102L)", "bigint", True),
        ("(d IN (20240101L, 20240103L))", "bigint", False),
        ("(d > 20240102L)", "bigint", False),
        ("(d = 9999S)", "smallint", False),
        ("(d = 300Y)", "tinyint", None),
        ("(d = 99999S)", "smallint", None),
        ("(d = CAST(99999999999 AS INT))", "int", None),
    ],
)
def test_numbers_with_a_type_exclude_partitions(text: str, kind: str, holds: bool | None) -> None:
    """Spark writes each number for a BIGINT column with L."""
    partition = Partition({"d": "20240102"}, {"d": kind})
    assert filtered(T, [text]).condition.holds(partition) is (True if holds is None else holds)
