"""The tables with files at a path, as a Spark driver finds them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hivelock.spark.places import Places

LOCATIONS = {"u": "/in/b1", "again": "/in/b1", "other": "/out", "far": "s3://bucket/t"}


@pytest.fixture
def places() -> Places:
    jvm: Any = SimpleNamespace(
        path=lambda path: SimpleNamespace(toString=lambda: path if "://" in path else f"file:{path}")
    )
    tables: Any = SimpleNamespace(names=lambda: ["dw"], locations=lambda _: LOCATIONS.items())
    return Places(jvm, tables)


@pytest.mark.parametrize("path", ["/in", "/in/b1", "/in/b1/part-0.csv"])
def test_each_table_with_that_location_is_found(path: str, places: Places) -> None:
    assert [*map(str, places.of(path))] == ["dw.u", "dw.again"]


@pytest.mark.parametrize(
    "pattern", ["/in", "/in/*", "/in/[^a]1", "/in/[!a]?", r"/in/\b1/*.csv", "/{in,on}/b{1,2}", "/in/[a-c]1/dt=*"]
)
def test_a_pattern_of_hadoop_finds_the_tables_that_a_stream_would_read(pattern: str, places: Places) -> None:
    assert [*map(str, places.matching(pattern))] == ["dw.u", "dw.again"]


@pytest.mark.parametrize("pattern", ["/in/a*", "/in/[^b]1", "/in/c*", "/on"])
def test_a_pattern_for_other_folders_finds_no_table(pattern: str, places: Places) -> None:
    assert [*places.matching(pattern)] == []


@pytest.mark.parametrize("path", ["s3a://bucket/t/dt=1", "s3n://bucket/t/", "s3://bucket"])
def test_a_client_of_s3_has_another_scheme_for_the_same_files(path: str, places: Places) -> None:
    assert [each.table for each in places.of(path)] == ["far"]
