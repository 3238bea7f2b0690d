"""Long statements, which may be hostile, take time in proportion to their length."""

from __future__ import annotations

import time

import pytest

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.statements.parse import parse

LENGTH = 50_000
MOST_S = 8.0
"""In seconds of the processor. In the square of the length, each of these texts takes several times as long."""


@pytest.mark.parametrize(
    "text",
    [
        "LOCK TABLE dw.t PARTITION (" + "a" * LENGTH,
        "LOCK TABLE dw.t PARTITION (" + "a=" * (LENGTH // 2),
        "LOCK TABLE dw.t PARTITION (a=" + "`" * LENGTH,
        "SHOW LOCKS " + "a.a." * (LENGTH // 4),
        "a" * LENGTH,
        "lok " * (LENGTH // 4),
        "ALTER FORCE REQUEST " + "a/" * (LENGTH // 2),
        "DROP FORCE LOCK " + "a-" * (LENGTH // 2) + " ON",
    ],
    ids=lambda text: text[:40],
)
def test_a_long_malformed_statement_is_refused_soon(text: str) -> None:
    began = time.process_time()
    with pytest.raises(InvalidRequest) as refused:
        parse(text)
    assert time.process_time() - began < MOST_S
    assert len(str(refused.value)) < 3_000


def test_an_owner_of_many_parts_is_passed_soon() -> None:
    owner = "a/" * (LENGTH // 2)
    began = time.process_time()
    (statement,) = parse(f"DROP FORCE REQUEST {owner}")
    assert time.process_time() - began < MOST_S
    assert getattr(statement, "owner", None) == owner


@pytest.mark.parametrize("long", ["", " -- why: " + "a" * 10_000])
def test_the_first_words_of_a_long_statement_get_a_hint(long: str) -> None:
    with pytest.raises(InvalidRequest, match=r"Did you mean LOCK TABLE\?"):
        parse(f"lok table dw.t shared{long}")
