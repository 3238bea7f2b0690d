"""The demo's picture and page, from the times of a real run."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from airflow_hivelock.locks import Tenure, rules
from airflow_hivelock.spec import Owner
from tests.system.demo import picture

BEGUN = datetime(2026, 11, 22, 2, 51, 56, tzinfo=UTC)
NASTY = "<script>alert(1)</script>"

RUN = [  # DAG, run, task, object, asked, granted and ended in seconds after the first
    ("flights_daily", "backfill__2013-01-16T00:00:00+00:00", "lock", "dw.delays/dt=2013-01-16", 0.4, 198.3, 215.2),
    ("flights_daily", "backfill__2013-01-12T00:00:00+00:00", "lock", "dw.delays/dt=2013-01-12", 0.6, 0.9, 146.0),
    ("alter_table", "manual__2026-11-22T02:54:21+00:00", "add_column", "dw.delays", 147.9, 215.5, 230.9),
    ("crash", "manual__2026-11-22T02:56:08+00:00", "lock", "dw.delays/dt=2013-01-31", 254.0, 254.0, 264.2),
    ("flights_daily", "manual__2026-11-22T02:56:12+00:00", "lock", "dw.delays/dt=2013-01-31", 263.0, 264.2, 285.7),
]


def at(seconds: float) -> datetime:
    return BEGUN + timedelta(seconds=seconds)


def tenures() -> list[Tenure]:
    """What a run recorded: five leases, and the lock of Hive's own session."""
    found = [
        Tenure(
            f"lease {number}",
            str(Owner("demo", dag, run, task)),
            rules.request("recorded", writes=[written]).locks,
            *map(at, (asked, granted, ended)),
        )
        for number, (dag, run, task, written, asked, granted, ended) in enumerate(RUN)
    ]
    hives = rules.request("recorded", writes=["dw.flights/dt=2013-01-16"]).locks
    return [*found, Tenure("", "a Hive session", hives, at(0), at(0), at(198))]


def test_each_row_says_who_waited_for_what_and_how_it_held() -> None:
    drawn = picture.rows(tenures(), forced=["lease 3"])
    assert [(row.task, row.written, row.waited, row.held, row.kind) for row in drawn] == [
        ("a Hive session", "dw.flights/dt=2013-01-16", "0.0 s", "198.0 s", "hive"),
        ("flights_daily.lock 2013-01-16", "dw.delays/dt=2013-01-16", "197.9 s", "16.9 s", "holds"),
        ("flights_daily.lock 2013-01-12", "dw.delays/dt=2013-01-12", "0.3 s", "145.1 s", "holds"),
        ("alter_table.add_column 2026-11-22", "dw.delays", "67.6 s", "15.4 s", "holds"),
        ("crash.lock 2026-11-22", "dw.delays/dt=2013-01-31", "0.0 s", "10.2 s", "left"),
        ("flights_daily.lock 2026-11-22", "dw.delays/dt=2013-01-31", "1.2 s", "21.5 s", "holds"),
    ]


def test_the_page_needs_no_other_file_and_shows_names_as_text() -> None:
    odd = Tenure("lease 9", NASTY, rules.request("x", writes=["dw.t"]).locks, at(1), at(2), None)
    drawn = picture.rows([*tenures(), odd], forced=["lease 3"])
    said = f"an unrelated DAG & {NASTY}"
    page = picture.page(picture.figure(drawn, said), drawn, {"all of it holds": True, "one <b> does not": False})
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"\s(src|href)=\"(?!#)", page), "everything is within the page"
    assert not re.search(r"url\((?!#)|@import", page), "no style from elsewhere either"
    assert "<svg" in page
    assert "<?xml" not in page
    for row in drawn:
        if row.task == NASTY:
            continue
        assert f"<td>{row.task}</td>" in page
        assert f">{row.task}</text>" in page, "text stays text in the drawing"
        assert f'<td class="figure">{row.waited}</td><td class="figure">{row.held}</td>' in page
    assert '<li class="missed">✗ one &lt;b&gt; does not</li>' in page


def test_the_picture_is_one() -> None:
    drawn = picture.rows(tenures())
    data = picture.png(picture.figure(drawn, "recorded"))
    assert data.startswith(b"\x89PNG\r\n")
    assert len(data) < 300_000
