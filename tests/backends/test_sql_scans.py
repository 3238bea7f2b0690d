"""Real Spark plans statements: each partition that its scans would read is one that our plan locks."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hivelock.locks.plan import plan_statements
from tests.support.sql import scans

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

FILE = Path(scans.__file__).with_name("scans.txt")
LINES = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
TEXTS = {line[2:]: line[0] for line in LINES}
"""Statements, and whether the plan locks just what Spark reads (``=``) or more (``>``)."""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str] | str]:
    return dict(zip(TEXTS, scans.read_by_spark(list(TEXTS), tmp_path_factory.mktemp("spark")), strict=True))


def locked(text: str) -> set[str]:
    """All partitions that the plan locks, by themselves or by a table or prefix above them that is EXCLUSIVE."""
    tables = scans.Tables()
    shared, exclusive = plan_statements(text, tables, database="dw")
    below = (each for target in exclusive for each in tables.partitions(target))
    return {str(each) for each in (*shared, *exclusive, *below) if each.partition}


def test_each_text_is_told_once() -> None:
    assert len(TEXTS) == len(LINES) >= 100
    assert set(TEXTS.values()) <= {"=", ">"}


@pytest.mark.parametrize("text", TEXTS)
def test_each_partition_that_spark_reads_is_locked(text: str, read: dict[str, list[str] | str]) -> None:
    found = read[text]
    assert not isinstance(found, str), f"Spark refuses it: {found}"
    ours = locked(text)
    assert set(found) <= ours
    assert (ours == set(found)) is (TEXTS[text] == "="), f"Spark reads {len(found)}, and the plan locks {len(ours)}"
