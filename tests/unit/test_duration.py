"""Times as Hive's configuration writes them."""

from __future__ import annotations

import pytest

from airflow_hivelock.locks.hive.properties import seconds


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("300", 300.0),
        ("300s", 300.0),
        (" 5 MIN ", 300.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        ("2d", 172_800.0),
        ("60 seconds", 60.0),
        ("5minutes", 300.0),
        ("2 Hours", 7200.0),
        ("500msecs", 0.5),
        ("", None),
        ("s", None),
        ("-1s", None),
        ("5 fortnights", None),
        ("9" * 13, None),
    ],
)
def test_a_time_is_read_in_each_of_hives_units(text: str, found: float | None) -> None:
    assert seconds(text) == found
